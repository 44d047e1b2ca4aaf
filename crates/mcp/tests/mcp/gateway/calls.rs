//! What goes through.

use std::collections::HashSet;

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, RequestMetaObject};
use serde_json::json;
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{
    BoxError, ReplaySafety, ToolCall, Trust,
    retry::{RetryLayer, RetryPolicy},
};
use tower_toolcall_mcp::{GatewayHandler, IDEMPOTENCY_KEY_META};

use super::{
    kit::{
        Connected, HTTP, REQUEST_ID, STREAMS, WAYS, Way, connect, connect_to, gateway,
        gateway_with, http, patient, request,
    },
    upstream::Upstream,
};

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server
//# The SSE stream SHOULD eventually include a JSON-RPC response for the JSON-RPC request sent in
//# the POST body.
/// X9: whoever calls through the gateway gets what the server says, to the byte.
#[tokio::test]
async fn answers_are_those_of_the_server() {
    for way in WAYS {
        let gateway = gateway().await;
        let through = connect(way, gateway.handler.clone()).await;
        let direct = connect(way, Upstream::default()).await;
        for (tool, flat, arguments) in [
            ("echo", "docs__echo", json!({ "a": [1, { "b": "§" }] })),
            ("echo", "docs__echo", json!(null)),
            ("structured", "docs__structured", json!({})),
            ("mixed", "docs__mixed", json!({})),
            ("flagged", "docs__flagged", json!({})),
        ] {
            let mut through = through.body(flat, arguments.clone()).await;
            if way.is_modern() {
                // base53: the gateway says who it is.
                let meta = through["_meta"].as_object_mut().unwrap();
                let server = meta.remove("io.modelcontextprotocol/serverInfo").unwrap();
                assert_eq!(server["name"], "tower-toolcall-mcp", "{way:?} {tool}");
                if meta.is_empty() {
                    through.as_object_mut().unwrap().remove("_meta");
                }
            }
            let direct = direct.body(tool, arguments).await;
            assert_eq!(through.to_string(), direct.to_string(), "{way:?} {tool}");
        }
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#result-responses
//# The `result` MUST include a `resultType` field to indicate the type of the result.
/// The older servers do not say that a result is complete; a client of the newer revision reads it
/// all the same.
#[tokio::test]
async fn a_server_of_an_older_revision_answers_a_newer_client() {
    let gateway = gateway_with(false, |router| GatewayHandler::new(router, Vec::new)).await;
    for way in WAYS {
        let client = connect(way, gateway.handler.clone()).await;
        let body = client.body("docs__echo", json!({ "a": 1 })).await;
        assert_eq!(body["content"][0]["text"], r#"{"a":1}"#, "{way:?}");
        assert_eq!(body.get("resultType").is_some(), way.is_modern(), "{way:?}");
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#result-responses
//# Result responses MUST include the same ID as the request they correspond to.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#statelessness
//# Servers SHOULD be prepared to handle requests associated with multiple tasks, threads, or
//# conversations.
/// A session's ids are its own: two clients count from the same number.
#[tokio::test]
async fn sessions_with_the_same_request_ids_do_not_mix() {
    let gateway = patient().await;
    for way in WAYS {
        let a = connect(way, gateway.handler.clone()).await;
        let b = connect(way, gateway.handler.clone()).await;
        let echo = |client: &Connected, who: &'static str| {
            let peer = client.client.peer().clone();
            async move {
                let mut all = Vec::new();
                for n in 0..20 {
                    let arguments = json!({ "who": who, "n": n });
                    all.push(tokio::spawn(request(peer.clone(), "docs__echo", arguments)));
                }
                for (n, answer) in all.into_iter().enumerate() {
                    let Ok(CallToolResponse::Complete(result)) = answer.await.unwrap() else {
                        panic!("{way:?}")
                    };
                    let text = &result.content[0].as_text().unwrap().text;
                    let text: serde_json::Value = serde_json::from_str(text).unwrap();
                    assert_eq!(text, json!({ "who": who, "n": n }), "{way:?}");
                }
            }
        };
        tokio::join!(echo(&a, "a"), echo(&b, "b"));
    }
}

/// A server whose only tool tells the id of its call.
fn of_ids() -> GatewayHandler {
    let ids = service_fn(|call: ToolCall| async move {
        let id = call.id().unwrap_or_default().to_owned();
        Ok::<_, BoxError>(CallToolResult::success(vec![ContentBlock::text(id)]).into())
    });
    GatewayHandler::new(ids, Vec::new)
}

async fn id(client: &Connected) -> String {
    let body = client.body("any", json!({})).await;
    body["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Ids for logs: none is there twice, whatever clients number.
#[tokio::test]
async fn every_call_has_an_id_of_its_own() {
    let handler = of_ids();
    let mut seen = HashSet::new();
    for way in STREAMS {
        for _session in 0..2 {
            let client = connect(way, handler.clone()).await;
            for _call in 0..2 {
                let id = id(&client).await;
                assert!(!id.is_empty() && seen.insert(id.clone()), "{way:?} {id}");
            }
        }
    }
}

/// O1: who stands in front has given the request an id already.
#[tokio::test]
async fn the_headers_of_a_request_over_http_are_taken_up() {
    for way in HTTP {
        let client = connect(way, of_ids()).await;
        assert_eq!(id(&client).await, REQUEST_ID.to_str().unwrap(), "{way:?}");
    }
}

/// V3: a client that gives calls no time has them time out; only where clients are trusted does
/// that open the breaker for all.
#[tokio::test]
async fn a_clients_deadline_is_taken_up_only_if_it_is_let_and_counts_only_if_it_is_trusted() {
    for (way, taken, opens) in [
        (Way::Http, None, false),
        (Way::HttpModern, None, false),
        (Way::HttpModern, Some(Trust::Untrusted), false),
        (Way::HttpModern, Some(Trust::Trusted), true),
    ] {
        let gateway = gateway().await;
        let handler = match taken {
            Some(trust) => gateway.handler.clone().take_deadlines(trust),
            None => gateway.handler.clone(),
        };
        let (url, _server) = http(handler.clone()).await;
        let hasty = [("x-envoy-expected-rq-timeout-ms", "1")];
        let hasty = connect_to(way, url, hasty).await;
        for _call in 0..5 {
            let body = hasty.body("docs__pause", json!({})).await;
            assert_eq!(body["isError"], taken.is_some(), "{way:?} {body}");
        }
        let patient = connect(way, handler).await;
        let body = patient.body("docs__pause", json!({})).await;
        assert_eq!(body["isError"], opens, "{way:?} {taken:?} {body}");
    }
}

fn with_key(key: &str) -> rmcp::service::PeerRequestOptions {
    let mut meta = RequestMetaObject::default();
    meta.insert(IDEMPOTENCY_KEY_META.to_owned(), key.into());
    rmcp::service::PeerRequestOptions::no_options().with_meta(meta)
}

async fn call_with_key(client: &Connected, key: &str) {
    call_with(client, with_key(key)).await;
}

async fn call_with(client: &Connected, options: rmcp::service::PeerRequestOptions) {
    let params = rmcp::model::CallToolRequestParams::new("docs__echo");
    let request = rmcp::model::CallToolRequest::new(params);
    let request = rmcp::model::ClientRequest::CallToolRequest(request);
    let peer = client.client.peer();
    let handle = peer.send_cancellable_request(request, options).await;
    handle.unwrap().await_response().await.unwrap();
}

/// R8: a client's key goes on only if clients are trusted with it; else the retry layer's own goes
/// out.
#[tokio::test]
async fn a_clients_idempotency_key_goes_on_if_it_is_let() {
    for taken in [false, true] {
        let gateway = gateway_with(true, |router| {
            let safe = RetryPolicy::new().with_replay_safety(|_: &ToolCall| ReplaySafety::Safe);
            let stack = ServiceBuilder::new()
                .layer(RetryLayer::new(safe))
                .service(router);
            GatewayHandler::new(stack, Vec::new).take_idempotency_keys(taken)
        })
        .await;
        let client = connect(Way::StreamModern, gateway.handler.clone()).await;
        for (key, usable) in [("client-key", true), ("two words", false), ("", false)] {
            call_with_key(&client, key).await;
            let meta = gateway.upstream.meta();
            let sent = meta[IDEMPOTENCY_KEY_META].as_str().unwrap();
            assert_eq!(sent == key, taken && usable, "{taken} {key}");
            assert!(!sent.is_empty());
        }
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#metaobject
//# Certain key names are reserved by MCP for protocol-level metadata; implementations MUST NOT make
//# assumptions about values at these keys.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#_meta
//# Certain key names are reserved by MCP for protocol-level metadata, as specified below;
//# implementations MUST NOT make assumptions about values at these keys.
/// M-12: what a client adds for the tool; not what is of its own connection or of its trace.
#[tokio::test]
async fn a_clients_meta_goes_on_to_the_server() {
    let gateway = gateway().await;
    for way in [Way::StreamModern, Way::Http] {
        let client = connect(way, gateway.handler.clone()).await;
        let mut meta = RequestMetaObject::default();
        meta.insert("com.example/tenant".to_owned(), json!({ "id": 7 }));
        meta.insert("plain".to_owned(), "as it is".into());
        let client_info = "io.modelcontextprotocol/clientInfo";
        meta.insert(client_info.to_owned(), "the client's own".into());
        let options = rmcp::service::PeerRequestOptions::no_options().with_meta(meta);
        call_with(&client, options).await;
        let meta = gateway.upstream.meta();
        assert_eq!(meta["com.example/tenant"], json!({ "id": 7 }), "{way:?}");
        assert_eq!(meta["plain"], "as it is", "{way:?}");
        let info = meta.get(client_info).cloned().unwrap_or_default();
        assert_ne!(info, "the client's own", "{way:?}");
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#inputrequiredresult
//# Clients MUST NOT inspect, parse, modify, or make any assumptions about its contents.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#client-requirements-basic-workflow
//# Clients MUST NOT inspect, parse, modify, or make any assumptions about the `requestState`
//# contents.
/// A server that asks for input is answered through the gateway.
#[tokio::test]
async fn questions_and_their_answers_go_through() {
    let gateway = gateway().await;
    for way in [Way::StreamModern, Way::HttpModern] {
        let client = connect(way, gateway.handler.clone()).await;
        let asked = client.body("docs__ask", json!({})).await;
        assert_eq!(asked["requestState"], "§state", "{way:?}");
        let mut params = rmcp::model::CallToolRequestParams::new("docs__ask");
        params.request_state = Some("§state".into());
        let given = [("city".to_owned(), json!({ "action": "accept" }))];
        params.input_responses = Some(given.into());
        let answer = client.client.peer().call_tool_once(params).await.unwrap();
        let CallToolResponse::Complete(result) = answer else {
            panic!("{answer:?}")
        };
        let text = &result.content[0].as_text().unwrap().text;
        assert_eq!(text, r#"{"city":{"action":"accept"}}"#, "{way:?}");
    }
}

/// An older client cannot be asked: that is an error, and said.
#[tokio::test]
async fn a_question_to_an_older_client_is_a_clear_error() {
    let gateway = gateway().await;
    for way in [Way::Stream, Way::Http] {
        let client = connect(way, gateway.handler.clone()).await;
        let error = client.error("docs__ask").await;
        assert!(error.message.contains("2026-07-28"), "{way:?} {error:?}");
    }
}
