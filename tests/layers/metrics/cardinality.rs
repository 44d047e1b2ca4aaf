//! Names that a model invents.

use tower::ServiceExt;
use tower_toolcall::{BoxError, ErrorKind, Execution, ToolCall, ToolError, tool_metrics::Metrics};

use super::{run, stats, tools};

#[tokio::test(start_paused = true)]
async fn invented_names_get_no_row_and_push_no_tool_out() {
    let metrics = Metrics::builder().with_max_tools(100).build().unwrap();
    let tools = tools(&metrics);
    for n in 0..100_000 {
        if n % 10_000 == 0 {
            run(&metrics, &format!("real_{n}")).await;
        }
        let invented = ToolCall::new(format!("invented_{n}")).with_server("docs");
        tools.clone().oneshot(invented).await.unwrap_err();
    }
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.tools.len(), 11, "ten tools, and the other one");
    assert_eq!(snapshot.tool(None, "_other").unwrap().calls, 100_000);
    assert_eq!(stats(&metrics, "real_0").successes, 1);
    assert!(!metrics.prometheus().contains("invented"));
    // There is room for another tool.
    run(&metrics, "late").await;
    assert_eq!(stats(&metrics, "late").calls, 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_beyond_the_bound_is_counted_with_the_others() {
    let metrics = Metrics::builder().with_max_tools(10).build().unwrap();
    for n in 0..1_000 {
        run(&metrics, &format!("real_{n}")).await;
    }
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.tools.len(), 11);
    assert_eq!(snapshot.tool(None, "_other").unwrap().successes, 990);
    assert_eq!(snapshot.total.calls, 1_000);
}

/// 20a: `once` keeps the error, so the second call is one that is reused.
#[tokio::test(start_paused = true)]
async fn an_invented_name_that_is_called_twice_gets_no_row() {
    let metrics = Metrics::builder().with_max_tools(10).build().unwrap();
    let once = tower::ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(tower_toolcall::once::OnceLayer::new())
        .service_fn(|_: ToolCall| async {
            let error = ToolError::new(ErrorKind::NotFound, "no");
            Err::<(), _>(error.with_execution(Execution::Unknown))
        });
    for n in 0..20 {
        let invented = super::call(&format!("invented_{n}")).with_session_id("s");
        once.clone().oneshot(invented.clone()).await.unwrap_err();
        once.clone().oneshot(invented).await.unwrap_err();
    }
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.tools.len(), 1, "the other one");
    assert_eq!(snapshot.tool(None, "_other").unwrap().reused, Some(20));
    run(&metrics, "late").await;
    assert_eq!(stats(&metrics, "late").calls, 1);
}

/// It has to count somewhere, and a tool may come to exist later.
#[tokio::test(start_paused = true)]
async fn a_call_of_a_known_tool_that_is_not_found_counts_for_it() {
    let metrics = Metrics::new();
    let not_found = || async { run(&metrics, "invented").await };
    not_found().await;
    assert_eq!(stats(&metrics, "invented").calls, 0);
    drop(tower::Service::call(
        &mut tools(&metrics),
        super::call("invented"),
    ));
    not_found().await;
    let stats = stats(&metrics, "invented");
    assert_eq!((stats.calls, stats.cancelled, stats.errors), (2, 1, 1));
    assert_eq!(metrics.snapshot().total.calls, 3);
}

/// Rule 9.
#[tokio::test(start_paused = true)]
async fn a_secret_in_a_name_is_no_label() {
    const CANARY: &str = "sk-proj-Zk3vQ8mW1xT5nB7cR2yL9dF4hJ6gP0sA";
    let metrics = Metrics::new();
    let tools = tools(&metrics);
    for n in 0..3 {
        let call = ToolCall::new(format!("search?api_key={CANARY}&n={n}"));
        let call = call.with_server(format!("https://user:{CANARY}@host/"));
        tools.clone().oneshot(call).await.unwrap();
    }
    let snapshot = metrics.export();
    let json = serde_json::to_string(&snapshot).unwrap();
    for text in [
        json,
        metrics.prometheus(),
        snapshot.to_string(),
        format!("{snapshot:?} {metrics:?}"),
    ] {
        assert!(
            !text.contains(CANARY) && !text.contains(&CANARY[8..]),
            "{text}"
        );
    }
    assert_eq!(snapshot.total.calls, 3);
}

#[tokio::test(start_paused = true)]
async fn a_name_of_a_megabyte_is_a_short_label_and_two_that_look_the_same_share_it() {
    let metrics = Metrics::new();
    let long = "x".repeat(1 << 20);
    run(&metrics, &format!("{long}a")).await;
    run(&metrics, &format!("{long}b")).await;
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.tools.len(), 1);
    assert_eq!(snapshot.tools[0].tool.len(), 67);
    assert_eq!(snapshot.tools[0].stats.calls, 2);
}

/// An outage, in which everything is refused, makes no tools of invented names.
#[tokio::test(start_paused = true)]
async fn names_that_are_refused_before_they_are_sent_take_no_rows() {
    let metrics = Metrics::builder().with_max_tools(10).build().unwrap();
    let breakers = tower_toolcall::circuit_breaker::CircuitBreakerLayer::builder()
        .with_keys(tower_toolcall::Key::Server)
        .build()
        .unwrap();
    let stack = tower::ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(breakers.clone())
        .service(tower::service_fn(|_: ToolCall| async {
            Ok::<_, BoxError>(())
        }));
    let call = |name: String| ToolCall::new(name).with_server("docs");
    breakers.handle().breaker(&call("any".into())).force_open();
    for n in 0..10 {
        let _ = stack.clone().oneshot(call(format!("invented_{n}"))).await;
    }
    breakers.handle().breaker(&call("any".into())).reset();
    stack.oneshot(call("real".into())).await.unwrap();
    assert_eq!(
        metrics
            .snapshot()
            .tool(Some("docs"), "real")
            .unwrap()
            .successes,
        1
    );
}

/// Issue 48, D5: a server that cannot be reached knows no names, so invented ones fail like tools.
#[tokio::test(start_paused = true)]
async fn names_that_only_failed_leave_rows_to_tools_that_work() {
    let metrics = Metrics::builder().with_max_tools(10).build().unwrap();
    let down = tower::ServiceBuilder::new()
        .layer(metrics.layer())
        .service_fn(|_: ToolCall| async {
            Err::<(), _>(ToolError::new(ErrorKind::ConnectionFailed, "refused"))
        });
    for n in 0..1_000 {
        let invented = super::call(&format!("lost_{n}"));
        down.clone().oneshot(invented).await.unwrap_err();
    }
    for _ in 0..2 {
        run(&metrics, "real").await;
    }
    // The success that shows that there is such a tool counts with the others.
    assert_eq!(stats(&metrics, "real").successes, 1);
    assert_eq!(stats(&metrics, "lost_0").errors, 1);
    assert_eq!(metrics.snapshot().total.calls, 1_002);
}

/// No server and an empty one are the same label: two lines of one series are no exposition.
#[tokio::test]
async fn an_empty_server_is_none() {
    let metrics = Metrics::new();
    for call in [
        ToolCall::new("works"),
        ToolCall::new("works").with_server(""),
    ] {
        let tool = tower::service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) });
        let stack = tower::ServiceBuilder::new()
            .layer(metrics.layer())
            .service(tool);
        stack.oneshot(call).await.unwrap();
    }
    let text = metrics.prometheus();
    let line = r#"tool_executions_total{server="",tool="works",outcome="success"} "#;
    assert_eq!(text.matches(line).count(), 1, "{text}");
}
