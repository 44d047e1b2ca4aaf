use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_service::Service;

use super::{gate::Admission, keyed::Keyed, service::Shared};
use crate::{
    call::{CallInfo, ReplaySafety, ToolCall},
    error::{ErrorKind, Evidence, Execution, ToolError},
    event::Event,
    kit::{caller::Caller, lane::Kept, preparing::GivenUp, registry::Entry},
    outcome::Outcome,
};

/// One call on its way through the gate of its key.
pub(super) struct Session<S> {
    pub(super) info: CallInfo,
    entry: Arc<Entry<Keyed>>,
    /// What it takes to send the call; gone with its last attempt.
    next: Option<Next<S>>,
    /// Whether we send it again ourselves.
    repeats: bool,
    /// Attempts that were made, by those below too.
    made: u32,
    /// In which round of the gate it has its turn.
    round: u32,
    /// Apart, as few calls meet a limit.
    delayed: Option<Box<Delayed>>,
}

/// What there is to know of a call that has met a limit, or waits for its turn.
#[derive(Default)]
struct Delayed {
    /// Whether an earlier attempt may have run.
    ambiguous: bool,
    /// What the attempt before failed with.
    failed: Option<ToolError>,
    /// By when it has to have its turn; set when it first has to wait.
    latest: Option<Duration>,
    /// A turn that is given back if it is not used.
    turn: Option<Duration>,
    /// Before when this call alone is not sent again.
    resume: Option<Duration>,
    /// Whether it waits for that, and has no turn yet.
    resumes: bool,
}

/// What it takes to send a call.
pub(super) struct Next<S> {
    pub(super) call: ToolCall,
    pub(super) shared: Arc<Kept<Shared<S>>>,
}

/// When a call has its turn.
pub(super) enum Turn {
    Now,
    At(Instant),
    Never(ToolError),
}

impl<S> Session<S> {
    /// `made` attempts so far. `sent`: the round in which it was sent, if it was.
    #[inline]
    pub(super) fn new(
        next: Option<Next<S>>,
        info: CallInfo,
        entry: Arc<Entry<Keyed>>,
        repeats: bool,
        made: u32,
        sent: Option<u32>,
    ) -> Self {
        Self {
            info,
            entry,
            next,
            repeats,
            made,
            round: sent.unwrap_or_default(),
            delayed: None,
        }
    }

    #[cold]
    fn delayed(&mut self) -> &mut Delayed {
        self.delayed.get_or_insert_default()
    }

    fn keyed(&self) -> &Keyed {
        self.entry.value()
    }

    /// What it takes to send the call that waits.
    fn next(&self) -> &Next<S> {
        let next = self.next.as_ref();
        next.expect("waits, so it was not sent for the last time")
    }

    /// The call, while it waits to be sent.
    pub(super) fn call(&self) -> &ToolCall {
        &self.next().call
    }

    /// What it will be sent by.
    pub(super) fn fresh(&self) -> S
    where
        S: Clone,
    {
        self.next().shared.template.fresh()
    }

    /// Asks for a turn. While nothing cools that is one load.
    #[inline]
    pub(super) fn turn(&mut self) -> Turn {
        match self.keyed().open_round() {
            Some(round) if self.delayed.is_none() => {
                self.round = round;
                Turn::Now
            }
            _ => self.closed_turn(),
        }
    }

    #[cold]
    fn closed_turn(&mut self) -> Turn {
        if let Some(why) = GivenUp::by(self.call()) {
            return Turn::Never(self.given_up(why));
        }
        let now = self.keyed().settings().now();
        let latest = self.latest(now);
        // What this call alone waits for comes first; then it asks for its turn.
        let resume = self.delayed.as_mut().and_then(|d| d.resume.take());
        if let Some(at) = resume.filter(|at| *at > now) {
            self.delayed().resumes = true;
            return match at <= latest {
                true => self.wait(now, at, latest),
                false => self.too_late(at - now),
            };
        }
        let (admission, round) = self.keyed().admit(now, latest);
        self.round = round;
        match admission {
            Admission::Go => Turn::Now,
            Admission::TooLate(at) => self.too_late(at - now),
            Admission::At(at) => {
                self.delayed().turn = Some(at);
                self.wait(now, at, latest)
            }
        }
    }

