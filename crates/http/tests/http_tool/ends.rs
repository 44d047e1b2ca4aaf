//! How requests and jobs end that do not end well.

use std::{
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Response};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpSocket},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, Execution, ServiceBuilderExt,
    circuit_breaker::{CircuitBreakerLayer, Trip},
    poll::PollLayer,
    retry::RetryPolicy,
};
use tower_toolcall_http::{HttpJob, HttpTool, ReqwestClient};

use crate::kit::{Body, Got, Leaf, Server, answered_by, call, full, leaves, no_arguments};

fn start() -> HttpTool {
    HttpTool::new(Method::POST, "http://api.example.com/jobs").unwrap()
}

fn of_jobs(method: Method) -> HttpTool {
    HttpTool::new(method, "http://api.example.com/jobs/{{ id }}").unwrap()
}

fn job() -> HttpJob {
    let job = HttpJob::new(of_jobs(Method::GET), "$..state", ["done"], ["failed"]);
    job.unwrap().with_value("id", "id").unwrap()
}

fn answer(status: u16, body: &Value) -> Response<Body> {
    let answer = Response::builder().status(status);
    answer.body(full(body.to_string())).unwrap()
}

/// Counts requests by method: POST, GET, DELETE.
#[derive(Clone, Default)]
struct Counts(Arc<[AtomicUsize; 3]>);

impl Counts {
    fn count(&self, got: &Got) {
        let n = [Method::POST, Method::GET, Method::DELETE]
            .iter()
            .position(|method| method == got.method());
        self.0[n.unwrap()].fetch_add(1, SeqCst);
    }

    fn all(&self) -> [usize; 3] {
        [0, 1, 2].map(|n| self.0[n].load(SeqCst))
    }
}

/// H4: nothing was sent, so that a POST may be sent again.
#[tokio::test]
async fn what_fails_before_the_request_is_sent_has_not_started() {
    let server = Server::start(|_, _| Response::new(full("1"))).await;
    let no_tls = server.at.replace("http://", "https://");
    for url in [no_tls.as_str(), "http://tool.invalid/"] {
        let tool = HttpTool::new(Method::POST, url).unwrap();
        let [_, reqwest] = leaves(&tool);
        let error = reqwest.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.execution(), Execution::NotStarted, "{url}");
    }
    let tool = HttpTool::new(Method::POST, "http://tool.invalid/").unwrap();
    let [hyper, _] = leaves(&tool);
    let error = hyper.send(no_arguments()).await.unwrap_err();
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!(server.count(), 0);
}

/// A queue of connections that is full, and of which nobody takes one: who connects waits for ever.
struct Full {
    url: String,
    _queue: (TcpListener, Vec<TcpStream>),
}

impl Full {
    fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let at = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&at, Duration::from_millis(100));
        let taken: Vec<_> = std::iter::from_fn(|| connect().ok()).take(64).collect();
        assert!(taken.len() < 64, "the queue has no end");
        Self {
            url: format!("http://{at}/"),
            _queue: (listener, taken),
        }
    }
}

/// E.5.3: a client that gives up while it connects has sent nothing. Of a timeout of ours nobody
/// knows.
#[tokio::test(start_paused = true)]
async fn a_timeout_while_connecting_has_not_started_if_it_is_the_clients() {
    let full = Full::new();
    let tool = HttpTool::new(Method::POST, &*full.url).unwrap();
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(Duration::from_secs(1)));
    let hyper =
        Client::builder(TokioExecutor::new()).build::<_, http_body_util::Full<Bytes>>(connector);
    let reqwest = reqwest::Client::builder().no_proxy();
    let reqwest = reqwest.connect_timeout(Duration::from_secs(1)).build();
    let reqwest = ReqwestClient::from_client(reqwest.unwrap());
    for leaf in [
        Leaf::new(tool.clone().client::<_, http_body_util::Full<Bytes>>(hyper)),
        Leaf::new(tool.clone().client::<_, Bytes>(reqwest)),
    ] {
        let begun = Instant::now();
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), 1);
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{error:?}");
        assert_eq!(error.execution(), Execution::NotStarted);
    }
    for leaf in leaves(&tool) {
        let timed = ServiceBuilder::new()
            .tool_timeout(Duration::from_secs(5))
            .service(leaf);
        let error = timed.oneshot(call(no_arguments())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(error.execution(), Execution::Unknown);
    }
}

