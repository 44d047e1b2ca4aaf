use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{gate::Admission, keyed::Keyed, service::Shared};
use crate::{
    call::{CallInfo, ToolCall},
    caller::Caller,
    error::{ErrorKind, Execution, ToolError},
    event::Event,
    outcome::Outcome,
    registry::Entry,
};

/// One call on its way through the gate of its key.
pub(super) struct Session<S, C> {
    pub(super) shared: Arc<Shared<S, C>>,
    pub(super) info: CallInfo,
    /// The call; gone with its last attempt.
    call: Option<ToolCall>,
    entry: Arc<Entry<Keyed>>,
    /// Whether we send it again ourselves.
    repeats: bool,
    attempt: u32,
    deadline: Option<Instant>,
    /// In which round of the gate it has its turn.
    round: u32,
}

/// When a call has its turn.
pub(super) enum Turn {
    Now,
    At(Instant),
    Never(ToolError),
}

impl<S, C> Session<S, C> {
    pub(super) fn new(
        call: ToolCall,
        info: CallInfo,
        entry: Arc<Entry<Keyed>>,
        shared: Arc<Shared<S, C>>,
        repeats: bool,
    ) -> Self {
        Self {
            shared,
            info,
            entry,
            repeats,
            attempt: call.attempt().into(),
            deadline: call.deadline(),
            round: 0,
            call: Some(call),
        }
    }

    fn keyed(&self) -> &Keyed {
        &self.entry.value
    }

    pub(super) fn call(&self) -> Option<&ToolCall> {
        self.call.as_ref()
    }

    /// Asks for a turn. While nothing cools that is one load.
    pub(super) fn turn(&mut self) -> Turn {
        if let Some(round) = self.keyed().open_round() {
            self.round = round;
            return Turn::Now;
        }
        self.closed_turn()
    }

    #[cold]
    fn closed_turn(&mut self) -> Turn {
        let settings = self.keyed().settings();
        let (origin, now) = (settings.origin, settings.now());
        let latest = match self.deadline {
            _ if !settings.waits => now,
            // Nothing is sent at the deadline itself.
            Some(at) => at
                .saturating_duration_since(origin)
                .saturating_sub(Duration::from_nanos(1))
                .min(now.saturating_add(settings.max_wait)),
            None => now.saturating_add(settings.max_wait),
        };
        let (admission, round) = self.keyed().admit(now, latest);
        self.round = round;
        let at = match admission {
            Admission::Go => return Turn::Now,
            Admission::At(at) | Admission::TooLate(at) => at,
        };
        // What no clock reaches is too late as well.
        if let (Admission::At(_), Some(turn)) = (admission, origin.checked_add(at)) {
            self.info.record(|r| r.add_wait(at - now));
            return Turn::At(turn);
        }
        let error = ToolError::new(
            ErrorKind::RateLimited,
            "the rate limit of this tool is used up",
        );
        Turn::Never(error.with_retry_after(at - now).about(&self.info))
    }

    /// The turn of a call that has waited: now, unless a limit was met meanwhile.
    pub(super) fn turn_after_wait(&mut self) -> Turn {
        if self.keyed().holds(self.round) {
            Turn::Now
        } else {
            self.turn()
        }
    }

    /// The call, to be sent; a copy, if it may have to be sent again.
    pub(super) fn next_call(&mut self) -> ToolCall {
        let last = !self.repeats || self.attempt >= self.shared.settings.attempts;
        let call = if last {
            self.call.take()
        } else {
            self.call.clone()
        };
        call.expect("sent again only while it is kept")
    }

    /// Learns from a result. True if it was a limit, and the call is to be sent again.
    #[inline]
    pub(super) fn learn(&mut self, outcome: &Outcome, error: &mut Option<ToolError>) -> bool {
        if outcome.is_rate_limited() {
            return self.limited(outcome, error);
        }
        if let Some(cooldown) = outcome.cooldown() {
            self.close(Some(cooldown));
        }
        false
    }

    #[cold]
    fn limited(&mut self, outcome: &Outcome, error: &mut Option<ToolError>) -> bool {
        let cooldown = self.close(outcome.retry_after());
        if let Some(known) = error.take() {
            *error = Some(match known.retry_after() {
                None => known.with_retry_after(cooldown),
                Some(_) => known,
            });
        }
        let Some(call) = &mut self.call else {
            return false;
        };
        if Caller::has_cancelled(call) {
            return false;
        }
        call.next_attempt();
        self.attempt += 1;
        true
    }

    #[cold]
    fn close(&self, told: Option<Duration>) -> Duration {
        let settings = self.keyed().settings();
        let cooldown = settings.cooldown(told);
        self.keyed().limit(settings.now(), self.round, cooldown);
        settings.listener.tell(&Event::RateLimited {
            call: &self.info,
            attempt: self.attempt,
            cooldown,
            told: told.is_some(),
        });
        cooldown
    }

    /// The error of a call that is ours to repeat tells how many attempts there were.
    pub(super) fn last(&self, error: ToolError, attempts: u32) -> ToolError {
        let error = error.about(&self.info);
        if self.repeats {
            error.with_attempts(attempts)
        } else {
            error
        }
    }

    /// The caller has given up while the call waited for its turn.
    pub(super) fn cancelled(&self) -> ToolError {
        let made = self.attempt.saturating_sub(1);
        let error = ToolError::new(ErrorKind::Cancelled, "cancelled by the caller");
        let error = match made {
            0 => error.with_execution(Execution::NotStarted),
            _ => error,
        };
        self.last(error, made)
    }

    pub(super) fn attempt(&self) -> u32 {
        self.attempt
    }
}
