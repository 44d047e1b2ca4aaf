//! X4: which tool a call reaches, what that tool sees, and whose the error is.

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{Service, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ReplaySafety, ToolCall, ToolError,
    flow::CallExt,
    router::{Router, RouterBuilder},
};

/// What a service sees of a call.
pub(crate) fn seen(call: &ToolCall) -> Value {
    json!({ "tool": call.tool(), "server": call.server(), "id": call.id() })
}

fn shows() -> impl Service<ToolCall, Response = Value, Error = ToolError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    service_fn(|call: ToolCall| async move { Ok::<_, ToolError>(seen(&call)) })
}

fn fails(
    error: ToolError,
) -> impl Service<ToolCall, Response = Value, Error = ToolError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    service_fn(move |_: ToolCall| {
        let error = error.clone();
        async move { Err::<Value, _>(error) }
    })
}

fn router() -> Router {
    Router::builder()
        .tool("pay", shows())
        .server("docs", shows(), ["search", "a__b"])
        .server("web", shows(), ["search"])
        .build()
        .unwrap()
}

async fn run(call: ToolCall) -> Value {
    router().oneshot(call).await.unwrap()
}

#[tokio::test]
async fn a_local_tool_is_called_by_its_name() {
    let expected = json!({ "tool": "pay", "server": null, "id": null });
    assert_eq!(run(ToolCall::new("pay")).await, expected);
}

#[tokio::test]
async fn a_flat_name_reaches_the_tool_under_its_own_name() {
    for (name, server, tool) in [
        ("docs__search", "docs", "search"),
        ("web__search", "web", "search"),
        ("docs__a__b", "docs", "a__b"),
    ] {
        let answer = run(ToolCall::new(name).with_id("c1")).await;
        assert_eq!(
            answer,
            json!({ "tool": tool, "server": server, "id": "c1" })
        );
    }
}

#[tokio::test]
async fn a_call_that_names_the_server_reaches_its_tool() {
    for name in ["search", "docs__search"] {
        let answer = run(ToolCall::new(name).with_server("docs")).await;
        assert_eq!(
            answer,
            json!({ "tool": "search", "server": "docs", "id": null })
        );
    }
}

/// A call for one server is not answered by somebody else.
#[tokio::test]
async fn a_call_that_names_a_server_reaches_no_other_tool() {
    for name in ["pay", "web__search"] {
        let call = ToolCall::new(name).with_server("docs");
        let error = router().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{name}");
    }
}

/// The server may be the caller's own word, for the keys of layers.
#[tokio::test]
async fn a_server_that_the_router_does_not_know_says_nothing() {
    let answer = run(ToolCall::new("pay").with_server("mine")).await;
    assert_eq!(answer["server"], "mine");
    let answer = run(ToolCall::new("web__search").with_server("mine")).await;
    assert_eq!(answer["server"], "web");
}

#[tokio::test]
async fn the_separator_can_be_another() {
    let router = Router::builder()
        .with_separator(".")
        .server("docs", shows(), ["search"])
        .build()
        .unwrap();
    assert_eq!(router.names(), ["docs.search"]);
    let answer = router.oneshot(ToolCall::new("docs.search")).await.unwrap();
    assert_eq!(answer["tool"], "search");
}

#[test]
fn names_are_flat_and_sorted() {
    assert_eq!(
        router().names(),
        ["docs__a__b", "docs__search", "pay", "web__search"]
    );
}

