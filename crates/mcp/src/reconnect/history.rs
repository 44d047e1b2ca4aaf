//! When the next attempt may be made. Pure: time and randomness are arguments.

use std::time::Duration;

use tokio::time::Instant;
use tower_toolcall::error::{Execution, ToolError};

use super::service::Settings;

/// The longest time without an attempt, whatever the settings or the server say.
const MAX_WINDOW: Duration = Duration::from_secs(3600);

/// The results of the attempts to connect.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Failed attempts, one after the other.
    pub(super) failures: u32,
    /// A connection has answered a call.
    has_answered: bool,
    refused: Option<Refused>,
}

/// The last failure.
#[derive(Debug)]
struct Refused {
    /// The earliest time of the next attempt.
    until: Instant,
    error: ToolError,
    /// A call has reported it as a failure of the server. For all other calls it is our own
    /// refusal.
    is_reported: bool,
}

impl Refused {
    fn report(&mut self, error: ToolError, wait: Duration) -> ToolError {
        match std::mem::replace(&mut self.is_reported, true) {
            true => refused(error, wait),
            false => waits(error, wait),
        }
    }
}

impl History {
    /// A connection has ended that had answered a call.
    pub(super) fn answered(&mut self) {
        *self = Self {
            has_answered: true,
            ..Self::default()
        };
    }

    /// The attempt has succeeded. What failed before is forgotten once the server has answered a
    /// call.
    pub(super) fn connected(&mut self) {
        self.refused = None;
    }

    /// Counts a failure, and returns the time without an attempt after `from`. A connection that is
    /// lost before its first answer counts as a failed attempt; the call that loses it reports it.
    pub(super) fn fail(
        &mut self,
        from: Instant,
        settings: &Settings,
        random: u64,
        error: ToolError,
        is_reported: bool,
    ) -> Duration {
        let backoff = match self.has_answered {
            true => &settings.backoff,
            false => &settings.start_backoff,
        };
        self.failures = self.failures.saturating_add(1);
        let own = backoff.delay(self.failures, random);
        // Never earlier than the server asks.
        let delay = own.max(error.retry_after().unwrap_or_default());
        let delay = delay.min(MAX_WINDOW);
        self.refused = Some(Refused {
            until: from + delay,
            error,
            is_reported,
        });
        delay
    }

    /// In how long an attempt may be made, if none may be made now.
    pub(super) fn window(&self, now: Instant) -> Option<Duration> {
        let refused = self.refused.as_ref()?;
        let wait = refused.until.checked_duration_since(now)?;
        (!wait.is_zero()).then_some(wait)
    }

    /// The error of a call, if no attempt may be made now.
    pub(super) fn refuses(&mut self, now: Instant) -> Option<ToolError> {
        let wait = self.window(now)?;
        let refused = self.refused.as_mut()?;
        Some(refused.report(refused.error.clone(), wait))
    }

    /// The error of a call that has waited for an attempt that failed with this one, however short
    /// the window is.
    pub(super) fn shares(&mut self, now: Instant, error: ToolError) -> ToolError {
        let wait = self.window(now).unwrap_or_default();
        match &mut self.refused {
            Some(last) => last.report(error, wait),
            None => refused(error, wait),
        }
    }
}

/// The error with the delay that is left: the backoff's, unless the server has asked for one.
pub(super) fn waits(error: ToolError, wait: Duration) -> ToolError {
    match error.retry_after() {
        Some(_) if !error.has_own_delay() => error.with_retry_after(wait),
        _ => error.with_own_delay(wait),
    }
}

/// The error of a call for which the server was not asked.
pub(super) fn refused(error: ToolError, wait: Duration) -> ToolError {
    waits(error, wait)
        .with_execution(Execution::NotStarted)
        .into_own_refusal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower_toolcall::{
        ErrorKind,
        backoff::{Backoff, Jitter},
    };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn settings() -> Settings {
        let growing = Backoff::exponential(ms(500), 2.0).unwrap();
        of(growing.with_jitter(Jitter::None))
    }

    fn of(backoff: Backoff) -> Settings {
        Settings {
            backoff,
            start_backoff: backoff,
            ..Settings::default()
        }
    }

    fn error() -> ToolError {
        ToolError::new(ErrorKind::ConnectionFailed, "refused")
    }

    #[test]
    fn each_failure_doubles_the_window_up_to_the_cap() {
        let (mut history, now) = (History::default(), Instant::now());
        for delay in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            assert_eq!(history.fail(now, &settings(), 0, error(), false), ms(delay));
            assert_eq!(history.window(now).unwrap(), ms(delay));
            assert_eq!(
                history.window(now + ms(delay - 1)).unwrap(),
                ms(1),
                "the window is closed at its end"
            );
            assert!(history.window(now + ms(delay)).is_none());
        }
    }

    /// Trap 10: not earlier than the server asks; but not for ever.
    #[test]
    fn a_server_that_asks_for_patience_gets_it_up_to_an_hour() {
        let (mut history, now) = (History::default(), Instant::now());
        let busy = |delay| error().with_retry_after(delay);
        assert_eq!(
            history.fail(now, &settings(), 0, busy(ms(9000)), false),
            ms(9000)
        );
        assert_eq!(
            history.fail(now, &settings(), 0, busy(ms(1)), false),
            ms(1000)
        );
        let forever = history.fail(now, &settings(), 0, busy(Duration::MAX), false);
        assert_eq!(forever, MAX_WINDOW);
    }

    #[test]
    fn a_connection_that_never_answered_counts_as_a_failed_attempt() {
        let (mut history, since) = (History::default(), Instant::now());
        history.fail(since, &settings(), 0, error(), true);
        history.fail(since, &settings(), 0, error(), true);
        assert_eq!(history.window(since).unwrap(), ms(1000));
        // The window counts from its beginning: a connection older than the window is replaced
        // immediately.
        assert!(history.window(since + ms(1000)).is_none());

        history.answered();
        assert!(history.window(since).is_none());
        assert_eq!(history.fail(since, &settings(), 0, error(), false), ms(500));
    }

    /// A success forgets the window, not the count: the connection may be lost immediately.
    #[test]
    fn a_connection_alone_does_not_reset_the_count() {
        let (mut history, now) = (History::default(), Instant::now());
        history.fail(now, &settings(), 0, error(), false);
        history.connected();
        assert!(history.window(now).is_none());
        assert_eq!(history.fail(now, &settings(), 0, error(), false), ms(1000));
    }

    #[test]
    fn a_delay_of_nothing_is_still_shared_by_those_who_waited() {
        let none = of(Backoff::fixed(Duration::ZERO).unwrap());
        let (mut history, now) = (History::default(), Instant::now());
        history.fail(now, &none, 0, error(), false);
        assert!(history.refuses(now).is_none());
        let error = history.shares(now, error());
        assert_eq!(error.retry_after(), Some(Duration::ZERO));
    }

    /// Observers of calls count each attempt, even if no call waited for its end.
    #[test]
    fn one_call_tells_of_a_failed_attempt_and_others_are_refused() {
        let (mut history, now) = (History::default(), Instant::now());
        for _ in 0..2 {
            history.fail(now, &settings(), 0, error(), false);
            assert!(!history.refuses(now).unwrap().is_own_refusal());
            assert!(history.refuses(now).unwrap().is_own_refusal());
            assert!(history.shares(now, error()).is_own_refusal());
        }
        // The call that loses a connection reports the loss itself.
        history.fail(now, &settings(), 0, error(), true);
        assert!(history.refuses(now).unwrap().is_own_refusal());
    }
}
