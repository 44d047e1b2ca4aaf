//! The routes of an executor: what an agent gets over HTTP, from its request to its answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use ::axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    poll::PollLayer,
    serve::Routes,
    settings::Settings,
    token::{Target, TokenLayer},
    validate::{Schema, Schemas},
};
use tower_toolcall_http::{
    Executor, HttpAnswer, HttpJob, HttpTool,
    token::{ClientAuth, TokenEndpoint},
};

use tracing::instrument::WithSubscriber;

use super::{canary::everything, kit::Http};
use crate::observed::Log;

/// Both servers, as one function of a request.
type Client = BoxCloneSyncService<Request<Bytes>, Response<Full<Bytes>>, std::io::Error>;

fn answer(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let answer = Response::builder().status(status);
    answer.body(Full::new(body.to_string().into())).unwrap()
}

fn upstream(status: u16, body: Value) -> Client {
    let http = Http::by(move || answer(status, &body));
    Client::new(http.map_err(|never| match never {}))
}

/// Issues a token for each subject but `old`.
fn provider() -> Client {
    Client::new(tower::service_fn(|request: Request<Bytes>| async move {
        let form = String::from_utf8(request.into_body().into()).unwrap();
        let refused = json!({ "error": "invalid_grant", "error_description": "too old" });
        Ok(match form.contains("subject_token=old&") {
            true => answer(400, &refused),
            false => answer(
                200,
                &json!({ "access_token": "t0k3n", "token_type": "Bearer" }),
            ),
        })
    }))
}

fn gone() -> Client {
    Client::new(tower::service_fn(|_: Request<Bytes>| async {
        Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
    }))
}

fn panics() -> Client {
    Client::new(tower::service_fn(|_: Request<Bytes>| async {
        panic!("the password is hunter2")
    }))
}

type Leaf = BoxCloneSyncService<ToolCall, HttpAnswer, ToolError>;

fn order(client: Client) -> Leaf {
    let tool = HttpTool::new(Method::POST, "https://api.pizzeria.com/orders").unwrap();
    let tool = tool.with_body(r#"{"pizza": "{{ pizza }}"}"#).unwrap();
    let tool = tool.with_header("Authorization", "Bearer {{ upstream_token }}");
    Leaf::new(tool.unwrap().client::<_, Bytes>(client))
}

/// The provider as its preset has it, with this leaf.
fn app(leaf: Leaf, provider: Client) -> axum::Router {
    let auth = ClientAuth::basic("gateway", "s3cr3t");
    let url = "https://id.example.com/token";
    let endpoint = TokenEndpoint::<_, Bytes>::new(url, auth, provider).unwrap();
    let tokens = TokenLayer::new(endpoint).with_tool("order", Target::audience("orders"));
    let schema = json!({ "properties": { "pizza": { "type": "string" } }, "required": ["pizza"] });
    let schemas = Schemas::new();
    schemas.insert(None, "order", Schema::compile(&schema).unwrap());
    let stack = Settings::http_proxy().stack().with_schemas(&schemas);
    let stack = ServiceBuilder::new()
        .layer(stack.build().unwrap())
        .map_response(HttpAnswer::into_json)
        .layer(tokens)
        .service(leaf);
    Executor::new(Routes::new(stack).with_bearer_subject()).into_router()
}

struct Got {
    status: StatusCode,
    headers: http::HeaderMap,
    body: Value,
}

impl Got {
    #[track_caller]
    fn refused(&self, status: u16, code: &str) {
        assert_eq!(
            (self.status.as_u16(), &self.body["error_code"]),
            (status, &json!(code))
        );
    }

    #[track_caller]
    fn ended(&self, status: &str) {
        assert_eq!(
            (self.status.as_u16(), &self.body["status"]),
            (200, &json!(status))
        );
    }
}

async fn post(app: &axum::Router, token: Option<&str>, body: &Value) -> Got {
    let mut request = Request::post("/api/tools/order/execute");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::from(body.to_string())).unwrap();
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Got {
        status: head.status,
        headers: head.headers,
        body: serde_json::from_slice(&body).unwrap(),
    }
}

fn margherita() -> Value {
    json!({ "arguments": { "pizza": "Margherita" } })
}

