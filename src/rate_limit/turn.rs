use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_service::Service;

use super::{gate::Admission, keyed::KeyGate, layer::RateLimitBackoffLayer};
use crate::{
    call::{CallExt, Claim, ReplaySafety, ToolCall},
    error::{ErrorKind, Evidence, Execution, ToolError},
    event::{Event, emit, ms},
    flow::{
        Step,
        again::{After, Again, Before, Enter, Repeated, Repeats, Shared, Way},
    },
    kit::{
        attempts::{Attempts, Resend},
        limit,
        registry::Entry,
    },
    outcome::{ByError, Classify, Outcome},
};

/// Waits out rate limits. See the [module docs](super) for an example.
pub type RateLimitBackoff<S, C = ByError> = Repeats<S, RateLimitBackoffLayer<C>>;

/// Response future for [`RateLimitBackoff`].
pub type ResponseFuture<S, F, C = ByError> = Repeated<S, F, Ticket<S, C>>;

impl<S, C> Enter<S> for RateLimitBackoffLayer<C>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response> + Clone,
{
    type Ticket = Ticket<S, C>;

    #[inline]
    fn enter(shared: &Shared<S, Self>, call: &mut ToolCall) -> Result<Self::Ticket, ToolError> {
        let Self { gates, classifier } = &shared.settings;
        let settings = &gates.shared.settings;
        // An outer layer that repeats calls waits out their limits as well.
        let ours = !call.is_claimed(Claim::Retry) && !call.take_claim(Claim::RateLimit);
        let repeats = ours && settings.attempts > 1;
        if repeats {
            call.record(|record| record.set_max_attempts(settings.attempts));
        }
        let entry = gates
            .registry
            .entry_for(call, || KeyGate::new(&gates.shared));
        let made = call.attempt().wrapping_sub(1);
        let attempts = match repeats {
            true => {
                let claim = (Claim::RateLimit, made);
                Attempts::Many(Resend::new(call.copy(), shared.keep(), claim, false))
            }
            false => Attempts::Once(call.info(), made),
        };
        Ok(Ticket {
            attempts,
            entry,
            classifier: classifier.clone(),
            admitted: None,
            reserved: None,
            latest: None,
        })
    }
}

/// A call and its turn.
pub struct Ticket<S, C> {
    attempts: Attempts<S, RateLimitBackoffLayer<C>>,
    entry: Arc<Entry<KeyGate>>,
    classifier: C,
    /// The round of the gate in which it has its turn, until it meets a limit.
    admitted: Option<u32>,
    /// A turn that is given back if it is not used.
    reserved: Option<Duration>,
    /// The latest moment of its turn, if it has waited.
    latest: Option<Duration>,
}

crate::text::debug_fields! { {S, C} |_| Ticket<S, C> { .. } }

impl<S, C> Ticket<S, C> {
    /// Returns whether the call has its turn.
    #[inline]
    fn has_turn(&mut self) -> bool {
        let gate = self.entry.value();
        // While nothing cools that is one load.
        if self.latest.is_none()
            && let Some(round) = gate.open_round()
        {
            self.admitted = Some(round);
            return true;
        }
        // The turn of a call that has waited is still valid, unless a limit was met meanwhile.
        self.admitted.is_some_and(|round| gate.holds(round))
    }

    /// Asks for a turn, and reports that the call waits for it.
    #[cold]
    fn ask(&mut self, call: &ToolCall) -> Result<Way, ToolError> {
        let way = self.wait_for_turn(call, None)?;
        if let Way::Until(at) = way {
            let delay = at.saturating_duration_since(Instant::now());
            let call = call.info();
            emit!(DEBUG WAITING, &call, LAYER = "rate_limit", DELAY_MS = ms(delay));
        }
        Ok(way)
    }

    /// Asks for a turn at the gate, once `resume` has come: until then this call, but no other, has
    /// to wait.
    #[cold]
    fn wait_for_turn(
        &mut self,
        call: &ToolCall,
        resume: Option<Duration>,
    ) -> Result<Way, ToolError> {
        limit::check(call).map_err(|error| self.attempts.gave_up(error))?;
        let gate = self.entry.value();
        let shared = &*gate.shared;
        let now = shared.now();
        let latest = self.latest.unwrap_or_else(|| shared.latest(now, call));
        let mut reserved = None;
        let at = match resume.filter(|at| *at > now) {
            Some(at) => at,
            None => {
                // The turn of an earlier round is not given back in the new one.
                self.reserved = None;
                let (admission, round) = gate.admit(now, latest);
                self.admitted = Some(round);
                match admission {
                    Admission::Go => return Ok(Way::Go),
                    Admission::TooLate(at) => at,
                    Admission::At(at) => *reserved.insert(at),
                }
            }
        };
        match shared.origin.checked_add(at).filter(|_| at <= latest) {
            Some(until) => {
                (self.reserved, self.latest) = (reserved, Some(latest));
                call.record(|r| r.add_wait(at - now));
                Ok(Way::Until(until))
            }
            None => {
                let (kind, wait) = (ErrorKind::RateLimited, at - now);
                let text = "the rate limit of this tool is used up";
                let refusal = ToolError::not_admitted(kind, text, wait, None);
                Err(self.attempts.not_sent(refusal))
            }
        }
    }

