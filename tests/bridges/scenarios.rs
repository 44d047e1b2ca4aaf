//! N2, E5: the same calls through the same stack in each server, and what their clients see, field
//! by field.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ToolCall, ToolError, catch_panic::CatchPanicLayer, check::CheckLayer,
    circuit_breaker::CircuitBreakerLayer, deadline::DeadlineLayer, normalize::NormalizeLayer,
    rate_limit::RateLimitBackoffLayer, redact::Rules, retry::RetryLayer, sanitize::SanitizeLayer,
    timeout::TimeoutLayer, tool_metrics::Metrics, trace::TraceLayer,
};

use crate::{
    grpc::{self, call, connect, grpc, grpc_of, request},
    kit::{LIMIT, Seen, Server, Stack, Tools, axum, axum_of, leaf, post, seen},
    plain_hyper::{hyper, hyper_of},
};

/// The bare tools, as each layer takes them.
type Leaf = BoxCloneSyncService<ToolCall, Value, BoxError>;

/// How a call ends on each wire. Written by hand: nothing here comes from the crate's table.
struct Scenario {
    tool: &'static str,
    /// How often it is called before.
    before: usize,
    http: u16,
    grpc: Code,
    json_rpc: i32,
    code: &'static str,
    message: &'static str,
    /// The JSON-RPC message, where it is another.
    json_rpc_message: Option<&'static str>,
    retryable: bool,
    execution: &'static str,
    recoverable: bool,
    attempts: Option<u32>,
    timeout_ms: Option<u64>,
    retry_after: Option<u64>,
}

const BASE: Scenario = Scenario {
    tool: "",
    before: 0,
    http: 0,
    grpc: Code::Ok,
    json_rpc: -32603,
    code: "",
    message: "",
    json_rpc_message: None,
    retryable: false,
    execution: "unknown",
    recoverable: true,
    attempts: Some(1),
    timeout_ms: None,
    retry_after: None,
};

const SCENARIOS: &[Scenario] = &[
    Scenario {
        tool: "missing",
        http: 404,
        grpc: Code::NotFound,
        json_rpc: -32602,
        code: "TOOL_NOT_FOUND",
        message: "The tool 'missing' is not available.",
        recoverable: false,
        ..BASE
    },
    Scenario {
        tool: "strict",
        http: 400,
        grpc: Code::InvalidArgument,
        json_rpc: -32602,
        code: "TOOL_INVALID_INPUT",
        message: "The tool 'strict' could not use the given input.",
        ..BASE
    },
    Scenario {
        tool: "slow",
        http: 504,
        grpc: Code::DeadlineExceeded,
        json_rpc: -32000,
        code: "TOOL_TIMEOUT",
        message: "The tool 'slow' took too long to answer (100 ms).",
        json_rpc_message: Some("Tool invocation timed out"),
        retryable: true,
        timeout_ms: Some(100),
        ..BASE
    },
    Scenario {
        tool: "down",
        http: 502,
        grpc: Code::Unavailable,
        code: "UPSTREAM_ERROR",
        message: "The service behind the tool 'down' failed.",
        retryable: true,
        ..BASE
    },
    Scenario {
        tool: "down",
        before: 5,
        http: 503,
        grpc: Code::Unavailable,
        json_rpc: -32001,
        code: "CIRCUIT_OPEN",
        message: "The tool 'down' is unavailable for now. Please try again in 60 s.",
        // V15: it was not sent.
        execution: "not_started",
        attempts: None,
        json_rpc_message: Some("Circuit breaker open"),
        retryable: true,
        retry_after: Some(60),
        ..BASE
    },
    Scenario {
        tool: "limited",
        http: 429,
        grpc: Code::ResourceExhausted,
        code: "RATE_LIMITED",
        message: "The tool 'limited' is limiting requests. Please try again in 61 s.",
        retryable: true,
        execution: "not_started",
        retry_after: Some(61),
        ..BASE
    },
    Scenario {
        tool: "panic",
        http: 500,
        grpc: Code::Internal,
        code: "INTERNAL_ERROR",
        message: "The tool 'panic' failed because of an internal error.",
        ..BASE
    },
];

const OVERLOADED: Scenario = Scenario {
    tool: "ok",
    http: 503,
    grpc: Code::Unavailable,
    code: "OVERLOADED",
    message: "The tool 'ok' is busy. Please try again shortly.",
    retryable: true,
    ..BASE
};

impl Scenario {
    /// The members that all wires have, where they are known.
    fn facts(&self) -> Map<String, Value> {
        let known = [
            ("attempts", self.attempts.map(Value::from)),
            ("timeout_ms", self.timeout_ms.map(Value::from)),
            ("retry_after_seconds", self.retry_after.map(Value::from)),
        ];
        let known = known
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        known
            .chain([
                ("code".to_owned(), json!(self.code)),
                ("retryable".to_owned(), json!(self.retryable)),
                ("execution".to_owned(), json!(self.execution)),
            ])
            .collect()
    }