/// H4: E's result, field by field.
#[tokio::test(start_paused = true)]
async fn an_upstreams_success_is_completed() {
    let app = app(order(upstream(201, json!({ "order": 7 }))), provider());
    let mut got = post(&app, Some("alice"), &margherita()).await;
    assert_eq!(got.status, 200);
    assert!(got.body["execution_time_ms"].is_u64());
    got.body["execution_time_ms"] = json!(0);
    let expected = json!({
        "tool_id": "order", "status": "completed", "result": { "order": 7 },
        "execution_time_ms": 0, "upstream_status": 201, "metadata": {},
    });
    assert_eq!(got.body, expected);
}

/// As results of errors have them.
#[tokio::test(start_paused = true)]
async fn kept_headers_are_metadata() {
    let tool = HttpTool::new(Method::GET, "https://api.pizzeria.com/menu").unwrap();
    let tool = tool.with_kept_header(http::header::ETAG).unwrap();
    for status in [200, 404] {
        let http = Http::by(move || {
            let mut answer = answer(status, &json!({}));
            answer.headers_mut().insert("etag", "v7".parse().unwrap());
            answer
        });
        let client = Client::new(http.map_err(|never| match never {}));
        let app = app(
            Leaf::new(tool.clone().client::<_, Bytes>(client)),
            provider(),
        );
        let got = post(&app, Some("alice"), &margherita()).await;
        assert_eq!(got.body["metadata"], json!({ "etag": "v7" }), "{status}");
    }
}

/// H4: the agent sees what the upstream says. C5: redirects and refusals are the caller's, and open
/// no breaker.
#[tokio::test(start_paused = true)]
async fn another_status_is_a_failed_result() {
    for status in [301, 302, 404, 409, 422, 500, 503] {
        let body = json!({ "why": "closed" });
        let app = app(order(upstream(status, body.clone())), provider());
        for _ in 0..if status < 500 { 10 } else { 1 } {
            let got = post(&app, Some("alice"), &margherita()).await;
            got.ended("failed");
            assert_eq!(got.body["upstream_status"], status);
            assert_eq!(got.body["result"], body);
        }
    }
}

/// H1, H6: E's words, and nothing is sent.
#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_are_a_validation_error() {
    let app = app(order(gone()), gone());
    let got = post(&app, Some("alice"), &json!({ "arguments": { "pizza": 7 } })).await;
    assert_eq!(got.status, 400);
    assert_eq!(got.body["error_code"], "validation_error");
    let message = r#"Argument validation failed: pizza: is not of type "string""#;
    assert_eq!(got.body["message"], message);
    assert_eq!(got.body["details"]["errors"][0]["path"], "pizza");
    assert_eq!(
        (&got.body["is_retryable"], &got.body["tool_id"]),
        (&json!(false), &json!("order"))
    );
    assert_eq!(got.body["upstream_status"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_request_is_a_validation_error() {
    let app = app(order(gone()), gone());
    for body in [json!([]), json!({ "arguments": [1] }), json!("x")] {
        let got = post(&app, Some("alice"), &body).await;
        got.refused(400, "validation_error");
    }
    let request = Request::get("/api/tools/order/execute").body(Body::empty());
    let answer = app.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 405);
}

/// H2, H6: whose fault it is.
#[tokio::test(start_paused = true)]
async fn a_token_that_cannot_be_had_is_told_as_what_it_is() {
    let served = || order(upstream(200, json!({})));
    let got = post(&app(served(), provider()), Some("old"), &margherita()).await;
    got.refused(401, "token_exchange_failed");
    assert_eq!(
        got.headers["www-authenticate"],
        r#"Bearer error="invalid_token""#
    );
    assert_eq!(got.body["details"]["oauth_error"], "invalid_grant");
    assert_eq!(
        got.body["message"],
        "Signing in to the tool 'order' failed."
    );

    let got = post(&app(served(), provider()), None, &margherita()).await;
    got.refused(401, "token_exchange_failed");
    assert_eq!(got.headers["www-authenticate"], "Bearer");

    let got = post(&app(served(), gone()), Some("alice"), &margherita()).await;
    got.refused(502, "token_exchange_failed");
    assert_eq!(got.body["is_retryable"], true);
    assert!(!got.headers.contains_key("www-authenticate"));
}

/// C1, H6: five failures, and the sixth call is refused with the time that is left.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_gone_opens_its_breaker() {
    let app = app(order(gone()), provider());
    for _ in 0..5 {
        let got = post(&app, Some("alice"), &margherita()).await;
        got.refused(502, "upstream_connection_error");
    }
    let got = post(&app, Some("alice"), &margherita()).await;
    got.refused(503, "circuit_open");
    assert_eq!(got.headers["retry-after"], "30");
    assert_eq!(got.body["details"]["retry_after_seconds"], 30);
    assert_eq!(got.body["is_retryable"], true);
}

