//! HTTP tools below the layers, and in a router.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Execution, ReplaySafety, ServiceBuilderExt, ToolCall, poll::PollLayer,
    retry::RetryPolicy, router::Router,
};
use tower_toolcall_http::{HttpJob, HttpTool};

use crate::kit::{Server, Warnings, answered_by, call, full, leaves, no_arguments};

/// The first answer, then 200.
async fn first(status: u16) -> Server {
    Server::start(move |n, _| {
        let mut answer = Response::new(full("\"done\""));
        if n == 0 {
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            if status == 429 {
                answer
                    .headers_mut()
                    .insert("retry-after", "1".parse().unwrap());
            }
        }
        answer
    })
    .await
}

/// R6: how often the server of a tool gets a call whose first answer is a 500.
async fn sent(tool: impl Fn(&Server) -> HttpTool) -> [usize; 2] {
    let mut sent = [0; 2];
    for (i, sent) in sent.iter_mut().enumerate() {
        let server = first(500).await;
        let tool = tool(&server);
        let safety = tool.replay_safety();
        let stack = ServiceBuilder::new()
            .tool_retry(RetryPolicy::new().with_replay_safety(move |_| safety))
            .service(leaves(&tool)[i].clone());
        let _ = stack.oneshot(call(no_arguments())).await;
        *sent = server.count();
    }
    sent
}

/// R6: by the method, unless declared.
#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_where_its_method_is_idempotent_or_it_is_declared() {
    for (method, times) in [
        (Method::GET, 2),
        (Method::PUT, 2),
        (Method::DELETE, 2),
        (Method::POST, 1),
        (Method::PATCH, 1),
    ] {
        assert_eq!(
            sent(|server| server.tool(method.clone(), "/")).await,
            [times; 2],
            "{method}"
        );
    }
    let declared =
        |server: &Server, safety| server.tool(Method::POST, "/").with_replay_safety(safety);
    assert_eq!(
        sent(|server| declared(server, ReplaySafety::Safe)).await,
        [2; 2]
    );
}

/// L1: a rate limit was no attempt that ran, and its delay is waited out.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_waited_out() {
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let client = service_fn(move |_: Request<Bytes>| {
        let mut answer = Response::new(Full::<Bytes>::from("1"));
        if count.fetch_add(1, SeqCst) == 0 {
            *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            answer
                .headers_mut()
                .insert("retry-after", "9".parse().unwrap());
        }
        ready(Ok::<_, AnyError>(answer))
    });
    let stack = ServiceBuilder::new()
        .tool_deadline(Duration::from_secs(20))
        .tool_retry(RetryPolicy::new())
        .tool_rate_limit()
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_secs(5))
        .service(
            HttpTool::new(Method::POST, "http://h/")
                .unwrap()
                .client(client),
        );
    let begun = Instant::now();
    stack.oneshot(call(no_arguments())).await.unwrap();
    assert_eq!(sent.load(SeqCst), 2);
    assert!(begun.elapsed() >= Duration::from_secs(9));
}

/// R8: one key over the attempts of a call, another for the next call; none for what changes
/// nothing.
#[tokio::test(start_paused = true)]
async fn attempts_have_one_idempotency_key() {
    for (method, bare) in [
        (Method::PUT, false),
        (Method::PUT, true),
        (Method::GET, false),
    ] {
        let server = first(500).await;
        let mut tool = server.tool(method.clone(), "/");
        if bare {
            tool = tool.with_bare_idempotency_key();
        }
        let stack = ServiceBuilder::new()
            .tool_retry(RetryPolicy::new().assume_replay_safe())
            .service(leaves(&tool)[1].clone());
        stack.clone().oneshot(call(no_arguments())).await.unwrap();
        stack.oneshot(call(no_arguments())).await.unwrap();
        let keys = server.headers("idempotency-key");
        if method == Method::GET {
            assert_eq!(keys, ["", "", ""]);
            continue;
        }
        assert_eq!(keys[0], keys[1]);
        assert_ne!(keys[1], keys[2]);
        assert_eq!(keys[0].starts_with('"'), !bare, "{}", keys[0]);
        assert_eq!(keys[0].trim_matches('"').len(), 24);
    }
}