/// One has the status of a gateway that gave up; the other is our own clock's.
#[tokio::test]
async fn a_504_is_told_from_a_timeout_of_ours() {
    let server = Server::start(|_, _| answer(504, &json!("too slow"))).await;
    let [leaf, _] = leaves(&server.tool(Method::GET, "/"));
    let theirs = leaf.send(no_arguments()).await.unwrap_err();
    assert_eq!(theirs.kind(), ErrorKind::Upstream);
    assert_eq!(theirs.status().unwrap(), 504);
    assert!(!theirs.is_own_refusal());

    let hangs = answered_by(start(), |_| {
        Response::new(crate::kit::hangs(Arc::default()))
    });
    let timed = ServiceBuilder::new()
        .tool_timeout(Duration::from_millis(20))
        .service(hangs);
    let ours = timed.oneshot(call(no_arguments())).await.unwrap_err();
    assert_eq!((ours.kind(), ours.status()), (ErrorKind::Timeout, None));
}

/// What a JSON of more than 127 levels is: a text.
#[tokio::test]
async fn an_answer_that_is_nested_too_deeply_is_a_text() {
    for (levels, is_json) in [(127, true), (128, false)] {
        let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let leaf = answered_by(start(), move |_| Response::new(full(text.clone())));
        let answer = leaf.send(no_arguments()).await.unwrap();
        assert_eq!(answer.into_json().is_array(), is_json, "{levels}");
    }
}

/// H5: no job was started.
#[tokio::test(start_paused = true)]
async fn a_start_that_is_refused_is_not_polled() {
    for status in [302, 400, 409, 500] {
        let counts = Counts::default();
        let seen = counts.clone();
        let leaf = answered_by(start(), move |got| {
            seen.count(got);
            answer(status, &json!({ "id": 7, "state": "running" }))
        });
        let stack = PollLayer::new(job().with_cancel(of_jobs(Method::DELETE))).layer(leaf);
        let error = stack.oneshot(call(no_arguments())).await.unwrap_err();
        assert_eq!(error.status().unwrap().as_u16(), status);
        assert!(error.job().is_none());
        assert_eq!(counts.all(), [1, 0, 0]);
    }
}