/// H6: 30 s.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_hangs_is_an_upstream_timeout() {
    let hangs = Client::new(tower::service_fn(|_: Request<Bytes>| {
        std::future::pending()
    }));
    let got = post(&app(order(hangs), provider()), Some("alice"), &margherita()).await;
    got.refused(504, "upstream_timeout");
    assert_eq!(got.body["is_retryable"], true);
}

/// H6: what is wrong on this side, and a tool that panics.
#[tokio::test(start_paused = true)]
async fn a_panic_is_an_internal_error() {
    let stack = ServiceBuilder::new()
        .layer(tower_toolcall::catch_panic::CatchPanicLayer::new())
        .map_response(HttpAnswer::into_json)
        .service(
            HttpTool::new(Method::POST, "https://api.pizzeria.com/orders")
                .unwrap()
                .client::<_, Bytes>(panics()),
        );
    let app = Executor::new(Routes::new(stack)).into_router();
    let got = post(&app, None, &json!({ "arguments": {} })).await;
    got.refused(500, "internal_error");
    assert_eq!(got.body["is_retryable"], false);
    assert!(!got.body.to_string().contains("hunter2"), "{}", got.body);
}

/// E.5.7: from the call to its answer: the exchange, both attempts and the wait between them.
#[tokio::test(start_paused = true)]
async fn the_execution_time_is_that_of_the_whole_call() {
    let slow = |client: Client, secs| {
        Client::new(tower::service_fn(move |request| {
            let client = client.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(secs)).await;
                client.oneshot(request).await
            }
        }))
    };
    let requests = AtomicUsize::new(0);
    let http = Http::by(move || {
        let status = [503, 200][requests.fetch_add(1, SeqCst)];
        let mut answer = answer(status, &json!({}));
        answer.headers_mut().insert("retry-after", 4.into());
        answer
    });
    let upstream = Client::new(http.map_err(|never| match never {}));
    let auth = ClientAuth::basic("gateway", "s3cr3t");
    let url = "https://id.example.com/token";
    let endpoint = TokenEndpoint::<_, Bytes>::new(url, auth, slow(provider(), 3));
    let stack = ServiceBuilder::new()
        .layer(tower_toolcall::retry::RetryLayer::default())
        .map_response(HttpAnswer::into_json)
        .layer(TokenLayer::new(endpoint.unwrap()).with_tool("order", Target::audience("orders")))
        .service(order(slow(upstream, 2)));
    let app = Executor::new(Routes::new(stack).with_bearer_subject()).into_router();
    let got = post(&app, Some("alice"), &margherita()).await;
    assert_eq!(got.body["status"], "completed");
    // 3, 2, a delay of 4 or a little more, 2.
    let took = got.body["execution_time_ms"].as_u64().unwrap();
    assert!((11_000..11_500).contains(&took), "{took}");
}

/// What an agent reads of an error, and what an operator counts.
async fn refused(error: ToolError) -> (Got, String) {
    let metrics = tower_toolcall::tool_metrics::Metrics::new();
    let tool = tower::service_fn(move |_: ToolCall| {
        let error = error.clone();
        async move { Err::<Value, _>(error) }
    });
    let app = Routes::new(ServiceBuilder::new().layer(metrics.layer()).service(tool));
    let app = Executor::new(app).into_router();
    let got = post(&app, None, &json!({ "arguments": {} })).await;
    let codes = metrics.snapshot().total.codes;
    (got, codes.into_keys().next().unwrap())
}

