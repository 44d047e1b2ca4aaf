use std::{
    future::{Future as _, poll_fn},
    hint,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::Wake,
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
    time::{advance, sleep, timeout},
};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

async fn wait(at: Instant) {
    let mut timer = Timer::default();
    poll_fn(|cx| timer.poll(cx, || Some(at))).await;
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn waiting(at: Instant) -> Timer {
    let mut timer = Timer::default();
    assert!(timer.poll(&mut noop(), || Some(at)).is_pending());
    timer
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn each_is_woken_at_its_own_time_in_whichever_order_they_came() {
    let start = Instant::now();
    let tasks = [5, 1, 3, 3, 2].map(|seconds| {
        tokio::spawn(async move {
            wait(start + seconds * SECOND).await;
            assert_eq!(start.elapsed(), seconds * SECOND);
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_moment_that_has_passed_is_told_at_the_first_poll() {
    let now = Instant::now();
    advance(SECOND).await;
    let mut timer = Timer::default();
    assert!(timer.poll(&mut noop(), || Some(now)).is_ready());
    // Also beside one that waits already.
    let _other = waiting(now + 5 * SECOND);
    let mut timer = Timer::default();
    assert!(timer.poll(&mut noop(), || Some(now)).is_ready());
}

#[tokio::test(start_paused = true)]
async fn none_never_comes() {
    let mut timer = Timer::default();
    assert!(timer.poll(&mut noop(), || None).is_pending());
    assert!(timer.0.0.is_none());
}

/// A future may be kept and not polled, as in a `select!` or by a lock that its task holds.
#[tokio::test(start_paused = true)]
async fn a_timer_that_is_kept_and_not_polled_delays_no_other() {
    let start = Instant::now();
    let _kept = waiting(start + SECOND);
    wait(start + 2 * SECOND).await;
    assert_eq!(start.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_next_is_woken_if_the_first_has_left() {
    let start = Instant::now();
    let first = waiting(start + SECOND);
    let second = tokio::spawn(wait(start + 2 * SECOND));
    yield_now().await;
    drop(first);
    second.await.unwrap();
    assert_eq!(start.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_rung_stays_ready() {
    let start = Instant::now();
    let mut timer = waiting(start + SECOND);
    sleep(SECOND).await;
    for _ in 0..2 {
        assert!(timer.poll(&mut noop(), || unreachable!()).is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn it_can_be_moved_to_either_side() {
    let start = Instant::now();
    for (first, second) in [(1, 2), (4, 3)] {
        let mut timer = waiting(start + first * SECOND);
        timer.reset();
        poll_fn(|cx| timer.poll(cx, || Some(start + second * SECOND))).await;
        assert_eq!(start.elapsed(), second * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn the_waker_of_the_last_poll_is_woken_and_no_other() {
    let count = [(); 2].map(|()| Arc::new(Count::default()));
    let wakers = count.clone().map(Waker::from);
    let mut timer = Timer::default();
    let at = Some(Instant::now() + SECOND);
    for waker in &wakers {
        let polled = timer.poll(&mut Context::from_waker(waker), || at);
        assert!(polled.is_pending());
    }
    sleep(2 * SECOND).await;
    assert_eq!(count.map(|c| c.0.load(Relaxed)), [0, 1]);
}

/// As the last reference to a task whose call has a timer beside this one.
#[tokio::test(start_paused = true)]
async fn a_waker_may_own_another_timer() {
    struct Owner(#[allow(dead_code)] Timer);
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }
    let at = Instant::now() + SECOND;
    let owner = || Waker::from(Arc::new(Owner(waiting(at))));
    let mut timers = [(); 3].map(|()| Timer::default());
    for timer in &mut timers {
        let polled = timer.poll(&mut Context::from_waker(&owner()), || Some(at));
        assert!(polled.is_pending());
    }
    let [left, replaced, rung] = &mut timers;
    left.reset();
    assert!(replaced.poll(&mut noop(), || unreachable!()).is_pending());
    sleep(2 * SECOND).await;
    assert!(rung.poll(&mut noop(), || unreachable!()).is_ready());
}

#[tokio::test(start_paused = true)]
async fn it_fires_for_a_task_that_has_used_up_its_budget() {
    timeout(5 * SECOND, async {
        let mut timer = Timer::default();
        let at = Some(Instant::now() + SECOND);
        poll_fn(|cx| {
            while tokio::task::coop::has_budget_remaining() {
                let _ = std::pin::pin!(tokio::task::coop::consume_budget()).poll(cx);
            }
            timer.poll(cx, || at)
        })
        .await;
    })
    .await
    .unwrap();
}

/// As in idle mode, where a call goes on after its first time was up: it may then be polled on
/// another runtime, which need not be driven for ever.
#[test]
fn a_timer_that_is_moved_on_another_runtime_leaves_its_first_one_alone() {
    let [first, second] = [(); 2].map(|()| current_thread());
    let mut timer = first.block_on(async {
        let timer = waiting(Instant::now() + Duration::from_millis(1));
        sleep(Duration::from_millis(4)).await;
        timer
    });
    timer.reset();
    let at = Instant::now() + Duration::from_millis(100);
    second.block_on(async { assert!(timer.poll(&mut noop(), || Some(at)).is_pending()) });
    first.block_on(async {
        let later = at + Duration::from_millis(1);
        timeout(5 * SECOND, wait(later)).await.unwrap();
    });
    second.block_on(poll_fn(|cx| timer.poll(cx, || Some(at))));
}

/// A runtime that is not driven must not hold back the timers of another.
#[test]
fn runtimes_that_take_turns_on_a_thread_have_each_their_own() {
    let [idle, busy] = [(); 2].map(|()| current_thread());
    let _kept = idle.block_on(async { waiting(Instant::now() + Duration::from_millis(1)) });
    busy.block_on(async {
        let at = Instant::now() + Duration::from_millis(2);
        timeout(5 * SECOND, wait(at)).await.unwrap();
    });
}

#[test]
fn a_call_that_outlives_its_runtime_is_woken_and_waits_on_the_next() {
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let cx = &mut Context::from_waker(&waker);
    let mut timer = Timer::default();
    let at = Instant::now() + Duration::from_millis(20);
    let first = current_thread();
    first.block_on(async { assert!(timer.poll(cx, || Some(at)).is_pending()) });
    drop(first);
    assert_eq!(count.0.load(Relaxed), 1);
    current_thread().block_on(poll_fn(|cx| timer.poll(cx, || Some(at))));
    assert!(Instant::now() >= at);
}

/// As in idle mode, where a call has gone on after its first time was up.
#[test]
fn a_timer_that_is_moved_after_its_runtime_is_gone_waits_on_the_next() {
    let at = Instant::now() + Duration::from_millis(20);
    let first = current_thread();
    let mut timer = first.block_on(async { waiting(Instant::now() + SECOND) });
    timer.reset();
    drop(first);
    current_thread().block_on(poll_fn(|cx| timer.poll(cx, || Some(at))));
    assert!(Instant::now() >= at);
}

/// The runtime panics if it is shut down between the two steps in which its timer is set.
#[test]
fn every_waiter_is_woken_by_a_shutdown_at_any_moment() {
    let spin = |rounds| (0..rounds).for_each(|_| hint::spin_loop());
    let rounds = std::env::var("TIMER_ROUNDS").map_or(250, |n| n.parse().unwrap());
    for round in 0..rounds {
        let (runtime, started) = (current_thread(), AtomicBool::new(false));
        let (handle, started) = (runtime.handle().clone(), &started);
        let count = [(); 2].map(|()| Arc::new(Count::default()));
        let wakers = count.clone().map(Waker::from);
        let mut timers = [(); 3].map(|()| Timer::default());
        let [due, later, new] = &mut timers;
        thread::scope(|scope| {
            scope.spawn(move || {
                let _entered = handle.enter();
                let start = Instant::now();
                let soon = start + Duration::from_micros(50);
                let poll = |timer: &mut Timer, waker, at| {
                    let poll = || timer.poll(&mut Context::from_waker(waker), || Some(at));
                    let _ = catch_unwind(AssertUnwindSafe(poll));
                };
                poll(later, &wakers[1], start + 60 * SECOND);
                poll(due, &wakers[0], soon);
                started.store(true, Relaxed);
                while Instant::now() < soon {
                    hint::spin_loop();
                }
                // That is before the one for which the timer is set: it is due, and so is the
                // first.
                poll(new, Waker::noop(), start);
            });
            while !started.load(Relaxed) {
                thread::yield_now();
            }
            spin(round * 37 % 5_000);
            drop(runtime);
        });
        for (timer, count) in timers.iter().zip(&count) {
            let place = timer.0.0.as_ref().unwrap();
            let seen = place.look(Waker::noop());
            assert!(
                matches!(seen, Seen::Rung | Seen::Adrift),
                "{round} {seen:?}"
            );
            assert!(
                count.0.load(Relaxed) > 0,
                "{round}: {seen:?}, but not woken"
            );
        }
    }
}

#[test]
#[should_panic(expected = "there is no reactor running")]
fn to_wait_outside_a_runtime_is_a_panic() {
    waiting(Instant::now());
}

#[test]
#[should_panic(expected = "timers are disabled")]
fn to_wait_in_a_runtime_without_a_clock_is_a_panic() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    waiting(Instant::now() + SECOND);
}

#[test]
fn a_thread_does_not_keep_an_alarm_for_every_runtime_it_has_seen() {
    let alarms: Vec<_> = (0..20)
        .map(|_| {
            let runtime = current_thread();
            let _entered = runtime.enter();
            waiting(Instant::now() + SECOND)
                .0
                .0
                .as_ref()
                .unwrap()
                .alarm()
        })
        .collect();
    assert!(
        alarms
            .iter()
            .filter(|alarm| alarm.strong_count() > 0)
            .count()
            <= 4
    );
}

#[test]
fn a_thread_that_ends_leaves_no_alarm_behind() {
    let runtime = current_thread();
    let (handle, at) = (runtime.handle(), Instant::now() + 3600 * SECOND);
    let alarm = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _entered = handle.enter();
            let timer = waiting(at);
            timer.0.0.as_ref().unwrap().alarm()
        });
        thread.join().unwrap()
    });
    assert!(alarm.upgrade().is_none());
}

/// Calls that wait, move to other threads, end early or late, all at once.
#[test]
fn no_waiter_is_forgotten_or_woken_early_on_many_threads() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let task = |i: u64| async move {
        for step in 0..20 {
            let wait_for = Duration::from_micros((i * 37 + step * 101) % 3000);
            let at = Instant::now() + wait_for;
            // Every third has its answer before its time is up.
            if (i + step).is_multiple_of(3) {
                let _ = timeout(wait_for / 2, wait(at)).await;
            } else {
                wait(at).await;
                assert!(Instant::now() >= at);
            }
        }
    };
    runtime.block_on(async {
        let tasks: Vec<_> = (0..200).map(|i| tokio::spawn(task(i))).collect();
        for one in tasks {
            timeout(20 * SECOND, one).await.expect("woken").unwrap();
        }
    });
}