/// H5: the status URL is the template's; a `Location` is followed nowhere.
#[tokio::test(start_paused = true)]
async fn a_location_of_a_202_is_not_followed() {
    let leaf = answered_by(start(), |got| {
        let mut answer = answer(202, &json!({ "id": 7 }));
        let elsewhere = "http://other.example.com/".parse().unwrap();
        answer.headers_mut().insert("location", elsewhere);
        if got.method() == Method::GET {
            assert_eq!(got.uri(), "http://api.example.com/jobs/7");
            *answer.body_mut() = full(r#"{"state": "done"}"#);
        }
        answer
    });
    let stack = PollLayer::new(job()).layer(leaf);
    let result = stack.oneshot(call(no_arguments())).await.unwrap();
    assert_eq!(result.into_json(), json!({ "state": "done" }));
}

/// H5: 1 s, half as long again each time, 30 s at most, 60 times.
#[tokio::test(start_paused = true)]
async fn a_job_is_asked_for_60_times_in_27_minutes() {
    let counts = Counts::default();
    let seen = counts.clone();
    let leaf = answered_by(start(), move |got| {
        seen.count(got);
        answer(200, &json!({ "id": 7, "state": "running" }))
    });
    let begun = Instant::now();
    let stack = PollLayer::new(job()).layer(leaf);
    let error = stack.oneshot(call(no_arguments())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PollTimeout);
    assert_eq!(counts.all(), [1, 60, 0]);
    assert_eq!(begun.elapsed().as_secs(), 1604);
}

/// `[0].state` and `[1].state`: the first in the order of the document.
#[tokio::test(start_paused = true)]
async fn of_several_states_the_first_counts() {
    let leaf = answered_by(start(), |got| match *got.method() {
        Method::POST => answer(200, &json!({ "id": 7 })),
        _ => answer(200, &json!([{ "state": "done" }, { "state": "failed" }])),
    });
    let stack = PollLayer::new(job()).layer(leaf);
    stack.oneshot(call(no_arguments())).await.unwrap();
}

/// As where its token has expired: the job runs on, and its error says which.
#[tokio::test(start_paused = true)]
async fn a_401_to_a_poll_leaves_the_job_and_starts_no_other() {
    let counts = Counts::default();
    let seen = counts.clone();
    let leaf = answered_by(start(), move |got| {
        seen.count(got);
        match *got.method() {
            Method::POST => answer(200, &json!({ "id": 7 })),
            _ => answer(401, &json!("expired")),
        }
    });
    let stack = ServiceBuilder::new()
        .tool_retry(RetryPolicy::default())
        .layer(PollLayer::new(job().with_cancel(of_jobs(Method::DELETE))))
        .service(leaf);
    let error = stack.oneshot(call(no_arguments())).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.status().unwrap().as_u16()),
        (ErrorKind::Denied, 401)
    );
    assert!(error.job().is_some() && !error.is_retryable());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(counts.all(), [1, 1, 0]);
}

/// C4: a probe is a request, not the job that it starts.
#[tokio::test(start_paused = true)]
async fn a_probe_ends_with_its_request_and_not_with_the_job() {
    let requests = Arc::new(AtomicUsize::new(0));
    let leaf = answered_by(start(), move |_| match requests.fetch_add(1, SeqCst) {
        0 => answer(500, &json!({})),
        _ => answer(200, &json!({ "id": 7, "state": "running" })),
    });
    let breaker = CircuitBreakerLayer::builder()
        .with_trip(Trip::consecutive_failures(1))
        .with_open_for(Duration::from_secs(10))
        .build()
        .unwrap();
    let one = breaker.layer(leaf);
    let error = one.clone().oneshot(call(no_arguments())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Upstream);
    let open = one.clone().oneshot(call(no_arguments())).await.unwrap_err();
    assert_eq!(open.kind(), ErrorKind::CircuitOpen);
    sleep(Duration::from_secs(11)).await;
    let jobs = PollLayer::new(job()).layer(one.clone());
    let waiting = tokio::spawn(jobs.oneshot(call(no_arguments())));
    sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    one.oneshot(call(no_arguments())).await.unwrap();
    waiting.abort();
}

/// H5: what becomes of the cancellation changes nothing of how the call ends.
#[tokio::test(start_paused = true)]
async fn a_cancellation_that_cannot_be_sent_is_dropped() {
    for cancel in ["/jobs/{{ id }}/{{ nothing }}", "/jobs/{{ id }}"] {
        let counts = Counts::default();
        let seen = counts.clone();
        let leaf = answered_by(start(), move |got| {
            seen.count(got);
            match *got.method() {
                Method::DELETE => answer(500, &json!({})),
                _ => answer(200, &json!({ "id": 7, "state": "running" })),
            }
        });
        let cancel = HttpTool::new(Method::DELETE, format!("http://api.example.com{cancel}"));
        let stack = PollLayer::new(job().with_cancel(cancel.unwrap())).layer(leaf);
        let token = CancellationToken::new();
        let call = call(no_arguments()).with_cancellation(token.clone());
        let waiting = tokio::spawn(stack.oneshot(call));
        sleep(Duration::from_millis(500)).await;
        token.cancel();
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(counts.all()[0], 1);
    }
}
