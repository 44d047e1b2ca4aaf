//! What a tool's server asks for reaches a client that has declared it, and no other.

use rmcp::{
    ClientServiceExt as _, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientConfig, ContentBlock,
        ElicitRequest, ElicitRequestParams, ElicitationSchema, ErrorCode, ErrorData,
        InputRequiredResult, ServerRequest,
    },
    service::{RequestContext, ServiceError},
};
use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower_toolcall::circuit_breaker::CircuitBreakerLayer;
use tower_toolcall_mcp::{GatewayHandler, McpNotifications, McpService};

use super::kit::{discover, http, stream};

/// A server that does what the arguments of its tools say.
#[derive(Clone)]
struct Told;

impl ServerHandler for Told {
    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let told = Value::from(params.arguments.unwrap_or_default());
        let text = |value: Value| {
            let blocks = vec![ContentBlock::text(value.to_string())];
            Ok(CallToolResult::success(blocks).into())
        };
        match &*params.name {
            "ask" => {
                let requests = serde_json::from_value(told).unwrap();
                Ok(InputRequiredResult::from_input_requests(requests).into())
            }
            "can" => text(json!(cx.client_capabilities())),
            "fail" => {
                let code = ErrorCode(told["code"].as_i64().unwrap() as i32);
                Err(ErrorData::new(code, "no", told.get("data").cloned()))
            }
            // As servers of 2025-11-25 ask.
            _ => {
                let form = ElicitRequestParams::FormElicitationParams {
                    meta: None,
                    message: "What is your name?".to_owned(),
                    requested_schema: ElicitationSchema::new(Default::default()),
                };
                let code = |result: Result<(), ServiceError>| match result {
                    Err(ServiceError::McpError(error)) => json!(error.code.0),
                    other => json!(format!("{other:?}")),
                };
                let form = ServerRequest::ElicitRequest(ElicitRequest::new(form));
                let form = code(cx.peer.send_request(form).await.map(drop));
                #[expect(deprecated, reason = "servers may still ask for roots")]
                let roots = code(cx.peer.list_roots().await.map(drop));
                text(json!([form, roots]))
            }
        }
    }
}

/// A gateway to it, and the client that keeps the connection up.
async fn gateway(modern: bool) -> (GatewayHandler, Box<dyn Send>) {
    let notifications = McpNotifications::new();
    let behind = match modern {
        true => {
            notifications
                .serve_with_lifecycle(stream(Told), discover())
                .await
        }
        false => notifications.serve(stream(Told)).await,
    };
    let behind = behind.unwrap();
    let leaf = McpService::new(behind.peer().clone());
    let stack = ServiceBuilder::new()
        .layer(CircuitBreakerLayer::new())
        .service(leaf);
    (GatewayHandler::new(stack, Vec::new), Box::new(behind))
}

/// The answer of the gateway to a client of 2026-07-28 with these capabilities.
async fn call(gateway: &GatewayHandler, can: Value, tool: &'static str, told: Value) -> Value {
    call_as(gateway, true, can, tool, told).await
}

