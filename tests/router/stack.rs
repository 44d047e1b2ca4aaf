//! Our layers around a router, and inside its routes.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ReplaySafety, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    rate_limit::RateLimitBackoffLayer,
    result::ToolResultLayer,
    retry::{RetryLayer, RetryPolicy},
    router::{RouterBuilder, tool_fn},
    timeout::TimeoutLayer,
    trace::TraceLayer,
    transport::transport,
};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Counts its calls, and fails the first ones.
fn fails_first(n: usize, error: &'static str) -> (Arc<AtomicUsize>, impl Tool) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let tool = service_fn(move |_: ToolCall| {
        let nth = count.fetch_add(1, SeqCst);
        async move {
            match nth < n {
                true => Err::<&'static str, BoxError>(error.into()),
                false => Ok("answer"),
            }
        }
    });
    (calls, tool)
}

trait Tool:
    tower::Service<ToolCall, Response = &'static str, Error = BoxError, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}
impl<S> Tool for S where
    S: tower::Service<ToolCall, Response = &'static str, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

#[tokio::test(start_paused = true)]
async fn a_timeout_on_one_route_touches_no_other() {
    let slow = || {
        tool_fn(|(): ()| async {
            sleep(secs(5)).await;
            Ok::<_, BoxError>("late")
        })
    };
    let hasty = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(1)))
        .service(slow());
    let router = RouterBuilder::<&'static str>::new()
        .tool("hasty", hasty)
        .tool("patient", slow())
        .build()
        .unwrap();
    let error = router.clone().oneshot(ToolCall::new("hasty")).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(
        router.oneshot(ToolCall::new("patient")).await.unwrap(),
        "late"
    );
}

/// The documented order above, a breaker and a timeout of its own inside: everything is seen above.
#[tokio::test(start_paused = true)]
async fn the_full_stack_around_a_router() {
    let (calls, flaky) = fails_first(2, "503 Service Unavailable");
    let inside = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::new(secs(7)))
        .service(flaky);
    let router = RouterBuilder::<&'static str>::new()
        .server("docs", inside, ["search"])
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(TraceLayer::new())
        .layer(DeadlineLayer::new(secs(60)))
        .layer(RetryLayer::default())
        .layer(TraceLayer::attempts())
        .layer(RateLimitBackoffLayer::new())
        .layer(CircuitBreakerLayer::new())
        .layer(TimeoutLayer::new(secs(30)))
        .layer(CatchPanicLayer::new())
        .service(router);
    let call = ToolCall::new("docs__search").with_replay_safety(ReplaySafety::Safe);
    let Ok(result) = stack.oneshot(call).await;
    assert_eq!(result.data(), Some(&"answer"));
    assert_eq!((result.attempts(), calls.load(SeqCst)), (3, 3));
    // Of several timeouts the shortest: the one inside.
    assert_eq!(result.metadata().timeout(), Some(secs(7)));
}

/// V1, R6: what a transport has surely not sent may be sent again, through the router too, without
/// any ids.
#[tokio::test(start_paused = true)]
async fn what_has_not_started_inside_is_repeated_outside() {
    let (calls, refused) = fails_first(1, "refused");
    let client = refused.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused));
    let router = RouterBuilder::<&'static str>::new()
        .server("docs", transport(client), ["pay"])
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .service(router);
    let call = ToolCall::new("docs__pay").with_replay_safety(ReplaySafety::Unsafe);
    assert_eq!(stack.oneshot(call).await.unwrap(), "answer");
    assert_eq!(calls.load(SeqCst), 2);
}

/// C4: an open breaker inside a route is a refusal for the caller: at once, and not started.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_inside_refuses_by_the_outer_name() {
    let (calls, broken) = fails_first(100, "503 Service Unavailable");
    let inside = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .service(broken);
    let router = RouterBuilder::<&'static str>::new()
        .server("docs", inside, ["search"])
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(60)))
        .layer(CatchPanicLayer::new())
        .service(router);
    let call = || stack.clone().oneshot(ToolCall::new("docs__search"));
    for _ in 0..5 {
        assert_eq!(call().await.unwrap_err().kind(), ErrorKind::Upstream);
    }
    let error = call().await.unwrap_err();
    assert_eq!(
        (
            error.kind(),
            error.execution(),
            error.tool(),
            error.server()
        ),
        (
            ErrorKind::CircuitOpen,
            Execution::NotStarted,
            Some("docs__search"),
            Some("docs")
        )
    );
    assert_eq!(calls.load(SeqCst), 5);
}

