use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    gate::Admission,
    keyed::{Gates, KeyGate},
};
use crate::{
    call::ReplaySafety,
    error::{ErrorKind, Evidence, Execution, ToolError},
    event::Event,
    kit::{
        attempts::{Next, Repeat, Request, Resend},
        caller::Caller,
        preparing::GivenUp,
        registry::Entry,
    },
    outcome::{Classify, Outcome},
};

/// One call on its way through the gate of its key.
pub(super) struct Gated<C> {
    entry: Arc<Entry<KeyGate>>,
    classifier: C,
    /// In which round of the gate it was admitted.
    admitted: Option<u32>,
    /// Apart, as few calls meet a limit.
    wait: Option<Box<Wait>>,
}

/// What there is to know of a call that has met a limit, or waits for its turn.
#[derive(Default)]
struct Wait {
    /// By when it has to have its turn; set when it first has to wait.
    latest: Option<Duration>,
    /// A turn that is given back if it is not used.
    turn: Option<Duration>,
    /// Before when this call alone is not sent again.
    resume: Option<Duration>,
}

impl<C> Gated<C> {
    /// `admitted`: the round in which the call was sent, if it was.
    #[inline]
    pub(super) fn new(entry: Arc<Entry<KeyGate>>, classifier: C, admitted: Option<u32>) -> Self {
        Self {
            entry,
            classifier,
            admitted,
            wait: None,
        }
    }

    fn gate(&self) -> &KeyGate {
        self.entry.value()
    }

    /// Asks for a turn. While nothing cools that is one load.
    pub(super) fn turn<S>(&mut self, resend: &mut Resend<S, Gates>) -> Next {
        match self.gate().open_round() {
            Some(round) if self.wait.is_none() => {
                self.admitted = Some(round);
                Next::Send
            }
            _ => self.closed_turn(resend),
        }
    }

    #[cold]
    fn closed_turn<S>(&mut self, resend: &mut Resend<S, Gates>) -> Next {
        if let Some(why) = GivenUp::by(&resend.call) {
            return Next::Refuse(resend.given_up(why));
        }
        let now = self.gate().settings().now();
        let latest = self.latest(now, resend);
        // What this call alone waits for comes first; then it asks for its turn.
        let resume = self.wait.as_mut().and_then(|wait| wait.resume.take());
        if let Some(at) = resume.filter(|at| *at > now) {
            return match at <= latest {
                true => self.wait_until(at, now, latest, resend),
                false => too_late(at - now, resend),
            };
        }
        let (admission, round) = self.gate().admit(now, latest);
        self.admitted = Some(round);
        match admission {
            Admission::Go => Next::Send,
            Admission::TooLate(at) => too_late(at - now, resend),
            Admission::At(at) => {
                self.wait.get_or_insert_default().turn = Some(at);
                self.wait_until(at, now, latest, resend)
            }
        }
    }

    /// By when the call has to have its turn: counted from its first wait.
    fn latest<S>(&self, now: Duration, resend: &Resend<S, Gates>) -> Duration {
        if let Some(known) = self.wait.as_ref().and_then(|wait| wait.latest) {
            return known;
        }
        let settings = self.gate().settings();
        if !settings.waits {
            return now;
        }
        let longest = now.saturating_add(settings.longest_wait());
        match resend.call.deadline() {
            // Nothing is sent at the deadline itself.
            Some(at) => at
                .saturating_duration_since(settings.origin)
                .saturating_sub(Duration::from_nanos(1))
                .min(longest),
            None => longest,
        }
    }

    fn wait_until<S>(
        &mut self,
        at: Duration,
        now: Duration,
        latest: Duration,
        resend: &mut Resend<S, Gates>,
    ) -> Next {
        // A cooldown ends within a day, so the clock reaches it.
        let Some(instant) = self.gate().settings().origin.checked_add(at) else {
            return too_late(at - now, resend);
        };
        self.wait.get_or_insert_default().latest = Some(latest);
        resend.call.record(|r| r.add_wait(at - now));
        Next::WaitUntil(instant)
    }

    /// A success that used up what the server grants.
    #[cold]
    fn used_up<S>(&self, cooldown: Duration, request: &Request<S, Gates>) {
        let settings = self.gate().settings();
        let cooldown = settings.cooldown(Some(cooldown)).min(settings.max_cooldown);
        self.gate().cool(settings.now(), cooldown);
        self.emit(request, cooldown, true);
    }

