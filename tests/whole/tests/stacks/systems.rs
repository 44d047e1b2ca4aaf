//! What the five systems that asked for this crate expect of it, each with its preset (G3):
//! settings, stack, router, batch and metrics together.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ToolCall, ToolError, ToolResult,
    batch::{Parallel, Sequence},
    result::{Status, ToolResultLayer},
    router::{Json, Router, tool_fn},
    settings::{Place, Settings},
    token::{Target, TokenLayer},
    tool_metrics::Metrics,
    validate::{Schema, Schemas},
};
use tower_toolcall_http::{
    ExecutionError, ExecutionResult, ExecutionStatus, HttpAnswer, ToolManifest,
    token::{ClientAuth, TokenEndpoint},
};
use tower_toolcall_mcp::{self as mcp, McpClassifier};

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[derive(Deserialize)]
struct Takes {
    seconds: f64,
}

/// Tools that every system has: one that takes its time, one that fails, one that panics.
fn tools() -> Router {
    Router::builder()
        .tool(
            "work",
            tool_fn(|Takes { seconds }: Takes| async move {
                sleep(Duration::from_secs_f64(seconds)).await;
                Ok::<_, BoxError>(Json(seconds))
            }),
        )
        .tool(
            "fail",
            tool_fn(|(): ()| async { Err::<(), BoxError>("disk full".into()) }),
        )
        .tool(
            "panic",
            tool_fn(|(): ()| async { panic!("boom") as Result<(), BoxError> }),
        )
        .build()
        .unwrap()
}

fn work(seconds: f64) -> ToolCall {
    let arguments = json!({ "seconds": seconds });
    ToolCall::new("work").with_json(arguments).unwrap()
}

/// A tool that fails so often, and the number of requests that it got.
fn failing(
    times: usize,
    with: &'static str,
) -> (
    Arc<AtomicUsize>,
    impl Service<ToolCall, Response = &'static str, Error = BoxError, Future: Send> + Clone,
) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let tool = service_fn(move |_: ToolCall| {
        let n = count.fetch_add(1, SeqCst);
        async move {
            match n < times {
                true => Err(BoxError::from(with)),
                false => Ok("done"),
            }
        }
    });
    (requests, tool)
}

// System A: an executor that never throws.

/// A: E3, E8, X1, X4. Whatever happens, each call has its result, in order, with a code, and says
/// whether to go on.
#[tokio::test(start_paused = true)]
async fn a_executes_whatever_is_asked_without_throwing() {
    let stack = Settings::default().stack().build().unwrap();
    let executor = Parallel::new(stack.layer(tools()));
    let calls = [
        work(1.0),
        ToolCall::new("wrok"),
        work(31.0),
        ToolCall::new("fail"),
        ToolCall::new("panic"),
        ToolCall::new("work")
            .with_json(json!({ "seconds": "soon" }))
            .unwrap(),
    ];
    let results = executor.run(calls).await;
    let ended: Vec<_> = results
        .iter()
        .map(|r| {
            let error = r.error();
            let code = error.map_or("", ToolError::code).to_owned();
            (
                r.status(),
                code,
                error.is_none_or(ToolError::is_recoverable),
            )
        })
        .collect();
    let expected = [
        (Status::Success, "", true),
        (Status::Error, "TOOL_NOT_FOUND", false),
        (Status::Timeout, "TOOL_TIMEOUT", true),
        (Status::Error, "TOOL_EXECUTION_FAILED", true),
        (Status::Error, "INTERNAL_ERROR", true),
        (Status::Error, "TOOL_INVALID_INPUT", true),
    ];
    let expected = expected.map(|(status, code, on)| (status, code.to_owned(), on));
    // A panic has a kind of its own beside `Internal`, of which E8 says that it is not recoverable.
    assert_eq!(ended[..4], expected[..4]);
    assert_eq!(
        (ended[4].0, &*ended[4].1),
        (Status::Error, "INTERNAL_ERROR")
    );
    assert_eq!(ended[5], expected[5]);
    let unknown = &results[1];
    assert_eq!((unknown.duration(), unknown.attempts()), (secs(0), 0));
    assert!(
        unknown.model_message().contains("'work'"),
        "{}",
        unknown.model_message()
    );
    assert_eq!(results[2].duration(), secs(30));
    let message = results[2].error().unwrap().message();
    assert!(
        message.starts_with("Tool invocation timed out after 30000ms"),
        "{message}"
    );
    let sentence = results[2].error().unwrap().user_message();
    assert!(sentence.contains("(30000 ms)"), "{sentence}");
}

