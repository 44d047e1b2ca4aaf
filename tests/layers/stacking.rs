//! Our layers around any service, in any company.

use std::{convert::Infallible, time::Duration};

use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    check::CheckLayer,
    circuit_breaker::{CircuitBreakerLayer, Trip},
    concurrency_limit::ConcurrencyLimitLayer,
    deadline::DeadlineLayer,
    normalize::NormalizeLayer,
    quota::{Quota, QuotaLayer},
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
    result::ToolResultLayer,
    retry::RetryLayer,
    sanitize::SanitizeLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};
use tower_toolcall_test::{Events, Script, Step};

/// The documented order, around whatever tool.
macro_rules! stack {
    ($tool:expr) => {
        ServiceBuilder::new()
            .layer(SanitizeLayer::default())
            .layer(TraceLayer::new())
            .layer(CheckLayer::max_bytes(1000))
            .layer(QuotaLayer::new(Quota::per_minute(60).unwrap()))
            .layer(DeadlineLayer::new(Duration::from_secs(10)))
            .layer(RetryLayer::default())
            .layer(TraceLayer::attempts())
            .layer(RateLimitBackoffLayer::new())
            .layer(ConcurrencyLimitLayer::new(8))
            .layer(CircuitBreakerLayer::new())
            .layer(TimeoutLayer::new(Duration::from_secs(5)))
            .layer(CatchPanicLayer::new())
            .service($tool)
    };
}

fn call() -> ToolCall {
    ToolCall::new("t")
}

async fn kind<S>(stack: S) -> ErrorKind
where
    S: Service<ToolCall, Response = (), Error = ToolError>,
{
    stack.oneshot(call()).await.unwrap_err().kind()
}

#[tokio::test]
async fn around_a_function_that_returns_a_boxed_error() {
    let tool = service_fn(|_: ToolCall| async { Err::<(), BoxError>("404 Not Found".into()) });
    assert_eq!(kind(stack!(tool)).await, ErrorKind::NotFound);
}

#[tokio::test]
async fn around_a_function_that_cannot_fail() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, Infallible>(7) });
    assert_eq!(stack!(tool).oneshot(call()).await.unwrap(), 7);
}

#[tokio::test]
async fn around_a_function_with_the_users_own_error() {
    enum Mine {
        Quota,
    }
    impl From<Mine> for ToolError {
        fn from(Mine::Quota: Mine) -> Self {
            ToolError::new(ErrorKind::RateLimited, "quota used up").with_code("QUOTA")
        }
    }
    let tool = service_fn(|_: ToolCall| async { Err::<(), _>(Mine::Quota) });
    let error = stack!(tool).oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.code(), "QUOTA");
}

#[tokio::test(start_paused = true)]
async fn around_load_shedding_and_a_concurrency_limit() {
    let tool = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let stack = stack!(
        ServiceBuilder::new()
            .load_shed()
            .concurrency_limit(1)
            .service(tool)
    );
    let mut first = tokio_test::task::spawn(stack.clone().oneshot(call()));
    tokio_test::assert_pending!(first.poll());
    assert_eq!(kind(stack).await, ErrorKind::Overloaded);
}

/// E2: the error behind `Buffer` is shared and boxed, and still ours.
#[tokio::test]
async fn around_a_buffer() {
    let denied = service_fn(|_: ToolCall| async {
        Err::<(), _>(ToolError::new(ErrorKind::Denied, "no").with_code("MINE"))
    });
    let stack = stack!(ServiceBuilder::new().buffer(4).service(denied));
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Denied, "MINE"));
}

/// E2: a buffer whose service failed to become ready shares that error with every later call.
#[tokio::test]
async fn around_a_buffer_whose_service_has_failed() {
    let (mock, mut handle) = tower_test::mock::pair::<ToolCall, ()>();
    handle.send_error(ToolError::new(ErrorKind::TokenExchange, "expired"));
    let stack = stack!(ServiceBuilder::new().buffer(4).service(mock));
    assert_eq!(kind(stack.clone()).await, ErrorKind::TokenExchange);
    assert_eq!(kind(stack).await, ErrorKind::TokenExchange);
}

