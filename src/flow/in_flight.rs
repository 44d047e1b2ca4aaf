//! Reports exactly once how a call ended.

use std::{fmt::Debug, mem::ManuallyDrop, time::Duration};

use tokio::time::Instant;

use super::{Ticket, refusal::Refusal};
use crate::{call::ToolCall, error::ToolError, kit::cold::Cold};

/// An abandoned call: its response future was dropped unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abandoned {
    /// The time for which it had been pending since it was sent; zero if it never was.
    pub pending: Duration,
    /// Set if its deadline had passed. Then the drop is a timeout of an outer layer or of the
    /// caller.
    pub past_deadline: bool,
    /// Set if an inner layer held the call back before it was sent. Then the deadline may have
    /// passed because of that wait.
    pub was_held: bool,
}

/// A guard of a call in flight. Reports exactly one of three ends: the result, the panic, or the
/// drop.
///
/// `thread::panicking()` cannot distinguish a panic from a drop, because it is false again above a
/// `catch_unwind`; the stage can.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct InFlight<T: Ticket> {
    // A word without padding before the ticket: else LLVM would join the two, and copy the ticket
    // twice.
    stage: Stage,
    // A `bool`, but without padding.
    was_held: u32,
    ticket: Cold<Part<T>>,
    times: T::Times,
}

/// The ticket of a call. One that is not sent has its refusal in that place.
pub(crate) type Part<T> = Result<T, Refusal>;

/// The times of a call that is sent, for a [`Ticket`] that has its drop and its panic reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    deadline: Option<Instant>,
    since: Option<Instant>,
}

/// [`Times`], or `()`.
pub trait Timing: Copy + Debug + Default + Send + Sync + 'static {
    #[doc(hidden)]
    fn get(&mut self) -> Option<&mut Times>;
}

impl Timing for Times {
    fn get(&mut self) -> Option<&mut Times> {
        Some(self)
    }
}

impl Timing for () {
    fn get(&mut self) -> Option<&mut Times> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Stage {
    /// The call was not sent yet. Its drop is not reported.
    Unsent,
    Waiting,
    /// The call is being sent or polled. Seen afterwards, it means that the call panicked.
    Polling,
    Ended,
}

impl<T: Ticket> InFlight<T> {
    /// Guards a call that was not sent yet.
    #[inline]
    pub(super) fn unsent(part: Option<Part<T>>) -> Self {
        let ticket = Cold(ManuallyDrop::new(part));
        Self::at(Stage::Unsent, ticket, T::Times::default())
    }

    #[inline]
    fn at(stage: Stage, ticket: Cold<Part<T>>, times: T::Times) -> Self {
        Self {
            stage,
            was_held: 0,
            ticket,
            times,
        }
    }

    /// Returns the error of a call that is not sent.
    #[cold]
    pub(super) fn refusal(&mut self) -> ToolError {
        match &mut *self.ticket.0 {
            Some(Err(refusal)) => refusal.take(),
            _ => panic!("polled after completion"),
        }
    }

    /// Returns the ticket, until the end.
    #[inline]
    pub(crate) fn ticket(&self) -> Option<&T> {
        self.ticket.0.as_ref()?.as_ref().ok()
    }

    #[inline]
    pub(super) fn ticket_mut(&mut self) -> &mut T {
        own(&mut self.ticket.0)
    }

    pub(super) fn is_refused(&self) -> bool {
        matches!(&*self.ticket.0, Some(Err(refusal)) if refusal.is_open())
    }

    /// Sends a call. If `send` does not return, the call panicked.
    pub(super) fn send<F>(&mut self, call: ToolCall, send: impl FnOnce(ToolCall) -> F) -> F {
        self.stage = Stage::Polling;
        self.times = times(self.ticket_mut(), &call);
        let fut = send(call);
        self.stage = Stage::Waiting;
        fut
    }

    /// Drops the ticket of a call that is not sent.
    pub(super) fn give_up(&mut self) {
        self.stage = Stage::Ended;
        *self.ticket.0 = None;
    }

    /// Begins a poll. If neither `wait` nor `finish` follows, the call panicked.
    #[inline]
    pub(crate) fn begin_poll(&mut self) {
        if self.times.get().is_some() {
            // A second report would follow from here.
            assert!(self.stage != Stage::Ended, "polled after completion");
            self.stage = Stage::Polling;
        }
    }

    /// Ends a poll that was `Pending`. Only the first one of a call that was sent reads the clock,
    /// so a call that answers immediately reads none.
    #[inline]
    pub(crate) fn wait(&mut self) {
        let Some(times) = self.times.get() else {
            return;
        };
        self.stage = Stage::Waiting;
        if times.since.is_none()
            && let Some(Ok(ticket)) = &*self.ticket.0
        {
            match ticket.info().is_held() {
                true => self.was_held = 1,
                false => times.since = Some(ticket.pending_since()),
            }
        }
    }

    /// Ends the call. The ticket is dropped in its place with what this returns.
    #[inline]
    pub(crate) fn finish(&mut self) -> Ended<'_, T> {
        self.stage = Stage::Ended;
        Ended(&mut self.ticket.0)
    }

    /// Returns since when the call is pending, from its sending on. `None` if it never was.
    #[inline]
    pub(super) fn since(&mut self) -> Option<Instant> {
        self.times.get()?.since
    }

    #[cold]
    fn unfinished(&mut self) {
        let (Some(Ok(ticket)), Some(times)) = (&mut *self.ticket.0, self.times.get()) else {
            return;
        };
        if self.stage == Stage::Polling {
            return ticket.panicked();
        }
        let Times { deadline, since } = *times;
        let now = (since.is_some() || deadline.is_some()).then(Instant::now);
        ticket.dropped(Abandoned {
            pending: match (now, since) {
                (Some(now), Some(since)) => now.saturating_duration_since(since),
                _ => Duration::ZERO,
            },
            past_deadline: matches!((now, deadline), (Some(now), Some(at)) if now >= at),
            was_held: self.was_held != 0,
        });
    }
}