/// A: E4. The sentence about a timeout has its milliseconds: the executor's, the tool's, the
/// call's.
#[tokio::test(start_paused = true)]
async fn a_names_the_milliseconds_in_the_sentence_of_a_timeout() {
    let sentence = async |tool: Option<u64>, own: Option<u64>| {
        let mut settings = Settings::default();
        let work_settings = settings.tools.entry("work".to_owned()).or_default();
        work_settings.timeout = tool.map(Duration::from_millis);
        let stack = settings.stack().build().unwrap().layer(tools());
        let mut asked = work(31.0);
        if let Some(own) = own {
            asked = asked.with_timeout(Duration::from_millis(own));
        }
        let error = stack.oneshot(asked).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        error.user_message().to_owned()
    };
    for (tool, own, limit) in [
        (None, None, "(30000 ms)"),
        (Some(1500), None, "(1500 ms)"),
        (Some(1500), Some(2250), "(2250 ms)"),
    ] {
        let sentence = sentence(tool, own).await;
        let expected = format!("The tool 'work' took too long to answer {limit}.");
        assert_eq!(sentence, expected);
    }
}

// System B: a library that runs tools one after the other, within a budget, and measures.

/// B: T5, T6, T7, X2, O3. Tools of 5 s within 30 s.
#[tokio::test(start_paused = true)]
async fn b_runs_tools_within_a_budget_and_tells_what_became_of_each() {
    let settings = Settings::agent_library();
    let metrics = Metrics::new();
    let stack = settings.stack().with_metrics(&metrics).build().unwrap();
    let sequence = Sequence::new(stack.layer(tools()));
    let sequence = settings
        .sequence
        .apply(sequence.with_listener(metrics.clone()));
    let report = sequence
        .run([
            work(1.0),                // 1 s
            work(4.5),                // 5.5 s: slow
            ToolCall::new("unknown"), // does not stop the run
            work(9.0),                // 10.5 s: timed out
            ToolCall::new("fail"),
            work(9.0), // 15.5 s
            work(9.0), // 20.5 s
            work(9.0), // 25.5 s
            work(9.0), // 29.5 s: what is left
            work(0.0), // nothing is left
        ])
        .await;
    let results = report.results();
    let ended: Vec<_> = results.iter().map(|r| r.status().name()).collect();
    let expected = [
        "success", "success", "error", "timeout", "error", "timeout", "timeout", "timeout",
        "timeout", "skipped",
    ];
    assert_eq!(ended, expected);
    assert_eq!(report.duration(), Duration::from_millis(29_500));
    assert_eq!(results[8].metadata().timeout(), Some(secs(4)));
    assert_eq!(results[8].metadata().configured_timeout(), Some(secs(5)));
    assert!(results[1].metadata().is_slow() && !results[0].metadata().is_slow());
    assert_eq!(results[9].duration(), secs(0));
    assert!(results[8].ran_out_of_time() && results[9].ran_out_of_time());

    let snapshot = metrics.snapshot();
    let work = snapshot.tool(None, "work").unwrap();
    assert_eq!(
        (work.calls, work.successes, work.timeouts, work.skipped),
        (8, 2, 5, 1)
    );
    assert!(work.slow >= Some(1));
}

/// B: X1. A batch has 60 s.
#[tokio::test(start_paused = true)]
async fn b_bounds_a_batch() {
    let mut settings = Settings::agent_library();
    settings.timeout.default = secs(100);
    let stack = settings.stack().build().unwrap();
    let parallel = settings.parallel.apply(Parallel::new(stack.layer(tools())));
    let start = Instant::now();
    let results = parallel.run([work(90.0), work(1.0)]).await;
    assert_eq!(results[0].status(), Status::Timeout);
    assert!(results[1].is_success());
    assert!(start.elapsed() <= secs(60));
}

// System C: an agent loop with retries and rate limits.

/// The preset, and the rule of the system itself: every tool may run twice (P11).
fn system_c() -> Settings {
    let mut settings = Settings::agent_loop();
    settings.retry.assume_replay_safe = true;
    settings
}

/// C: T4. The user's abort ends the call, whatever it waits for, and nothing is repeated.
#[tokio::test(start_paused = true)]
async fn c_is_aborted_by_its_user() {
    let stack = system_c().stack().build().unwrap();
    let executor = ToolResultLayer::new().layer(stack.layer(tools()));
    let token = CancellationToken::new();
    let call = work(20.0).with_cancellation(token.clone());
    let running = tokio::spawn(executor.oneshot(call));
    sleep(secs(2)).await;
    token.cancel();
    let result = running.await.unwrap().unwrap();
    assert_eq!((result.status(), result.attempts()), (Status::Cancelled, 1));
    assert_eq!(result.duration(), secs(2));
    assert_eq!(result.error().unwrap().execution(), Execution::Unknown);
}

