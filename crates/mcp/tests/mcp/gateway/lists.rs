//! The list of tools, and the news that it has changed.

use std::{sync::Arc, time::Duration};

use rmcp::model::{CallToolRequestParams, Implementation, SubscriptionFilter, Tool};
use serde_json::json;
use tokio::time::{advance, timeout};
use tokio_test::{assert_pending, task};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError, circuit_breaker::CircuitBreakerLayer, health::Health,
    router::Router,
};
use tower_toolcall_mcp::{self as mcp, Catalog, GatewayHandler, ListTools, McpAnswer};

use super::kit::{Connected, WAYS, Way, connect, gateway, gateway_with};

async fn names(client: &Connected) -> Vec<String> {
    let tools = client.client.peer().list_all_tools().await.unwrap();
    tools
        .into_iter()
        .map(|tool| tool.name.into_owned())
        .collect()
}

fn of_tools(tools: impl ListTools) -> GatewayHandler {
    let nothing =
        service_fn(|_: ToolCall| async { Err::<McpAnswer, BoxError>("there is nothing".into()) });
    GatewayHandler::new(nothing, tools)
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#capabilities
//# This set MAY be empty and MAY change over time (see List Changed Notification), but MUST NOT
//# vary per-connection or as a side effect of other requests on the connection.
/// X1: the names are those that can be called, the definitions those of the server.
#[tokio::test]
async fn the_list_is_the_routers() {
    let gateway = gateway().await;
    for way in WAYS {
        let client = connect(way, gateway.handler.clone()).await;
        let tools = client.client.peer().list_all_tools().await.unwrap();
        assert_eq!(tools.len(), 13, "{way:?}");
        assert!(tools.iter().all(|tool| tool.name.starts_with("docs__")));
        assert_eq!(tools[0].description.as_deref(), Some("A tool."));
    }
}

#[tokio::test]
async fn a_long_list_comes_in_pages_and_in_order() {
    let tools = || {
        let tool = |n: usize| Tool::new(format!("t{:03}", n * 37 % 101), "", Arc::default());
        (0..101).map(tool).collect()
    };
    let handler = of_tools(tools).with_page_size(10).unwrap();
    let expected: Vec<_> = (0..101).map(|n| format!("t{n:03}")).collect();
    for way in WAYS {
        let client = connect(way, handler.clone()).await;
        let first = client.client.peer().list_tools(None).await.unwrap();
        assert_eq!(first.tools.len(), 10);
        assert_eq!(names(&client).await, expected, "{way:?}");
    }
    assert!(handler.with_page_size(0).is_err());
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/discover#discoverresult
//# Servers SHOULD include this field.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#capabilities
//# Servers that support tools MUST declare the `tools` capability:
#[tokio::test]
async fn clients_are_told_what_it_is() {
    let handler = of_tools(Vec::new)
        .with_implementation(Implementation::new("office", "7.1"))
        .with_instructions("Be kind.");
    for way in WAYS {
        let client = connect(way, handler.clone()).await;
        let info = client.client.peer().peer_info().unwrap();
        let told = json!({ "info": *info });
        assert_eq!(told["info"]["instructions"], "Be kind.", "{way:?} {told}");
        let tools = &told["info"]["capabilities"]["tools"];
        assert_eq!(tools["listChanged"], true, "{way:?} {told}");
        assert!(told.to_string().contains(r#""name":"office""#), "{told}");
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
//# The server MUST provide a single HTTP endpoint path (hereafter referred to as the MCP endpoint)
//# that supports both POST and GET methods.
//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#listening-for-messages-from-the-server
//# The client MUST include an `Accept` header, listing `text/event-stream` as a supported content
//# type.
//# The server MUST either return `Content-Type: text/event-stream` in response to this HTTP GET, or
//# else return HTTP 405 Method Not Allowed, indicating that the server does not offer an SSE stream
//# at this endpoint.
//= https://modelcontextprotocol.io/specification/2025-11-25/server/tools#list-changed-notification
//# When the list of available tools changes, servers that declared the `listChanged` capability
//# SHOULD send a notification:
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#notifications
//# Notifications MUST NOT include an ID.
/// A server's new list reaches the clients of the older revisions by itself.
#[tokio::test]
async fn a_change_at_the_server_is_told_to_the_clients() {
    let make = |router: Router<_>| GatewayHandler::new(router.clone(), router);
    let gateway = gateway_with(false, make).await;
    gateway.handler.follow(gateway.tools.tools());
    for (way, tools) in [
        (Way::Stream, ["echo", "hang"]),
        (Way::Http, ["echo", "ask"]),
    ] {
        let mut client = connect(way, gateway.handler.clone()).await;
        // The session is known to be ready when it has answered.
        names(&client).await;
        // Over HTTP the stream for such messages may not be open yet.
        let told = async {
            loop {
                gateway.upstream.change(&tools).await;
                gateway.handler.tools_changed();
                let heard = client.heard.changes.recv();
                if timeout(Duration::from_millis(500), heard).await.is_ok() {
                    return;
                }
            }
        };
        timeout(Duration::from_secs(60), told).await.unwrap();
        let followed = async {
            while names(&client).await.len() != 2 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(60), followed).await.unwrap();
    }
}

/// Only what follows tells, and an unchanged list is no news.
#[tokio::test]
async fn a_list_that_is_followed_tells_of_changes_alone() {
    let gateway = gateway_with(false, |router| GatewayHandler::new(router, Vec::new)).await;
    gateway.handler.follow(gateway.tools.tools());
    let mut client = connect(Way::Stream, gateway.handler.clone()).await;
    names(&client).await;
    let refresh = || async {
        let peer = gateway.behind.peer();
        gateway.tools.tools().refresh(peer).await.unwrap();
    };
    refresh().await;
    // Who is told at all is told in the order of the messages.
    names(&client).await;
    assert!(client.heard.changes.try_recv().is_err());
    *gateway.upstream.tools.lock().unwrap() = vec!["echo"];
    refresh().await;
    let heard = timeout(Duration::from_secs(60), client.heard.changes.recv()).await;
    assert_eq!(heard.unwrap(), Some(()));
}

/// X6: a server that is not there has no tools, until a probe is due; clients hear of both.
#[tokio::test]
async fn a_server_that_comes_and_goes_is_told_to_the_clients() {
    let health = Health::builder()
        .with_threshold(1)
        .with_refusal(true)
        .with_probe_period(Duration::from_secs(1))
        .build()
        .unwrap();
    let dead = service_fn(|_: ToolCall| async {
        let error = ToolError::new(ErrorKind::ConnectionFailed, "it is dead");
        Err::<McpAnswer, _>(error)
    });
    let search = Tool::new("search", "finds things", Arc::default());
    let router = mcp::router()
        .server("docs", dead, Catalog::new([search]))
        .with_health(&health)
        .build()
        .unwrap();
    let handler = GatewayHandler::new(router.clone(), router.clone());
    let follower = tokio::spawn(handler.follow_health(&health));
    let mut client = connect(Way::Stream, handler).await;
    assert_eq!(names(&client).await, ["docs__search"]);
    assert!(router.find("docs__search").is_some());

    let call = ToolCall::new("docs__search");
    router.clone().oneshot(call).await.unwrap_err();
    assert!(router.find("docs__search").is_none());
    for expected in [vec![], vec!["docs__search"]] {
        let heard = timeout(Duration::from_secs(60), client.heard.changes.recv()).await;
        assert_eq!(heard.unwrap(), Some(()));
        if expected.is_empty() && !router.names().is_empty() {
            break; // The machine stood still meanwhile, and it may have been one message.
        }
        assert_eq!(names(&client).await, expected);
    }
    follower.abort();
}

/// What a list has, a look at one tool has: the same definition, and nothing else.
#[tokio::test]
async fn a_tool_is_found_as_it_is_listed() {
    let gateway = gateway().await;
    let one = gateway.tools.tools().clone();
    let local = Tool::new("add", "adds", Arc::default());
    let add = service_fn(|_: ToolCall| async { Ok::<_, BoxError>("3") });
    let router = mcp::router()
        .described_tool(mcp::definition(local), add)
        .tool("unlisted", add)
        .server("docs", add, one.clone())
        .build()
        .unwrap();
    let sources: [&dyn ListTools; 3] = [&router, &one, &|| vec![Tool::default()]];
    for source in sources {
        for tool in source.list() {
            assert_eq!(source.find(&tool.name), Some(tool));
        }
        for name in ["unlisted", "docs__nothing", "nothing", "docs__"] {
            assert_eq!(source.find(name), None, "{name}");
        }
    }
    assert_eq!((router.list().len(), one.list().len()), (14, 13));
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#notificationmetaobject
//# The server MUST include this key on every notification delivered via a subscriptions/listen
//# stream, so the client can correlate the notification with the originating subscription.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#_meta
//# On notifications delivered via a `subscriptions/listen` stream, the server MUST include
//# `io.modelcontextprotocol/subscriptionId` in `_meta` so the client can correlate the notification
//# with the originating subscription request.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#list-changed-notification
//# When the list of available tools changes, servers that declared the `listChanged` capability
//# SHOULD send a notification to clients that have opened a `subscriptions/listen` stream with
//# `toolsListChanged: true`:
/// Those of 2026-07-28 hear it on the stream that they ask for, and its end when the gateway
/// closes.
#[tokio::test]
async fn clients_that_listen_are_told_and_the_stream_ends_with_the_gateway() {
    for way in [Way::StreamModern, Way::HttpModern] {
        let handler = of_tools(Vec::new);
        let client = connect(way, handler.clone()).await;
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let mut stream = client.client.peer().listen(filter).await.unwrap();
        for _change in 0..2 {
            let told = async {
                loop {
                    // The first may come before the server has begun to listen.
                    handler.tools_changed();
                    let heard = timeout(Duration::from_millis(500), stream.next()).await;
                    if let Ok(heard) = heard {
                        return heard;
                    }
                }
            };
            let told = timeout(Duration::from_secs(60), told).await.unwrap();
            let told = format!("{told:?}");
            assert!(told.contains("ToolListChanged"), "{way:?} {told}");
        }
        let closed = handler.clone();
        tokio::spawn(async move { closed.drain().await });
        let ends = async { while let Ok(Some(_)) = stream.next().await {} };
        timeout(Duration::from_secs(60), ends).await.unwrap();
        assert!(stream.end().is_some(), "{way:?}");
    }
}

/// C7, X6: a tool whose breaker is open is not in the list of a router that withholds it, and
/// clients are told. Its definition is still there, to check the headers of calls.
#[tokio::test(start_paused = true)]
async fn a_tool_whose_breaker_is_open_is_withheld_and_told_of() {
    let search = Tool::new("search", "finds things", Arc::default());
    let dead = service_fn(|_: ToolCall| async {
        Err::<McpAnswer, _>(ToolError::new(ErrorKind::Upstream, "it is dead"))
    });
    let breaker = CircuitBreakerLayer::builder()
        .with_open_for(Duration::from_secs(60))
        .build()
        .unwrap();
    let breakers = breaker.handle();
    let router = mcp::router()
        .server("docs", dead, Catalog::new([search]))
        .build()
        .unwrap();
    let view = router.clone().withhold(&breakers);
    let stack = ServiceBuilder::new().layer(breaker).service(router);
    let handler = GatewayHandler::new(stack, view.clone());
    let follower = tokio::spawn(handler.follow_breakers(&breakers));
    let mut client = connect(Way::Stream, handler).await;
    assert_eq!(names(&client).await, ["docs__search"]);
    assert!(breakers.is_empty());
    for _ in 0..5 {
        let params = CallToolRequestParams::new("docs__search");
        client.client.peer().call_tool(params).await.unwrap();
    }
    assert_eq!(client.heard.changes.recv().await, Some(()));
    assert_eq!(names(&client).await, [""; 0]);
    assert!(view.list().is_empty() && view.find("docs__search").is_some());
    // With time alone.
    assert_eq!(client.heard.changes.recv().await, Some(()));
    assert_eq!(names(&client).await, ["docs__search"]);
    follower.abort();
}

/// X6: a period that ends in the same moment as another breaker's probe is not missed.
#[tokio::test(start_paused = true)]
async fn an_open_period_that_ends_beside_a_transition_is_told() {
    let breakers = CircuitBreakerLayer::new().handle();
    let open = |tool| {
        let breaker = breakers.breaker(&ToolCall::new(tool));
        for _ in 0..5 {
            breaker.record_failure();
        }
        breaker
    };
    let tool = service_fn(|_: ToolCall| async {
        Err::<McpAnswer, _>(ToolError::new(ErrorKind::Upstream, "it is dead"))
    });
    let handler = GatewayHandler::new(tool, Vec::new);
    let mut follower = task::spawn(handler.follow_breakers(&breakers));
    let mut client = connect(Way::Stream, handler).await;
    let second = Duration::from_secs(1);
    let probed = open("probed");
    advance(60 * second).await;
    let probe = probed.admit().unwrap();
    open("other");
    assert_pending!(follower.poll());
    assert_eq!(client.heard.changes.recv().await, Some(()));
    assert!(timeout(second, client.heard.changes.recv()).await.is_err());
    advance(60 * second).await;
    probe.success();
    assert_pending!(follower.poll());
    let told = timeout(second, client.heard.changes.recv()).await;
    assert_eq!(told, Ok(Some(())));
}
