//! Clients that give up, and a gateway that closes.

use std::time::Duration;

use rmcp::{
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest,
    },
    service::PeerRequestOptions,
    transport::StreamableHttpServerConfig,
};
use serde_json::json;
use tokio::time::timeout;
use tower::{ServiceExt as _, service_fn};
use tower_toolcall::{BoxError, Execution, ToolCall};
use tower_toolcall_mcp::{ERROR_META, GatewayHandler, McpAnswer};

use super::kit::{
    Connected, HTTP, STREAMS, WAYS, Way, connect, connect_to, http_with, patient, request,
};

fn hanging(client: &Connected) -> tokio::task::JoinHandle<()> {
    let call = request(client.client.peer().clone(), "docs__hang", json!({}));
    tokio::spawn(async move { drop(call.await) })
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#behavior-requirements
//# Servers receiving cancellation notifications SHOULD:
//# Free associated resources
/// T4: who is gone is told all the way down, and nobody else is.
#[tokio::test]
async fn a_client_that_gives_up_cancels_the_call_at_the_server() {
    for way in WAYS {
        let gateway = patient().await;
        let client = connect(way, gateway.handler.clone()).await;
        let other = connect(way, gateway.handler.clone()).await;
        let (call, stays) = (hanging(&client), hanging(&other));
        gateway.upstream.until_begun(2).await;
        assert_eq!(gateway.handler.in_flight(), 2);

        call.abort();
        gateway.upstream.until_cancelled(1).await;
        assert_eq!(gateway.upstream.cancelled(), 1, "{way:?}");
        assert_eq!(gateway.handler.in_flight(), 1, "{way:?}");
        assert!(!stays.is_finished());
        // The session goes on.
        let body = client.body("docs__echo", json!({})).await;
        assert_eq!(body["content"][0]["text"], "{}", "{way:?}");
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#cancellednotification
//# This notification indicates that the result will be unused, so any associated processing SHOULD
//# cease.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#behavior-requirements
//# Servers receiving cancellation notifications SHOULD:
//# Stop processing the cancelled request
/// By the protocol's own message, with a reason. rmcp sends no answer then.
#[tokio::test]
async fn a_cancelled_request_reaches_the_server() {
    for way in WAYS {
        let gateway = patient().await;
        let client = connect(way, gateway.handler.clone()).await;
        let hang = CallToolRequest::new(CallToolRequestParams::new("docs__hang"));
        let hang = ClientRequest::CallToolRequest(hang);
        let peer = client.client.peer();
        let options = PeerRequestOptions::no_options();
        let handle = peer.send_cancellable_request(hang, options).await.unwrap();
        gateway.upstream.until_begun(1).await;
        handle.cancel(Some("enough".into())).await.unwrap();
        gateway.upstream.until_cancelled(1).await;
    }
}

async fn is_gone(way: Way) {
    let gateway = patient().await;
    let client = connect(way, gateway.handler.clone()).await;
    // The server stays, so that it is the client that is missed.
    let (client, _server) = client.apart();
    let _call = tokio::spawn(request(client.peer().clone(), "docs__hang", json!({})));
    gateway.upstream.until_begun(1).await;
    drop(client);
    gateway.upstream.until_cancelled(1).await;
    assert_eq!(gateway.handler.in_flight(), 0, "{way:?}");
}

/// A client whose connection ends. rmcp waits 5 s for answers before it says so: a pipe may be half
/// closed.
#[tokio::test(start_paused = true)]
async fn a_client_at_a_stream_that_is_gone_cancels_its_calls() {
    for way in STREAMS {
        is_gone(way).await;
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#transport-specific-cancellation
//# The server MUST treat a client disconnect as cancellation of that request.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation
//# Closing the SSE response stream MUST be treated by the server as cancellation of that request.
//# The server SHOULD stop work on the cancelled request as soon as practical and MUST NOT send any
//# further messages for it.
#[tokio::test]
async fn a_client_over_http_that_is_gone_cancels_its_calls() {
    for way in HTTP {
        is_gone(way).await;
    }
}

/// What a tool has spawned hears of it by the call's token; after an answer the token does not
/// fire.
#[tokio::test]
async fn the_calls_token_fires_for_a_call_that_is_given_up_and_not_after_an_answer() {
    let (tokens, mut given) = tokio::sync::mpsc::unbounded_channel();
    let stack = service_fn(move |call: ToolCall| {
        let token = call.cancellation().unwrap().clone();
        tokens.send(token).unwrap();
        async move {
            match call.tool() {
                "hang" => std::future::pending().await,
                _ => Ok::<McpAnswer, BoxError>(CallToolResult::success(vec![]).into()),
            }
        }
    });
    let handler = GatewayHandler::new(stack, Vec::new);
    for way in WAYS {
        let client = connect(way, handler.clone()).await;
        client.body("fine", json!({})).await;
        let answered = given.recv().await.unwrap();

        let peer = client.client.peer().clone();
        let call = tokio::spawn(async { drop(request(peer, "hang", json!({})).await) });
        let hanging = given.recv().await.unwrap();
        assert!(!hanging.is_cancelled());
        call.abort();
        let fires = timeout(Duration::from_secs(60), hanging.cancelled()).await;
        assert!(fires.is_ok(), "{way:?}");
        assert!(!answered.is_cancelled(), "{way:?}");
    }
}

/// N2: calls that run are waited for, others are turned away.
#[tokio::test]
async fn a_gateway_that_closes_ends_what_runs_and_takes_no_more() {
    for way in WAYS {
        let gateway = patient().await;
        let client = connect(way, gateway.handler.clone()).await;
        let peer = client.client.peer().clone();
        let call = tokio::spawn(request(peer, "docs__wait", json!({})));
        gateway.upstream.until_begun(1).await;

        let closing = gateway.handler.clone();
        let mut drained = tokio_test::task::spawn(async move { closing.drain().await });
        assert!(drained.poll().is_pending());
        let body = client.body("docs__echo", json!({})).await;
        assert_eq!(body["isError"], true);
        assert_eq!(body["_meta"][ERROR_META]["code"], "SERVER_CLOSING");
        assert_eq!(gateway.upstream.begun(), 1);

        gateway.upstream.go.notify_one();
        let answer = call.await.unwrap();
        assert!(
            matches!(answer, Ok(CallToolResponse::Complete(_))),
            "{way:?}"
        );
        timeout(Duration::from_secs(60), gateway.handler.drain())
            .await
            .unwrap();
        assert_eq!(gateway.handler.in_flight(), 0);
    }
}

/// W14: a call that takes too long for a gateway that closes is answered, ended at its server, and
/// told of; by whichever way it came.
#[tokio::test]
async fn a_gateway_that_cuts_calls_short_answers_each_and_names_its_tool() {
    for way in WAYS {
        let gateway = patient().await;
        let client = connect(way, gateway.handler.clone()).await;
        let peer = client.client.peer().clone();
        let calls = ["docs__hang", "docs__hang", "docs__wait"]
            .map(|tool| tokio::spawn(request(peer.clone(), tool, json!({}))));
        let beside = gateway.handler.stack();
        let beside = tokio::spawn(beside.oneshot(ToolCall::new("docs__hang")));
        gateway.upstream.until_begun(4).await;
        assert_eq!(gateway.handler.in_flight(), 4);

        let cut = timeout(Duration::from_secs(60), gateway.handler.cut_short()).await;
        let cut = cut.unwrap();
        let hang = "docs__hang";
        assert_eq!(cut, [hang, hang, hang, "docs__wait"], "{way:?}");
        for call in calls {
            let Ok(CallToolResponse::Complete(result)) = call.await.unwrap() else {
                panic!("no answer");
            };
            let error = &json!(result)["_meta"][ERROR_META];
            assert_eq!(error["code"], "SERVER_CLOSING", "{way:?}");
            assert_eq!(error["retryable"], false);
            let text = result.content[0].as_text().unwrap();
            assert!(text.text.contains("may have run"), "{}", text.text);
        }
        let error = beside.await.unwrap().unwrap_err();
        assert_eq!(error.execution(), Execution::Unknown);
        gateway.upstream.until_cancelled(3).await;

        let late = ToolCall::new("docs__echo");
        let error = gateway.handler.stack().oneshot(late).await.unwrap_err();
        assert_eq!(error.code(), "SERVER_CLOSING");
        assert_eq!(error.execution(), Execution::NotStarted);
        assert_eq!(gateway.upstream.begun(), 4);
        assert!(gateway.handler.cut_short().await.is_empty());
    }
}

/// N2: in the order that the docs of `GatewayHandler` have. rmcp's token cuts what is still on its
/// way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_answers_go_out_before_the_streams_end() {
    for way in HTTP {
        for _again in 0..3 {
            let gateway = patient().await;
            let config = StreamableHttpServerConfig::default();
            let end = config.cancellation_token.clone();
            let (url, _server) = http_with(gateway.handler.clone(), config).await;
            let client = connect_to(way, url, []).await;
            let calls = (0..16).map(|_| {
                let peer = client.client.peer().clone();
                tokio::spawn(request(peer, "docs__wait", json!({})))
            });
            let calls: Vec<_> = calls.collect();
            gateway.upstream.until_begun(16).await;
            let go = async {
                loop {
                    gateway.upstream.go.notify_one();
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = gateway.handler.drain() => {}
                () = go => {}
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            end.cancel();
            for call in calls {
                let answer = call.await.unwrap();
                let is_answer = matches!(answer, Ok(CallToolResponse::Complete(_)));
                assert!(is_answer, "{way:?} {answer:?}");
            }
        }
    }
}
