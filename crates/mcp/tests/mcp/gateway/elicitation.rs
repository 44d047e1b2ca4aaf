//! A client's user is asked before a call is sent.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ClientHandler, RoleClient, ServiceExt as _,
    model::{
        CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock,
        ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorData,
        FormElicitationCapability, UrlElicitationCapability,
    },
    service::{RequestContext, RunningService},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{BoxError, ServiceBuilderExt as _, ToolCall, policy::PolicyLayer};
use tower_toolcall_mcp::{GatewayHandler, McpAnswer, McpElicitation};

use super::{
    kit::{WAYS, connect, http, request, stream},
    wire::Wire,
};

/// A client whose user answers so; `None`: not at all.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) offers: Option<ElicitationCapability>,
    says: Option<ElicitationAction>,
    asked: Arc<Mutex<Vec<String>>>,
    given_up: Arc<tokio::sync::Notify>,
}

impl User {
    pub(crate) fn new(says: impl Into<Option<ElicitationAction>>) -> Self {
        Self {
            offers: Some(ElicitationCapability::default()),
            says: says.into(),
            asked: Arc::default(),
            given_up: Arc::default(),
        }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let mut can = ClientCapabilities::default();
        can.elicitation = self.offers.clone();
        let mut info = ClientConfig::default();
        info.capabilities = can;
        info
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        cx: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = params else {
            panic!("no form")
        };
        self.asked.lock().unwrap().push(message);
        match &self.says {
            Some(action) => Ok(ElicitResult::new(action.clone())),
            None => {
                cx.ct.cancelled().await;
                self.given_up.notify_one();
                pending().await
            }
        }
    }
}

/// A gateway that asks before `pay`.
fn gateway(limit: Duration) -> GatewayHandler {
    let policy = PolicyLayer::new()
        .ask("pay")
        .with_approver(McpElicitation)
        .with_approval_timeout(limit)
        .unwrap();
    let tool = service_fn(|call: ToolCall| async move {
        let text = ContentBlock::text(format!("{} is done", call.tool()));
        Ok::<_, BoxError>(McpAnswer::from(CallToolResult::success(vec![text])))
    });
    let stack = ServiceBuilder::new().tool_policy(policy).service(tool);
    GatewayHandler::new(stack, Vec::new)
}

async fn client(user: &User, limit: Duration) -> RunningService<RoleClient, User> {
    let client = user.clone().serve(stream(gateway(limit))).await;
    client.unwrap()
}

async fn call(user: &User, tool: &'static str) -> String {
    call_with(user, tool, json!({ "amount": 5 })).await
}

async fn call_with(user: &User, tool: &'static str, arguments: Value) -> String {
    let client = client(user, Duration::from_secs(60)).await;
    let answer = request(client.peer().clone(), tool, arguments).await;
    let Ok(CallToolResponse::Complete(result)) = answer else {
        panic!("{answer:?}")
    };
    result.content[0].as_text().unwrap().text.clone()
}

