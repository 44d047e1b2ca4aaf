//! What the layers of the crate see of layers and leaves of another author.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use foreign_layer::{AgainLayer, Index, PaceLayer, QuotaLayer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Execution, ReplaySafety, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    event::BreakerState,
    rate_limit::RateLimitBackoffLayer,
    result::{Status, ToolResult, ToolResultLayer},
    retry::RetryLayer,
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
    transport::transport,
};

fn call(tool: &str) -> ToolCall {
    ToolCall::new(tool)
        .with_server("docs")
        .with_replay_safety(ReplaySafety::Safe)
}

/// A tool that fails twice, then answers; and how often it was sent.
fn flaky() -> (
    impl Service<
        ToolCall,
        Response = &'static str,
        Error = ToolError,
        Future: Future<Output = Result<&'static str, ToolError>> + Send,
    > + Clone
    + Send
    + Sync
    + 'static,
    Arc<AtomicU32>,
) {
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let tool = service_fn(move |call: ToolCall| {
        count.fetch_add(1, SeqCst);
        let attempt = call.attempt();
        async move {
            match attempt {
                1 | 2 => Err(ToolError::new(ErrorKind::Upstream, "503")),
                _ => Ok("done"),
            }
        }
    });
    (tool, sent)
}

fn again() -> AgainLayer {
    AgainLayer::new(3, Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn metrics_count_the_retries_of_a_foreign_layer() {
    let metrics = Metrics::new();
    let (tool, sent) = flaky();
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(again())
        .service(tool);
    assert_eq!(stack.oneshot(call("search")).await.unwrap(), "done");
    assert_eq!(sent.load(SeqCst), 3);
    let snapshot = metrics.snapshot();
    let stats = snapshot.tool(Some("docs"), "search").unwrap();
    assert_eq!((stats.calls, stats.successes), (1, 1));
    assert_eq!((stats.attempts, stats.retries), (3, Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_result_tells_of_the_attempts_and_waits_of_a_foreign_layer() {
    let (tool, _) = flaky();
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(again())
        .service(tool);
    let result = stack.oneshot(call("search")).await.unwrap();
    assert!(result.is_success());
    assert_eq!(result.attempts(), 3);
    assert_eq!(result.metadata().waited(), Duration::from_secs(2));
    assert_eq!(result.metadata().max_attempts(), Some(3));
}

/// Who repeats is the outermost, whoever wrote it.
#[tokio::test(start_paused = true)]
async fn of_two_layers_that_repeat_the_outer_one_does() {
    for foreign_is_outside in [true, false] {
        let (tool, sent) = flaky();
        let calls = match foreign_is_outside {
            true => {
                let stack = ServiceBuilder::new()
                    .layer(again())
                    .layer(RetryLayer::default());
                stack.service(tool).oneshot(call("search")).await
            }
            false => {
                let stack = ServiceBuilder::new()
                    .layer(RetryLayer::default())
                    .layer(again());
                stack.service(tool).oneshot(call("search")).await
            }
        };
        assert_eq!(calls.unwrap(), "done");
        assert_eq!(sent.load(SeqCst), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_layer_only_holds_back_under_a_foreign_one_that_repeats() {
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let tool = service_fn(move |_: ToolCall| {
        count.fetch_add(1, SeqCst);
        async { Err::<(), _>(ToolError::new(ErrorKind::RateLimited, "429")) }
    });
    let stack = ServiceBuilder::new()
        .layer(again())
        .layer(RateLimitBackoffLayer::new())
        .service(tool);
    let error = stack.oneshot(call("search")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(sent.load(SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_is_the_same_for_all_attempts_of_a_foreign_layer() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&keys);
    let tool = service_fn(move |call: ToolCall| {
        heard.lock().unwrap().push(call.idempotency_key());
        async { Err::<(), _>(ToolError::new(ErrorKind::Upstream, "503")) }
    });
    let mut stack = ServiceBuilder::new().layer(again()).service(tool);
    for _ in 0..2 {
        let _ = stack.ready().await.unwrap().call(call("search")).await;
    }
    let keys = keys.lock().unwrap();
    assert_eq!(keys.len(), 6);
    assert!(keys[0].is_some() && keys[0] == keys[2] && keys[3] == keys[5]);
    assert_ne!(keys[0], keys[3]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_refusal_is_no_failure_and_no_attempt() {
    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::new();
    let breakers = breaker.handle();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("sunny") });
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(metrics.layer())
        .layer(RetryLayer::default())
        .layer(breaker)
        .layer(QuotaLayer::new(1))
        .service(tool);
    let mut refused: Vec<ToolResult<_>> = Vec::new();
    for n in 0..21 {
        let result = stack.clone().oneshot(call("weather")).await.unwrap();
        match n {
            0 => assert!(result.is_success()),
            _ => refused.push(result),
        }
    }
    for result in &refused {
        let error = result.error().unwrap();
        assert!(error.is_own_refusal());
        assert_eq!(
            (error.kind(), error.tool()),
            (ErrorKind::Overloaded, Some("weather"))
        );
        assert_eq!(error.execution(), Execution::NotStarted);
        assert_eq!(result.attempts(), 0);
    }
    let breaker = breakers.find(&call("weather")).unwrap();
    assert_eq!(breaker.state(), BreakerState::Closed);
    let snapshot = metrics.snapshot();
    let stats = snapshot.tool(Some("docs"), "weather").unwrap();
    assert_eq!((stats.calls, stats.attempts, stats.rejected), (21, 1, 20));
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_foreign_leaf_keeps_its_call_alive() {
    let idle = TimeoutLayer::new(Duration::from_secs(3600));
    let idle = idle.with_idle_timeout(Duration::from_secs(90)).unwrap();
    let documents = |n: u32| {
        let arguments = [("documents".to_owned(), n.into())];
        call("index").with_arguments(arguments.into_iter().collect())
    };
    let answer = idle.layer(Index).oneshot(documents(10)).await;
    assert_eq!(answer.unwrap(), "10 documents");
    let brief = TimeoutLayer::new(Duration::from_secs(90));
    let error = brief.layer(Index).oneshot(documents(10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn what_a_foreign_leaf_reports_is_a_failure_for_all_that_observe_it() {
    let metrics = Metrics::new();
    let stack = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(metrics.layer())
        .service(Index);
    let broken = [("broken".to_owned(), true.into())].into_iter().collect();
    let result = stack
        .oneshot(call("index").with_arguments(broken))
        .await
        .unwrap();
    assert_eq!(result.status(), Status::Error);
    assert_eq!(result.error().unwrap().kind(), ErrorKind::Reported);
    assert_eq!(
        result.data().map(String::as_str),
        Some("error: the index is locked")
    );
    assert_eq!(result.metadata().output_bytes(), Some(28));
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.tool(Some("docs"), "index").unwrap().successes, 0);
}

/// The pause ends at the call's deadline, and when its caller cancels.
#[tokio::test(start_paused = true)]
async fn the_pause_of_a_foreign_layer_ends_with_its_call() {
    let stack = AgainLayer::new(3, Duration::from_secs(60)).layer(flaky().0);
    let began = Instant::now();
    let brief = call("search").with_deadline(began + Duration::from_secs(5));
    stack.clone().oneshot(brief).await.unwrap_err();
    let token = CancellationToken::new();
    let cancelled = call("search").with_cancellation(token.clone());
    let call = tokio::spawn(stack.oneshot(cancelled));
    tokio::time::sleep(Duration::from_secs(1)).await;
    token.cancel();
    call.await.unwrap().unwrap_err();
    assert!(began.elapsed() <= Duration::from_secs(6));
}

/// The waits of a foreign layer hold no call past its deadline, and are no attempts.
#[tokio::test(start_paused = true)]
async fn a_foreign_layer_lets_calls_wait() {
    let metrics = Metrics::new();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("sunny") });
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(PaceLayer::new(Duration::from_secs(10)))
        .service(tool);
    let began = Instant::now();
    let send = |call| stack.clone().oneshot(call);
    let brief = call("weather").with_deadline(began + Duration::from_secs(5));
    let (first, second, third, late) = tokio::join!(
        send(call("weather")),
        send(call("weather")),
        send(call("weather")),
        send(brief)
    );
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    assert_eq!(began.elapsed(), Duration::from_secs(20));
    let late = late.unwrap_err();
    assert_eq!(
        (late.kind(), late.execution(), late.tool()),
        (
            ErrorKind::DeadlineExceeded,
            Execution::NotStarted,
            Some("weather")
        )
    );
    let snapshot = metrics.snapshot();
    let stats = snapshot.tool(Some("docs"), "weather").unwrap();
    assert_eq!((stats.calls, stats.attempts), (4, 3));
}

/// A foreign leaf that is a transport says by type what its errors prove. Those of another leaf
/// prove nothing.
#[tokio::test(start_paused = true)]
async fn a_foreign_transport_proves_that_a_call_was_not_sent() {
    let leaf = service_fn(|_: ToolCall| async {
        Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused))
    });
    let unsafe_call = || call("pay").with_replay_safety(ReplaySafety::Unsafe);
    let stack = again().layer(transport(leaf));
    let error = stack.oneshot(unsafe_call()).await.unwrap_err();
    assert_eq!(
        (error.execution(), error.attempts()),
        (Execution::NotStarted, Some(3))
    );
    let leaf = leaf.map_err(ToolError::from);
    let error = again()
        .layer(leaf)
        .oneshot(unsafe_call())
        .await
        .unwrap_err();
    assert_eq!(
        (error.execution(), error.attempts()),
        (Execution::Unknown, None)
    );
}