/// Returns the times of a call that is being sent.
#[inline]
fn times<T: Ticket>(ticket: &T, call: &ToolCall) -> T::Times {
    let mut times = T::Times::default();
    if let Some(times) = times.get() {
        times.deadline = ticket.deadline(call);
    }
    times
}

pub(super) fn own<T>(part: &mut Option<Part<T>>) -> &mut T {
    let ticket = part.as_mut().and_then(|part| part.as_mut().ok());
    ticket.expect("there until the end")
}

/// A guard that drops a ticket in its place, after its end or a panic.
pub(crate) struct Ended<'a, T>(&'a mut Option<Part<T>>);

impl<T> Ended<'_, T> {
    pub(crate) fn ticket(&mut self) -> &mut T {
        own(self.0)
    }
}

impl<T> Drop for Ended<'_, T> {
    #[inline]
    fn drop(&mut self) {
        *self.0 = None;
    }
}

/// Guards a call while its future is made. If [`begun`](Self::begun) does not follow, the call
/// panicked.
///
/// The ticket is moved once, to its place in the future: a copy of what was just written waits
/// until all of that has reached the cache.
pub(crate) struct Beginning<'a, T: Ticket> {
    part: &'a mut Option<Part<T>>,
    times: T::Times,
}

impl<'a, T: Ticket> Beginning<'a, T> {
    /// Guards the call of a ticket.
    #[inline]
    pub(crate) fn new(part: &'a mut Option<Part<T>>, call: &ToolCall) -> Self {
        let times = times(own(part), call);
        Self { part, times }
    }

    /// Returns the ticket.
    #[inline]
    pub(crate) fn ticket(&mut self) -> &T {
        own(self.part)
    }

    /// Guards the call after its future was made.
    #[inline]
    pub(crate) fn begun(&mut self) -> InFlight<T> {
        let ticket = Cold(ManuallyDrop::new(self.part.take()));
        InFlight::at(Stage::Waiting, ticket, self.times)
    }
}

impl<T: Ticket> Drop for Beginning<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(Ok(ticket)) = self.part {
            ticket.panicked();
        }
    }
}

impl<T: Ticket> Drop for InFlight<T> {
    #[inline]
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Waiting | Stage::Polling) && self.times.get().is_some() {
            self.unfinished();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CallInfo;
    use std::{cell::RefCell, panic, rc::Rc, task::Poll};

    #[derive(Clone)]
    struct Log(Rc<RefCell<Vec<String>>>, CallInfo);

    impl Default for Log {
        fn default() -> Self {
            Self(Rc::default(), ToolCall::new("search").info())
        }
    }

    impl Log {
        fn sent(&self, deadline: Option<Instant>) -> InFlight<Log> {
            let since = None;
            let times = Times { deadline, since };
            InFlight::at(Stage::Waiting, Cold::of(Ok(self.clone())), times)
        }
    }

    impl InFlight<Log> {
        fn poll<T>(&mut self, poll: impl FnOnce(&Log) -> Poll<T>) -> Poll<T> {
            self.begin_poll();
            let polled = poll(self.ticket().unwrap());
            match polled {
                Poll::Ready(_) => drop(self.finish()),
                Poll::Pending => self.wait(),
            }
            polled
        }
    }

    impl Ticket for Log {
        type Times = Times;

        fn info(&self) -> &CallInfo {
            &self.1
        }
        fn dropped(&mut self, how: Abandoned) {
            self.0.borrow_mut().push(format!("{how:?}"));
        }
        fn panicked(&mut self) {
            self.0.borrow_mut().push("panicked".into());
        }
    }

    #[test]
    fn a_call_that_has_its_result_is_not_reported_again() {
        let log = Log::default();
        let mut flight = log.sent(None);
        assert_eq!(flight.poll(|_| Poll::Ready(1)), Poll::Ready(1));
        drop(flight);
        assert!(log.0.borrow().is_empty());
    }

    #[test]
    fn a_panic_at_the_beginning_is_reported() {
        let log = Log::default();
        let begun = panic::catch_unwind(panic::AssertUnwindSafe(|| -> u8 {
            let mut part = Some(Ok(log.clone()));
            let _beginning = Beginning::new(&mut part, &ToolCall::new("search"));
            panic!("boom")
        }));
        assert!(begun.is_err());
        assert_eq!(*log.0.borrow(), ["panicked"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drop_in_flight_tells_how_long_it_was_pending() {
        let log = Log::default();
        let mut flight = log.sent(None);
        assert!(flight.poll(|_| Poll::<()>::Pending).is_pending());
        tokio::time::advance(Duration::from_secs(2)).await;
        drop(flight);
        let expected = Abandoned {
            pending: Duration::from_secs(2),
            past_deadline: false,
            was_held: false,
        };
        assert_eq!(*log.0.borrow(), [format!("{expected:?}")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drop_after_the_deadline_is_reported_as_such() {
        let log = Log::default();
        let flight = log.sent(Some(Instant::now() + Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(flight);
        assert!(log.0.borrow()[0].contains("past_deadline: true"));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_pending_since_the_first_time() {
        let log = Log::default();
        let mut flight = log.sent(None);
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
        let mut flight = log.sent(None);
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
        let mut flight = log.sent(None);
        let polled = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            flight.poll(|_| -> Poll<()> { panic!("boom") })
        }));
        assert!(polled.is_err());
        drop(flight);
        assert_eq!(*log.0.borrow(), ["panicked"]);
    }
}
