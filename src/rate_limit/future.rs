use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{gate::Admission, handle::RateLimitHandle, keyed::KeyGate};
use crate::{
    call::ReplaySafety,
    error::{ErrorKind, Evidence, Execution, ToolError},
    event::{Event, emit, ms},
    kit::{
        attempts::{Next, Repeat, Request, Resend, Wait, response_future},
        caller::Caller,
        preparing::GivenUp,
        registry::Entry,
    },
    outcome::{Classify, Outcome},
};

response_future! {
    /// Response future for [`RateLimitBackoff`](super::RateLimitBackoff).
    Wait<S>, RateLimitHandle, Gated<C>
}

/// One call on its way through the gate of its key.
pub(super) struct Gated<C> {
    entry: Arc<Entry<KeyGate>>,
    classifier: C,
    /// The round of the gate in which it has its turn, until it meets a limit.
    admitted: Option<u32>,
    /// A turn that is given back if it is not used.
    reserved: Option<Duration>,
    /// The latest moment of its turn, set at its first wait.
    latest: Option<Duration>,
}

impl<C> Gated<C> {
    /// `admitted`: the round in which the call was sent, if it was sent.
    #[inline]
    pub(super) fn new(entry: Arc<Entry<KeyGate>>, classifier: C, admitted: Option<u32>) -> Self {
        Self {
            entry,
            classifier,
            admitted,
            reserved: None,
            latest: None,
        }
    }

    fn gate(&self) -> &KeyGate {
        self.entry.value()
    }

    /// Asks for a turn at the gate, once `resume` has come: until then this call, but no other, has to wait.
    #[cold]
    fn wait_for_turn<S>(
        &mut self,
        resend: &mut Resend<S, RateLimitHandle>,
        resume: Option<Duration>,
    ) -> Next {
        if let Some(why) = GivenUp::by(&resend.call) {
            return Next::Refuse(resend.given_up(why));
        }
        let gate = self.entry.value();
        let settings = &*gate.settings;
        let now = settings.now();
        let latest = self.latest;
        let latest = latest.unwrap_or_else(|| settings.latest(now, &resend.call));
        let at = match resume.filter(|at| *at > now) {
            Some(at) => at,
            None => {
                let (admission, round) = gate.admit(now, latest);
                self.admitted = Some(round);
                match admission {
                    Admission::Go => return Next::Send,
                    Admission::TooLate(at) => at,
                    Admission::At(at) => *self.reserved.insert(at),
                }
            }
        };
        match settings.origin.checked_add(at).filter(|_| at <= latest) {
            Some(until) => {
                self.latest = Some(latest);
                resend.call.record(|r| r.add_wait(at - now));
                Next::WaitUntil(until)
            }
            None => {
                let (kind, wait) = (ErrorKind::RateLimited, at - now);
                let text = "the rate limit of this tool is used up";
                let refusal = ToolError::not_admitted(None, kind, text, wait);
                Next::Refuse(resend.not_sent(refusal))
            }
        }
    }

    /// A success that used up what the server grants, or a failing server that says when it is
    /// back.
    #[cold]
    fn used_up<S>(&self, cooldown: Duration, request: &Request<S, RateLimitHandle>) {
        let settings = &*self.gate().settings;
        let cooldown = settings.cooldown(Some(cooldown)).min(settings.max_cooldown);
        let now = settings.now();
        self.gate().cool(now, cooldown);
        settings.know(&self.entry, now, cooldown, false);
        self.emit(request, cooldown, true);
    }