/// E.7.1 to E.7.8, H6: code, advice and status of each kind; metrics count by ours.
#[tokio::test(start_paused = true)]
async fn every_kind_of_error_has_a_code_of_the_executor() {
    use ErrorKind as Kind;
    for (kind, code, is_retryable, status) in [
        (Kind::InvalidInput, "validation_error", false, 400),
        (Kind::TokenExchange, "token_exchange_failed", false, 502),
        (Kind::Timeout, "upstream_timeout", true, 504),
        (Kind::DeadlineExceeded, "upstream_timeout", false, 504),
        (
            Kind::ConnectionFailed,
            "upstream_connection_error",
            true,
            502,
        ),
        (Kind::Upstream, "upstream_connection_error", true, 502),
        (Kind::CircuitOpen, "circuit_open", true, 503),
        (Kind::PollTimeout, "poll_timeout", true, 504),
        (Kind::Internal, "internal_error", false, 500),
        (Kind::Panicked, "internal_error", false, 500),
        (Kind::Failed, "internal_error", false, 502),
    ] {
        let (got, counted) = refused(ToolError::new(kind, "no")).await;
        assert_eq!(got.body["error_code"], code, "{kind:?}");
        assert_eq!(got.body["is_retryable"], is_retryable, "{kind:?}");
        assert_eq!(got.status, status, "{kind:?}");
        assert_eq!(counted, kind.code());
    }
    // Those that have more to say.
    let own = ToolError::refusal(Kind::NotFound, "no such tool");
    assert_eq!(refused(own).await.0.body["error_code"], "validation_error");
    let code = ToolError::new(Kind::Failed, "no").with_code("SOLD_OUT");
    assert_eq!(refused(code).await.0.body["error_code"], "SOLD_OUT");
}

/// E.1.7: what a tool that is no HTTP tool kept of its upstream's answer, redacted and cut.
#[tokio::test(start_paused = true)]
async fn an_error_has_the_beginning_of_the_upstreams_body() {
    let long = format!(
        r#"{{"password": "c4n4ry", "why": "{}"}}"#,
        "x".repeat(2_000)
    );
    let error = ToolError::from_status(StatusCode::BAD_GATEWAY, "no").with_body(&long);
    let (got, _) = refused(error).await;
    assert_eq!(got.body["upstream_status"], 502);
    let body = got.body["upstream_body"].as_str().unwrap();
    assert!(
        body.contains("[REDACTED]") && !body.contains("c4n4ry"),
        "{body}"
    );
    assert_eq!(body.chars().count(), 500 + "...[truncated]".len());
    let (got, _) = refused(ToolError::new(ErrorKind::Failed, "no")).await;
    assert_eq!(got.body["upstream_body"], Value::Null);
}

/// E.8: the agent's token: served, refused, too early, in words of the provider, beside a panic; at
/// TRACE of all targets.
#[tokio::test(start_paused = true)]
async fn a_bearer_token_of_a_request_is_shown_nowhere() {
    const CANARY: &str = "marmalade-of-the-agent";
    let quotes = Client::new(tower::service_fn(|request: Request<Bytes>| async move {
        let form = String::from_utf8(request.into_body().into()).unwrap();
        assert!(form.contains(CANARY));
        Ok(answer(
            400,
            &json!({ "error": "invalid_grant", "error_description": form }),
        ))
    }));
    let (log, mut said) = (Log::default(), String::new());
    let listens = everything(&log);
    let work = async {
        for (upstream, provider) in [
            (upstream(200, json!({})), provider()),
            (upstream(409, json!({ "why": "closed" })), provider()),
            (gone(), provider()),
            (upstream(200, json!({})), quotes),
            (upstream(200, json!({})), gone()),
            (panics(), provider()),
        ] {
            let app = app(order(upstream), provider);
            for body in [margherita(), json!({ "arguments": { "pizza": 7 } })] {
                let got = post(&app, Some(CANARY), &body).await;
                said += &format!("{} {:?} {}", got.status, got.headers, got.body);
            }
            let call = ToolCall::new("order").with_subject_token(CANARY);
            said += &format!("{app:?} {call:?} {:?}", call.extensions());
        }
    };
    work.with_subscriber(listens).await;
    said += &log.text();
    for part in [
        "tool.http_request",
        "tool.failure",
        "tool.rejected",
        "internal_error",
    ] {
        assert!(said.contains(part), "{part}");
    }
    let shown = said.find("marmalade");
    assert_eq!(shown.map(|at| &said[at.saturating_sub(300)..at + 40]), None);
}