    /// By when the call has to have its turn: counted from its first wait.
    fn latest(&self, now: Duration) -> Duration {
        if let Some(known) = self.delayed.as_ref().and_then(|delayed| delayed.latest) {
            return known;
        }
        let settings = self.keyed().settings();
        let longest = now.saturating_add(settings.longest_wait());
        match self.call().deadline() {
            _ if !settings.waits => now,
            // Nothing is sent at the deadline itself.
            Some(at) => at
                .saturating_duration_since(settings.origin)
                .saturating_sub(Duration::from_nanos(1))
                .min(longest),
            None => longest,
        }
    }

    fn wait(&mut self, now: Duration, at: Duration, latest: Duration) -> Turn {
        // A cooldown ends within a day, so the clock reaches it.
        let Some(instant) = self.keyed().settings().origin.checked_add(at) else {
            return self.too_late(at - now);
        };
        self.delayed().latest = Some(latest);
        self.info.record(|r| r.add_wait(at - now));
        Turn::At(instant)
    }

    fn too_late(&mut self, remaining: Duration) -> Turn {
        Turn::Never(self.not_sent(refusal(&self.info, remaining)))
    }

    /// The turn of a call that has waited: now, unless a limit was met meanwhile.
    pub(super) fn turn_after_wait(&mut self) -> Turn {
        // It may not have waited: then nothing is kept of it.
        let mut has_turn = true;
        if let Some(delayed) = &mut self.delayed {
            (delayed.turn, has_turn) = (None, !std::mem::take(&mut delayed.resumes));
        }
        if has_turn && self.keyed().holds(self.round) {
            Turn::Now
        } else {
            self.turn()
        }
    }

    /// Sends the call; a copy of it, if it may have to be sent again.
    pub(super) fn send(&mut self, svc: &mut S) -> S::Future
    where
        S: Service<ToolCall>,
    {
        let mut next = self.next.take().expect("sent again only while it is kept");
        // Those below may have made some of the attempts.
        let attempt = self.made + 1;
        if attempt > next.call.attempt() {
            next.call.begin_attempt(attempt);
        }
        self.made += 1;
        if !self.repeats || self.made >= self.keyed().settings().attempts {
            // The template goes after the call was made: the caller may have dropped all other instances.
            return svc.call(next.call);
        }
        let call = next.call.clone();
        self.next = Some(next);
        svc.call(call)
    }

    /// Whether there is something to learn from a result.
    #[inline]
    pub(super) fn is_news(outcome: &Outcome) -> bool {
        outcome.is_rate_limited() || outcome.cooldown().is_some()
    }

    /// Learns from a result. True if it was a limit, and the call is to be sent again.
    #[cold]
    pub(super) fn learn(&mut self, outcome: &Outcome, error: &mut Option<ToolError>) -> bool {
        if outcome.is_rate_limited() {
            return self.limited(outcome, error);
        }
        if let Some(cooldown) = outcome.cooldown().filter(|cooldown| !cooldown.is_zero()) {
            let settings = self.keyed().settings();
            let cooldown = settings.cooldown(Some(cooldown)).min(settings.max_cooldown);
            self.keyed().cool(settings.now(), cooldown);
            self.tell(cooldown, true);
        }
        false
    }

    fn limited(&mut self, outcome: &Outcome, error: &mut Option<ToolError>) -> bool {
        if let Some(error) = error.as_ref() {
            if error.is_after_ambiguous() {
                self.delayed().ambiguous = true;
            }
            // Not the attempts at a call that the tool made itself.
            if error.tool() == Some(self.info.tool()) {
                self.made = self.made.max(error.attempts().unwrap_or_default());
            }
        }
        // A gate below has refused it: the server has not been asked.
        if error.as_ref().is_some_and(ToolError::is_own_refusal) {
            return false;
        }
        let settings = self.keyed().settings();
        let (now, cooldown) = (settings.now(), settings.cooldown(outcome.retry_after()));
        let shared = match error.as_ref() {
            // A tool may have met it in the middle of its work, or repeat what somebody wrote: it says nothing to others.
            Some(error) if error.evidence() == Evidence::Inferred => settings.of_text(cooldown),
            _ => Some(cooldown.min(settings.max_cooldown)),
        };
        if let Some(shared) = shared {
            self.keyed().limit(now, self.round, shared);
        }
        self.tell(cooldown, outcome.retry_after().is_some());
        if let Some(known) = error.take() {
            *error = Some(match known.retry_after() {
                None => known.with_retry_after(cooldown),
                Some(_) => known,
            });
        }
        let Some(Next { call, .. }) = &self.next else {
            return false;
        };
        // What may have run in spite of the limit is not ours to repeat.
        let safety = call.replay_safety();
        let not_started = error
            .as_ref()
            .is_none_or(|e| e.is_surely_not_started(safety));
        let may_run = not_started || safety == ReplaySafety::Safe;
        let exhausted = self.made >= settings.attempts;
        let too_long = outcome
            .retry_after()
            .is_some_and(|told| told > settings.max_wait);
        // Where no limit is kept, nobody would wait for it.
        if !may_run
            || exhausted
            || too_long
            || self.keyed().is_overflow()
            || Caller::has_cancelled(call)
        {
            return false;
        }
        let delayed = self.delayed();
        delayed.ambiguous |= !not_started;
        delayed.failed = error.clone();
        // Whoever was asked to wait longer than others comes back later than they.
        delayed.resume = (shared != Some(cooldown)).then(|| now.saturating_add(cooldown));
        true
    }

