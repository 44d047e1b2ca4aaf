//! A call's one report, on whichever way it ends.

use std::{task::Poll, time::Duration};

use tokio::time::Instant;

/// Hears how a call ended that has no result.
pub(crate) trait Report {
    /// The future was dropped unfinished.
    fn abandoned(self, how: Abandoned);

    /// The future panicked while it was polled.
    fn panicked(self);
}

/// How a call was abandoned: its response future was dropped unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abandoned {
    /// How long it had been pending; zero if it never was.
    pub pending: Duration,
    /// Whether its deadline had passed: then the drop is a timeout that somebody outside enforced.
    pub past_deadline: bool,
}

/// Guards a call in flight: once it has a result, the report is there to be taken; until then it is told
/// of the panic or of the drop. Exactly one of the three happens.
///
/// `thread::panicking()` cannot tell a panic from a drop, because it is false again above a
/// `catch_unwind`; the stage can.
#[derive(Debug)]
pub(crate) struct InFlight<R: Report> {
    report: Option<R>,
    deadline: Option<Instant>,
    since: Option<Instant>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// The call is being polled: if this is seen from outside, it panicked.
    Polling,
    Ended,
}

impl<R: Report> InFlight<R> {
    #[inline]
    pub(crate) fn new(report: R, deadline: Option<Instant>) -> Self {
        Self {
            report: Some(report),
            deadline,
            since: None,
            stage: Stage::Waiting,
        }
    }

    /// The same for a report that has read the clock: the call counts as pending since then.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn since_start(report: R, deadline: Option<Instant>, start: Instant) -> Self {
        let mut flight = Self::new(report, deadline);
        flight.since = Some(start);
        flight
    }

    /// Runs a part of the call that may panic: the inner service's `call`, or a poll.
    #[inline]
    pub(crate) fn enter<T>(&mut self, part: impl FnOnce(&R) -> T) -> T {
        // A second report would follow from here.
        assert!(self.stage != Stage::Ended, "polled after completion");
        let report = self.report.as_ref().expect("taken only after the end");
        self.stage = Stage::Polling;
        let output = part(report);
        self.stage = Stage::Waiting;
        output
    }

    /// Polls the call. The clock is read at the first `Pending` only, so a call that answers at
    /// once reads none.
    #[inline]
    pub(crate) fn poll<T>(&mut self, poll: impl FnOnce(&R) -> Poll<T>) -> Poll<T> {
        let polled = self.enter(poll);
        match polled {
            Poll::Ready(_) => self.stage = Stage::Ended,
            Poll::Pending => {
                self.since.get_or_insert_with(Instant::now);
            }
        }
        polled
    }

    /// What reports, until it is taken.
    #[inline]
    pub(crate) fn reporter(&self) -> Option<&R> {
        self.report.as_ref()
    }

    /// What reports.
    #[inline]
    pub(crate) fn report(&self) -> &R {
        self.report.as_ref().expect("it was not taken yet")
    }

    /// The same, taken out.
    pub(crate) fn take(&mut self) -> R {
        self.report.take().expect("it was not taken yet")
    }

    /// When the call began to wait; `None` if it never did.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    #[cold]
    fn unfinished(&mut self) {
        let Some(report) = self.report.take() else {
            return;
        };
        if self.stage == Stage::Polling {
            return report.panicked();
        }
        let now = (self.since.is_some() || self.deadline.is_some()).then(Instant::now);
        report.abandoned(Abandoned {
            pending: match (now, self.since) {
                (Some(now), Some(since)) => now.saturating_duration_since(since),
                _ => Duration::ZERO,
            },
            past_deadline: matches!((now, self.deadline), (Some(now), Some(at)) if now >= at),
        });
    }
}

/// Guards a call while the inner service is being called: dropped with its report, that panicked.
///
/// One field, so that it can stay in a register: the rest of the guard is made when there is something to guard.
pub(crate) struct Beginning<R: Report>(Option<R>);

