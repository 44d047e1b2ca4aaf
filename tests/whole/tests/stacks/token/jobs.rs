//! The jobs that an executor keeps for those who have started them: for how long, and who pushes
//! out whose.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ::axum::body::Body;
use futures_util::future::join_all;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use tokio::time::sleep;
use tower::ServiceExt;
use tower_toolcall::{ErrorKind, ToolCall, ToolError, VerifiedCaller, call::JobRef, serve::Routes};
use tower_toolcall_http::Executor as Endpoint;

use super::kit::SECOND;

const HOUR: Duration = Duration::from_secs(3600);

/// What asking for a job comes to, after a second.
#[derive(Clone, Copy)]
enum State {
    Runs,
    Done,
    Failed,
    Gone,
    Down,
}

#[derive(Clone)]
struct Executor {
    app: axum::Router,
    state: Arc<Mutex<State>>,
}

impl Executor {
    fn new() -> Self {
        Self::with(Routes::with_bearer_subject)
    }

    fn with(change: impl FnOnce(Routes) -> Routes) -> Self {
        let state = Arc::new(Mutex::new(State::Runs));
        let of_tool = Arc::clone(&state);
        let tool = tower::service_fn(move |call: ToolCall| {
            let state = Arc::clone(&of_tool);
            async move {
                let pending = |job| {
                    let error = ToolError::new(ErrorKind::PollTimeout, "it runs");
                    error.with_detail("limit", "time").with_job(job)
                };
                let Some(job) = call.job() else {
                    return Err(pending(JobRef::new(&call, Map::new())?));
                };
                sleep(SECOND).await;
                let state = *state.lock().unwrap();
                match state {
                    State::Runs => Err(pending(job)),
                    State::Done => Ok(json!("done")),
                    State::Failed => Err(ToolError::new(ErrorKind::Reported, "lost")),
                    State::Gone => Err(ToolError::new(ErrorKind::Reported, "odd").with_job(job)),
                    State::Down => Err(ToolError::refusal(ErrorKind::CircuitOpen, "open")),
                }
            }
        });
        let routes = change(Routes::new(tool));
        let app = Endpoint::new(routes).with_jobs().into_router();
        Self { app, state }
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap() = state;
    }