/// C: X3, X5. A model that gives ids, the same ids twice or none has one text for each of its
/// calls.
#[tokio::test(start_paused = true)]
async fn c_answers_each_call_of_a_model_once() {
    let router = mcp::router()
        .tool(
            "text",
            tool_fn(|(): ()| async { Ok::<_, BoxError>("12 degrees") }),
        )
        .tool(
            "json",
            tool_fn(|(): ()| async { Ok::<_, BoxError>(json!({ "degrees": 12 })) }),
        )
        .tool("nothing", tool_fn(|(): ()| async { Ok::<_, BoxError>(()) }))
        .build()
        .unwrap();
    let stack = system_c().stack().with_classifier(McpClassifier::new());
    let executor = Parallel::new(stack.build().unwrap().layer(router));
    let calls = [
        ToolCall::new("text").with_id("call_1"),
        ToolCall::new("json").with_id("call_1"),
        ToolCall::new("nothing"),
        ToolCall::new("missing").with_id("call_2"),
    ];
    let results = executor.run(calls).await;
    let texts: Vec<_> = results.iter().map(ToolResult::model_text).collect();
    assert_eq!(texts[0], "12 degrees");
    assert_eq!(
        serde_json::from_str::<Value>(&texts[1]).unwrap(),
        json!({ "degrees": 12 })
    );
    assert_eq!(texts[2], "");
    assert!(
        texts[3].starts_with("Tool 'missing' does not exist"),
        "{}",
        texts[3]
    );
    let ids: BTreeSet<_> = results.iter().map(|r| r.call_id().unwrap()).collect();
    assert_eq!(ids.len(), 4);
    assert!(ids.contains("call_1") && ids.contains("call_2"));
}

// System D: a gateway, set up by its environment, that speaks JSON-RPC.

// System E: a proxy for HTTP tools.

#[path = "../../../../examples/tools_provider/src/cloud_events.rs"]
#[expect(dead_code, reason = "the example prints them")]
mod cloud_events;

/// E.9.4: each change of a breaker as a CloudEvent, by the example's few lines.
#[tokio::test(start_paused = true)]
async fn e_tells_of_its_breakers_in_cloud_events() {
    let stack = Settings::http_proxy().stack().build().unwrap();
    let mut transitions = stack.circuit_breaker().subscribe();
    let (_, tool) = failing(5, "502 Bad Gateway");
    let tools = ServiceBuilder::new().layer(stack).service(tool);
    let call = || {
        tools
            .clone()
            .oneshot(ToolCall::new("get").with_server("crm"))
    };
    for _ in 0..5 {
        call().await.unwrap_err();
    }
    advance(secs(30)).await;
    call().await.unwrap();
    let mut ids = std::collections::HashSet::new();
    for state in ["open", "half_open"] {
        let transition = transitions.next().await.unwrap().unwrap();
        let event = cloud_events::cloud_event(&transition);
        assert_eq!(event["specversion"], "1.0");
        assert_eq!(event["type"], format!("dev.tools.circuit_breaker.{state}"));
        assert_eq!(event["subject"], "crm");
        assert!(
            event["source"]
                .as_str()
                .is_some_and(|source| source.starts_with('/'))
        );
        let time = event["time"].as_str().unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
        assert_eq!(event["data"]["to"], state);
        assert!(ids.insert(event["id"].to_string()), "{event}");
    }
}

/// System E's servers, as clients that answer by themselves: an identity provider, and an API of
/// orders and deliveries. Each counts its requests, and can be taken away.
#[derive(Clone, Default)]
struct Servers(Arc<Asked>);

#[derive(Default)]
struct Asked {
    tokens: AtomicUsize,
    requests: AtomicUsize,
    gone: std::sync::Mutex<&'static str>,
}

type HttpClient =
    BoxCloneSyncService<http::Request<Bytes>, http::Response<Full<Bytes>>, std::io::Error>;

impl Servers {
    fn client(
        &self,
        name: &'static str,
        answer: fn(&http::Request<Bytes>, usize) -> (u16, Value),
    ) -> HttpClient {
        let this = self.clone();
        HttpClient::new(service_fn(move |request: http::Request<Bytes>| {
            let asked = match name {
                "provider" => &this.0.tokens,
                _ => &this.0.requests,
            };
            let n = asked.fetch_add(1, SeqCst);
            let result = match *this.0.gone.lock().unwrap() == name {
                true => Err(std::io::ErrorKind::ConnectionRefused.into()),
                false => {
                    let (status, body) = answer(&request, n);
                    let answer = http::Response::builder().status(status);
                    Ok(answer.body(Full::new(body.to_string().into())).unwrap())
                }
            };
            std::future::ready(result)
        }))
    }