/// Everything but the names stays as it was.
#[tokio::test(start_paused = true)]
async fn the_tool_sees_the_callers_call() {
    #[derive(Clone)]
    struct Mark;
    let deadline = Instant::now() + Duration::from_secs(9);
    let service = service_fn(move |call: ToolCall| async move {
        assert_eq!(call.deadline(), Some(deadline));
        assert_eq!(call.timeout(), Some(Duration::from_secs(3)));
        assert_eq!(call.replay_safety(), ReplaySafety::Safe);
        assert_eq!(call.attempt(), 2);
        assert_eq!(call.agent_id(), Some("agent"));
        assert_eq!(call.trace_id(), Some("trace"));
        assert_eq!(call.session_id(), Some("session"));
        assert!(call.extensions().get::<Mark>().is_some());
        assert!(call.is_claimed(tower_toolcall::Claim::Retry));
        Ok::<_, BoxError>(call.arguments()["q"].clone())
    });
    let router = Router::builder()
        .server("docs", service, ["search"])
        .build()
        .unwrap();
    let mut call = ToolCall::new("docs__search")
        .with_json(json!({ "q": "tower" }))
        .unwrap()
        .with_agent_id("agent")
        .with_trace_id("trace")
        .with_session_id("session")
        .with_timeout(Duration::from_secs(3))
        .with_deadline(deadline)
        .with_replay_safety(ReplaySafety::Safe);
    call.extensions_mut().insert(Mark);
    call.next_attempt();
    call.claim(tower_toolcall::Claim::Retry);
    let kept = call.clone();
    assert_eq!(router.oneshot(call).await.unwrap(), "tower");
    assert_eq!((kept.tool(), kept.server()), ("docs__search", None));
}

/// An observer above sees what the layers below have recorded.
#[tokio::test]
async fn the_record_goes_through() {
    let service = service_fn(|call: ToolCall| async move {
        call.info().record(|record| {
            record.set_slow();
            record.set_timeout(Duration::from_secs(1), Duration::from_secs(2));
        });
        Ok::<_, BoxError>(())
    });
    let router = Router::builder()
        .server("docs", service, ["search"])
        .tool("local", service)
        .build()
        .unwrap();
    for name in ["docs__search", "local"] {
        let mut call = ToolCall::new(name);
        let below = call.observe();
        router.clone().oneshot(call).await.unwrap();
        assert!(below.is_slow(), "{name}");
        assert_eq!(below.timeout(), Some(Duration::from_secs(1)), "{name}");
    }
}

async fn error_of(error: ToolError, call: ToolCall) -> ToolError {
    let router = Router::builder()
        .tool("pay", fails(error.clone()))
        .server("docs", fails(error), ["search"])
        .build()
        .unwrap();
    router.oneshot(call).await.unwrap_err()
}

/// The model knows the tool by its flat name.
#[tokio::test]
async fn an_error_names_the_tool_as_its_caller_does() {
    let broken = || ToolError::new(ErrorKind::Upstream, "broken");
    for (call, tool, server) in [
        (ToolCall::new("docs__search"), "docs__search", Some("docs")),
        (
            ToolCall::new("search").with_server("docs"),
            "search",
            Some("docs"),
        ),
        (ToolCall::new("pay"), "pay", None),
    ] {
        for inner in [
            broken(),
            broken().with_tool("search"),
            broken().with_tool("search").with_server("docs"),
        ] {
            if tool == "pay" && inner.tool().is_some() {
                continue;
            }
            let error = error_of(inner, call.clone().with_id("c1")).await;
            assert_eq!(error.tool(), Some(tool));
            assert_eq!(error.server(), server);
            assert_eq!(error.call_id(), Some("c1"));
            assert!(error.model_message().contains(&format!("'{tool}'")));
        }
    }
}

/// R6: what has not started below has not started above, with ids and without.
#[tokio::test]
async fn what_has_not_started_stays_so() {
    let refused = ToolError::new(ErrorKind::CircuitOpen, "5 failures in a row")
        .with_tool("search")
        .with_server("docs");
    for call in [
        ToolCall::new("docs__search"),
        ToolCall::new("docs__search").with_id("c1"),
        ToolCall::new("search").with_server("docs"),
    ] {
        let info = call.info();
        let error = error_of(refused.clone(), call).await.for_call(&info);
        assert_eq!(error.execution(), Execution::NotStarted);
    }
}

/// R6: the error of another call, which the tool made itself, says nothing of this one.
#[tokio::test]
async fn the_error_of_another_call_stays_one() {
    let others = |tool: &str, server: &str| {
        ToolError::new(ErrorKind::CircuitOpen, "open")
            .with_tool(tool)
            .with_server(server)
    };
    for inner in [others("fetch", "docs"), others("search", "web")] {
        let error = error_of(inner.clone(), ToolCall::new("docs__search")).await;
        assert_eq!(error.execution(), Execution::Unknown);
        assert_eq!(error.tool(), inner.tool());
    }
}

