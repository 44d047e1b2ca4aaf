//! What a server tells of a call's progress, on its way to the client.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ProgressNotificationParam, ServerResult,
};
use rmcp::{service::PeerRequestOptions, transport::StreamableHttpServerConfig};
use tokio::time::{Instant, timeout};
use tower::ServiceBuilder;
use tower_toolcall::timeout::TimeoutLayer;
use tower_toolcall_mcp::GatewayHandler;

use super::kit::{
    Connected, HTTP, STREAMS, WAYS, Way, connect, connect_to, gateway_with, http_with, patient,
};

/// What the client hears of one call, all of it before the answer; and the token that it has sent.
async fn steps(client: &mut Connected) -> Vec<ProgressNotificationParam> {
    told_of(client, "docs__steps").await
}

async fn told_of(client: &mut Connected, tool: &'static str) -> Vec<ProgressNotificationParam> {
    let steps = CallToolRequest::new(CallToolRequestParams::new(tool));
    let steps = ClientRequest::CallToolRequest(steps);
    let options = PeerRequestOptions::no_options();
    let peer = client.client.peer();
    let handle = peer.send_cancellable_request(steps, options).await.unwrap();
    let token = handle.progress_token.clone();
    let answer = handle.await_response().await.unwrap();
    assert!(
        matches!(answer, ServerResult::CallToolResult(_)),
        "{answer:?}"
    );
    let mut heard = Vec::new();
    while let Ok(told) = client.heard.progress.try_recv() {
        assert_eq!(told.progress_token, token);
        heard.push(told);
    }
    heard
}

fn values(heard: &[ProgressNotificationParam]) -> Vec<f64> {
    heard.iter().map(|told| told.progress).collect()
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/progress#progress-flow
//# The `progress` value MUST increase with each notification, even if the total is unknown.
//# The `message` field SHOULD provide relevant human readable progress information.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/progress#behavior-requirements
//# Progress notifications MUST only reference tokens that:
//# Were provided in an active request
//# Are associated with an in-progress operation
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/progress#implementation-notes
//# Progress notifications MUST stop after completion
/// T6: with the client's own token, growing, with total and text, and not after the answer.
#[tokio::test(start_paused = true)]
async fn a_servers_progress_reaches_the_client_that_has_asked_for_it() {
    for way in STREAMS {
        let gateway = patient().await;
        let mut client = connect(way, gateway.handler.clone()).await;
        let heard = steps(&mut client).await;
        assert_eq!(values(&heard), [1.0, 3.0, 4.0], "{way:?}");
        assert_eq!(heard[0].total, Some(4.0));
        assert_eq!(heard[0].message.as_deref(), Some("at work"));
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(client.heard.progress.try_recv().is_err(), "{way:?}");
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server
//# These messages SHOULD relate to the originating client request.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#receiving-messages
//# These notifications MUST relate to the originating client request.
/// The same where time runs: of what comes too fast the newest is enough.
#[tokio::test]
async fn progress_goes_over_http() {
    for way in HTTP {
        let gateway = patient().await;
        let mut client = connect(way, gateway.handler.clone()).await;
        let told = values(&steps(&mut client).await);
        assert!(!told.is_empty() && told.is_sorted(), "{way:?} {told:?}");
    }
}

/// The idle timeout of a stack hears of it as well.
#[tokio::test(start_paused = true)]
async fn progress_keeps_the_call_alive_and_is_passed_on() {
    let gateway = gateway_with(true, |router| {
        let idle = TimeoutLayer::new(Duration::from_secs(20))
            .with_idle_timeout(Duration::from_millis(700))
            .unwrap();
        GatewayHandler::new(ServiceBuilder::new().layer(idle).service(router), Vec::new)
    })
    .await;
    let mut client = connect(Way::StreamModern, gateway.handler.clone()).await;
    assert_eq!(steps(&mut client).await.len(), 3);
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server
//# If the input is a JSON-RPC request, the server MUST either return `Content-Type:
//# text/event-stream`, to initiate an SSE stream, or `Content-Type: application/json`, to return
//# one JSON object.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#sending-messages
//# If the body is a JSON-RPC request, the server MUST return either `Content-Type:
//# application/json` (a single JSON object) or `Content-Type: text/event-stream` (an SSE response
//# stream).
/// Where there are no sessions, and where answers are JSON, too.
#[tokio::test]
async fn progress_holds_up_no_answer_in_other_settings_of_http() {
    for (stateful, json) in [(false, false), (false, true), (true, true)] {
        for way in HTTP {
            let gateway = patient().await;
            let config = StreamableHttpServerConfig::default()
                .with_legacy_session_mode(stateful)
                .with_json_response(json);
            let (url, _server) = http_with(gateway.handler.clone(), config).await;
            let mut client = connect_to(way, url, []).await;
            for tool in ["docs__steps", "docs__flood"] {
                let told = timeout(Duration::from_secs(60), told_of(&mut client, tool)).await;
                let told = values(&told.unwrap_or_else(|_| panic!("{way:?} {stateful} {json}")));
                assert!(told.is_sorted(), "{way:?} {told:?}");
            }
            assert_eq!(gateway.handler.in_flight(), 0);
        }
    }
}

/// A server that tells of every byte is not repeated to the client.
#[tokio::test]
async fn a_flood_of_progress_is_a_trickle_for_the_client() {
    for way in WAYS {
        let gateway = patient().await;
        let mut client = connect(way, gateway.handler.clone()).await;
        let since = Instant::now();
        let told = values(&told_of(&mut client, "docs__flood").await);
        let most = since.elapsed().as_millis() / 100 + 1;
        assert!(
            !told.is_empty() && told.len() as u128 <= most,
            "{way:?} {told:?}"
        );
        assert!(told.is_sorted(), "{way:?} {told:?}");
    }
}