    /// A result that is a rate limit: when the call is sent again.
    #[cold]
    fn limited<S>(
        &mut self,
        outcome: &Outcome,
        request: &mut Request<S, Gates>,
        mut error: Option<&mut ToolError>,
    ) -> Option<Instant> {
        let (gate, hint) = (self.entry.value(), outcome.retry_after());
        let settings = gate.settings();
        let (now, cooldown) = (settings.now(), settings.cooldown(hint));
        let shared = match &error {
            // A gate below has refused it: the server has not been asked.
            Some(error) if error.is_own_refusal() => return None,
            // A tool may have met it in the middle of its work, or repeat what somebody wrote: it says nothing to others.
            Some(error) if error.evidence() == Evidence::Inferred => settings.of_text(cooldown),
            _ => Some(cooldown.min(settings.max_cooldown)),
        };
        if let (Some(round), Some(shared)) = (self.admitted.take(), shared) {
            gate.limit(now, round, shared);
        }
        self.emit(request, cooldown, hint.is_some());
        if let Some(error) = &mut error
            && error.retry_after().is_none()
        {
            **error = error.clone().with_retry_after(cooldown);
        }
        let Request::Again(resend) = request else {
            return None;
        };
        let safety = resend.call.replay_safety();
        let not_started = error.is_none_or(|e| e.is_surely_not_started(safety));
        if !self.repeats(resend, not_started, hint) {
            return None;
        }
        if !not_started {
            resend.call.set_ambiguous();
        }
        // A call that was asked to wait longer than others comes back later than they.
        self.wait.get_or_insert_default().resume =
            (shared != Some(cooldown)).then(|| now.saturating_add(cooldown));
        match self.turn(resend) {
            Next::Send => Some(Instant::now()),
            Next::WaitUntil(at) => Some(at),
            // A wait that cannot end in time is not begun: the limit itself is the result.
            Next::Refuse(_) => None,
        }
    }

    /// What may have run in spite of the limit is not ours to repeat; and where no limit is kept, no call would wait for it.
    fn repeats<S>(
        &self,
        resend: &Resend<S, Gates>,
        not_started: bool,
        hint: Option<Duration>,
    ) -> bool {
        let settings = self.gate().settings();
        resend.is_repeated()
            && (not_started || resend.call.replay_safety() == ReplaySafety::Safe)
            && resend.made < settings.attempts
            && hint.is_none_or(|hint| hint <= settings.max_wait)
            && !self.gate().is_overflow()
            && !Caller::has_cancelled(&resend.call)
    }

    /// A turn that is not used is another's.
    #[inline]
    fn give_back(&mut self) {
        if let Some(wait) = &mut self.wait
            && let (Some(turn), Some(round)) = (wait.turn.take(), self.admitted)
        {
            self.gate().give_back(round, turn);
        }
    }

    fn emit<S>(&self, request: &Request<S, Gates>, cooldown: Duration, hinted: bool) {
        self.gate().settings().listener.tell(&Event::RateLimited {
            call: &request.info(),
            attempt: request.attempt(),
            cooldown,
            hinted,
        });
    }
}

impl<S, C, Res> Repeat<S, Gates, Res> for Gated<C>
where
    C: Classify<Res>,
{
    fn decide(
        &mut self,
        request: &mut Request<S, Gates>,
        result: &mut Result<Res, ToolError>,
    ) -> Option<Instant> {
        let outcome = self.classifier.classify(result.as_ref().map_err(|e| &*e));
        if result.is_ok() && outcome.is_success() && !self.entry.is_known() {
            self.entry.prove(&request.info());
        }
        let again = match outcome.cooldown() {
            _ if outcome.is_rate_limited() => {
                self.limited(&outcome, request, result.as_mut().err())
            }
            Some(cooldown) if !cooldown.is_zero() => {
                self.used_up(cooldown, request);
                None
            }
            _ => None,
        };
        if let Err(error) = result
            && error.is_after_ambiguous()
            && again.is_none()
            && error.execution() == Execution::NotStarted
        {
            *error = error.clone().with_execution(Execution::Unknown);
        }
        again
    }

    fn admit(&mut self, resend: &mut Resend<S, Gates>) -> Next {
        // The turn of a call that has waited holds, unless a limit was met meanwhile.
        match self.admitted {
            Some(round) if self.gate().holds(round) => {
                if let Some(wait) = &mut self.wait {
                    wait.turn = None;
                }
                Next::Send
            }
            _ => self.turn(resend),
        }
    }

    fn abandon(&mut self) {
        self.give_back();
    }
}

impl<C> Drop for Gated<C> {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn too_late<S>(remaining: Duration, resend: &mut Resend<S, Gates>) -> Next {
    let text = "the rate limit of this tool is used up";
    let refusal = ToolError::not_admitted(None, ErrorKind::RateLimited, text, remaining);
    Next::Refuse(resend.not_sent(refusal))
}