    fn asked(&self) -> (usize, usize) {
        let read = |count: &AtomicUsize| count.load(SeqCst);
        (read(&self.0.tokens), read(&self.0.requests))
    }

    fn lose(&self, name: &'static str) {
        *self.0.gone.lock().unwrap() = name;
    }

    /// The tool of a file, as the preset has it: validation, a token for each request, a breaker
    /// for the source, jobs.
    fn tool(&self, manifest: &Value) -> BoxCloneSyncService<ToolCall, HttpAnswer, ToolError> {
        let manifest: ToolManifest = serde_json::from_value(manifest.clone()).unwrap();
        let provider = self.client("provider", |request, n| {
            let form = String::from_utf8_lossy(request.body());
            let subject = form.split("subject_token=").nth(1).unwrap();
            let subject = subject.split('&').next().unwrap();
            let token = format!("{subject}.orders.{n}");
            (
                200,
                json!({ "access_token": token, "token_type": "Bearer", "expires_in": 300 }),
            )
        });
        let upstream = self.client("upstream", |request, n| {
            let token = request.headers()["authorization"].to_str().unwrap();
            assert!(token.starts_with("Bearer agent-7.orders."), "{token}");
            match (request.method().as_str(), request.uri().path()) {
                ("POST", "/orders/no%201") => {
                    (201, serde_json::from_slice(request.body()).unwrap())
                }
                ("POST", "/deliveries") => (202, json!({ "job_id": "j 1", "status": "queued" })),
                ("GET", "/deliveries/j%201") if n < 4 => (200, json!({ "status": "baking" })),
                ("GET", "/deliveries/j%201") => {
                    (200, json!({ "status": "completed", "report": "warm" }))
                }
                _ => (409, json!({ "why": "closed" })),
            }
        });
        let auth = ClientAuth::basic("tools", "s3cr3t");
        let url = "https://id.example.com/realms/x/protocol/openid-connect/token";
        let endpoint = TokenEndpoint::<_, Bytes>::new(url, auth, provider).unwrap();
        let audience = manifest.required_audience().unwrap();
        let tokens = TokenLayer::new(endpoint).with_server("shop", Target::audience(audience));
        let schemas = Schemas::new();
        let schema = Schema::compile(manifest.input_schema().unwrap());
        schemas.insert(Some("shop"), manifest.name(), schema.unwrap());
        let stack = Settings::http_proxy()
            .stack()
            .with_schemas(&schemas)
            .with_layer(Place::Attempt, tokens)
            .build()
            .unwrap();
        let leaf = manifest.tool().unwrap().client::<_, Bytes>(upstream);
        let poll = manifest.poll_layer().unwrap();
        BoxCloneSyncService::new(
            ServiceBuilder::new()
                .option_layer(poll)
                .layer(stack)
                .service(leaf),
        )
    }
}

/// E's own example, with a tool that takes its time.
fn e_manifest(mode: &str) -> Value {
    let mut manifest = json!({
        "name": "order",
        "input_schema": {
            "type": "object",
            "properties": { "shop": { "type": "string" }, "toppings": { "type": "array" }, "size": { "type": "string" } },
            "required": ["shop"],
        },
        "execution_profile": {
            "mode": mode,
            "method": "POST",
            "url_template": "https://api.pizzeria.com/orders/{{ shop }}",
            "headers_template": r#"{"Authorization": "Bearer {{ upstream_token }}"}"#,
            "body_template": r#"{"size": "{{ size | default('L') }}"{% if toppings is defined %}, "toppings": {{ toppings | tojson }}{% endif %}}"#,
            "required_audience": "orders",
        },
    });
    if mode == "async_poll" {
        let profile = &mut manifest["execution_profile"];
        profile["url_template"] = json!("https://api.pizzeria.com/deliveries");
        profile["poll_config"] = json!({
            "status_url_template": "https://api.pizzeria.com/deliveries/{{ job_id }}",
            "status_field_path": "status", "result_field_path": "report",
        });
    }
    manifest
}

