//! A long loop with faults at every layer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{
    AnyError, ToolCall, batch::Parallel, circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer, timeout::TimeoutLayer,
};
use tower_toolcall_turn::{Assembler, Turn};

use crate::kit::{FORMATS, check, response, stream, written};

/// Tools that answer, fail, hang, panic and are switched off; a model that repeats ids, forgets
/// them and writes no JSON; turns that are streamed and whole.
#[tokio::test(start_paused = true)]
async fn two_hundred_turns_with_faults_are_answered() {
    let count = Arc::new(AtomicU64::new(0));
    let tool = {
        let count = Arc::clone(&count);
        service_fn(move |_: ToolCall| {
            let n = count.fetch_add(1, Relaxed);
            async move {
                match n % 7 {
                    0 => Err(AnyError::from("503 Service Unavailable")),
                    1 => std::future::pending().await,
                    2 => Err(AnyError::from("connection refused")),
                    3 => Ok(String::new()),
                    _ => Ok(format!("answer {n}")),
                }
            }
        })
    };
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(Duration::from_secs(5)))
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .service(tool);
    let tools = Parallel::new(stack).with_limit(3).unwrap();

    let mut runner = TestRunner::deterministic();
    let turns = proptest::collection::vec(written(), 1..6);
    for n in 0..200 {
        let calls = turns.new_tree(&mut runner).unwrap().current();
        let format = FORMATS[n % FORMATS.len()];
        let turn = if n % 2 == 0 {
            Turn::read(format, &response(format, &calls)).unwrap()
        } else {
            let mut assembler = Assembler::new(format);
            for chunk in stream(format, &calls) {
                assembler.push(&chunk).unwrap();
            }
            assembler.finish().unwrap()
        };
        let calls = turn.len();
        let messages: Vec<_> = turn.run(&tools).await.into_messages().collect();
        check(format, &messages, calls);
    }
    assert!(count.load(Relaxed) > 100, "hardly a tool has run");
}