async fn call_as(
    gateway: &GatewayHandler,
    modern: bool,
    can: Value,
    tool: &'static str,
    told: Value,
) -> Value {
    let mut info = ClientConfig::default();
    info.capabilities = serde_json::from_value(can).unwrap();
    let client = match modern {
        true => {
            info.serve_with_lifecycle(stream(gateway.clone()), discover())
                .await
        }
        false => info.serve(stream(gateway.clone())).await,
    };
    let client = client.unwrap();
    let mut params = CallToolRequestParams::new(tool);
    params.arguments = told.as_object().cloned();
    match client.peer().call_tool_once(params).await {
        Ok(CallToolResponse::Complete(result)) => json!(result),
        Ok(CallToolResponse::InputRequired(result)) => json!(result),
        Err(ServiceError::McpError(error)) => json!(error),
        other => panic!("{other:?}"),
    }
}

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": {} });
    let params = json!({ "mode": "form", "message": "Who?", "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

fn url() -> Value {
    let params = json!({ "mode": "url", "message": "Log in", "url": "https://example.com/in" });
    json!({ "method": "elicitation/create", "params": params })
}

fn sampling(tools: bool) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": "Who?" } });
    let mut params = json!({ "messages": [message], "maxTokens": 9 });
    if tools {
        params["tools"] = json!([]);
    }
    json!({ "method": "sampling/createMessage", "params": params })
}

fn roots() -> Value {
    json!({ "method": "roots/list" })
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#server-requirements-basic-workflow
//# Servers MUST NOT send an `inputRequests` that the client has not declared support for in its
//# capabilities.
//# For example, if a client does not declare support for `elicitation`, the server MUST NOT include
//# any `elicitation/create` requests in the `inputRequests` field.
//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#capabilities
//# Servers MUST NOT send elicitation requests with modes that are not supported by the client.
/// M3, MCP mrtr14, mrtr15, eli10: a question that a client has not declared is not sent to it.
#[tokio::test]
async fn a_server_asks_a_client_only_for_what_it_has_declared() {
    let (gateway, _behind) = gateway(true).await;
    let plain = json!({ "elicitation": {} });
    let by_url = json!({ "elicitation": { "url": {} } });
    let both = json!({ "elicitation": { "form": {}, "url": {} } });
    let samples = json!({ "sampling": {} });
    let with_tools = json!({ "sampling": { "tools": {} } });
    let with_context = json!({ "sampling": { "context": {} } });
    let mut in_context = sampling(false);
    in_context["params"]["includeContext"] = "thisServer".into();
    let has_roots = json!({ "roots": {} });
    let needs_form = json!({ "elicitation": { "form": {} } });
    for (can, request, needs) in [
        (&json!({}), form(), Some(&needs_form)),
        (&plain, form(), None),
        (&by_url, form(), Some(&needs_form)),
        (&both, form(), None),
        (&plain, url(), Some(&by_url)),
        (&by_url, url(), None),
        (&both, url(), None),
        (&plain, sampling(false), Some(&samples)),
        (&samples, sampling(false), None),
        (&samples, sampling(true), Some(&with_tools)),
        (&with_tools, sampling(true), None),
        (&samples, in_context.clone(), Some(&with_context)),
        (&with_context, in_context, None),
        (&samples, roots(), Some(&has_roots)),
        (&has_roots, roots(), None),
    ] {
        let answer = call(&gateway, can.clone(), "ask", json!({ "q": request })).await;
        match needs {
            None => assert_eq!(answer["inputRequests"]["q"]["method"], request["method"]),
            Some(needs) => {
                assert_eq!(answer["code"], -32021, "{can} {request}");
                assert_eq!(
                    &answer["data"]["requiredCapabilities"], needs,
                    "{can} {request}"
                );
            }
        }
    }
    // One that it cannot answer is enough.
    let two = json!({ "a": form(), "b": roots() });
    let answer = call(&gateway, plain, "ask", two).await;
    assert_eq!(answer["data"]["requiredCapabilities"], has_roots);
}

//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#capabilities
//# Clients that support elicitation MUST declare the `elicitation` capability in
//# `_meta.io.modelcontextprotocol/clientCapabilities` on each request:
/// M3: a server that looks at them sees those of the client, not those of the gateway.
#[tokio::test]
async fn a_server_sees_the_capabilities_of_the_client() {
    let (gateway, _behind) = gateway(true).await;
    let ui = json!({ "extensions": { "com.example/ui": {} } });
    for (can, seen) in [
        (json!({}), json!({})),
        (ui, json!({})),
        (
            json!({ "roots": {}, "experimental": { "x": {} } }),
            json!({ "roots": {} }),
        ),
        (
            json!({ "elicitation": { "url": {} } }),
            json!({ "elicitation": { "url": {} } }),
        ),
    ] {
        let answer = call(&gateway, can, "can", json!({})).await;
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, seen.to_string());
    }
}

/// M3, MCP base51, task4: the client can mend what it has not declared; what the gateway lacks it
/// cannot. Clients that lack something leave the tool to others.
#[tokio::test]
async fn a_missing_capability_is_told_to_the_client_that_lacks_it() {
    let (gateway, _behind) = gateway(true).await;
    let data = json!({ "requiredCapabilities": { "sampling": {} } });
    let told = json!({ "code": -32021, "data": data });
    for _call in 0..6 {
        let answer = call(&gateway, json!({}), "fail", told.clone()).await;
        assert_eq!((&answer["code"], &answer["data"]), (&json!(-32021), &data));
        assert_eq!(answer["message"], "no");
    }
    let answer = call(&gateway, json!({ "sampling": {} }), "fail", told).await;
    assert_eq!(answer["code"], -32603, "{answer}");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes
//# Implementations MUST NOT emit any code from this sub-range that is not defined by this
//# specification and MUST use defined codes only with their specified meanings.
//# Implementations of this protocol version MUST NOT emit these codes:
//# `-32042` — URL elicitation required (2025-11-25 only).
/// MCP base17, base18, base20: codes that the protocol keeps for itself.
#[tokio::test]
async fn a_servers_codes_of_the_protocol_are_not_the_gateways() {
    let (gateway, _behind) = gateway(true).await;
    for (code, modern, relayed) in [
        (-32020, true, false),
        (-32023, true, false),
        (-32099, true, false),
        (-32042, true, false),
        (-32042, false, true),
        (-32100, true, true),
        (-31000, true, true),
    ] {
        let told = json!({ "code": code });
        let answer = call_as(&gateway, modern, json!({}), "fail", told).await;
        let expected = if relayed { code } else { -32603 };
        assert_eq!(answer["code"], expected, "{code} {modern}");
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#error-handling
//# Clients MUST return standard JSON-RPC errors for common failure cases:
//# Server sends an `elicitation/create` request with a mode not declared in client capabilities:
//# `-32602` (Invalid params)
/// o-eli36: one connection has many callers, so nothing is asked on it, whatever they declare.
#[tokio::test]
async fn a_server_of_2025_11_25_that_asks_gets_an_error() {
    let (gateway, _behind) = gateway(false).await;
    let can = json!({ "elicitation": {}, "roots": {} });
    let answer = call_as(&gateway, false, can, "ask_back", json!({})).await;
    assert_eq!(answer["content"][0]["text"], "[-32602,-32601]");
}

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#resultmetaobject
//# Servers SHOULD include this field on every response unless specifically configured not to do so.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#_meta
//# On HTTP, the response status MUST be `400 Bad Request`.
//# Servers SHOULD include the following `io.modelcontextprotocol/*` field in every result's
//# `_meta`, unless specifically configured not to do so, to identify themselves without relying on
//# any prior connection state:
/// base52, base53: the status of the error, and the name of the server in each result.
#[tokio::test]
async fn over_http_a_missing_capability_is_a_bad_request() {
    let (gateway, _behind) = gateway(true).await;
    let (url, _server) = http(gateway).await;
    for (told, status) in [
        (json!({ "q": form() }), 400),
        (json!({ "q": roots() }), 200),
    ] {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "wire", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "roots": {} },
        });
        let params = json!({ "name": "ask", "arguments": told, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let sent = reqwest::Client::new()
            .post(&url)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "ask")
            .body(body.to_string());
        let answer = sent.send().await.unwrap();
        assert_eq!(answer.status(), status);
        let answer = answer.text().await.unwrap();
        assert_eq!(answer.contains("-32021"), status == 400, "{answer}");
        let server = r#""io.modelcontextprotocol/serverInfo":{"name":"tower-toolcall-mcp""#;
        assert_eq!(answer.contains(server), status == 200, "{answer}");
    }
}
