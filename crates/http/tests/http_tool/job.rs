//! Jobs over HTTP: H5.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use expect_test::expect;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, ServiceBuilderExt, ToolCall, ToolError, backoff::Backoff, call::JobRef,
    poll::PollLayer,
};
use tower_toolcall_http::{HttpAnswer, HttpJob, HttpTool};

use crate::kit::{Body, Got, Server, answered_by, call, full, leaves};

const HOST: &str = "http://api.example.com";

fn tool(method: Method, path: &str) -> HttpTool {
    HttpTool::new(method, format!("{HOST}{path}")).unwrap()
}

fn start() -> HttpTool {
    tool(Method::POST, "/jobs?shop={{ shop }}")
}

fn job() -> HttpJob {
    of_status(tool(Method::GET, "/shops/{{ shop }}/jobs/{{ job_id }}"))
}

fn of_status(status: HttpTool) -> HttpJob {
    let job = HttpJob::new(status, "$.state", ["done", "200", "true"], ["failed"]);
    job.unwrap().with_value("job_id", "data.id").unwrap()
}

/// An API that answers with these bodies, the last one again and again.
#[derive(Clone)]
struct Api(Arc<Vec<Value>>, Arc<AtomicUsize>);

impl Api {
    fn new(bodies: impl IntoIterator<Item = Value>) -> Self {
        Self(Arc::new(bodies.into_iter().collect()), Arc::default())
    }

    fn answer(&self, _: &Got) -> Response<Body> {
        let n = self.1.fetch_add(1, SeqCst).min(self.0.len() - 1);
        Response::new(full(self.0[n].to_string()))
    }

    async fn run(&self, job: HttpJob) -> Result<HttpAnswer, ToolError> {
        self.run_with(job, json!({ "shop": 3 })).await
    }

    async fn run_with(&self, job: HttpJob, arguments: Value) -> Result<HttpAnswer, ToolError> {
        let api = self.clone();
        let leaf = answered_by(start(), move |got| api.answer(got));
        let stack = PollLayer::new(job).layer(leaf);
        stack.oneshot(call(arguments)).await
    }

    fn count(&self) -> usize {
        self.1.load(SeqCst)
    }
}

fn started() -> Value {
    json!({ "data": { "id": "j 7" } })
}

#[tokio::test(start_paused = true)]
async fn the_result_stands_at_its_path_or_is_the_whole_body() {
    let done = json!({ "state": "done", "report": { "rows": 3 } });
    let api = || Api::new([started(), json!({ "state": "working" }), done.clone()]);
    let whole = api().run(job()).await.unwrap();
    assert_eq!(whole.into_json(), done);
    let picked = api().run(job().with_result("$.report.rows").unwrap()).await;
    assert_eq!(picked.unwrap().into_json(), json!(3));
    let missing = api().run(job().with_result("$.nothing").unwrap()).await;
    assert_eq!(missing.unwrap().into_json(), done);
}

/// E.6.6: a server that says when to come back is asked then, and at the usual interval again after
/// that.
#[tokio::test(start_paused = true)]
async fn the_retry_after_of_a_status_beats_the_interval() {
    let (since, requests) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&asked);
    let leaf = answered_by(start(), move |_| {
        times.lock().unwrap().push(since.elapsed().as_secs_f32());
        let (body, delay) = match requests.fetch_add(1, SeqCst) {
            0 => (started(), "2"),
            1 => (json!({ "state": "working" }), "7"),
            2 => (json!({ "state": "working" }), "0"),
            _ => (json!({ "state": "done" }), "9"),
        };
        let answer = Response::builder().header("retry-after", delay);
        answer.body(full(body.to_string())).unwrap()
    });
    let stack = PollLayer::new(job()).layer(leaf);
    stack.oneshot(call(json!({ "shop": 3 }))).await.unwrap();
    // 2 of the start, 7, and the third interval: 0 is no reason to hurry.
    assert_eq!(*asked.lock().unwrap(), [0.0, 2.0, 9.0, 11.25]);
}

