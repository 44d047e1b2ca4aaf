//! Reports exactly once how a call ended.

use std::{mem::ManuallyDrop, time::Duration};

use tokio::time::Instant;

/// Takes the end of a call that has no result.
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
    /// Whether its deadline had passed: then the drop is a timeout that a layer or caller above enforced.
    pub past_deadline: bool,
}

/// Guards a call in flight. Exactly one of three things is reported: the result, the panic, or the drop.
///
/// `thread::panicking()` cannot distinguish a panic from a drop, because it is false again above a
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
    /// The call was not sent yet: its drop is not reported.
    Unsent,
    Waiting,
    /// The call is being polled: if this is seen from outside, it panicked.
    Polling,
    Ended,
}

impl<R: Report> InFlight<R> {
    #[inline]
    fn new(report: Option<R>, deadline: Option<Instant>) -> Self {
        Self {
            report,
            deadline,
            since: None,
            stage: Stage::Waiting,
        }
    }

    /// Guards a call that was not sent yet.
    pub(crate) fn unsent(report: Option<R>) -> Self {
        let mut unsent = Self::new(report, None);
        unsent.stage = Stage::Unsent;
        unsent
    }

    /// The report of a call that was not sent yet.
    pub(crate) fn reporter_mut(&mut self) -> Option<&mut R> {
        self.report.as_mut()
    }

    /// Sends a call. Without an end, it has panicked.
    pub(crate) fn send<F>(&mut self, deadline: Option<Instant>, send: impl FnOnce() -> F) -> F {
        self.stage = Stage::Polling;
        self.deadline = deadline;
        let fut = send();
        self.stage = Stage::Waiting;
        fut
    }

    /// Drops the report of a call that is not sent.
    pub(crate) fn give_up(&mut self) {
        self.stage = Stage::Ended;
        self.report = None;
    }

    /// The clock was read when the call began: it counts as pending since then.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn with_start(mut self, start: Instant) -> Self {
        self.since = Some(start);
        self
    }

    /// Begins a poll: if neither `wait` nor `end` follows, the call panicked.
    #[inline]
    pub(crate) fn begin_poll(&mut self) -> &R {
        // A second report would follow from here.
        assert!(self.stage != Stage::Ended, "polled after completion");
        self.stage = Stage::Polling;
        self.report.as_ref().expect("there until the end")
    }

    /// The poll was `Pending`. The clock is read at the first one only, so a call that answers at once reads none.
    #[inline]
    pub(crate) fn wait(&mut self) {
        self.stage = Stage::Waiting;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Reports the result of the call; then the report is dropped in place, even if it panics.
    #[inline]
    pub(crate) fn end(&mut self, end: impl FnOnce(&R)) {
        self.stage = Stage::Ended;
        let report = DropReport(&mut self.report);
        end(report.0.as_ref().expect("there until the end"));
    }

    /// Returns what the report makes of the result; then the report is dropped in place, even if it panics.
    #[inline]
    pub(crate) fn finish<T>(&mut self, finish: impl FnOnce(&mut R) -> T) -> T {
        self.stage = Stage::Ended;
        let report = DropReport(&mut self.report);
        finish(report.0.as_mut().expect("there until the end"))
    }

    /// The report, until the end.
    #[inline]
    pub(crate) fn reporter(&self) -> Option<&R> {
        self.report.as_ref()
    }

    /// Returns the report of a call that was sent.
    #[inline]
    pub(crate) fn report(&self) -> &R {
        self.report.as_ref().expect("there until the end")
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

/// Drops a report in place, after its end or a panic.
struct DropReport<'a, R>(&'a mut Option<R>);

impl<R> Drop for DropReport<'_, R> {
    #[inline]
    fn drop(&mut self) {
        *self.0 = None;
    }
}

/// Guards the part of a call that makes its future: if [`begun`](Self::begun) does not follow, the call panicked.
///
/// A value that is only moved can stay in registers; and if nothing can panic between the making of a future and its place, it
/// can be made in that place.
pub(crate) struct Beginning<R: Report> {
    /// Always taken before the drop.
    report: ManuallyDrop<Option<R>>,
    deadline: Option<Instant>,
}

impl<R: Report> Beginning<R> {
    #[inline]
    pub(crate) fn new(report: R, deadline: Option<Instant>) -> Self {
        let report = ManuallyDrop::new(Some(report));
        Self { report, deadline }
    }

    /// What reports.
    #[inline]
    pub(crate) fn report(&self) -> &R {
        self.report.as_ref().expect("taken at the end alone")
    }

    /// The future is made.
    #[inline]
    pub(crate) fn begun(&mut self) -> InFlight<R> {
        InFlight::new(self.report.take(), self.deadline)
    }
}

impl<R: Report> Drop for Beginning<R> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            report.panicked();
        }
    }
}

impl<R: Report> Drop for InFlight<R> {
    #[inline]
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Waiting | Stage::Polling) {
            self.unfinished();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, panic, rc::Rc, task::Poll};

    #[derive(Clone, Default)]
    struct Log(Rc<RefCell<Vec<String>>>);

    impl InFlight<Log> {
        fn poll<T>(&mut self, poll: impl FnOnce(&Log) -> Poll<T>) -> Poll<T> {
            let polled = poll(self.begin_poll());
            match polled {
                Poll::Ready(_) => self.finish(|_| ()),
                Poll::Pending => self.wait(),
            }
            polled
        }
    }

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
        let mut flight = InFlight::new(Some(log.clone()), None);
        assert_eq!(flight.poll(|_| Poll::Ready(1)), Poll::Ready(1));
        drop(flight);
        assert!(log.0.borrow().is_empty());
    }

    #[test]
    fn a_panic_at_the_beginning_is_reported() {
        let log = Log::default();
        let begun = panic::catch_unwind(panic::AssertUnwindSafe(|| -> u8 {
            let _beginning = Beginning::new(log.clone(), None);
            panic!("boom")
        }));
        assert!(begun.is_err());
        assert_eq!(*log.0.borrow(), ["panicked"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drop_in_flight_tells_how_long_it_was_pending() {
        let log = Log::default();
        let mut flight = InFlight::new(Some(log.clone()), None);
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
    async fn a_drop_after_the_deadline_is_reported_as_such() {
        let log = Log::default();
        let flight = InFlight::new(
            Some(log.clone()),
            Some(Instant::now() + Duration::from_secs(1)),
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(flight);
        assert!(log.0.borrow()[0].contains("past_deadline: true"));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_pending_since_the_first_time() {
        let log = Log::default();
        let mut flight = InFlight::new(Some(log.clone()), None);
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
        let mut flight = InFlight::new(Some(log.clone()), None);
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
    fn a_panic_is_distinguished_from_a_drop_even_below_a_catch() {
        let log = Log::default();
        let mut flight = InFlight::new(Some(log.clone()), None);
        let polled = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            flight.poll(|_| -> Poll<()> { panic!("boom") })
        }));
        assert!(polled.is_err());
        drop(flight);
        assert_eq!(*log.0.borrow(), ["panicked"]);
    }
}
