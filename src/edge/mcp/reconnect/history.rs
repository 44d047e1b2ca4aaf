//! When the next attempt may be made. Pure: time and randomness are arguments.

use std::time::Duration;

use tokio::time::Instant;

use crate::{backoff::Backoff, error::ToolError};

/// The longest time without an attempt, whatever the settings or the server say.
const MAX_WINDOW: Duration = Duration::from_secs(3600);

/// What became of the attempts to connect.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Failed attempts, one after the other.
    failures: u32,
    /// Attempts that have failed in all, so that who waited for one knows that it has.
    failed: u64,
    /// The last failure, and until when there is no other attempt.
    refused: Option<(Instant, ToolError)>,
    /// An attempt that goes on: when it is over at the latest.
    connecting: Option<Instant>,
}

impl History {
    /// Counts attempts that have failed.
    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// How many attempts in a row have failed.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// An attempt begins.
    pub(super) fn begin(&mut self, until: Option<Instant>) {
        self.connecting = until;
    }

    /// The attempt has succeeded. What failed before is forgotten once the server has answered a call.
    pub(super) fn connected(&mut self) {
        self.connecting = None;
        self.refused = None;
    }

    /// The attempt has failed. Returns how long there is no other one.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        backoff: &Backoff,
        random: u64,
        error: ToolError,
    ) -> Duration {
        self.connecting = None;
        self.failed += 1;
        self.failures = self.failures.saturating_add(1);
        let own = backoff.delay(self.failures, random);
        // Never earlier than the server asks.
        let delay = own.max(error.retry_after().unwrap_or_default());
        self.refuse(now, delay, error)
    }

    /// A connection is lost that was made at `since`. One that has never answered was no better than a failed attempt.
    pub(super) fn lose(
        &mut self,
        since: Instant,
        has_answered: bool,
        backoff: &Backoff,
        random: u64,
        error: ToolError,
    ) {
        if has_answered {
            self.failures = 0;
            self.refused = None;
        } else {
            self.failures = self.failures.saturating_add(1);
            let delay = backoff.delay(self.failures, random);
            self.refuse(since, delay, error);
        }
    }

    fn refuse(&mut self, from: Instant, delay: Duration, error: ToolError) -> Duration {
        let delay = delay.min(MAX_WINDOW);
        self.refused = Some((from + delay, error));
        delay
    }

    /// Why no attempt may be made now, and in how long one may.
    pub(super) fn refusal(&self, now: Instant) -> Option<(Duration, &ToolError)> {
        let (until, error) = self.refused.as_ref()?;
        let wait = until.checked_duration_since(now)?;
        (!wait.is_zero()).then_some((wait, error))
    }

    /// The same for somebody who waited for an attempt that has failed: however short the window is.
    pub(super) fn shared_failure(&self, seen: u64, now: Instant) -> Option<(Duration, &ToolError)> {
        let (until, error) = self.refused.as_ref()?;
        (self.failed != seen).then(|| (until.saturating_duration_since(now), error))
    }

    /// In how long it makes sense to come back while an attempt goes on: after the first delay, or sooner, when the
    /// attempt is over.
    pub(super) fn busy(&self, now: Instant, backoff: &Backoff) -> Duration {
        let delay = backoff.delay(1, 0);
        self.connecting
            .map_or(delay, |at| delay.min(at.saturating_duration_since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, backoff::Jitter};

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn backoff() -> Backoff {
        Backoff::exponential(ms(500), 2.0)
            .unwrap()
            .with_jitter(Jitter::None)
    }

    fn refused() -> ToolError {
        ToolError::new(ErrorKind::ConnectionFailed, "refused")
    }

    #[test]
    fn each_failure_doubles_the_window_up_to_the_cap() {
        let (mut history, now) = (History::default(), Instant::now());
        for delay in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            assert_eq!(history.fail(now, &backoff(), 0, refused()), ms(delay));
            assert_eq!(history.refusal(now).unwrap().0, ms(delay));
            assert_eq!(
                history.refusal(now + ms(delay - 1)).unwrap().0,
                ms(1),
                "the window is closed at its end"
            );
            assert!(history.refusal(now + ms(delay)).is_none());
        }
    }

    /// Trap 10: not earlier than told; but not for ever.
    #[test]
    fn a_server_that_asks_for_patience_gets_it_up_to_an_hour() {
        let (mut history, now) = (History::default(), Instant::now());
        let busy = |delay| refused().with_retry_after(delay);
        assert_eq!(history.fail(now, &backoff(), 0, busy(ms(9000))), ms(9000));
        assert_eq!(history.fail(now, &backoff(), 0, busy(ms(1))), ms(1000));
        let forever = history.fail(now, &backoff(), 0, busy(Duration::MAX));
        assert_eq!(forever, MAX_WINDOW);
    }

    #[test]
    fn a_connection_that_never_answered_counts_as_a_failed_attempt() {
        let (mut history, since) = (History::default(), Instant::now());
        history.lose(since, false, &backoff(), 0, refused());
        history.lose(since, false, &backoff(), 0, refused());
        assert_eq!(history.refusal(since).unwrap().0, ms(1000));
        // The window is that of its beginning: one that stood for longer is replaced at once.
        assert!(history.refusal(since + ms(1000)).is_none());

        history.lose(since, true, &backoff(), 0, refused());
        assert!(history.refusal(since).is_none());
        assert_eq!(history.fail(since, &backoff(), 0, refused()), ms(500));
    }

    /// What a success forgets is the window, not the count: it may be lost at once.
    #[test]
    fn a_connection_alone_does_not_reset_the_count() {
        let (mut history, now) = (History::default(), Instant::now());
        history.fail(now, &backoff(), 0, refused());
        history.connected();
        assert!(history.refusal(now).is_none());
        assert_eq!(history.fail(now, &backoff(), 0, refused()), ms(1000));
    }

    #[test]
    fn a_delay_of_nothing_is_still_shared_by_those_who_waited() {
        let none = Backoff::fixed(Duration::ZERO).unwrap();
        let (mut history, now) = (History::default(), Instant::now());
        let seen = history.failed();
        assert!(history.shared_failure(seen, now).is_none());
        history.fail(now, &none, 0, refused());
        assert!(history.refusal(now).is_none());
        assert_eq!(history.shared_failure(seen, now).unwrap().0, Duration::ZERO);
    }

    #[test]
    fn who_does_not_wait_is_told_to_come_back_when_the_attempt_may_be_over() {
        let (mut history, now) = (History::default(), Instant::now());
        history.begin(Some(now + ms(10_000)));
        assert_eq!(history.busy(now, &backoff()), ms(500));
        assert_eq!(history.busy(now + ms(9_900), &backoff()), ms(100));
    }
}