/// A job that never ends, with this layer above its requests.
async fn polled(
    layer: impl Fn(PollLayer<HttpJob>) -> PollLayer<HttpJob>,
    deadline: Duration,
) -> Got {
    let tool = HttpTool::new(Method::POST, "https://api.pizzeria.com/deliveries").unwrap();
    let status =
        HttpTool::new(Method::GET, "https://api.pizzeria.com/deliveries/{{ id }}").unwrap();
    let job = HttpJob::new(status, "$.state", ["delivered"], ["lost"]).unwrap();
    let job = job.with_value("id", "$.id").unwrap();
    let client = upstream(202, json!({ "id": 7, "state": "baking" }));
    let stack = ServiceBuilder::new()
        .layer(tower_toolcall::deadline::DeadlineLayer::new(deadline))
        .map_response(HttpAnswer::into_json)
        .layer(layer(PollLayer::new(job)))
        .service(tool.client::<_, Bytes>(client));
    let app = Executor::new(Routes::new(stack)).into_router();
    post(&app, None, &json!({ "arguments": {} })).await
}

/// H5: the call's time is over, and the job runs on.
#[tokio::test(start_paused = true)]
async fn a_job_that_outlives_its_call_is_pending() {
    let got = polled(|layer| layer, Duration::from_secs(20)).await;
    got.ended("pending");
    assert_eq!(got.body["result"], Value::Null);
    // It has an id only where jobs were asked for.
    assert_eq!(got.body["metadata"], json!({}));
    assert!(got.body["execution_time_ms"].as_u64().unwrap() > 15_000);
}

/// Deliveries that have arrived after 60 s, for callers who wait for 20.
fn deliveries(starts: &Arc<AtomicUsize>) -> axum::Router {
    let at = "https://api.pizzeria.com/{{ shop }}/deliveries";
    let tool = HttpTool::new(Method::POST, at).unwrap();
    let status = HttpTool::new(Method::GET, format!("{at}/{{{{ id }}}}")).unwrap();
    let job = HttpJob::new(status, "$.state", ["delivered"], ["lost"]).unwrap();
    let job = job.with_value("id", "$.id").unwrap();
    let (starts, begun) = (Arc::clone(starts), tokio::time::Instant::now());
    let client = tower::service_fn(move |request: Request<Bytes>| {
        let path = request.uri().path().to_owned();
        let n = match *request.method() {
            Method::POST => starts.fetch_add(1, SeqCst),
            _ => 0,
        };
        let state = if begun.elapsed().as_secs() < 60 {
            "baking"
        } else {
            "delivered"
        };
        let body = json!({ "id": n, "state": state, "path": path });
        async move { Ok::<_, std::io::Error>(answer(200, &body)) }
    });
    let stack = ServiceBuilder::new()
        .layer(tower_toolcall::deadline::DeadlineLayer::new(
            Duration::from_secs(20),
        ))
        .map_response(HttpAnswer::into_json)
        .layer(PollLayer::new(job))
        .service(tool.client::<_, Bytes>(client));
    let routes = Routes::new(stack).with_bearer_subject();
    Executor::new(routes).with_jobs().into_router()
}

