use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{gate::Admission, keyed::Keyed, service::Shared};
use crate::{
    call::{CallInfo, ReplaySafety, ToolCall},
    caller::{Caller, GivenUp, Patience},
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
    /// Whether an earlier attempt may have run.
    ambiguous: bool,
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
            ambiguous: false,
            round: 0,
            call: Some(call),
        }
    }

    fn keyed(&self) -> &Keyed {
        &self.entry.value
    }

    /// The call, while it waits to be sent.
    pub(super) fn call(&self) -> &ToolCall {
        self.call
            .as_ref()
            .expect("waits, so it was not sent for the last time")
    }

    /// Whether it is too late to send it.
    pub(super) fn is_over(&self) -> Option<GivenUp> {
        Patience::is_over(self.call())
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
        // What may have run in spite of the limit is not ours to repeat.
        let not_started = error
            .as_ref()
            .is_none_or(|e| e.execution() == Execution::NotStarted);
        let may_run = not_started || call.replay_safety() == ReplaySafety::Safe;
        if !may_run || Caller::has_cancelled(call) {
            return false;
        }
        call.next_attempt();
        self.ambiguous |= !not_started;
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
        let mut error = error.about(&self.info);
        if self.repeats {
            error = error.with_attempts(attempts);
        }
        if self.ambiguous && error.execution() == Execution::NotStarted {
            error = error.with_execution(Execution::Unknown);
        }
        error
    }

    /// A wait was ended: the attempt that it was for is not made.
    pub(super) fn given_up(&self, why: GivenUp) -> ToolError {
        let made = self.attempt.saturating_sub(1);
        let (kind, text) = match why {
            GivenUp::Cancelled => (ErrorKind::Cancelled, "cancelled by the caller"),
            GivenUp::Deadline => (
                ErrorKind::DeadlineExceeded,
                "the deadline passed before the call could be sent",
            ),
        };
        let error = ToolError::new(kind, text).with_execution(Execution::NotStarted);
        self.last(error, made)
    }

    pub(super) fn attempt(&self) -> u32 {
        self.attempt
    }
}