//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#elicitation-requests
//# All elicitation requests MUST include the following parameters:
//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#form-mode-elicitation-requests
//# Form mode elicitation requests MUST either specify `mode: "form"` or omit the `mode` field, and
//# include these additional parameters:
//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#error-handling
//# Servers SHOULD NOT assume that elicitation requests will always succeed, and MUST handle cases
//# where the user declines or cancels the elicitation, or where the client fails to process the
//# request.
#[tokio::test]
async fn the_user_of_the_client_is_asked() {
    let user = User::new(ElicitationAction::Accept);
    assert_eq!(call(&user, "read").await, "read is done");
    assert_eq!(user.asked(), [""; 0]);
    assert_eq!(call(&user, "pay").await, "pay is done");
    assert_eq!(
        user.asked(),
        [r#"Allow this call? 'pay' with {"amount":5}."#]
    );
    // P10: a question that was closed was not denied.
    for (no, text) in [
        (ElicitationAction::Decline, "was denied"),
        (ElicitationAction::Cancel, "is not answered yet"),
    ] {
        let user = User::new(no);
        let answer = call(&user, "pay").await;
        assert!(answer.contains(text), "{answer}");
        assert_eq!(user.asked().len(), 1);
    }
}

#[tokio::test]
async fn the_user_is_asked_over_http_too() {
    let (url, server) = http(gateway(Duration::from_secs(60))).await;
    let user = User::new(ElicitationAction::Accept);
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = user.clone().serve(transport).await.unwrap();
    let answer = request(client.peer().clone(), "pay", json!({})).await;
    assert!(matches!(answer, Ok(CallToolResponse::Complete(r)) if r.is_error != Some(true)));
    assert_eq!(user.asked().len(), 1);
    client.cancel().await.unwrap();
    server.abort();
}

/// Behind 16 KiB of arguments nobody would read it.
#[tokio::test]
async fn that_something_is_not_shown_is_said_first() {
    for (rows, head) in [
        (Value::from("x".repeat(300)), "xxx"),
        (Value::from(vec![u64::MAX; 900]), "[18446744073709551615,"),
    ] {
        let user = User::new(ElicitationAction::Decline);
        call_with(&user, "pay", json!({ "rows": rows })).await;
        let [asked] = user.asked().try_into().unwrap();
        let start = r#"Allow this call? Not all of it is shown here: 'pay' with {"rows":"#;
        let rest = asked.strip_prefix(start);
        assert!(
            rest.is_some_and(|rest| rest.trim_start_matches('"').starts_with(head)),
            "{asked}"
        );
    }
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#operation
//# Both parties MUST:
//# Only use capabilities that were successfully negotiated
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#_meta
//# A server MUST NOT rely on capabilities the client has not declared.
//# If processing a request requires a capability the client did not include in
//# `io.modelcontextprotocol/clientCapabilities`, the server MUST return a
//# `MissingRequiredClientCapabilityError` (`-32021`) whose `data.requiredCapabilities` lists the
//# missing capabilities.
#[tokio::test]
async fn a_client_that_cannot_ask_has_no_approver() {
    let url = ElicitationCapability::default().with_url(UrlElicitationCapability::default());
    let form = url.clone().with_form(FormElicitationCapability::default());
    for (offers, asks) in [(None, false), (Some(url), false), (Some(form), true)] {
        let mut user = User::new(ElicitationAction::Accept);
        user.offers = offers;
        let text = call(&user, "pay").await;
        assert_eq!(user.asked().len(), usize::from(asks));
        assert_eq!(text == "pay is done", asks);
        assert_eq!(text.contains("no approver is available"), !asks, "{text}");
    }
    for way in WAYS {
        let client = connect(way, gateway(Duration::from_secs(60))).await;
        let body = client.body("pay", json!({})).await;
        match way.is_modern() {
            // base51: what it would have to declare.
            true => {
                let required = json!({ "requiredCapabilities": { "elicitation": { "form": {} } } });
                assert_eq!((&body["code"], &body["data"]), (&json!(-32021), &required));
            }
            false => assert_eq!(body["isError"], true, "{way:?}"),
        }
    }
}

/// An answer is for its question: late, twice, or before another one's, it approves nothing.
#[tokio::test(start_paused = true)]
async fn an_answer_to_another_question_approves_nothing() {
    let can = json!({ "elicitation": {} });
    let mut wire = Wire::connect_as(gateway(Duration::from_secs(5)), can).await;
    let accept = |id: &Value| json!({ "id": id, "result": { "action": "accept", "content": {} } });
    wire.call(1, "pay").await;
    let first = wire.receive().await;
    assert_eq!(first["method"], "elicitation/create");
    // Nobody answers in time.
    let mut heard = [wire.receive().await, wire.receive().await];
    heard.sort_by_key(|message| message["id"].is_null());
    let [answer, taken_back] = heard;
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(taken_back["params"]["requestId"], first["id"]);
    wire.send(accept(&first["id"])).await;

    wire.call(2, "pay").await;
    let second = wire.receive().await;
    assert_ne!(second["id"], first["id"]);
    for id in [&first["id"], &json!(99), &json!(2)] {
        wire.send(accept(id)).await;
    }
    let decline = json!({ "id": second["id"], "result": { "action": "decline" } });
    wire.send(decline).await;
    wire.send(accept(&second["id"])).await;
    let answer = wire.receive().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(2), &json!(true))
    );
}

/// What is asked for goes with the one who is asked.
#[tokio::test]
async fn a_call_whose_client_is_gone_ends() {
    let handler = gateway(Duration::from_secs(300));
    let can = json!({ "elicitation": {} });
    let mut wire = Wire::connect_as(handler.clone(), can).await;
    wire.call(1, "pay").await;
    wire.receive().await;
    assert_eq!(handler.in_flight(), 1);
    drop(wire);
    timeout(Duration::from_secs(60), handler.drain())
        .await
        .unwrap();
    assert_eq!(handler.in_flight(), 0);
}

/// The client may take its dialogue away.
#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_is_taken_back() {
    let user = User::new(None);
    let client = client(&user, Duration::from_secs(5)).await;
    let answer = request(client.peer().clone(), "pay", json!({})).await;
    assert!(matches!(answer, Ok(CallToolResponse::Complete(r)) if r.is_error == Some(true)));
    timeout(Duration::from_secs(9), user.given_up.notified())
        .await
        .unwrap();
}