async fn e_execute(
    tool: &BoxCloneSyncService<ToolCall, HttpAnswer, ToolError>,
    arguments: Value,
) -> Result<ExecutionResult, ExecutionError> {
    let call = ToolCall::new("order").with_server("shop");
    let call = call.with_subject_token("agent-7").with_json(arguments);
    let Ok(result) = ToolResultLayer::new()
        .layer(tool.clone())
        .oneshot(call.unwrap())
        .await;
    ExecutionResult::try_from(&result)
}

/// E: H1 to H4. Checked, exchanged, rendered, sent: each once; the token is kept for the next
/// order.
#[tokio::test(start_paused = true)]
async fn e_orders_with_a_token_of_its_own() {
    let servers = Servers::default();
    let tool = servers.tool(&e_manifest("sync_http"));
    let arguments = json!({ "shop": "no 1", "toppings": ["olives", "\"extra\""] });
    for _ in 0..2 {
        let result = e_execute(&tool, arguments.clone()).await.unwrap();
        assert_eq!(result.status, ExecutionStatus::Completed);
        let order = json!({ "size": "L", "toppings": ["olives", "\"extra\""] });
        assert_eq!((result.result, result.upstream_status), (order, Some(201)));
    }
    assert_eq!(servers.asked(), (1, 2));
}

/// E: H1. Nothing is asked, nothing is sent.
#[tokio::test(start_paused = true)]
async fn e_checks_before_anything_else() {
    let servers = Servers::default();
    let tool = servers.tool(&e_manifest("sync_http"));
    let error = e_execute(&tool, json!({ "size": 7 })).await.unwrap_err();
    assert_eq!(error.error_code, "validation_error");
    let message = r#"Argument validation failed: root: "shop" is a required property; size: is not of type "string""#;
    assert_eq!((&*error.message, error.is_retryable), (message, false));
    assert_eq!(servers.asked(), (0, 0));
}

/// E: H5. Five requests, one token, one result.
#[tokio::test(start_paused = true)]
async fn e_waits_for_a_delivery() {
    let servers = Servers::default();
    let tool = servers.tool(&e_manifest("async_poll"));
    let since = Instant::now();
    let result = e_execute(&tool, json!({ "shop": "no 1" })).await.unwrap();
    assert_eq!(result.status, ExecutionStatus::Completed);
    assert_eq!(result.result, json!("warm"));
    assert_eq!(result.upstream_status, Some(200));
    assert_eq!(servers.asked(), (1, 5));
    // 1, 1.5, 2.25 and 3.375 s.
    assert_eq!(since.elapsed(), Duration::from_millis(8_125));
}

/// E: H4. Another status is a result.
#[tokio::test(start_paused = true)]
async fn e_hands_on_what_the_upstream_says() {
    let tool = Servers::default().tool(&e_manifest("sync_http"));
    let result = e_execute(&tool, json!({ "shop": "no 2" })).await.unwrap();
    assert_eq!(result.status, ExecutionStatus::Failed);
    assert_eq!(result.upstream_status, Some(409));
    assert_eq!(result.result, json!({ "why": "closed" }));
}

/// E: C1, C3, H6. The source's breaker opens by connections, and closes after three probes.
#[tokio::test(start_paused = true)]
async fn e_stops_asking_an_upstream_that_is_gone() {
    let servers = Servers::default();
    let tool = servers.tool(&e_manifest("sync_http"));
    let order = || e_execute(&tool, json!({ "shop": "no 1" }));
    servers.lose("upstream");
    for _ in 0..5 {
        assert_eq!(
            order().await.unwrap_err().error_code,
            "upstream_connection_error"
        );
    }
    let error = order().await.unwrap_err();
    assert_eq!(&*error.error_code, "circuit_open");
    assert!(error.is_retryable);
    assert_eq!(error.details["retry_after_seconds"], 30);
    assert_eq!(servers.asked(), (1, 5));
    servers.lose("");
    advance(secs(30)).await;
    for _ in 0..4 {
        order().await.unwrap();
    }
}

/// E: H2. An identity provider that is gone opens no tool's breaker, and is told as what it is.
#[tokio::test(start_paused = true)]
async fn e_does_not_blame_a_tool_for_its_provider() {
    let servers = Servers::default();
    let tool = servers.tool(&e_manifest("sync_http"));
    servers.lose("provider");
    for _ in 0..10 {
        let error = e_execute(&tool, json!({ "shop": "no 1" }))
            .await
            .unwrap_err();
        assert_eq!(&*error.error_code, "token_exchange_failed");
        assert!(error.is_retryable);
    }
    servers.lose("");
    assert!(e_execute(&tool, json!({ "shop": "no 1" })).await.is_ok());
    assert_eq!(servers.asked(), (11, 1));
}