    async fn send(&self, request: http::request::Builder, token: &str) -> (u16, Value) {
        let request = request.header("content-type", "application/json");
        let request = match token {
            "" => request,
            _ => request.header("authorization", format!("Bearer {token}")),
        };
        let mut request = request.body(Body::from("{}")).unwrap();
        if token.starts_with("verified") {
            let caller = VerifiedCaller::new(token).with_bearer_token();
            request.extensions_mut().insert(caller);
        } else if token.starts_with("mallory-") {
            let caller = VerifiedCaller::new("mallory");
            request.extensions_mut().insert(caller);
        }
        let answer = self.app.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Starts a job: its id.
    async fn start(&self, token: &str) -> String {
        let (_, body) = self
            .send(Request::post("/api/tools/order/execute"), token)
            .await;
        assert_eq!(body["status"], "pending");
        body["metadata"]["job"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, id: &str, token: &str) -> (u16, Value) {
        let path = format!("/api/tools/order/jobs/{id}");
        self.send(Request::get(path), token).await
    }

    async fn has(&self, id: &str, token: &str) -> bool {
        self.ask(id, token).await.0 != 404
    }
}

/// H5: nobody can keep others from their jobs by sending no token.
#[tokio::test(start_paused = true)]
async fn callers_without_a_token_push_out_their_own_jobs_alone() {
    let executor = Executor::new();
    let alices = executor.start("alice").await;
    let first = executor.start("").await;
    join_all((0..1_000).map(|_| executor.start(""))).await;
    assert!(executor.has(&alices, "alice").await);
    assert!(!executor.has(&first, "").await);
}

#[tokio::test(start_paused = true)]
async fn where_tokens_are_not_taken_all_callers_share_a_thousand_jobs() {
    let executor = Executor::with(|routes| routes);
    let first = executor.start("").await;
    join_all((0..999).map(|_| executor.start("mallory"))).await;
    assert!(executor.has(&first, "").await);
    executor.start("").await;
    assert!(!executor.has(&first, "").await);
}

/// 46: where tokens are not taken, one address, or one verified caller, pushes out its own jobs
/// alone.
#[tokio::test(start_paused = true)]
async fn without_tokens_one_caller_pushes_out_no_job_of_another() {
    let executor = Executor::with(|routes| routes);
    let from = |ip: [u8; 4]| {
        let peer = std::net::SocketAddr::from((ip, 80));
        Request::post("/api/tools/order/execute").extension(axum::extract::ConnectInfo(peer))
    };
    let start = async |request| {
        let (_, body) = executor.send(request, "").await;
        body["metadata"]["job"].as_str().unwrap().to_owned()
    };
    let alices = start(from([10, 0, 0, 1])).await;
    let bobs = executor.start("verified-bob").await;
    let mallorys = start(from([10, 0, 0, 2])).await;
    join_all((0..1_100).map(|_| start(from([10, 0, 0, 2])))).await;
    assert!(executor.has(&alices, "").await);
    assert!(executor.has(&bobs, "verified-bob").await);
    assert!(!executor.has(&mallorys, "").await);
}

/// H5: the one with the most makes room, however many callers there are.
#[tokio::test(start_paused = true)]
async fn the_caller_with_the_most_jobs_makes_room_for_others() {
    let executor = Executor::new();
    let alices = executor.start("alice").await;
    let mallorys = join_all((0..100).map(|_| executor.start("mallory"))).await;
    // Tokens that were not verified have half of the places.
    let others: Vec<String> = (0..449).map(|n| format!("garbage{n}")).collect();
    join_all(others.iter().map(|token| executor.start(token))).await;
    assert!(executor.has(&alices, "alice").await);
    for (n, id) in mallorys.iter().enumerate() {
        assert_eq!(executor.has(id, "mallory").await, n >= 50, "{n}");
    }
}

/// S-3: invented tokens push out no job of a verified caller, and take half of the places.
#[tokio::test(start_paused = true)]
async fn invented_tokens_push_out_no_job_of_a_verified_caller() {
    let executor = Executor::new();
    let callers: Vec<String> = (0..6).map(|n| format!("verified{n}")).collect();
    let starts = callers.iter().flat_map(|token| [token; 100]);
    let jobs = join_all(starts.clone().map(|token| executor.start(token))).await;
    let others: Vec<String> = (0..1_000).map(|n| format!("garbage{n}")).collect();
    join_all(others.iter().map(|token| executor.start(token))).await;
    for (id, token) in jobs.iter().zip(starts) {
        assert!(executor.has(id, token).await, "{token}");
    }
}

/// S-3: one verified caller can invent tokens, which nobody has verified for it.
#[tokio::test(start_paused = true)]
async fn a_verified_caller_with_invented_tokens_pushes_out_no_job_of_another() {
    let executor = Executor::new();
    let alices = executor.start("verified-alice").await;
    let invented: Vec<String> = (0..1_100).map(|n| format!("mallory-{n}")).collect();
    join_all(invented.iter().map(|token| executor.start(token))).await;
    assert!(executor.has(&alices, "verified-alice").await);
}

/// H5: an answer may be lost, and is there for a minute; then the job, its arguments and its token
/// are not kept any more.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_over_is_kept_for_a_minute() {
    for (end, status) in [(State::Done, 200), (State::Failed, 502)] {
        let executor = Executor::new();
        let id = executor.start("alice").await;
        executor.set(end);
        assert_eq!(executor.ask(&id, "alice").await.0, status);
        sleep(58 * SECOND).await;
        assert_eq!(executor.ask(&id, "alice").await.0, status);
        sleep(SECOND).await;
        assert_eq!(executor.ask(&id, "alice").await.0, 404);
    }
}

/// H5: what is no answer of the job ends nothing.
#[tokio::test(start_paused = true)]
async fn a_job_that_could_not_be_asked_for_is_kept() {
    for (trouble, status) in [(State::Down, 503), (State::Gone, 502)] {
        let executor = Executor::new();
        let id = executor.start("alice").await;
        executor.set(trouble);
        assert_eq!(executor.ask(&id, "alice").await.0, status);
        sleep(HOUR).await;
        executor.set(State::Done);
        assert_eq!(executor.ask(&id, "alice").await.0, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn no_job_is_kept_for_more_than_a_day() {
    let executor = Executor::new();
    let id = executor.start("alice").await;
    sleep(24 * HOUR - 2 * SECOND).await;
    assert_eq!(executor.ask(&id, "alice").await.1["status"], "pending");
    sleep(2 * SECOND).await;
    assert_eq!(executor.ask(&id, "alice").await.0, 404);
}

/// H5: the id that an answer names is one that can be asked for.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_pushed_out_while_it_is_waited_for_is_kept_again() {
    let executor = Executor::new();
    let id = executor.start("alice").await;
    let others = async {
        sleep(SECOND / 2).await;
        join_all((0..100).map(|_| executor.start("alice"))).await;
        assert!(!executor.has(&id, "alice").await);
    };
    let ((status, pending), ()) = tokio::join!(executor.ask(&id, "alice"), others);
    assert_eq!((status, &pending["status"]), (200, &json!("pending")));
    let named = pending["metadata"]["job"].as_str().unwrap();
    executor.set(State::Done);
    assert_eq!(executor.ask(named, "alice").await.0, 200);
    assert_eq!(executor.ask(named, "bob").await.0, 404);
}

/// The outer path has parameters of its own.
#[tokio::test(start_paused = true)]
async fn a_nested_executor_answers_for_a_job() {
    let mut executor = Executor::new();
    executor.app = axum::Router::new().nest("/t/{tenant}", executor.app);
    let start = Request::post("/t/acme/api/tools/order/execute");
    let (_, body) = executor.send(start, "alice").await;
    let id = body["metadata"]["job"].as_str().unwrap();
    executor.set(State::Done);
    let ask = Request::get(format!("/t/acme/api/tools/order/jobs/{id}"));
    let (status, body) = executor.send(ask, "alice").await;
    assert_eq!((status, &body["result"]), (200, &json!("done")));
}

/// Also where the path of the one who asks names another.
#[tokio::test(start_paused = true)]
async fn a_job_is_asked_for_at_the_server_that_has_started_it() {
    let tool = tower::service_fn(|call: ToolCall| async move {
        match call.job() {
            Some(_) => Ok(json!(call.server())),
            None => {
                let error = ToolError::new(ErrorKind::PollTimeout, "it runs");
                let error = error.with_detail("limit", "time");
                Err(error.with_job(JobRef::new(&call, Map::new())?))
            }
        }
    });
    let routes = Routes::new(tool).with_bearer_subject().trust_servers();
    let app = Endpoint::new(routes).with_jobs().into_router();
    let app = axum::Router::new().nest("/s/{server}", app);
    let executor = Executor {
        app,
        state: Arc::new(Mutex::new(State::Runs)),
    };
    let start = Request::post("/s/shop/api/tools/order/execute");
    let (_, body) = executor.send(start, "alice").await;
    let id = body["metadata"]["job"].as_str().unwrap();
    let ask = Request::get(format!("/s/bank/api/tools/order/jobs/{id}"));
    let (status, body) = executor.send(ask, "alice").await;
    assert_eq!((status, &body["result"]), (200, &json!("shop")));
}

/// H4: an error as all others are.
#[tokio::test(start_paused = true)]
async fn a_path_that_is_no_text_is_a_validation_error() {
    let executor = Executor::new();
    for path in ["/api/tools/%ff/jobs/x", "/api/tools/order/jobs/%ff"] {
        let (status, body) = executor.send(Request::get(path), "alice").await;
        assert_eq!(
            (status, &body["error_code"]),
            (400, &json!("validation_error"))
        );
    }
    for id in ["0", "+", "x", &"0".repeat(40)] {
        assert_eq!(executor.ask(id, "alice").await.0, 404);
    }
}