    fn http_seen(&self) -> Seen {
        let mut error = self.facts();
        error.insert("tool".into(), json!(self.tool));
        error.insert("message".into(), json!(self.message));
        error.insert("recoverable".into(), json!(self.recoverable));
        error.insert("call_id".into(), json!("r-1"));
        Seen {
            status: self.http,
            content_type: Some("application/json".into()),
            retry_after: self.retry_after.map(|s| s.to_string()),
            body: json!({ "error": error }),
        }
    }

    fn rpc_seen(&self) -> Seen {
        let mut data = self.facts();
        data.insert("tool_id".into(), json!(self.tool));
        let message = self.json_rpc_message.unwrap_or(self.message);
        let error = json!({ "code": self.json_rpc, "message": message, "data": data });
        Seen {
            status: 200,
            content_type: Some("application/json".into()),
            retry_after: None,
            body: json!({ "jsonrpc": "2.0", "id": "r-1", "error": error }),
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

async fn plain(server: &Server, path: &str, tool: &str) -> Seen {
    let url = server.url(&path.replace("{tool}", tool));
    seen(post(&url, r#"{ "city": "Oslo" }"#).header("x-request-id", "r-1")).await
}

/// Starts calls that hang, until the limit of the stack is reached.
async fn fill(server: &Server, path: &'static str) -> JoinSet<()> {
    let mut hanging = JoinSet::new();
    for _ in 0..LIMIT {
        let url = server.url(&path.replace("{tool}", "hang"));
        hanging.spawn(async move { drop(post(&url, "{}").send().await) });
    }
    server.tools.until_running(LIMIT).await;
    hanging
}

async fn over_http(start: impl AsyncFn(Duration) -> Server, path: &'static str) {
    for scenario in SCENARIOS {
        let server = start(MINUTE).await;
        for _ in 0..scenario.before {
            plain(&server, path, scenario.tool).await;
        }
        let got = plain(&server, path, scenario.tool).await;
        assert_eq!(got, scenario.http_seen(), "{}", scenario.tool);
        server.tools.until_running(0).await;
    }

    let server = start(MINUTE).await;
    let got = plain(&server, path, "ok").await;
    assert_eq!((got.status, got.retry_after), (200, None));
    assert_eq!(got.content_type.as_deref(), Some("application/json"));
    assert_eq!(got.body["arguments"], json!({ "city": "Oslo" }));
    assert_eq!(got.body["id"], "r-1");

    // Clients that hang up: their calls are dropped, and their places are free again.
    let mut hanging = fill(&server, path).await;
    assert_eq!(plain(&server, path, "ok").await, OVERLOADED.http_seen());
    hanging.shutdown().await;
    server.tools.until_running(0).await;
    assert_eq!(plain(&server, path, "ok").await.status, 200);
}

#[tokio::test]
async fn a_stack_in_an_axum_server() {
    over_http(axum, "/tools/{tool}/call").await;
}

#[tokio::test]
async fn a_stack_in_a_plain_hyper_server() {
    over_http(hyper, "/{tool}").await;
}

async fn rpc(server: &Server, tool: &str) -> Seen {
    let body = json!({
        "jsonrpc": "2.0", "id": "r-1", "method": "tools/call",
        "params": { "name": tool, "arguments": { "city": "Oslo" } },
    });
    seen(post(&server.url("/rpc"), body.to_string())).await
}

#[tokio::test]
async fn a_stack_behind_json_rpc() {
    for scenario in SCENARIOS {
        let server = axum(MINUTE).await;
        for _ in 0..scenario.before {
            rpc(&server, scenario.tool).await;
        }
        let got = rpc(&server, scenario.tool).await;
        assert_eq!(got, scenario.rpc_seen(), "{}", scenario.tool);
        server.tools.until_running(0).await;
    }

    let server = axum(MINUTE).await;
    let got = rpc(&server, "ok").await;
    assert_eq!((got.status, &got.body["id"]), (200, &json!("r-1")));
    assert_eq!(got.body["result"]["arguments"], json!({ "city": "Oslo" }));

    let mut hanging = JoinSet::new();
    for id in 0..LIMIT {
        let hang = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "hang" } });
        let request = post(&server.url("/rpc"), hang.to_string());
        hanging.spawn(async move { drop(request.send().await) });
    }
    server.tools.until_running(LIMIT).await;
    assert_eq!(rpc(&server, "ok").await, OVERLOADED.rpc_seen());
    hanging.shutdown().await;
    server.tools.until_running(0).await;
    assert!(rpc(&server, "ok").await.body.get("result").is_some());
}

async fn check_status(server: &Server, scenario: &Scenario) {
    let mut request = request(scenario.tool, r#"{ "city": "Oslo" }"#);
    request
        .metadata_mut()
        .insert("x-request-id", "r-1".parse().unwrap());
    let status = call(connect(server).await, request).await.unwrap_err();
    assert_eq!(status.code(), scenario.grpc, "{status:?}");
    assert_eq!(status.message(), scenario.message);

    let info = status.get_details_error_info().unwrap();
    assert_eq!(&*info.reason, scenario.code);
    assert_eq!(&*info.domain, "tower-toolcall");
    let fact = |key: &str| info.metadata.get(key).cloned();
    assert_eq!(fact("tool").as_deref(), Some(scenario.tool));
    assert_eq!(fact("call_id").as_deref(), Some("r-1"));
    assert_eq!(fact("retryable"), Some(scenario.retryable.to_string()));
    assert_eq!(fact("execution").as_deref(), Some(scenario.execution));
    assert_eq!(fact("attempts"), scenario.attempts.map(|n| n.to_string()));
    assert_eq!(
        fact("timeout_ms"),
        scenario.timeout_ms.map(|n| n.to_string())
    );

    let seconds = |d: Duration| d.as_secs_f64().ceil() as u64;
    let told = status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay);
    assert_eq!(told.map(seconds), scenario.retry_after);
    let pushback = status.metadata().get("grpc-retry-pushback-ms");
    let pushback = pushback.map(|ms| ms.to_str().unwrap().parse::<u64>().unwrap());
    assert_eq!(pushback.map(|ms| ms.div_ceil(1000)), scenario.retry_after);

    assert!(!format!("{status:?}").contains("db.internal"), "{status:?}");
}

#[tokio::test]
async fn a_stack_in_a_tonic_server() {
    for scenario in SCENARIOS {
        let server = grpc(MINUTE).await;
        for _ in 0..scenario.before {
            let request = request(scenario.tool, "");
            call(connect(&server).await, request).await.unwrap_err();
        }
        check_status(&server, scenario).await;
        server.tools.until_running(0).await;
    }

    let server = grpc(MINUTE).await;
    let channel = connect(&server).await;
    let answer = call(channel.clone(), request("ok", r#"{ "city": "Oslo" }"#))
        .await
        .unwrap();
    assert_eq!(answer["arguments"], json!({ "city": "Oslo" }));

    // Clients that give up: their calls are dropped, and their places are free again.
    let mut hanging = JoinSet::new();
    for _ in 0..LIMIT {
        let call = grpc::call(channel.clone(), request("hang", ""));
        hanging.spawn(async move { drop(call.await) });
    }
    server.tools.until_running(LIMIT).await;
    check_status(&server, &OVERLOADED).await;
    hanging.shutdown().await;
    server.tools.until_running(0).await;
    call(channel, request("ok", "")).await.unwrap();
}

/// N2: each layer alone, around the bare tools.
fn each_layer_alone(tools: &Tools) -> Vec<(&'static str, Stack)> {
    fn alone<L>(name: &'static str, tools: &Tools, layer: L) -> (&'static str, Stack)
    where
        L: Layer<
                Leaf,
                Service: Service<ToolCall, Response = Value, Error: Into<ToolError>, Future: Send>,
            >,
        L::Service: Clone + Send + Sync + 'static,
    {
        let layered = layer.layer(Leaf::new(leaf(tools)));
        (name, Stack::new(layered.map_err(Into::into)))
    }
    vec![
        alone("normalize", tools, NormalizeLayer::new()),
        alone("sanitize", tools, SanitizeLayer::new(Rules::default())),
        alone("trace", tools, TraceLayer::new()),
        alone("metrics", tools, Metrics::new().layer()),
        alone("check", tools, CheckLayer::max_bytes(1 << 20)),
        alone("deadline", tools, DeadlineLayer::new(MINUTE)),
        alone("retry", tools, RetryLayer::default()),
        alone("rate_limit", tools, RateLimitBackoffLayer::new()),
        alone("circuit_breaker", tools, CircuitBreakerLayer::new()),
        alone("timeout", tools, TimeoutLayer::default()),
        alone("catch_panic", tools, CatchPanicLayer::new()),
    ]
}

#[tokio::test]
async fn each_layer_alone_works_in_each_server() {
    let tools = Tools::default();
    for (name, stack) in each_layer_alone(&tools) {
        for (server, path) in [
            (
                axum_of(tools.clone(), stack.clone()).await,
                "/tools/{tool}/call",
            ),
            (hyper_of(tools.clone(), stack.clone()).await, "/{tool}"),
        ] {
            assert_eq!(
                plain(&server, path, "text").await.body,
                "12 degrees",
                "{name}"
            );
            assert_eq!(plain(&server, path, "missing").await.status, 404, "{name}");
        }
        let server = grpc_of(tools.clone(), stack).await;
        let channel = connect(&server).await;
        let answer = call(channel.clone(), request("text", "")).await;
        assert_eq!(answer.unwrap(), "12 degrees", "{name}");
        let status = call(channel, request("missing", "")).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{name}");
    }
}
