//! Questions that end a call, and the next request that answers them (2026-07-28).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use rmcp::{
    ClientServiceExt as _, RoleClient,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
        ContentBlock, ElicitationAction, ElicitationCapability, ErrorData, InputRequest,
        InputRequiredResult, RequestStateCodec,
    },
    service::{RunningService, ServiceError},
    transport::StreamableHttpClientTransport,
};
use serde_json::json;
use tokio::time::{advance, sleep};
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ServiceBuilderExt as _, ToolCall, ToolError, policy::PolicyLayer,
};
use tower_toolcall_mcp::{GatewayHandler, McpAnswer, McpElicitation, McpService};

use super::{
    elicitation::User,
    kit::{discover, gateway_with, http, stream},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A tool that counts its calls, and asks for a city if its argument is `ask`.
#[derive(Clone, Default)]
struct Tool(Arc<AtomicUsize>);

impl Tool {
    fn runs(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// A gateway that asks before `pay` and `book`.
    fn gateway(&self, limit: Duration) -> GatewayHandler {
        let tool = self.clone();
        let pay = service_fn(move |call: ToolCall| {
            let tool = tool.clone();
            async move { Ok::<_, BoxError>(tool.run(&call)) }
        });
        GatewayHandler::new(
            ServiceBuilder::new()
                .tool_policy(asking(limit))
                .service(pay),
            Vec::new,
        )
    }

    fn run(&self, call: &ToolCall) -> McpAnswer {
        self.0.fetch_add(1, SeqCst);
        let text = ContentBlock::text(format!("{} is done", call.tool()));
        CallToolResult::success(vec![text]).into()
    }
}

fn asking(limit: Duration) -> PolicyLayer {
    PolicyLayer::new()
        .ask("pay")
        .ask("book")
        .with_approver(McpElicitation)
        .with_approval_timeout(limit)
        .unwrap()
}

/// A client that can ask its user, and leaves that to the test.
fn asker() -> ClientConfig {
    let mut can = ClientCapabilities::default();
    can.elicitation = Some(ElicitationCapability::default());
    let mut info = ClientConfig::default();
    info.capabilities = can;
    info
}

type Client = RunningService<RoleClient, ClientConfig>;

async fn over_stream(gateway: GatewayHandler) -> Client {
    let client = asker().serve_with_lifecycle(stream(gateway), discover());
    client.await.unwrap()
}

async fn over_http(url: String) -> Client {
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = asker().serve_with_lifecycle(transport, discover());
    client.await.unwrap()
}

fn five() -> CallToolRequestParams {
    let arguments = json!({ "amount": 5 });
    CallToolRequestParams::new("pay").with_arguments(arguments.as_object().unwrap().clone())
}

/// The request once more, with the state of the question and this answer.
fn again(asked: &InputRequiredResult, action: &str) -> CallToolRequestParams {
    let mut params = five();
    params.request_state = asked.request_state.clone();
    let requests = asked.input_requests.iter().flatten();
    let said = |(key, _): (&String, &InputRequest)| (key.clone(), json!({ "action": action }));
    params.input_responses = Some(requests.map(said).collect());
    params
}

async fn asks(client: &Client, params: CallToolRequestParams) -> InputRequiredResult {
    match client.peer().call_tool_once(params).await {
        Ok(CallToolResponse::InputRequired(asked)) => asked,
        other => panic!("{other:?}"),
    }
}

async fn answer(client: &Client, params: CallToolRequestParams) -> CallToolResult {
    match client.peer().call_tool_once(params).await {
        Ok(CallToolResponse::Complete(result)) => result,
        other => panic!("{other:?}"),
    }
}

async fn refusal(client: &Client, params: CallToolRequestParams) -> String {
    match client.peer().call_tool_once(params).await {
        Err(ServiceError::McpError(ErrorData { code, message, .. })) => {
            assert_eq!(code.0, -32602, "{message}");
            message.into_owned()
        }
        other => panic!("{other:?}"),
    }
}

/// M2: rmcp's own client asks its user, and sends the answer with the call.
#[tokio::test]
async fn a_client_of_2026_07_28_asks_its_user_and_the_call_runs_once() {
    for over_http in [false, true] {
        for (says, text, runs) in [
            (ElicitationAction::Accept, "pay is done", 1),
            (ElicitationAction::Decline, "was denied", 0),
            (ElicitationAction::Cancel, "is not answered yet", 0),
        ] {
            let (tool, user) = (Tool::default(), User::new(says));
            let gateway = tool.gateway(MINUTE);
            let (url, _server) = http(gateway.clone()).await;
            let client = user.clone();
            let client = match over_http {
                true => {
                    let transport = StreamableHttpClientTransport::from_uri(url);
                    client.serve_with_lifecycle(transport, discover()).await
                }
                false => {
                    client
                        .serve_with_lifecycle(stream(gateway), discover())
                        .await
                }
            };
            let result = client.unwrap().call_tool(five()).await.unwrap();
            let said = &result.content[0].as_text().unwrap().text;
            assert!(said.contains(text), "{said}");
            let question = r#"Allow this call? 'pay' with {"amount":5}."#;
            assert_eq!(user.asked(), [question]);
            assert_eq!(tool.runs(), runs, "{said}");
        }
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#server-requirements-basic-workflow
//# If a client request contains a `requestState` field, servers MUST treat `requestState` as an
//# attacker-controlled input.
//# If `requestState` influences authorization, resource access, or business logic, servers MUST
//# protect its integrity (e.g. HMAC or AEAD) and MUST reject state that fails verification.
//# To prevent replay, servers SHOULD include the following inside the integrity-protected
//# `requestState` payload and verify each on receipt:
//# the authenticated principal, rejecting state presented by a different principal.
//# Servers for which a given `requestState` must be consumed at most once (e.g., one-time
//# redemptions) MUST enforce that invariant server-side.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#error-handling
//# Servers SHOULD validate that the data provided by the client is a valid `InputResponses` object
//# and that the information inside can be correctly parsed.
//# Protocol errors (malformed JSON, invalid schema, internal server errors) SHOULD return a
//# JSON-RPC error response with an appropriate error code and message.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#security-considerations
//# Servers MUST validate request state as described in the server requirements above.
//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#statefulness
//# However, if state is stored, servers implementing elicitation MUST securely associate this state
//# with individual users following the guidelines in the security best practices document.
//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#security-considerations
//# Servers MUST bind elicitation requests to the client and user identity
//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#form-mode-security
//# Servers SHOULD validate received data matches the requested schema
/// M2: a state holds for its call and its caller, once and for a while, and only as it was given.
#[tokio::test]
async fn a_state_that_is_not_of_this_call_is_refused() {
    let tool = Tool::default();
    let gateway = tool.gateway(MINUTE);
    let client = over_stream(gateway.clone()).await;
    let asked = asks(&client, five()).await;
    let yes = again(&asked, "accept");

    let mut altered = yes.clone();
    let state = altered.request_state.as_mut().unwrap();
    let last = state.pop().unwrap();
    state.push(if last == 'A' { 'B' } else { 'A' });
    let mut forged = yes.clone();
    forged.request_state = Some("tower-toolcall:rs1.e30.e30".to_owned());
    let mut dearer = yes.clone();
    dearer.arguments = json!({ "amount": 500 }).as_object().cloned();
    let mut other_tool = yes.clone();
    other_tool.name = "book".into();
    for params in [altered, forged, dearer, other_tool] {
        refusal(&client, params).await;
    }
    let stranger = over_stream(gateway).await;
    refusal(&stranger, yes.clone()).await;
    // Of another process, which has another key.
    let elsewhere = over_stream(tool.gateway(MINUTE)).await;
    let elsewhere = asks(&elsewhere, five()).await;
    refusal(&client, again(&elsewhere, "accept")).await;
    let unreadable = again(&asked, "perhaps");
    refusal(&client, unreadable).await;
    assert_eq!(tool.runs(), 0);

    assert_ne!(answer(&client, yes.clone()).await.is_error, Some(true));
    let replayed = refusal(&client, yes).await;
    assert!(replayed.contains("used before"), "{replayed}");
    assert_eq!(tool.runs(), 1);
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/index
//# Servers MUST NOT initiate JSON-RPC requests, and clients do not send JSON-RPC responses.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
//# Servers MUST send server-to-client requests (such as `roots/list`, `sampling/createMessage`, or
//# `elicitation/create`) using the MRTR pattern.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#server-requirements-basic-workflow
//# Servers MUST NOT assume that clients will fulfill the `inputRequests` or retry the original
//# request.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#error-handling
//# If the client fails to send all the information requested in a previous `InputRequests`, and the
//# missing information is necessary for the server to process the request, the server SHOULD
//# respond with a new `InputRequiredResult` requesting the missing information again, rather than
//# returning an error.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#receiving-messages
//# The server MUST NOT write JSON-RPC requests to `stdout`.
/// A no cannot be turned into a yes, and a question that was not answered is asked again.
#[tokio::test]
async fn an_answer_holds_once_whatever_it_was() {
    let tool = Tool::default();
    let client = over_stream(tool.gateway(MINUTE)).await;
    let asked = asks(&client, five()).await;
    let mut silent = again(&asked, "accept");
    silent.input_responses = None;
    asks(&client, silent).await;
    assert_eq!(
        answer(&client, again(&asked, "decline")).await.is_error,
        Some(true)
    );
    refusal(&client, again(&asked, "accept")).await;
    assert_eq!(tool.runs(), 0);
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#server-requirements-basic-workflow
//# To prevent replay, servers SHOULD include the following inside the integrity-protected
//# `requestState` payload and verify each on receipt:
//# a short expiry (TTL), rejecting state presented after it lapses;
#[tokio::test]
async fn a_state_expires_with_the_policys_limit() {
    let tool = Tool::default();
    let client = over_stream(tool.gateway(Duration::from_millis(20))).await;
    let asked = asks(&client, five()).await;
    sleep(Duration::from_millis(60)).await;
    let refused = refusal(&client, again(&asked, "accept")).await;
    assert!(refused.contains("expired"), "{refused}");
    assert_eq!(tool.runs(), 0);
}

#[tokio::test]
async fn an_approval_outlasts_a_call_that_was_not_sent() {
    let (tool, sent) = (Tool::default(), Arc::new(AtomicUsize::new(0)));
    let pay = tool.clone();
    let pay = service_fn(move |call: ToolCall| {
        let result = match sent.fetch_add(1, SeqCst) {
            0 => Err(ToolError::new(ErrorKind::RateLimited, "busy")),
            _ => Ok(pay.run(&call)),
        };
        async { result }
    });
    let stack = ServiceBuilder::new()
        .tool_policy(asking(MINUTE))
        .service(pay);
    let client = over_stream(GatewayHandler::new(stack, Vec::new)).await;
    let yes = again(&asks(&client, five()).await, "accept");
    assert_eq!(answer(&client, yes.clone()).await.is_error, Some(true));
    assert_eq!(tool.runs(), 0);
    assert_ne!(answer(&client, yes.clone()).await.is_error, Some(true));
    let replayed = refusal(&client, yes).await;
    assert!(replayed.contains("used before"), "{replayed}");
    assert_eq!(tool.runs(), 1);
}

/// S-4: the answers that are remembered are bounded. They are forgotten once they have expired.
#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_too_many_answers_is_told_so_and_has_to_wait() {
    let client = over_stream(Tool::default().gateway(MINUTE)).await;
    for _ in 0..1000 {
        let asked = asks(&client, five()).await;
        answer(&client, again(&asked, "decline")).await;
    }
    let asked = asks(&client, five()).await;
    let refused = refusal(&client, again(&asked, "decline")).await;
    assert!(refused.contains("too many answers"), "{refused}");
    advance(2 * MINUTE).await;
    let asked = asks(&client, five()).await;
    answer(&client, again(&asked, "decline")).await;
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#statelessness
//# State that needs to span multiple requests (e.g., long-running tasks, application-level handles)
//# MUST be referenced by an explicit identifier the client passes on each request.
/// B2: a gateway that was restarted with its key knows the question of the one before.
#[tokio::test]
async fn a_gateway_that_was_restarted_between_runs_the_call_once() {
    let tool = Tool::default();
    let codec = || RequestStateCodec::try_new([7; 32]).unwrap();
    let before = tool.gateway(MINUTE).with_request_states(codec());
    let (url, server) = http(before).await;
    let asked = asks(&over_http(url).await, five()).await;
    server.abort();
    let (url, _server) = http(tool.gateway(MINUTE).with_request_states(codec())).await;
    let client = over_http(url).await;
    let yes = again(&asked, "accept");
    assert_ne!(answer(&client, yes.clone()).await.is_error, Some(true));
    refusal(&client, yes).await;
    assert_eq!(tool.runs(), 1);
}

/// A call that its server asks about as well: the approval holds, and each state finds its owner.
#[tokio::test]
async fn a_question_of_the_tools_server_comes_after_the_approval() {
    let gateway = gateway_with(true, |router| {
        let policy = PolicyLayer::new()
            .ask("docs__ask")
            .with_approver(McpElicitation);
        let stack = ServiceBuilder::new()
            .tool_policy(policy)
            .service(router.clone());
        GatewayHandler::new(stack, router)
    })
    .await;
    let client = over_stream(gateway.handler.clone()).await;
    let ask = || CallToolRequestParams::new("docs__ask");
    let approval = asks(&client, ask()).await;
    assert_eq!(gateway.upstream.begun(), 0);
    let mut yes = again(&approval, "accept");
    (yes.name, yes.arguments) = ("docs__ask".into(), None);
    let theirs = asks(&client, yes).await;
    assert_ne!(theirs.request_state.as_deref(), Some("§state"));

    let mut city = ask();
    city.request_state = theirs.request_state;
    city.input_responses = Some([("city".to_owned(), json!("Bern"))].into());
    let result = answer(&client, city.clone()).await;
    assert_eq!(
        result.content[0].as_text().unwrap().text,
        r#"{"city":"Bern"}"#
    );
    refusal(&client, city).await;
    assert_eq!(gateway.upstream.begun(), 2);
}

/// The states of the two look alike.
#[tokio::test]
async fn a_gateway_behind_a_gateway_asks_for_itself() {
    let tool = Tool::default();
    let behind = over_stream(tool.gateway(MINUTE)).await;
    let leaf = McpService::new(behind.peer().clone());
    for (asks_too, questions) in [(false, 1), (true, 2)] {
        let policy = match asks_too {
            true => asking(MINUTE),
            false => PolicyLayer::new(),
        };
        let stack = ServiceBuilder::new()
            .tool_policy(policy)
            .service(leaf.clone());
        let gateway = GatewayHandler::new(stack, Vec::new);
        let user = User::new(ElicitationAction::Accept);
        let client = user
            .clone()
            .serve_with_lifecycle(stream(gateway), discover());
        let result = client.await.unwrap().call_tool(five()).await.unwrap();
        assert_eq!(result.content[0].as_text().unwrap().text, "pay is done");
        assert_eq!(user.asked().len(), questions);
    }
    assert_eq!(tool.runs(), 2);
}