/// A router may be a server of another.
#[tokio::test]
async fn routers_nest() {
    let refused = ToolError::new(ErrorKind::CircuitOpen, "open");
    let inner = Router::builder()
        .server("docs", fails(refused), ["search"])
        .tool("see", shows())
        .build()
        .unwrap();
    let names = inner.names();
    let outer = Router::builder()
        .server("hub", inner, names)
        .build()
        .unwrap();
    assert_eq!(outer.names(), ["hub__docs__search", "hub__see"]);

    let answer = outer.clone().oneshot(ToolCall::new("hub__see")).await;
    assert_eq!(answer.unwrap()["tool"], "see");
    let call = ToolCall::new("hub__docs__search");
    let error = outer.oneshot(call).await.unwrap_err();
    assert_eq!(error.tool(), Some("hub__docs__search"));
    assert_eq!(error.execution(), Execution::NotStarted);
}

/// The server that a router writes on the call is its own, not that of a router below it.
#[tokio::test]
async fn nested_routers_may_have_servers_of_one_name() {
    let says = |who: &'static str| {
        service_fn(move |call: ToolCall| async move {
            Ok::<_, BoxError>(json!(format!("{who}: {}", call.tool())))
        })
    };
    let inner = Router::builder()
        .tool("pay", says("local"))
        .server("docs", says("docs"), ["search", "pay"])
        .server("web", says("web"), ["search"])
        .build()
        .unwrap();
    let outer = Router::builder()
        .server("docs", inner.clone(), inner.names())
        .build()
        .unwrap();
    for (name, answer) in [
        ("pay", "local: pay"),
        ("docs__search", "docs: search"),
        ("docs__pay", "docs: pay"),
        ("web__search", "web: search"),
    ] {
        let flat = ToolCall::new(format!("docs__{name}"));
        assert_eq!(outer.clone().oneshot(flat).await.unwrap(), answer);
        let named = ToolCall::new(name).with_server("docs");
        assert_eq!(outer.clone().oneshot(named).await.unwrap(), answer);
    }
}

/// Whoever names a server anew, between two routers, means it.
#[tokio::test]
async fn a_server_that_is_named_below_a_router_counts_again() {
    let inner = router();
    let renames = service_fn(move |call: ToolCall| {
        let call = ToolCall::clone(&call).with_server("web");
        inner.clone().oneshot(call)
    });
    let outer = Router::builder()
        .server("docs", renames, ["search", "pay"])
        .build()
        .unwrap();
    let answer = outer.clone().oneshot(ToolCall::new("docs__search")).await;
    assert_eq!(answer.unwrap()["server"], "web");
    let other = outer.oneshot(ToolCall::new("docs__pay")).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_router_of_any_answer() {
    let tool = service_fn(|_: ToolCall| async { Ok::<_, BoxError>(7u8) });
    let router = RouterBuilder::<u8>::new().tool("seven", tool).build();
    let answer = router.unwrap().oneshot(ToolCall::new("seven")).await;
    assert_eq!(answer.unwrap(), 7);
}

#[tokio::test]
async fn clones_are_the_same_router_and_debug_shows_no_names() {
    let router = router();
    expect!["Router { tools: 1, servers: 2, .. }"].assert_eq(&format!("{:?}", router.clone()));
    let held = Arc::new(());
    let tool = {
        let held = Arc::clone(&held);
        service_fn(move |_: ToolCall| {
            let _held = Arc::clone(&held);
            async { Ok::<_, BoxError>(()) }
        })
    };
    let router = Router::builder().tool("t", tool).build().unwrap();
    let clones = [router.clone(), router.clone(), router];
    assert_eq!(Arc::strong_count(&held), 2);
    drop(clones);
    assert_eq!(Arc::strong_count(&held), 1);
}
