//! One timer of the runtime, for all waiters of a thread.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};

use tokio::{
    runtime::{Handle, Id},
    task::coop,
    time::{Instant, Sleep, sleep_until},
};

use super::queue::{Queue, Seat, Seen};
use crate::kit::lane::thread_number;
use crate::lock::lock;

/// Wakes the waiters when their moment comes, on one runtime.
///
/// When the runtime's timer fires, it is set for the next waiter: no waiter has to be polled for
/// the others to be woken.
pub(super) struct Alarm {
    clock: Mutex<Clock>,
    waker: Waker,
    /// The number of the thread that is setting the runtime's timer, which may fire during that; 0
    /// for none.
    winding: AtomicUsize,
    woken: AtomicBool,
}

#[derive(Default)]
struct Clock {
    queue: Queue,
    /// Made for the first waiter, and given up when it fires and there is none.
    sleep: Option<Pin<Box<Sleep>>>,
    /// The moment for which it is set.
    set_for: Option<Instant>,
}

impl Clock {
    /// Returns whether the timer would fire too late for a moment.
    #[inline]
    fn is_first(&self, at: Instant) -> bool {
        self.set_for.is_none_or(|set_for| at < set_for)
    }
}

thread_local! {
    /// The alarms of this thread: one for each runtime that it works for.
    static HERE: RefCell<Vec<(Id, Arc<Alarm>)>> = const { RefCell::new(Vec::new()) };
}

/// For how many runtimes a thread keeps an unused alarm.
const KEPT: usize = 4;

impl Alarm {
    /// Returns the alarm of this thread and its runtime.
    #[inline]
    fn here() -> Arc<Self> {
        let id = Handle::current().id();
        let known = HERE.try_with(|here| {
            let mut here = here.borrow_mut();
            match here.iter().find(|(of, _)| *of == id) {
                Some((_, alarm)) => Arc::clone(alarm),
                None => Self::add(&mut here, id),
            }
        });
        // The thread is about to end.
        known.unwrap_or_else(|_| Self::new())
    }

    #[cold]
    fn add(here: &mut Vec<(Id, Arc<Self>)>, id: Id) -> Arc<Self> {
        if here.len() >= KEPT {
            here.retain(|(_, alarm)| Arc::strong_count(alarm) > 1);
        }
        let alarm = Self::new();
        here.push((id, Arc::clone(&alarm)));
        alarm
    }

    fn new() -> Arc<Self> {
        Arc::new_cyclic(|alarm| Self {
            clock: Mutex::default(),
            waker: Arc::new(Fired(alarm.clone())).into(),
            winding: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
        })
    }

    /// Wakes the waiters that are due, and sets the runtime's timer for the next.
    #[cold]
    fn wind(&self) {
        self.go_on(lock(&self.clock));
    }

    fn go_on(&self, mut clock: MutexGuard<'_, Clock>) {
        let mut rung = Vec::new();
        self.set_next(&mut clock, &mut rung);
        drop(clock);
        for waker in rung {
            waker.wake();
        }
    }

    fn set_next(&self, clock: &mut Clock, rung: &mut Vec<Waker>) {
        let Clock {
            queue,
            sleep,
            set_for,
        } = clock;
        loop {
            let now = Instant::now();
            queue.ring(now, rung);
            *set_for = None;
            let Some(at) = queue.next() else {
                // It keeps parts of its runtime, which may be about to end.
                *sleep = None;
                return;
            };
            let sleep = sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
            match self.set(sleep.as_mut(), at) {
                Poll::Pending => {
                    *set_for = Some(at);
                    return;
                }
                // Too early: so fire the timers of a runtime that is shut down.
                Poll::Ready(()) if at > Instant::now() => queue.set_adrift(rung),
                Poll::Ready(()) => {}
            }
        }
    }

    /// Sets the runtime's timer; ready if it has fired already.
    fn set(&self, sleep: Pin<&mut Sleep>, at: Instant) -> Poll<()> {
        self.winding.store(thread_number(), Relaxed);
        // A runtime that is shut down meanwhile panics. The waiters must be set adrift: it will not
        // wake them.
        let set = catch_unwind(AssertUnwindSafe(|| self.poll_for(sleep, at)));
        self.winding.store(0, Relaxed);
        set.unwrap_or(Poll::Ready(()))
    }

    fn poll_for(&self, mut sleep: Pin<&mut Sleep>, at: Instant) -> Poll<()> {
        let cx = &mut Context::from_waker(&self.waker);
        loop {
            self.woken.store(false, Relaxed);
            sleep.as_mut().reset(at);
            // Not polled if it is over: a poll panics if the runtime is shut down.
            if sleep.is_elapsed() {
                return Poll::Ready(());
            }
            let polled = pin!(coop::unconstrained(sleep.as_mut())).poll(cx);
            if polled.is_ready() || !self.woken.load(Relaxed) {
                return polled;
            }
        }
    }

    /// The runtime's timer has fired.
    fn fired(&self) {
        if self.winding.load(Relaxed) == thread_number() {
            // This very thread is below `set`, and has the lock.
            self.woken.store(true, Relaxed);
            return;
        }
        let clock = lock(&self.clock);
        // If it was given up meanwhile, the next waiter sets it: that one is on the runtime for
        // which it is made.
        if clock.sleep.is_some() {
            self.go_on(clock);
        }
    }
}

/// A waiter's place at an alarm.
pub(super) struct Place {
    alarm: Arc<Alarm>,
    seat: Seat,
}

impl Place {
    /// Waits for a moment, at the alarm of this thread and its runtime. Also returns whether that
    /// has to be [wound](Self::wind) for it.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    #[inline]
    pub(super) fn take(at: Instant, waker: Waker) -> (Self, bool) {
        let alarm = Alarm::here();
        let mut clock = lock(&alarm.clock);
        let is_first = clock.is_first(at);
        let seat = clock.queue.enter(at, waker);
        drop(clock);
        (Self { alarm, seat }, is_first)
    }

    /// Sets the alarm for it.
    #[cold]
    pub(super) fn wind(&self, waker: &Waker) -> Seen {
        self.alarm.wind();
        self.look(waker)
    }

    /// Returns the state of the waiter.
    #[inline]
    pub(super) fn look(&self, waker: &Waker) -> Seen {
        let (seen, before) = lock(&self.alarm.clock).queue.look(self.seat, waker);
        // Not under the lock: it may be the last reference to a task that has waiters of its own.
        drop(before);
        seen
    }

    #[cfg(test)]
    pub(super) fn alarm(&self) -> Weak<Alarm> {
        Arc::downgrade(&self.alarm)
    }
}

impl Drop for Place {
    // Outlined, so that a call that did not wait only checks whether it has a place.
    #[inline(never)]
    fn drop(&mut self) {
        let waker = lock(&self.alarm.clock).queue.leave(self.seat);
        // As above.
        drop(waker);
    }
}

/// The waker for the runtime's timer. Does not keep the alarm alive.
struct Fired(Weak<Alarm>);

impl Wake for Fired {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(alarm) = self.0.upgrade() {
            alarm.fired();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The thread on which it fires may have entered another runtime.
    #[tokio::test(start_paused = true)]
    async fn a_timer_that_fires_late_makes_no_other() {
        let at = Instant::now() + Duration::from_secs(1);
        let (place, is_first) = Place::take(at, Waker::noop().clone());
        assert!(is_first);
        place.alarm.fired();
        assert!(lock(&place.alarm.clock).sleep.is_none());
        assert_eq!(place.wind(Waker::noop()), Seen::Waiting);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(place.look(Waker::noop()), Seen::Rung);
    }
}