/// A tool has one state inside, however its callers name it, whatever a layer outside has made of
/// the name.
#[tokio::test(start_paused = true)]
async fn a_breaker_inside_counts_both_ways_to_name_a_tool() {
    let (calls, broken) = fails_first(100, "503 Service Unavailable");
    let inside = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .service(broken);
    let router = RouterBuilder::<&'static str>::new()
        .server("docs", inside, ["s"])
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .service(router);
    for _ in 0..4 {
        let _ = stack.clone().oneshot(ToolCall::new("docs__s")).await;
    }
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let call = ToolCall::new("s").with_server("docs");
        kinds.push(stack.clone().oneshot(call).await.unwrap_err().kind());
    }
    let open = ErrorKind::CircuitOpen;
    assert_eq!(kinds, [ErrorKind::Upstream, open, open]);
    assert_eq!(calls.load(SeqCst), 5);
}

/// C1: one bad tool, by its flat name, opens no other's breaker.
#[tokio::test(start_paused = true)]
async fn a_breaker_around_the_router_tells_the_tools_apart() {
    let (_, broken) = fails_first(100, "503 Service Unavailable");
    let (_, fine) = fails_first(0, "");
    let router = RouterBuilder::<&'static str>::new()
        .server("docs", broken, ["search"])
        .server("web", fine, ["search"])
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .service(router);
    for _ in 0..6 {
        let _ = stack.clone().oneshot(ToolCall::new("docs__search")).await;
    }
    let refused = stack.clone().oneshot(ToolCall::new("docs__search")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::CircuitOpen);
    let answer = stack.oneshot(ToolCall::new("web__search")).await;
    assert_eq!(answer.unwrap(), "answer");
}

/// A timeout above cancels the tool below.
#[tokio::test(start_paused = true)]
async fn a_timeout_above_drops_the_tool() {
    struct Alive(Arc<AtomicUsize>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&dropped);
    let tool = tool_fn(move |(): ()| {
        let alive = Alive(Arc::clone(&seen));
        async move {
            let _alive = alive;
            std::future::pending::<()>().await;
            Ok::<_, BoxError>(())
        }
    });
    let router = RouterBuilder::<()>::new()
        .tool("hang", tool)
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(1)))
        .service(router);
    let start = Instant::now();
    let error = stack.oneshot(ToolCall::new("hang")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), secs(1));
    assert_eq!(dropped.load(SeqCst), 1);
}

#[tokio::test]
async fn a_panic_is_left_to_those_who_catch_it() {
    let tool = tool_fn(|(): ()| async {
        if true {
            panic!("a bug")
        }
        Ok::<_, BoxError>(())
    });
    let router = RouterBuilder::<()>::new().tool("t", tool).build().unwrap();
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .service(router);
    let error = stack.oneshot(ToolCall::new("t")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(error.tool(), Some("t"));
}

/// The router knows nothing of local tools and of plain lists.
#[tokio::test]
async fn replay_safety_is_unknown_without_a_catalog() {
    let (_, tool) = fails_first(0, "");
    let router = RouterBuilder::<&'static str>::new()
        .tool("local", tool.clone())
        .server("docs", tool, ["search"])
        .build()
        .unwrap();
    for name in ["local", "docs__search", "nope"] {
        let safety = router.replay_safety(&ToolCall::new(name));
        assert_eq!(safety, ReplaySafety::Unknown, "{name}");
    }
    let _: RetryPolicy = RetryPolicy::new().with_replay_safety(move |c| router.replay_safety(c));
}

/// The known trap of the compiler does not bite here: a router's error is ours.
#[tokio::test]
async fn a_router_is_called_in_a_spawned_block() {
    let tool = tool_fn(|(): ()| async { Err::<(), BoxError>("no".into()) });
    let router = RouterBuilder::<()>::new().tool("t", tool).build().unwrap();
    let call = tokio::spawn(async move { router.oneshot(ToolCall::new("t")).await });
    let error: ToolError = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
}
