//! The client that the conformance suite runs its scenarios with.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    http::{HeaderName, HeaderValue, StatusCode},
    routing::post,
};
use rmcp::{
    ClientHandler, ErrorData, RoleClient, ServiceExt as _,
    model::{
        CallToolResponse, ClientCapabilities, ClientConfig, ClientJsonRpcMessage,
        ElicitRequestParams, ElicitResult, ElicitationAction, Implementation, InputResponses,
        JsonObject,
    },
    service::RequestContext,
    transport::{
        StreamableHttpClientTransport,
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{
            StreamableHttpClient, StreamableHttpClientTransportConfig as Config,
            StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Notify};
use tower::{Service, ServiceExt as _};
use tower_toolcall::{BoxError, ToolCall, ToolError, validate::Schemas};
use tower_toolcall_mcp::{McpAnswer, McpExtras, McpHttpClient, McpReconnect, McpServer};

/// What the suite asks of a client.
#[derive(Deserialize)]
struct Scenario {
    scenario: String,
    url: String,
    context: Value,
}

/// The error of each scenario that was played, if it has one.
pub(super) type Played = Arc<Mutex<BTreeMap<String, Option<String>>>>;

/// Serves `client.sh`. Returns the port.
pub(super) async fn listen(played: Played) -> u16 {
    let run = move |Json(asked): Json<Scenario>| async move {
        let error = run(&asked).await.err().map(|error| error.to_string());
        played.lock().unwrap().insert(asked.scenario, error.clone());
        match error {
            None => (StatusCode::OK, String::new()),
            Some(error) => (StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    };
    let app = Router::new().route("/", post(run));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    port
}

/// Plays a scenario as its description has it.
async fn run(asked: &Scenario) -> Result<(), BoxError> {
    if asked.scenario == "elicitation-sep1034-client-defaults" {
        return accept_defaults(&asked.url).await;
    }
    let server = McpServer::http("suite", &*asked.url).with_schemas(&Schemas::new());
    // Reads the list of tools as well, and compiles their schemas.
    server.connect().await?;
    let tools = server.tools().catalog();
    match &*asked.scenario {
        // The suite's server has no call.
        "json-schema-ref-no-deref" => Ok(()),
        "tools_call" => call(&server, "add_numbers", json!({ "a": 2, "b": 3 })).await,
        "sep-2322-client-request-state" => questions(&server).await,
        "http-custom-headers" => {
            for asked in asked.context["toolCalls"].as_array().ok_or("no calls")? {
                let name = asked["name"].as_str().ok_or("no name")?;
                call(&server, name, asked["arguments"].clone()).await?;
            }
            Ok(())
        }
        "json-schema-2020-12-preservation" => {
            let tool = tools.tools().find(|tool| tool.name != "json_schema_echo");
            let schema = tool.ok_or("no tool")?.input_schema.clone();
            call(&server, "json_schema_echo", json!({ "schema": schema })).await
        }
        _ => {
            for tool in tools.tools() {
                let arguments = json!({ "region": "us-west1" });
                call(&server, &tool.name, arguments).await?;
            }
            Ok(())
        }
    }
}

async fn call<S>(server: &S, name: &str, arguments: Value) -> Result<(), BoxError>
where
    S: Service<ToolCall, Response = McpAnswer, Error = ToolError> + Clone,
{
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let call = ToolCall::new(name).with_arguments(arguments);
    server.clone().oneshot(call).await?;
    Ok(())
}

/// Answers what tools ask for, with calls of another tool in between.
async fn questions(server: &McpServer) -> Result<(), BoxError> {
    for name in ["test_mrtr_echo_state", "test_mrtr_no_state"] {
        let mut again = ToolCall::new(name);
        let asked = server.clone().oneshot(again.clone()).await?;
        let CallToolResponse::InputRequired(asked) = &*asked else {
            return Err(format!("{name} does not ask").into());
        };
        call(server, "test_mrtr_unrelated", json!({})).await?;
        let accepted = json!({ "action": "accept", "content": { "confirmed": true } });
        let names = asked.input_requests.iter().flatten();
        let answers: InputResponses = names
            .map(|(name, _)| (name.clone(), accepted.clone()))
            .collect();
        let mut extras = McpExtras::new().with_input_responses(answers);
        if let Some(state) = &asked.request_state {
            extras = extras.with_request_state(state.clone());
        }
        again.extensions_mut().insert(extras);
        server.clone().oneshot(again).await?;
    }
    call(server, "test_mrtr_no_result_type", json!({})).await
}

/// The handler of a program that its servers may ask: accepts what a form proposes.
#[derive(Clone)]
struct AcceptsDefaults;

impl ClientHandler for AcceptsDefaults {
    fn get_info(&self) -> ClientConfig {
        let can = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(can, Implementation::new("asked", "1"))
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let asked = json!(asked);
        let fields = asked["requestedSchema"]["properties"].as_object();
        let defaults = fields.into_iter().flatten();
        let defaults = defaults.map(|(name, field)| (name.clone(), field["default"].clone()));
        let content = defaults.collect::<JsonObject>();
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
    }
}

/// A client that says when the stream is open on which a server asks.
#[derive(Clone)]
struct Watched(McpHttpClient, Arc<Notify>);

impl StreamableHttpClient for Watched {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>> {
        let client = &self.0;
        client
            .post_message(uri, message, session, auth, headers)
            .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<reqwest::Error>> {
        self.0.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, StreamableHttpError<reqwest::Error>> {
        let stream = self.0.get_stream(uri, session, last_event, auth, headers);
        let stream = stream.await?;
        self.1.notify_one();
        Ok(stream)
    }
}

/// A connection of [`McpServer`] is that of all callers, and answers no server. A program with one
/// user brings a handler of its own.
async fn accept_defaults(url: &str) -> Result<(), BoxError> {
    let (config, is_open) = (Config::with_uri(url), Arc::new(Notify::new()));
    let client = Watched(McpHttpClient::default(), Arc::clone(&is_open));
    let server = McpReconnect::new("suite", move || {
        let transport = StreamableHttpClientTransport::with_client(client.clone(), config.clone());
        AcceptsDefaults.serve(transport)
    });
    server.connect().await?;
    is_open.notified().await;
    call(&server, "test_client_elicitation_defaults", json!({})).await
}