/// X1: an HTTP tool beside local ones.
#[tokio::test]
async fn a_router_takes_it_as_json() {
    let server = Server::start(|_, _| Response::new(full(r#"{"order": 7}"#))).await;
    let [leaf, _] = leaves(&server.tool(Method::POST, "/"));
    let router = Router::<Value>::builder()
        .tool("order", leaf)
        .build()
        .unwrap();
    let answer = router.oneshot(ToolCall::new("order")).await.unwrap();
    assert_eq!(answer, json!({ "order": 7 }));
}

/// C5: what a caller chooses does not open the breaker for others.
#[tokio::test]
async fn refused_arguments_open_no_breaker() {
    let server = Server::start(|_, _| Response::new(full("1"))).await;
    let tool = server
        .tool(Method::POST, "/{{ a }}")
        .with_header("x-b", "{{ b | default('-') }}")
        .and_then(|tool| {
            tool.with_body("[{{ b | default(1) }}{% if c is defined %}{{ c }}{% endif %}]")
        });
    let [leaf, _] = leaves(&tool.unwrap());
    let stack = ServiceBuilder::new().tool_circuit_breaker().service(leaf);
    for (bad, kind) in [
        (json!({}), ErrorKind::InvalidInput),
        (json!({ "a": "../x" }), ErrorKind::InvalidInput),
        (json!({ "a": "x", "b": "\n" }), ErrorKind::InvalidInput),
        // The template's mistake.
        (json!({ "a": "x", "c": "" }), ErrorKind::Internal),
    ] {
        for _ in 0..30 {
            let error = stack.clone().oneshot(call(bad.clone())).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{bad}: {error}");
            assert_eq!(error.execution(), Execution::NotStarted, "{bad}");
        }
    }
    assert_eq!(server.count(), 0);
    stack.oneshot(call(json!({ "a": "x" }))).await.unwrap();
    assert_eq!(server.count(), 1);
}

/// R6: words in a body do not make a POST run twice.
#[tokio::test(start_paused = true)]
async fn a_delay_in_the_body_of_a_503_repeats_no_post() {
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let tool = HttpTool::new(Method::POST, "http://h/").unwrap();
    let leaf = answered_by(tool, move |_| {
        count.fetch_add(1, SeqCst);
        let answer = Response::builder().status(503);
        answer.body(full(r#"{"retry_after": 1}"#)).unwrap()
    });
    let stack = ServiceBuilder::new()
        .tool_retry(RetryPolicy::new())
        .service(leaf);
    stack.oneshot(call(no_arguments())).await.unwrap_err();
    assert_eq!(sent.load(SeqCst), 1);
}

/// Returns the warnings of a call that starts a job of 12 s, inside of a timeout.
async fn warnings_of_job(
    limits: impl Fn(PollLayer<HttpJob>) -> PollLayer<HttpJob>,
    timeout: u64,
) -> Vec<String> {
    let begun = Instant::now();
    let client = service_fn(move |_: Request<Bytes>| {
        let state = match begun.elapsed() > Duration::from_secs(12) {
            true => "completed",
            false => "running",
        };
        let answer = json!({ "id": 7, "status": state }).to_string();
        ready(Ok::<_, AnyError>(Response::new(Full::<Bytes>::from(
            answer,
        ))))
    });
    let tool = |path: &str| HttpTool::new(Method::GET, format!("http://h/{path}")).unwrap();
    let job = HttpJob::new(tool("{{ job }}"), "$.status", ["completed"], [""; 0]);
    let job = job.and_then(|job| job.with_value("job", "$.id")).unwrap();
    let report = ServiceBuilder::new()
        .layer(limits(PollLayer::new(job)))
        .tool_timeout(Duration::from_secs(2))
        .service(tool("").client(client));
    let router = Router::<Value>::builder().tool("report", report);
    let stack = ServiceBuilder::new()
        .tool_deadline(Duration::from_secs(60))
        .tool_timeout(Duration::from_secs(timeout))
        .service(router.build().unwrap());
    let (warnings, _guard) = Warnings::heard();
    for _ in 0..2 {
        let _ = stack.clone().oneshot(ToolCall::new("report")).await;
    }
    let is_inert = |text: &String| text.starts_with("tool.inert");
    warnings.take().into_iter().filter(is_inert).collect()
}

/// Stumble A1: a timeout outside of the poll layer, as in README's stack around a router, cuts
/// jobs.
#[tokio::test(start_paused = true)]
async fn a_timeout_that_ends_before_the_wait_for_a_job_is_a_warning() {
    for warnings in [
        warnings_of_job(|poll| poll, 10).await,
        // A budget of its own that the timeout does not leave.
        warnings_of_job(
            |poll| poll.with_budget(Duration::from_secs(30)).unwrap(),
            20,
        )
        .await,
    ] {
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        for part in ["poll", "outer_timeout", "timeout"] {
            assert!(warning.contains(part), "{warning}");
        }
    }
}

/// A timeout that leaves the wait all of its time cuts nothing.
#[tokio::test(start_paused = true)]
async fn a_timeout_longer_than_the_wait_for_a_job_is_no_warning() {
    let budget = |poll: PollLayer<HttpJob>| poll.with_budget(Duration::from_secs(15)).unwrap();
    for warnings in [
        warnings_of_job(budget, 20).await,
        warnings_of_job(|poll| poll, 3_600).await,
        // The polls are over before the deadline.
        warnings_of_job(|poll| poll.with_polls(3).unwrap(), 30).await,
    ] {
        assert_eq!(warnings, [""; 0]);
    }
}