impl<R: Report> Beginning<R> {
    #[inline]
    pub(crate) fn new(report: R) -> Self {
        Self(Some(report))
    }

    /// The inner service has made its future.
    #[inline]
    pub(crate) fn begun(mut self, deadline: Option<Instant>) -> InFlight<R> {
        InFlight {
            report: self.0.take(),
            deadline,
            since: None,
            stage: Stage::Waiting,
        }
    }
}

impl<R: Report> Drop for Beginning<R> {
    #[inline]
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            report.panicked();
        }
    }
}

impl<R: Report> Drop for InFlight<R> {
    #[inline]
    fn drop(&mut self) {
        if self.stage != Stage::Ended {
            self.unfinished();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, panic, rc::Rc};

    #[derive(Clone, Default)]
    struct Log(Rc<RefCell<Vec<String>>>);

    impl Report for Log {
        fn abandoned(self, how: Abandoned) {
            self.0.borrow_mut().push(format!("{how:?}"));
        }
        fn panicked(self) {
            self.0.borrow_mut().push("panicked".into());
        }
    }

    #[test]
    fn a_call_that_has_its_result_is_not_reported_again() {
        let log = Log::default();
        let mut flight = InFlight::new(log.clone(), None);
        assert_eq!(flight.poll(|_| Poll::Ready(1)), Poll::Ready(1));
        drop(flight);
        assert!(log.0.borrow().is_empty());
    }

    #[test]
    fn a_panic_at_the_beginning_is_reported() {
        let log = Log::default();
        let begun = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let beginning = Beginning::new(log.clone());
            let begun: u8 = panic!("boom");
            #[expect(unreachable_code, reason = "the inner service panics")]
            (begun, beginning.begun(None))
        }));
        assert!(begun.is_err());
        assert_eq!(*log.0.borrow(), ["panicked"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drop_in_flight_tells_how_long_it_was_pending() {
        let log = Log::default();
        let mut flight = InFlight::new(log.clone(), None);
        assert!(flight.poll(|_| Poll::<()>::Pending).is_pending());
        tokio::time::advance(Duration::from_secs(2)).await;
        drop(flight);
        let expected = Abandoned {
            pending: Duration::from_secs(2),
            past_deadline: false,
        };
        assert_eq!(*log.0.borrow(), [format!("{expected:?}")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drop_after_the_deadline_is_told_as_such() {
        let log = Log::default();
        let flight = InFlight::new(log.clone(), Some(Instant::now() + Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(flight);
        assert!(log.0.borrow()[0].contains("past_deadline: true"));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_pending_since_the_first_time() {
        let log = Log::default();
        let mut flight = InFlight::new(log.clone(), None);
        for _ in 0..2 {
            assert!(flight.poll(|_| Poll::<()>::Pending).is_pending());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        drop(flight);
        assert!(log.0.borrow()[0].contains("pending: 2s"));
    }

    #[test]
    fn a_call_that_is_polled_after_its_end_is_not_reported_again() {
        let log = Log::default();
        let mut flight = InFlight::new(log.clone(), None);
        assert!(flight.poll(|_| Poll::Ready(())).is_ready());
        let polled = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            flight.poll(|_| -> Poll<()> { panic!("boom") })
        }));
        assert!(polled.is_err());
        drop(flight);
        assert!(log.0.borrow().is_empty());
    }

    /// Trap 20: below a catch the thread is not panicking any more when the guard is dropped.
    #[test]
    fn a_panic_is_told_from_a_drop_even_below_a_catch() {
        let log = Log::default();
        let mut flight = InFlight::new(log.clone(), None);
        let polled = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            flight.poll(|_| -> Poll<()> { panic!("boom") })
        }));
        assert!(polled.is_err());
        drop(flight);
        assert_eq!(*log.0.borrow(), ["panicked"]);
    }
}