/// The job's own words for numbers and booleans are their JSON; an unknown state, none and no JSON
/// mean that it goes on.
#[tokio::test(start_paused = true)]
async fn states_are_compared_as_text() {
    for state in [json!("done"), json!(200), json!(true)] {
        let api = Api::new([
            started(),
            json!({}),
            json!("text"),
            json!({ "state": "DONE" }),
            json!({ "state": [] }),
            json!({ "state": state }),
        ]);
        api.run(job()).await.unwrap();
        assert_eq!(api.count(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_is_reported_with_its_reason_and_its_answer() {
    let failed = json!({ "state": "failed", "why": "no oven; password=hunter2" });
    let api = Api::new([started(), failed.clone()]);
    let error = api.run(job().with_error("why").unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reported);
    expect!["the job has failed: no oven; password=[REDACTED]"].assert_eq(error.message());
    assert!(!error.to_string().contains("hunter2"));
    assert_eq!(
        HttpAnswer::of_error(&error).unwrap().clone().into_json(),
        failed
    );
    assert!(error.job().is_none());
    let answer = serde_json::to_value(HttpAnswer::of_error(&error).unwrap()).unwrap();
    assert_eq!(
        (&answer["status"], &answer["upstream_status"]),
        (&json!("failed"), &json!(200))
    );

    let api = Api::new([started(), failed]);
    let error = api.run(job()).await.unwrap_err();
    expect!["the job has failed: its state is `failed`"].assert_eq(error.message());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_over_at_once_is_not_asked_for() {
    let api = Api::new([json!({ "state": "done", "n": 1 })]);
    assert_eq!(api.run(job()).await.unwrap().into_json()["n"], 1);
    let api = Api::new([json!({ "state": "failed" })]);
    assert_eq!(
        api.run(job()).await.unwrap_err().kind(),
        ErrorKind::Reported
    );
    assert_eq!(api.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_the_jobs_values_is_reported() {
    for (answer, text) in [
        (json!({}), "the answer has nothing at `$.data.id`"),
        (
            json!({ "data": { "id": [1] } }),
            "the answer has no plain value at `$.data.id`",
        ),
    ] {
        let api = Api::new([answer]);
        let error = api.run(job()).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Reported, text));
        // It would start another one.
        let told = error.model_message();
        assert!(told.contains("ran; its answer is unusable"), "{told}");
        assert_eq!(api.count(), 1);
        assert!(HttpAnswer::of_error(&error).is_some());
    }
}

/// `no status at $.state in 60 answers`, and what it said last.
#[tokio::test(start_paused = true)]
async fn a_poll_timeout_tells_the_last_state() {
    let last = |body: Value| async move {
        let error = Api::new([started(), body]).run(job()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PollTimeout);
        error.message().to_owned()
    };
    let text = last(json!({ "state": "baking" })).await;
    expect!["the job has not ended after 60 polls: its state is `baking`"].assert_eq(&text);
    let text = last(json!({})).await;
    expect!["the job has not ended after 60 polls: no state at `$.state`"].assert_eq(&text);
}

#[tokio::test(start_paused = true)]
async fn a_jobs_answers_may_be_as_long_as_those_of_its_tool() {
    let api = |_: &Got| {
        Response::new(full(
            json!({ "state": "done", "rows": "x".repeat(2_000) }).to_string(),
        ))
    };
    let state = |of_tool, of_job: Option<usize>| async move {
        let status = tool(Method::GET, "/jobs/{{ job_id }}");
        let status = match of_job {
            Some(max) => status.with_max_bytes(max).unwrap(),
            None => status,
        };
        let leaf = answered_by(start().with_max_bytes(of_tool).unwrap(), api);
        let values = json!({ "job_id": 7 });
        let call = call(json!({ "shop": 3 }));
        let job = JobRef::new(&call, values.as_object().unwrap().clone()).unwrap();
        let stack = PollLayer::new(of_status(status)).layer(leaf);
        stack.oneshot(call.with_job(job)).await.is_ok()
    };
    assert!(state(4_000, None).await);
    assert!(!state(1_000, None).await);
    assert!(state(1_000, Some(4_000)).await);
    assert!(!state(4_000, Some(1_000)).await);
}

/// Trap of E.4: the upstream's values, and the caller's, stay at their places.
#[tokio::test(start_paused = true)]
async fn the_values_of_a_job_cannot_leave_their_place() {
    let refused = ["../admin", "a/b", "..", "a\\b", "a\nb"];
    for id in refused.into_iter().chain(["?x=1#y", "%2e%2e"]) {
        let urls = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&urls);
        let body = json!({ "data": { "id": id } }).to_string();
        let leaf = answered_by(start(), move |got| {
            seen.lock().unwrap().push(got.uri().to_string());
            Response::new(full(body.clone()))
        });
        let stack = PollLayer::new(job()).with_polls(1).unwrap().layer(leaf);
        let error = stack.oneshot(call(json!({ "shop": 3 }))).await.unwrap_err();
        assert!(error.job().is_some());
        let urls = urls.lock().unwrap();
        if refused.contains(&id) {
            assert_eq!(
                (urls.len(), error.kind()),
                (1, ErrorKind::Internal),
                "{id}: {error}"
            );
        } else {
            let segment = urls[1]
                .strip_prefix(&format!("{HOST}/shops/3/jobs/"))
                .unwrap();
            assert!(!segment.contains(['/', '?', '#']), "{segment}");
        }
    }
}

/// A caller who could name the job would ask for a stranger's.
#[tokio::test(start_paused = true)]
async fn an_argument_never_takes_the_place_of_a_jobs_value() {
    let urls = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&urls);
    let leaf = answered_by(start(), move |got| {
        seen.lock().unwrap().push(got.uri().to_string());
        Response::new(full(
            json!({ "state": "x", "data": { "id": 7 } }).to_string(),
        ))
    });
    let stack = PollLayer::new(job())
        .with_polls(1)
        .unwrap()
        .layer(leaf.clone());
    let theirs = json!({ "shop": 3, "job_id": "stranger" });
    let error = stack.oneshot(call(theirs.clone())).await.unwrap_err();
    assert_eq!(urls.lock().unwrap()[1], format!("{HOST}/shops/3/jobs/7"));

    // Nor where the job has no such value: one that was stored by other settings.
    let stored = serde_json::to_value(error.job().unwrap()).unwrap();
    let mut stored = stored.clone();
    stored["values"] = json!({});
    let job_ref = serde_json::from_value(stored).unwrap();
    let stack = PollLayer::new(job()).layer(leaf);
    let resumed = stack.oneshot(call(theirs).with_job(job_ref)).await;
    assert_eq!(resumed.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(urls.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_nobody_waits_for_is_cancelled_by_its_request() {
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&lines);
    let leaf = answered_by(start(), move |got| {
        let line = format!("{} {}", got.method(), got.uri().path());
        seen.lock().unwrap().push(line);
        Response::new(full(started().to_string()))
    });
    let cancel = tool(Method::DELETE, "/jobs/{{ job_id }}");
    let stack = PollLayer::new(job().with_cancel(cancel)).layer(leaf);
    let dropped = timeout(
        Duration::from_secs(2),
        stack.oneshot(call(json!({ "shop": 3 }))),
    );
    assert!(dropped.await.is_err());
    sleep(Duration::from_secs(10)).await;
    let expected = [
        "POST /jobs",
        "GET /shops/3/jobs/j%207",
        "DELETE /jobs/j%207",
    ];
    assert_eq!(*lines.lock().unwrap(), expected);
}

/// Nobody could ever ask for it.
#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_be_asked_for_is_cancelled() {
    let cancelled = Arc::new(AtomicUsize::new(0));
    let job = || of_status(tool(Method::GET, "/shops/{{ country }}/jobs/{{ job_id }}"));
    for has_cancel in [true, false] {
        let count = Arc::clone(&cancelled);
        let leaf = answered_by(start(), move |got| {
            if got.method() == Method::DELETE {
                assert_eq!(got.uri().path(), "/jobs/j%207");
                count.fetch_add(1, SeqCst);
            }
            Response::new(full(started().to_string()))
        });
        let cancel = tool(Method::DELETE, "/jobs/{{ job_id }}");
        let job = if has_cancel {
            job().with_cancel(cancel)
        } else {
            job()
        };
        let stack = PollLayer::new(job).layer(leaf);
        let error = stack.oneshot(call(json!({ "shop": 3 }))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(
            error.message().contains("the job cannot be asked for"),
            "{error}"
        );
        sleep(Duration::from_secs(1)).await;
        assert_eq!(cancelled.load(SeqCst), 1);
        // Cancelled or not: nobody knows whether that has come through.
        assert!(error.job().is_some());
    }
}

#[test]
fn a_job_that_cannot_work_is_refused() {
    let status = || tool(Method::GET, "/{{ id }}");
    let none: [&str; 0] = [];
    let field = |result: Result<HttpJob, tower_toolcall::ConfigError>| {
        result.err().map(|e| e.field().to_owned()).unwrap()
    };
    assert_eq!(field(HttpJob::new(status(), "$.", ["a"], none)), "state");
    assert_eq!(field(HttpJob::new(status(), "a", none, ["a"])), "completed");
    assert_eq!(
        field(HttpJob::new(status(), "a", ["b", "c"], ["c"])),
        "completed"
    );
    let job = HttpJob::new(status(), "a", ["b"], none).unwrap();
    assert_eq!(field(job.clone().with_value("id", "$$")), "id");
    assert_eq!(
        field(job.clone().with_value("upstream_token", "a")),
        "upstream_token"
    );
    let twice = job.clone().with_value("id", "a").unwrap();
    assert_eq!(field(twice.with_value("id", "b")), "id");
    assert_eq!(field(job.clone().with_result("[")), "result");
    assert_eq!(field(job.with_error("[")), "error");
}

/// Through both clients, over sockets: a 202, a 404 and a 503 with a delay on the way, one start;
/// and a stopped wait that goes on.
#[tokio::test]
async fn a_job_of_a_real_server() {
    for client in [0, 1] {
        let server = Server::start(|n, got| match (n, got.method().as_str()) {
            (0, "POST") => with_status(202, &started()),
            (1, "GET") => with_status(404, &json!({})),
            (2, "GET") => Response::builder()
                .status(StatusCode::SERVICE_UNAVAILABLE)
                .header("retry-after-ms", "50")
                .body(full("busy"))
                .unwrap(),
            (3..6, "GET") => with_status(200, &json!({ "state": "baking" })),
            (_, "GET") => with_status(200, &json!({ "state": "done", "at": got.uri().path() })),
            _ => with_status(500, &json!({})),
        })
        .await;
        let tool = server.tool(Method::POST, "/jobs?shop={{ shop }}");
        let status = server.tool(Method::GET, "/shops/{{ shop }}/jobs/{{ job_id }}");
        let fast = Backoff::fixed(Duration::from_millis(20)).unwrap();
        let layer = PollLayer::new(of_status(status).with_result("$.at").unwrap());
        let layer = layer.with_interval(fast).unwrap();
        let leaf = leaves(&tool)[client].clone();
        let short = layer.clone().with_polls(4).unwrap();
        let stack = ServiceBuilder::new()
            .tool_deadline(Duration::from_secs(20))
            .layer(short)
            .tool_timeout(Duration::from_secs(5))
            .service(leaf.clone());
        let call = || -> ToolCall { call(json!({ "shop": 3 })) };
        let error = stack.oneshot(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PollTimeout, "{error}");
        let again = call().with_job(error.job().unwrap().clone());
        let answer = layer.layer(leaf).oneshot(again).await.unwrap();
        assert_eq!(answer.into_json(), json!("/shops/3/jobs/j%207"));
        assert_eq!(server.count(), 7);
    }
}

/// Where nobody listens any more: polls fail, and the job is left for later.
#[tokio::test]
async fn a_server_that_is_gone_leaves_the_job() {
    let server = Server::start(|_, _| with_status(202, &started())).await;
    let tool = server.tool(Method::POST, "/jobs?shop={{ shop }}");
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let status = format!(
        "http://{}/jobs/{{{{ job_id }}}}",
        gone.local_addr().unwrap()
    );
    drop(gone);
    let gone = HttpTool::new(Method::GET, status).unwrap();
    let fast = Backoff::fixed(Duration::from_millis(10)).unwrap();
    let layer = PollLayer::new(of_status(gone)).with_interval(fast).unwrap();
    for leaf in leaves(&tool) {
        let stack = layer.clone().with_polls(3).unwrap().layer(leaf);
        let error = stack.oneshot(call(json!({ "shop": 3 }))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PollTimeout);
        assert!(error.message().ends_with("CONNECTION_FAILED"), "{error}");
        assert!(error.job().is_some());
    }
    assert_eq!(server.count(), 2);
}

fn with_status(status: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(full(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// It would be looked for before the state is.
#[test]
fn a_request_for_a_job_has_no_result_of_its_own() {
    let status = HttpTool::new(http::Method::GET, "https://api.example.com/jobs/{{ id }}").unwrap();
    let status = status.with_result("$.report").unwrap();
    let error = tower_toolcall_http::HttpJob::new(status, "state", ["done"], ["failed"]);
    assert_eq!(error.unwrap_err().field(), "status");
}