    /// Begins a cooldown after a success that used up the server's grant, or after a failure
    /// with the time when the server is back.
    #[cold]
    fn used_up(&self, cooldown: Duration) {
        let shared = &*self.entry.value().shared;
        let most = shared.settings.max_cooldown();
        let cooldown = shared.cooldown(Some(cooldown)).min(most);
        shared.begin(&self.entry, None, cooldown, true);
        self.emit(cooldown, true);
    }

    /// A result that is a rate limit: when the call is sent again.
    #[cold]
    fn limited(&mut self, outcome: &Outcome, mut error: Option<&mut ToolError>) -> Option<Way> {
        let (gate, hint) = (self.entry.value(), outcome.retry_after());
        let keys = &*gate.shared;
        let settings = &keys.settings;
        let (now, cooldown) = (keys.now(), keys.cooldown(hint));
        let by_text = error
            .as_ref()
            .is_some_and(|error| error.evidence() == Evidence::Inferred);
        let shared = match &error {
            // A gate below has refused it: the server has not been asked.
            Some(error) if error.is_own_refusal() => return None,
            // A tool may have met it in the middle of its work, or repeat a text of others: it does
            // not concern other calls.
            _ if by_text => settings.of_text(cooldown),
            _ => Some(cooldown.min(settings.max_cooldown())),
        };
        if let (Some(round), Some(shared)) = (self.admitted.take(), shared) {
            keys.begin(&self.entry, Some(round), shared, !by_text);
        }
        let hinted = outcome.is_hinted(error.as_deref());
        self.emit(cooldown, hinted);
        if let Some(error) = &mut error
            && error.retry_after().is_none()
        {
            error.set_own_delay(cooldown);
        }
        let made = self.attempts.made();
        let call = &self.attempts.resend()?.call;
        let safety = call.replay_safety();
        let not_started = error.is_none_or(|e| e.is_surely_not_started(safety));
        // Not if it may have run in spite of the limit, nor in the overflow entry, which keeps no
        // limit to wait for.
        let repeats = (not_started || safety == ReplaySafety::Safe)
            && made < settings.attempts
            && hint.is_none_or(|hint| hint <= settings.max_wait)
            && !self.entry.is_overflow()
            && !call.is_cancelled();
        if !repeats {
            return None;
        }
        if !not_started {
            call.set_ambiguous();
        }
        // This call may have to wait longer than the shared cooldown.
        let resume = (shared != Some(cooldown)).then(|| now.saturating_add(cooldown));
        let call = call.copy();
        // A wait that cannot end in time is not begun: the limit itself is the result.
        self.wait_for_turn(&call, resume).ok()
    }

    fn emit(&self, cooldown: Duration, hinted: bool) {
        let listener = &self.entry.value().shared.listener;
        listener.tell(&Event::RateLimited {
            call: &self.attempts.info(),
            attempt: self.attempts.made(),
            cooldown,
            hinted,
        });
    }
}

impl<S, C> Before<S> for Ticket<S, C>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response>,
{
    /// Reserves nothing while the call waits.
    #[inline]
    fn arrive(&mut self, call: &ToolCall, is_ready: bool) -> Result<Way, ToolError> {
        match is_ready || self.has_turn() {
            true => Ok(Way::Go),
            false => self.ask(call),
        }
    }

    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn admit(&mut self, call: &mut ToolCall) -> Result<Way, ToolError> {
        self.reserved = None;
        if !self.has_turn()
            && let Way::Until(at) = self.ask(call)?
        {
            return Ok(Way::Until(at));
        }
        self.attempts.begin(call);
        Ok(Way::Go)
    }

    fn gave_up(&mut self, error: ToolError, _: Step) -> ToolError {
        self.attempts.gave_up(error)
    }

    fn not_ready(&mut self, _: &mut ToolCall, error: ToolError) -> Result<(S, Way), ToolError> {
        Err(self.attempts.not_sent(error))
    }
}

impl<S, C> Again<S> for Ticket<S, C>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response>,
{
    fn again(&mut self, result: Result<S::Response, ToolError>) -> After<S, S::Response> {
        let mut result = result.map_err(|e| self.attempts.met(e));
        let outcome = self.classifier.classify(result.as_ref());
        if result.is_ok() && outcome.is_success() && !self.entry.is_known() {
            self.entry.prove(&self.attempts.info());
        }
        let again = match outcome.cooldown() {
            _ if outcome.is_rate_limited() => self.limited(&outcome, result.as_mut().err()),
            Some(cooldown) if !cooldown.is_zero() => {
                self.used_up(cooldown);
                None
            }
            _ => None,
        };
        if let Err(error) = &mut result
            && error.is_after_ambiguous()
            && again.is_none()
            && error.execution() == Execution::NotStarted
        {
            error.set_execution_unknown();
        }
        self.attempts.next(again, result)
    }
}

impl<S, C> Drop for Ticket<S, C> {
    /// Gives an unused turn to other calls.
    #[inline]
    fn drop(&mut self) {
        if let (Some(turn), Some(round)) = (self.reserved, self.admitted) {
            self.entry.value().give_back(round, turn);
        }
    }
}
