//! T2: timeouts from a function, which may say something else for each attempt.

use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Identity, ReplaySafety, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    circuit_breaker::{BreakerState, CircuitBreakerLayer},
    deadline::DeadlineLayer,
    error::TimeoutLimit,
    flow::CallExt,
    identity::{IdentityLayer, Resolve},
    retry::RetryLayer,
    timeout::TimeoutLayer,
};

use crate::kit::secs;

async fn hangs(_: ToolCall) -> Result<(), BoxError> {
    pending().await
}

/// What a database says, and who looks it up.
#[derive(Clone, Default)]
struct Database(Arc<Mutex<HashMap<String, Duration>>>);

impl Database {
    fn says(&self, tool: &str, timeout: Duration) {
        self.0.lock().unwrap().insert(tool.into(), timeout);
    }

    fn layer(&self) -> TimeoutLayer {
        let current = self.clone();
        TimeoutLayer::new(secs(30))
            .with_timeout_fn(move |call| current.0.lock().unwrap().get(call.tool()).copied())
    }
}

async fn ends(layer: &TimeoutLayer, call: ToolCall) -> ToolError {
    let start = Instant::now();
    let error = layer
        .layer(service_fn(hangs))
        .oneshot(call)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.timeout(), Some(start.elapsed()));
    error
}

async fn time(layer: &TimeoutLayer, call: ToolCall) -> Duration {
    ends(layer, call).await.timeout().unwrap()
}

/// T2: the call, the function, the table, what is listed, the default: in this order.
#[tokio::test(start_paused = true)]
async fn the_call_beats_the_function_which_beats_table_and_default() {
    let database = Database::default();
    database.says("import", secs(5));
    let layer = database
        .layer()
        .with_tool("import", secs(7))
        .with_tool("search", secs(8));
    let own = ToolCall::new("import").with_timeout(secs(2));
    assert_eq!(time(&layer, own).await, secs(2));
    assert_eq!(time(&layer, ToolCall::new("import")).await, secs(5));
    assert_eq!(time(&layer, ToolCall::new("search")).await, secs(8));
    assert_eq!(time(&layer, ToolCall::new("other")).await, secs(30));
    // What a table of tools knows is a default too.
    let listed = |name: &'static str| {
        let identity = Identity::new(name).with_timeout(secs(9));
        ToolCall::new(name).resolved(&identity)
    };
    assert_eq!(time(&layer, listed("import")).await, secs(5));
    assert_eq!(time(&layer, listed("other")).await, secs(9));
}

/// T2: system D reads them while it runs.
#[tokio::test(start_paused = true)]
async fn what_the_function_says_may_change_while_the_program_runs() {
    let database = Database::default();
    let layer = database.layer();
    assert_eq!(time(&layer, ToolCall::new("import")).await, secs(30));
    for said in [5, 60] {
        database.says("import", secs(said));
        assert_eq!(time(&layer, ToolCall::new("import")).await, secs(said));
    }
}

/// T2: it is asked for each attempt, and not for a call that has a timeout of its own.
#[tokio::test(start_paused = true)]
async fn the_function_is_asked_for_each_attempt() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let layer = TimeoutLayer::default().with_timeout_fn(move |call| {
        count.fetch_add(1, SeqCst);
        Some(secs(call.attempt().into()))
    });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .layer(layer)
        .service(service_fn(hangs));
    let call = ToolCall::new("search").with_replay_safety(ReplaySafety::Safe);
    let error = stack.clone().oneshot(call.clone()).await.unwrap_err();
    assert_eq!((error.timeout(), asked.load(SeqCst)), (Some(secs(3)), 3));
    let own = call.with_timeout(secs(4));
    let error = stack.oneshot(own).await.unwrap_err();
    assert_eq!((error.timeout(), asked.load(SeqCst)), (Some(secs(4)), 3));
}

/// T3, T5: a deadline shortens it, and the error has both.
#[tokio::test(start_paused = true)]
async fn a_deadline_shortens_what_the_function_says() {
    let database = Database::default();
    database.says("import", secs(20));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(6)))
        .layer(database.layer())
        .service(service_fn(hangs));
    let error = stack.oneshot(ToolCall::new("import")).await.unwrap_err();
    assert_eq!(error.timeout_limit(), Some(TimeoutLimit::Deadline));
    let call = ToolCall::new("import").with_deadline(Instant::now() + secs(6));
    let error = ends(&database.layer(), call).await;
    assert_eq!(error.timeout(), Some(secs(6)));
    assert_eq!(error.configured_timeout(), Some(secs(20)));
}

/// V9: the breaker above knows the limit in force: a call that is dropped after it is a failure,
/// one before it none.
#[tokio::test(start_paused = true)]
async fn a_breaker_above_judges_dropped_calls_by_what_the_function_says() {
    for (dropped_after, state) in [(4, BreakerState::Closed), (5, BreakerState::Open)] {
        let database = Database::default();
        database.says("import", secs(5));
        let breaker = CircuitBreakerLayer::new();
        let handle = breaker.handle();
        let stack = ServiceBuilder::new()
            .layer(breaker)
            .layer(database.layer())
            .service(service_fn(hangs));
        for _ in 0..5 {
            // Dropped in the moment in which the timeout would end it: the outer one is polled
            // first.
            let call = stack.clone().oneshot(ToolCall::new("import"));
            let outer = timeout(secs(dropped_after) - Duration::from_millis(1), call);
            assert!(outer.await.is_err());
        }
        assert_eq!(handle.snapshot()[0].state, state, "{dropped_after}");
    }
}

/// V2: the function gets the tool, however the caller spelled it.
#[tokio::test(start_paused = true)]
async fn the_function_gets_resolved_names() {
    struct Pay;
    impl Resolve for Pay {
        fn resolve(&self, _: &ToolCall) -> Result<Option<Identity>, ToolError> {
            Ok(Some(Identity::new("charge").with_server("pay")))
        }
    }
    let layer = TimeoutLayer::default().with_timeout_fn(|call| {
        let is_it = (call.server(), call.tool()) == (Some("pay"), "charge");
        is_it.then_some(secs(5))
    });
    let stack = ServiceBuilder::new()
        .layer(IdentityLayer::new(Pay))
        .layer(layer)
        .service(service_fn(hangs));
    for call in [
        ToolCall::new("pay__charge"),
        ToolCall::new("charge").with_server("pay"),
    ] {
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.timeout(), Some(secs(5)));
    }
}

/// It is not caught, and leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn a_function_that_panics_is_a_failure_of_the_call() {
    let breaker = CircuitBreakerLayer::new();
    let handle = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(breaker)
        .layer(TimeoutLayer::default().with_timeout_fn(|_| panic!("no database")))
        .layer(CatchPanicLayer::new())
        .service(service_fn(hangs));
    for _ in 0..5 {
        let call = stack.clone().oneshot(ToolCall::new("import"));
        assert!(tokio::spawn(call).await.unwrap_err().is_panic());
    }
    assert_eq!(handle.snapshot()[0].state, BreakerState::Open);
}