    fn tell(&self, cooldown: Duration, hinted: bool) {
        self.keyed().settings().listener.tell(&Event::RateLimited {
            call: &self.info,
            attempt: self.made,
            cooldown,
            hinted,
        });
    }

    /// The call has its result: what a layer below refused to send again leaves the limit that was met before.
    pub(super) fn result<Res>(&mut self, result: Result<Res, ToolError>) -> Result<Res, ToolError> {
        match result {
            Ok(response) => Ok(response),
            Err(error) if error.is_own_refusal() => Err(self.refused(error)),
            Err(error) => Err(self.last(error)),
        }
    }

    /// The call has an answer, which may show that there is such a tool.
    #[inline]
    pub(super) fn answered(&self, outcome: &Outcome) {
        if outcome.is_success() {
            self.entry.prove(&self.info);
        }
    }

    #[cold]
    fn refused(&mut self, refusal: ToolError) -> ToolError {
        match self.take_failed() {
            Some(failed) if refusal.kind() != ErrorKind::Cancelled => {
                self.last(failed.before(&refusal))
            }
            _ => self.last(refusal),
        }
    }

    /// An error of an attempt; one that a layer below has refused was none.
    #[cold]
    pub(super) fn met(&mut self, error: ToolError) -> ToolError {
        let error = error.about(&self.info);
        if error.is_own_refusal() {
            self.made = self.made.saturating_sub(1);
        }
        error
    }

    /// An error of the call: it tells how many attempts there were, if it is ours to repeat, and that an
    /// earlier one may have run.
    pub(super) fn last(&self, error: ToolError) -> ToolError {
        let mut error = error.about(&self.info);
        if self.repeats {
            // A retry layer below may have made more.
            let below = error
                .attempts()
                .filter(|_| error.tool() == Some(self.info.tool()));
            error = error.with_attempts(self.made.max(below.unwrap_or(0)));
        }
        let ambiguous = self.delayed.as_ref().is_some_and(|d| d.ambiguous);
        if (ambiguous || error.is_after_ambiguous()) && error.execution() == Execution::NotStarted {
            error = error.with_execution(Execution::Unknown);
        }
        error
    }

    /// The next attempt is not made: the limit that it would have repeated is the result, or else `why`.
    pub(super) fn not_sent(&mut self, why: ToolError) -> ToolError {
        self.release();
        let error = self.take_failed().unwrap_or(why);
        self.last(error)
    }

    /// A wait was ended: the attempt that it was for is not made.
    pub(super) fn given_up(&mut self, why: GivenUp) -> ToolError {
        self.release();
        let error = why.error();
        match (why, self.take_failed()) {
            (GivenUp::Deadline, Some(failed)) => self.last(failed),
            (_, Some(failed)) => self.last(error.with_source(failed)),
            (_, None) => self.last(error),
        }
    }

    fn take_failed(&mut self) -> Option<ToolError> {
        self.delayed.as_mut()?.failed.take()
    }

    /// A turn that is not used is another's.
    #[inline]
    fn release(&mut self) {
        if let Some(delayed) = &mut self.delayed
            && let Some(turn) = delayed.turn.take()
        {
            self.keyed().give_back(self.round, turn);
        }
    }
}

impl<S> Drop for Session<S> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

fn refusal(call: &CallInfo, retry_after: Duration) -> ToolError {
    let text = "the rate limit of this tool is used up";
    ToolError::not_admitted(Some(call), ErrorKind::RateLimited, text, retry_after)
}