    /// A result that is a rate limit: when the call is sent again.
    #[cold]
    fn limited<S>(
        &mut self,
        outcome: &Outcome,
        request: &mut Request<S, RateLimitHandle>,
        mut error: Option<&mut ToolError>,
    ) -> Option<Instant> {
        let (gate, hint) = (self.entry.value(), outcome.retry_after());
        let settings = &*gate.settings;
        let (now, cooldown) = (settings.now(), settings.cooldown(hint));
        let by_text = error
            .as_ref()
            .is_some_and(|error| error.evidence() == Evidence::Inferred);
        let shared = match &error {
            // A gate below has refused it: the server has not been asked.
            Some(error) if error.is_own_refusal() => return None,
            // A tool may have met it in the middle of its work, or repeat a text of others: it does not concern other calls.
            _ if by_text => settings.of_text(cooldown),
            _ => Some(cooldown.min(settings.max_cooldown)),
        };
        if let (Some(round), Some(shared)) = (self.admitted.take(), shared) {
            gate.limit(now, round, shared);
            if !by_text {
                settings.know(&self.entry, now, shared, true);
            }
        }
        let hinted = outcome.is_hinted(error.as_deref());
        self.emit(request, cooldown, hinted);
        if let Some(error) = &mut error
            && error.retry_after().is_none()
        {
            error.set_own_delay(cooldown);
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
        // This call may have to wait longer than the shared cooldown.
        let resume = (shared != Some(cooldown)).then(|| now.saturating_add(cooldown));
        match self.wait_for_turn(resend, resume) {
            Next::Send => Some(Instant::now()),
            Next::WaitUntil(at) => Some(at),
            // A wait that cannot end in time is not begun: the limit itself is the result.
            Next::Refuse(_) => None,
        }
    }

    /// Whether the call is sent again: not if it may have run in spite of the limit, nor in the overflow entry, which keeps no
    /// limit to wait for.
    fn repeats<S>(
        &self,
        resend: &Resend<S, RateLimitHandle>,
        not_started: bool,
        hint: Option<Duration>,
    ) -> bool {
        let settings = &*self.gate().settings;
        resend.is_repeated()
            && (not_started || resend.call.replay_safety() == ReplaySafety::Safe)
            && resend.made < settings.attempts
            && hint.is_none_or(|hint| hint <= settings.max_wait)
            && !self.gate().is_overflow
            && !Caller::has_cancelled(&resend.call)
    }

    /// Gives an unused turn to other calls.
    #[inline]
    fn give_back(&mut self) {
        if let (Some(turn), Some(round)) = (self.reserved.take(), self.admitted) {
            self.gate().give_back(round, turn);
        }
    }

    fn emit<S>(&self, request: &Request<S, RateLimitHandle>, cooldown: Duration, hinted: bool) {
        self.gate().settings.listener.tell(&Event::RateLimited {
            call: &request.info(),
            attempt: request.attempt(),
            cooldown,
            hinted,
        });
    }
}

impl<S, C, Res> Repeat<S, RateLimitHandle, Res> for Gated<C>
where
    C: Classify<Res>,
{
    fn decide(
        &mut self,
        request: &mut Request<S, RateLimitHandle>,
        result: &mut Result<Res, ToolError>,
    ) -> Option<Instant> {
        let outcome = self.classifier.classify(result.as_ref());
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
            error.set_execution_unknown();
        }
        again
    }

    fn admit(&mut self, resend: &mut Resend<S, RateLimitHandle>) -> Next {
        self.reserved = None;
        let gate = self.entry.value();
        match gate.open_round() {
            // The turn of a call that has waited is still valid, unless a limit was met meanwhile.
            _ if self.admitted.is_some_and(|round| gate.holds(round)) => Next::Send,
            // While nothing cools that is one load.
            Some(round) if self.latest.is_none() => {
                self.admitted = Some(round);
                Next::Send
            }
            _ => {
                let next = self.wait_for_turn(resend, None);
                if let Next::WaitUntil(at) = next {
                    let delay = at.saturating_duration_since(Instant::now());
                    let call = resend.call.info();
                    emit!(DEBUG WAITING, &call, LAYER = "rate_limit", DELAY_MS = ms(delay));
                }
                next
            }
        }
    }

    fn abandon(&mut self) {
        self.give_back();
    }
}

impl<C> Drop for Gated<C> {
    #[inline]
    fn drop(&mut self) {
        self.give_back();
    }
}