async fn get(app: &axum::Router, token: Option<&str>, path: &str) -> (u16, Value) {
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let answer = app
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

/// E.1: what `pending` is for.
#[tokio::test(start_paused = true)]
async fn a_pending_job_is_waited_for_by_its_id_until_it_is_done() {
    let starts = Arc::default();
    let app = deliveries(&starts);
    let order = json!({ "arguments": { "shop": "a" } });
    let pending = post(&app, Some("alice"), &order).await.body;
    assert_eq!(pending["status"], "pending");
    let id = pending["metadata"]["job"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 32);
    let path = format!("/api/tools/order/jobs/{id}");

    let (status, again) = get(&app, Some("alice"), &path).await;
    assert_eq!((status, &again["status"]), (200, &json!("pending")));
    assert_eq!(again["metadata"]["job"], id, "the same");
    let (_, again) = get(&app, Some("alice"), &path).await;
    assert_eq!(again["status"], "pending");
    for _ in 0..2 {
        let (status, done) = get(&app, Some("alice"), &path).await;
        assert_eq!((status, &done["status"]), (200, &json!("completed")));
        assert_eq!(done["result"]["path"], "/a/deliveries/0");
    }
    assert_eq!(starts.load(SeqCst), 1);

    let other = post(&app, Some("alice"), &order).await.body;
    assert_eq!(other["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_that_of_its_subject_and_its_tool() {
    let starts = Arc::default();
    let app = deliveries(&starts);
    let order = json!({ "arguments": { "shop": "a" } });
    let pending = post(&app, Some("alice"), &order).await.body;
    let id = pending["metadata"]["job"].as_str().unwrap().to_owned();
    for (token, path) in [
        (Some("bob"), format!("/api/tools/order/jobs/{id}")),
        (None, format!("/api/tools/order/jobs/{id}")),
        (Some("alice"), format!("/api/tools/cancel/jobs/{id}")),
        (Some("alice"), "/api/tools/order/jobs/0".to_owned()),
    ] {
        let (status, body) = get(&app, token, &path).await;
        assert_eq!(
            (status, &body["error_code"]),
            (404, &json!("validation_error"))
        );
        assert!(!body.to_string().contains(&id));
    }
    assert_eq!(starts.load(SeqCst), 1);
}

/// Nobody pushes out the jobs of others: his own oldest makes room.
#[tokio::test(start_paused = true)]
async fn a_hundred_jobs_of_a_subject_are_kept() {
    let starts = Arc::default();
    let app = deliveries(&starts);
    let order = json!({ "arguments": { "shop": "a" } });
    let first = post(&app, Some("alice"), &order).await.body;
    let orders = (0..101).map(|_| post(&app, Some("mallory"), &order));
    let mut all = futures_util::future::join_all(orders).await;
    all.iter_mut()
        .for_each(|got| assert_eq!(got.body["status"], "pending"));
    let mut kept = 0;
    for (token, body) in all
        .iter()
        .map(|got| ("mallory", &got.body))
        .chain([("alice", &first)])
    {
        let id = body["metadata"]["job"].as_str().unwrap();
        let path = format!("/api/tools/order/jobs/{id}");
        let asked = tokio::time::timeout(Duration::from_millis(1), get(&app, Some(token), &path));
        // A 404 is told at once, a job is waited for.
        let is_kept = asked.await.is_err();
        assert!(is_kept || token == "mallory");
        kept += usize::from(is_kept);
    }
    assert_eq!(kept, 101);
}

#[tokio::test(start_paused = true)]
async fn a_job_with_long_arguments_has_no_id() {
    let app = deliveries(&Arc::default());
    let long = json!({ "arguments": { "shop": "a", "note": "n".repeat(65 << 10) } });
    let pending = post(&app, Some("alice"), &long).await.body;
    assert_eq!(
        (&pending["status"], &pending["metadata"]),
        (&json!("pending"), &json!({}))
    );
}

/// H5, H6: the polls are used up.
#[tokio::test(start_paused = true)]
async fn a_job_that_was_asked_for_too_often_is_a_poll_timeout() {
    let three = |layer: PollLayer<HttpJob>| layer.with_polls(3).unwrap();
    let got = polled(three, Duration::from_secs(600)).await;
    got.refused(504, "poll_timeout");
    // A further call would start another delivery.
    assert_eq!(got.body["is_retryable"], false);
    assert!(!got.body.to_string().contains("\"id\""), "{}", got.body);
}

/// The other endpoints take the token too; without the word nobody does.
#[tokio::test(start_paused = true)]
async fn a_bearer_token_is_taken_by_an_explicit_word_only() {
    let whoami = tower::service_fn(|call: ToolCall| async move {
        Ok::<_, ToolError>(call.subject_token().map(|token| token.expose().to_owned()))
    });
    let routes = Routes::new(whoami);
    for (routes, expected) in [
        (routes.clone(), Value::Null),
        (routes.with_bearer_subject(), json!("alice")),
    ] {
        for (header, expected) in [
            ("Bearer alice", expected.clone()),
            ("bearer   alice ", expected),
            ("Basic alice", Value::Null),
            ("Bearer", Value::Null),
            ("Bearer ", Value::Null),
        ] {
            let request = Request::post("/tools/whoami/call")
                .header("content-type", "application/json")
                .header("authorization", header)
                .body(Body::empty());
            let answer = routes.plain().oneshot(request.unwrap()).await.unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(
                serde_json::from_slice::<Value>(&body).unwrap(),
                expected,
                "{header}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_word_there_is_no_such_endpoint() {
    let tool = tower::service_fn(|_: ToolCall| async { Ok::<_, ToolError>(1) });
    let request = Request::post("/api/tools/order/execute").body(Body::empty());
    let app = Routes::new(tool).into_router();
    assert_eq!(app.oneshot(request.unwrap()).await.unwrap().status(), 404);
}
