//! A breaker between threads, in real time: calls that succeed, fail, panic and are dropped at
//! random.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, Event, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    circuit_breaker::{
        BreakerState, CircuitBreakerBuilder, CircuitBreakerLayer, Rates, Transition,
    },
};

const TASKS: u64 = 32;
const TIME: Duration = Duration::from_millis(1500);
const PROBES: u32 = 2;

/// Xorshift: the same numbers each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }
}

/// What callers and the tool have seen.
#[derive(Default)]
struct Seen {
    ran: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

async fn stress(builder: CircuitBreakerBuilder) {
    let heard = Arc::new(Mutex::new(Vec::<Transition>::new()));
    let hear = Arc::clone(&heard);
    let layer: CircuitBreakerLayer = builder
        .with_open_for(Duration::from_millis(2))
        .with_probes(PROBES)
        .with_probe_lease(Duration::from_millis(20))
        .with_listener(move |event: &Event<'_>| {
            if let Event::Transition { transition, .. } = event {
                hear.lock().unwrap().push((*transition).clone());
            }
        })
        .build()
        .unwrap();
    let breaker = layer.handle().breaker(&call());
    let seen = Arc::new(Seen::default());
    let healthy = Arc::new(AtomicBool::new(false));

    let tool = {
        let (seen, healthy) = (Arc::clone(&seen), Arc::clone(&healthy));
        service_fn(move |call: ToolCall| {
            seen.ran.fetch_add(1, SeqCst);
            let (seen, healthy) = (Arc::clone(&seen), healthy.load(Relaxed));
            let dice = call.session_id().unwrap().parse::<u32>().unwrap();
            async move {
                if dice & 1 == 1 {
                    tokio::time::sleep(Duration::from_micros(u64::from(dice % 500))).await;
                }
                match dice % 10 {
                    _ if healthy => Ok(()),
                    0..6 => Ok(()),
                    6..8 => {
                        seen.failed.fetch_add(1, SeqCst);
                        Err(ToolError::from_status(
                            http::StatusCode::SERVICE_UNAVAILABLE,
                            "503",
                        ))
                    }
                    8 => {
                        seen.failed.fetch_add(1, SeqCst);
                        // A panic without its message on the terminal.
                        std::panic::resume_unwind(Box::new("at random"))
                    }
                    _ => std::future::pending().await,
                }
            }
        })
    };
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(layer)
        .service(tool);

    let end = Instant::now() + TIME;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (stack, seen, breaker) = (stack.clone(), Arc::clone(&seen), breaker.clone());
            tokio::spawn(async move {
                let mut dice = Dice(task + 1);
                let mut calls = 0;
                while Instant::now() < end {
                    calls += 1;
                    let call = call().with_session_id(dice.roll().to_string());
                    let patience = Duration::from_micros(u64::from(dice.roll() % 3000));
                    let mut stack = stack.clone();
                    let response = stack.ready().await.unwrap().call(call);
                    if dice.roll().is_multiple_of(20) {
                        continue; // dropped before its first poll
                    }
                    let result = tokio::time::timeout(patience, response).await;
                    if let Ok(Err(error)) = result
                        && error.kind() == ErrorKind::CircuitOpen
                    {
                        assert!(error.retry_after().is_some_and(|d| !d.is_zero()));
                        seen.refused.fetch_add(1, SeqCst);
                        tokio::task::yield_now().await;
                    }
                    assert!(breaker.snapshot().probes <= PROBES as usize);
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for task in tasks {
        calls += task.await.unwrap();
    }

    // Every call ran or was refused, and each failure counted or came too late.
    let snapshot = breaker.snapshot();
    let (ran, refused, failed) = (
        seen.ran.load(SeqCst),
        seen.refused.load(SeqCst),
        seen.failed.load(SeqCst),
    );
    assert!(snapshot.rejected_total >= refused);
    assert_eq!(ran + snapshot.rejected_total, calls);
    assert!(snapshot.failed_total <= failed);
    assert!(snapshot.failed_total + snapshot.stale_total >= failed);

    // Each state was entered once, from the one before.
    let mut heard = std::mem::take(&mut *heard.lock().unwrap());
    heard.sort_by_key(|t| t.generation);
    let mut from = BreakerState::Closed;
    for (n, transition) in heard.iter().enumerate() {
        assert_eq!(transition.generation as usize, n + 1);
        assert_eq!(transition.from, from);
        from = transition.to;
    }
    let opened = heard.iter().filter(|t| t.to == BreakerState::Open).count();
    assert_eq!(snapshot.opened_total as usize, opened);
    assert!(opened > 10, "{opened} is not much of a test");

    // Never wedged.
    healthy.store(true, SeqCst);
    let late = Instant::now() + Duration::from_secs(5);
    while breaker.state() != BreakerState::Closed {
        assert!(Instant::now() < late, "{:?}", breaker.snapshot());
        let _ = stack.clone().oneshot(call().with_session_id("0")).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn call() -> ToolCall {
    ToolCall::new("search").with_server("docs")
}

/// Traps 1, 2 and 3 under concurrency, C10.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consecutive_failures_between_threads() {
    stress(CircuitBreakerLayer::builder()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rates_over_calls_between_threads() {
    stress(CircuitBreakerLayer::builder().with_trip(Rates::over_calls(20).with_failure_rate(0.3)))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rates_over_time_between_threads() {
    let rates = Rates::over_time(Duration::from_millis(32))
        .with_failure_rate(0.3)
        .with_slow_call_rate(0.9, Duration::from_millis(1));
    stress(CircuitBreakerLayer::builder().with_trip(rates)).await;
}
