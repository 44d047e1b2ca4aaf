//! The generator, and what becomes of its calls.

use std::{
    future::poll_fn,
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::sleep,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use tokio::runtime::Runtime;
use tower_toolcall::ToolCall;

use crate::{candidates::stacks::Stack, leaf};

/// Calls in flight: an arrival that finds more is dropped, and counted.
const MAX_IN_FLIGHT: u64 = 20_000;
/// An arrival that is sent so long after it was due is counted.
const LATE: Duration = Duration::from_millis(1);
/// How long the last calls may take.
const DRAIN: Duration = Duration::from_secs(40);

#[derive(Clone, Copy)]
pub(crate) struct Slice {
    /// Calls per second.
    pub(crate) rate: u32,
    pub(crate) time: Duration,
}

/// What was taken of all slices.
pub(crate) struct Taken {
    /// Nanoseconds from when a call was due to its answer.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) sent: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
}

impl Default for Taken {
    fn default() -> Self {
        let minute = 60_000_000_000;
        let latencies = Histogram::new_with_bounds(1, minute, 3);
        Self {
            latencies: latencies.expect("valid"),
            sent: 0,
            late: 0,
            dropped: 0,
        }
    }
}

impl Taken {
    pub(crate) fn add(&mut self, other: &Self) {
        self.latencies
            .add(&other.latencies)
            .expect("the same bounds");
        self.sent += other.sent;
        self.late += other.late;
        self.dropped += other.dropped;
    }
}

/// What tasks tell.
struct Told {
    /// By call: nanoseconds, or 0 as long as there is no answer. Each task writes its own.
    latencies: Vec<AtomicU64>,
    ended: AtomicU64,
    failed: AtomicU64,
}

/// Sends calls at a constant rate, and waits for the last answers.
#[allow(clippy::disallowed_methods, reason = "real time is what this is about")]
pub(crate) fn arrive<S: Stack>(runtime: &Runtime, stack: &S, slice: Slice) -> Taken {
    let calls = (f64::from(slice.rate) * slice.time.as_secs_f64()) as u64;
    let told = Arc::new(Told {
        latencies: (0..calls).map(|_| AtomicU64::new(0)).collect(),
        ended: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    });
    let mut taken = Taken::default();
    let runs = leaf::runs();
    let start = Instant::now() + Duration::from_millis(2);
    for n in 0..calls {
        let due = start + Duration::from_nanos(n * 1_000_000_000 / u64::from(slice.rate));
        let now = wait_until(due);
        if now - due > LATE {
            taken.late += 1;
        }
        if taken.sent - told.ended.load(Acquire) >= MAX_IN_FLIGHT {
            taken.dropped += 1;
            continue;
        }
        taken.sent += 1;
        let (told, mut stack, call) = (Arc::clone(&told), stack.clone(), new_call());
        runtime.spawn(async move {
            let is_answer = answered(&mut stack, call).await;
            let latency = due.elapsed().as_nanos() as u64;
            if is_answer {
                told.latencies[n as usize].store(latency.max(1), Relaxed);
            } else {
                told.failed.fetch_add(1, Relaxed);
            }
            told.ended.fetch_add(1, Release);
        });
    }
    let end = Instant::now() + DRAIN;
    while told.ended.load(Acquire) < taken.sent {
        assert!(Instant::now() < end, "calls that never end");
        sleep(Duration::from_millis(1));
    }
    for latency in &told.latencies {
        match latency.load(Relaxed) {
            0 => {}
            ns => taken.latencies.record(ns).expect("less than a minute"),
        }
    }
    assert_eq!(told.failed.load(Relaxed), 0, "calls that failed");
    assert_eq!(taken.latencies.len(), taken.sent, "answers");
    assert_eq!(leaf::runs() - runs, taken.sent, "runs of the tool");
    assert_eq!(taken.sent + taken.dropped, calls, "arrivals");
    taken
}

/// Awake for the last part: to be woken takes longer than a call.
#[allow(clippy::disallowed_methods, reason = "real time is what this is about")]
fn wait_until(due: Instant) -> Instant {
    const AWAKE: Duration = Duration::from_micros(200);
    loop {
        let now = Instant::now();
        match due.checked_duration_since(now) {
            None | Some(Duration::ZERO) => return now,
            Some(left) if left > AWAKE => sleep(left - AWAKE),
            Some(_) => spin_loop(),
        }
    }
}

/// Calls per second when each of some tasks sends its next call as soon as it has an answer.
#[allow(clippy::disallowed_methods, reason = "real time is what this is about")]
pub(crate) fn at_most<S: Stack>(runtime: &Runtime, stack: &S, time: Duration) -> f64 {
    const TASKS: usize = 64;
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let mut stack = stack.clone();
            runtime.spawn(async move {
                let mut calls = 0_u64;
                while start.elapsed() < time {
                    assert!(answered(&mut stack, new_call()).await, "a call failed");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let calls: u64 = tasks
        .into_iter()
        .map(|task| runtime.block_on(task).expect("calls that succeed"))
        .sum();
    calls as f64 / start.elapsed().as_secs_f64()
}

/// Not a clone: all tasks would count its references, which no user's calls share.
fn new_call() -> ToolCall {
    ToolCall::new(leaf::TOOL).with_server("docs")
}

async fn answered<S: Stack>(stack: &mut S, call: ToolCall) -> bool {
    let is_ready = poll_fn(|cx| stack.poll_ready(cx)).await.is_ok();
    is_ready && stack.call(call).await.is_ok_and(|answers| answers == 1)
}