#[tokio::test]
async fn boxed_cloned_and_shared_between_tasks() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(7) });
    let stack: BoxCloneSyncService<ToolCall, i32, ToolError> =
        BoxCloneSyncService::new(stack!(tool));
    let tasks: Vec<_> = (0..8)
        .map(|_| tokio::spawn(stack.clone().oneshot(call())))
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 7);
    }
    // Around a boxed one as well.
    assert_eq!(stack!(stack).oneshot(call()).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn with_towers_own_timeout_in_the_middle() {
    let tool = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(DeadlineLayer::new(Duration::from_secs(10)))
        .timeout(Duration::from_secs(1))
        .layer(CatchPanicLayer::new())
        .service(tool);
    let start = tokio::time::Instant::now();
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.tool(), Some("t"));
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn under_towers_layers_with_a_normalised_error() {
    let tool = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let stack = ServiceBuilder::new()
        .layer(NormalizeLayer::new())
        .load_shed()
        .concurrency_limit(1)
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .service(tool);
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.tool(), Some("t"));
}

#[tokio::test(start_paused = true)]
async fn from_box_is_the_function_for_map_err() {
    let tool = service_fn(|_: ToolCall| std::future::pending::<Result<(), BoxError>>());
    let stack = ServiceBuilder::new()
        .map_err(ToolError::from_box)
        .timeout(Duration::from_secs(1))
        .service(tool);
    let result = tokio::spawn(stack.oneshot(call())).await.unwrap();
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Timeout);
}

/// E7: another system's codes are a setting.
#[tokio::test]
async fn codes_can_be_mapped_to_another_systems() {
    let tool = service_fn(|_: ToolCall| async { Err::<(), BoxError>("fetch failed".into()) });
    let codes = |error: &ToolError| match error.kind() {
        ErrorKind::ConnectionFailed => Some("MCP_CONNECTION_ERROR"),
        _ => None,
    };
    let stack = ServiceBuilder::new()
        .layer(NormalizeLayer::new().with_codes(codes))
        .service(tool);
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.code(), "MCP_CONNECTION_ERROR");
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
}

/// Trap 25: what a layer value holds is shared by all services made from it or its clones, as axum
/// makes one per route.
#[tokio::test(start_paused = true)]
async fn services_of_one_layer_value_share_what_it_holds() {
    let events = Events::new();
    let layer = TimeoutLayer::new(Duration::from_secs(10)).with_listener(events.clone());
    let tool = Script::always(Step::ok(()).after(Duration::from_secs(9)));
    for route in [layer.layer(tool.clone()), layer.clone().layer(tool)] {
        route.oneshot(call()).await.unwrap();
    }
    events.assert(["tool.slow"; 2]);
}

/// Trap 25: a call through one service counts for another one of the layer's clone.
#[tokio::test(start_paused = true)]
async fn services_of_one_layer_value_share_its_state() {
    async fn refuses<L>(layer: L, does: Step<()>)
    where
        L: Layer<Script<()>> + Clone,
        L::Service: Service<ToolCall, Response = (), Error = ToolError>,
    {
        let tool = Script::always(does);
        let call = || call().with_session_id("s1");
        let mut first = tokio_test::task::spawn(layer.layer(tool.clone()).oneshot(call()));
        let _ = first.poll();
        let second = layer.clone().layer(tool).oneshot(call()).await;
        let error = second.unwrap_err();
        assert!(error.is_own_refusal(), "{error:?}");
    }
    let limit = ConcurrencyLimitLayer::builder(1).with_max_queue(0).build();
    refuses(limit.unwrap(), Step::hang()).await;
    let quota = QuotaLayer::builder(Quota::per_minute(1).unwrap()).with_fail_fast();
    refuses(quota.build().unwrap(), Step::ok(())).await;
    let trip = Trip::consecutive_failures(1);
    let breaker = CircuitBreakerLayer::builder().with_trip(trip).build();
    refuses(breaker.unwrap(), Step::fail(ErrorKind::Upstream)).await;
    let guard = RepeatGuardLayer::builder().with_failures(1).build();
    refuses(guard.unwrap(), Step::fail(ErrorKind::Failed)).await;
}

/// N4: every layer works without configuration.
#[tokio::test]
async fn every_layer_works_without_configuration() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(7) });
    let stack = ServiceBuilder::new()
        .layer(SanitizeLayer::default())
        .layer(ToolResultLayer::default())
        .layer(NormalizeLayer::default())
        .layer(TraceLayer::default())
        .layer(DeadlineLayer::inherited())
        .layer(RetryLayer::default())
        .layer(RateLimitBackoffLayer::default())
        .layer(CircuitBreakerLayer::default())
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::default())
        .service(tool);
    let Ok(result) = stack.oneshot(call()).await;
    assert_eq!(result.into_result().unwrap(), 7);
}
