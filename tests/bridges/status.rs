//! E2: gRPC statuses as errors, as they come from real servers and from nowhere.

use std::{convert::Infallible, error::Error, future::ready, time::Duration};

use prost::Message;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tonic::{
    Code, Status,
    metadata::MetadataMap,
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_types::{ErrorDetails, StatusExt};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_toolcall::{
    AnyError, ErrorKind, Evidence, Execution, ServiceBuilderExt as _, ToolCall, ToolError,
    grpc_status::from_trusted_peer, transport::transport,
};

use crate::{
    grpc::{call, connect, grpc, request},
    kit::ms,
};

fn received(code: Code, message: &str) -> ToolError {
    Status::new(code, message).into()
}

/// V1, V10, E2: by its code, which proves nothing of whether the tool ran.
#[test]
fn a_status_is_an_error_by_its_code() {
    use ErrorKind::*;
    for (code, message, kind) in [
        (Code::Cancelled, "gone", Upstream),
        (Code::Cancelled, "Timeout expired", Timeout),
        (Code::DeadlineExceeded, "", Timeout),
        (Code::InvalidArgument, "", InvalidInput),
        (Code::NotFound, "", NotFound),
        (Code::Unimplemented, "", NotFound),
        (Code::PermissionDenied, "", Denied),
        (Code::Unauthenticated, "", Denied),
        (Code::ResourceExhausted, "quota", RateLimited),
        (
            Code::ResourceExhausted,
            "grpc: received message larger than max (5000000 vs. 4194304)",
            InvalidInput,
        ),
        (
            Code::OutOfRange,
            "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
            InvalidInput,
        ),
        (Code::Unavailable, "", Upstream),
        (Code::Internal, "", Upstream),
        (Code::DataLoss, "", Upstream),
        (Code::Unknown, "429 Too Many Requests", Failed),
        (Code::Aborted, "", Failed),
        (Code::Ok, "", Failed),
    ] {
        let error = received(code, message);
        assert_eq!(
            (error.kind(), error.execution(), error.evidence()),
            (kind, Execution::Unknown, Evidence::Inferred),
            "{code:?} {message}"
        );
        assert!(error.message().starts_with("gRPC "), "{error}");
    }
}

/// 20b: a tool whose calls are all aborted is out of order. The second case is a conflict that the
/// caller has caused.
#[tokio::test]
async fn aborted_calls_open_a_breaker() {
    for (code, name, opens) in [
        (Code::Aborted, "Aborted", true),
        (Code::AlreadyExists, "AlreadyExists", false),
    ] {
        let text = format!("rpc error: code = {name} desc = taken");
        for is_text in [false, true] {
            let text = text.clone();
            let tool = service_fn(move |_: ToolCall| {
                let error = match is_text {
                    true => AnyError::from(text.clone()),
                    false => AnyError::from(Status::new(code, "taken")),
                };
                ready(Err::<(), _>(error))
            });
            let tool = ServiceBuilder::new().tool_circuit_breaker().service(tool);
            let mut last = None;
            for _ in 0..=10 {
                last = tool.clone().oneshot(ToolCall::new("order")).await.err();
            }
            let is_open = last.unwrap().kind() == ErrorKind::CircuitOpen;
            assert_eq!(is_open, opens, "{code:?}");
        }
    }
}

/// V11: what a method did not find is no missing tool.
#[test]
fn a_grpc_not_found_is_not_told_as_a_missing_tool() {
    let missing = received(Code::NotFound, "no such row");
    assert!(missing.is_recoverable() && missing.status().is_some());
    assert!(!received(Code::Unimplemented, "").is_recoverable());
}

/// L2: `RetryInfo`, or else the pushback; rubbish is ignored.
#[test]
fn the_delay_that_a_peer_asks_for_is_read() {
    let told = |info: Option<Duration>, pushback: Option<&str>| {
        let mut metadata = MetadataMap::new();
        if let Some(value) = pushback {
            metadata.insert("grpc-retry-pushback-ms", value.parse().unwrap());
        }
        let details = ErrorDetails::with_retry_info(info);
        ToolError::from(Status::with_error_details_and_metadata(
            Code::Unavailable,
            "busy",
            details,
            metadata,
        ))
    };
    let error = told(Some(ms(700)), Some("9000"));
    assert_eq!(error.retry_after(), Some(ms(700)));
    assert_eq!(error.execution(), Execution::Unknown);
    assert_eq!(told(None, Some("250")).retry_after(), Some(ms(250)));
    for refusal in ["-1", "soon", "99999999999999999999999"] {
        let error = told(None, Some(refusal));
        assert_eq!(
            (error.retry_after(), error.is_retryable()),
            (None, false),
            "{refusal}"
        );
    }
    // Who names a delay does not forbid.
    let error = told(Some(ms(700)), Some("-1"));
    assert_eq!(error.retry_after(), Some(ms(700)));
    assert!(error.is_retryable());
    let error = told(None, None);
    assert_eq!((error.retry_after(), error.is_retryable()), (None, true));
    assert_eq!(error.execution(), Execution::Unknown);
}

/// W10: of several pushbacks none is obeyed, and nothing is repeated; as with one that is no text.
#[test]
fn several_pushbacks_forbid_a_repeat() {
    for values in [&["250", "500"][..], &["250", "250"], &["-1", "250"]] {
        let mut metadata = MetadataMap::new();
        for value in values {
            metadata.append("grpc-retry-pushback-ms", value.parse().unwrap());
        }
        let error = ToolError::from(Status::with_metadata(Code::Unavailable, "busy", metadata));
        assert_eq!(
            (error.retry_after(), error.is_retryable()),
            (None, false),
            "{values:?}"
        );
    }
}

/// V1, R6: a delay says when to come back, not that the call was turned away.
#[test]
fn a_delay_proves_nothing() {
    for code in [
        Code::Unavailable,
        Code::ResourceExhausted,
        Code::Internal,
        Code::DeadlineExceeded,
        Code::Aborted,
    ] {
        let details = ErrorDetails::with_retry_info(Some(ms(700)));
        let error = ToolError::from(Status::with_error_details(code, "later", details));
        assert_eq!(
            (error.retry_after(), error.execution()),
            (Some(ms(700)), Execution::Unknown),
            "{code:?}"
        );
    }
}

/// Rule 8: details that are no details are nothing.
#[test]
fn rubbish_in_the_details_is_ignored() {
    for rubbish in [&b"\xff\xff\xff\xff"[..], b"", &[8; 5000]] {
        let status = Status::with_details(Code::NotFound, "x", rubbish.to_vec().into());
        assert_eq!(ToolError::from(status).kind(), ErrorKind::NotFound);
    }
}

/// `google.rpc.Status` with a `google.rpc.RetryInfo`, as any peer may write it.
fn with_delay(seconds: i64, nanos: i32) -> Status {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Pair {
        #[prost(int64, tag = "1")]
        seconds: i64,
        #[prost(int32, tag = "2")]
        nanos: i32,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct RetryInfo {
        #[prost(message, tag = "1")]
        delay: Option<Pair>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Any {
        #[prost(string, tag = "1")]
        url: String,
        #[prost(bytes = "vec", tag = "2")]
        value: Vec<u8>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Details {
        #[prost(message, repeated, tag = "3")]
        details: Vec<Any>,
    }
    let delay = Some(Pair { seconds, nanos });
    let details = vec![Any {
        url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
        value: RetryInfo { delay }.encode_to_vec(),
    }];
    let details = Details { details }.encode_to_vec();
    Status::with_details(Code::Unavailable, "busy", details.into())
}

/// Rule 8: a delay that is none is nothing, or at once; one of ages is what it is.
#[test]
fn an_absurd_delay_does_no_harm() {
    for (seconds, nanos, delay) in [
        (2, 500_000_000, Some(ms(2500))),
        (0, 0, Some(Duration::ZERO)),
        (-5, 0, Some(Duration::ZERO)),
        (i64::MIN, i32::MIN, Some(Duration::ZERO)),
        (1, -600_000_000, Some(ms(400))),
        (
            i64::MAX,
            i32::MAX,
            Some(Duration::new((1 << 63) + 1, 147_483_647)),
        ),
    ] {
        let error = ToolError::from(with_delay(seconds, nanos));
        assert_eq!(error.retry_after(), delay, "{seconds} {nanos}");
        // And on its way out again.
        let _ = (error.to_http(), error.to_json_rpc(), Status::from(error));
    }
}

/// V1, V10, E1: every error comes back as it was, through the bytes of a wire: from a trusted peer
/// also whether its tool ran. But what its caller gave up there, and a connection that it lost, is
/// a failure of this peer here.
#[test]
fn an_error_survives_the_way_to_a_peer() {
    for &kind in ErrorKind::ALL {
        for execution in [
            Execution::NotStarted,
            Execution::Unknown,
            Execution::Completed,
        ] {
            let sent = ToolError::new(kind, "internal")
                .with_code("MY_CODE")
                .with_execution(execution)
                .with_retryable(!kind.is_retryable())
                .with_retry_after(ms(2500))
                .with_attempts(3);
            let kind = match kind {
                ErrorKind::Cancelled | ErrorKind::ConnectionFailed => ErrorKind::Upstream,
                kind => kind,
            };
            let arrived = || through_headers(sent.clone().into());
            let (error, trusted) = (ToolError::from(arrived()), from_trusted_peer(arrived()));
            assert_eq!(error.execution(), Execution::Unknown);
            assert_eq!(error.evidence(), Evidence::Inferred);
            assert_eq!(trusted.execution(), execution);
            assert_eq!(trusted.evidence(), Evidence::Reported);
            for error in [error, trusted] {
                assert_eq!((error.kind(), error.code()), (kind, "MY_CODE"));
                assert_eq!(error.is_retryable(), sent.is_retryable());
                // Attempts are those that were made here.
                assert_eq!(error.retry_after(), Some(ms(2500)));
                assert_eq!(error.attempts(), None);
            }
        }
    }
}

/// V5: a peer whose tool was late has answered itself: it is not marked down.
#[test]
fn a_timeout_that_a_trusted_peer_tells_of_has_a_status() {
    let late = Status::from(ToolError::new(ErrorKind::Timeout, "late"));
    let error = from_trusted_peer(through_headers(late));
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.status(), Some(http::StatusCode::GATEWAY_TIMEOUT));
}

/// V10: our own `CANCELLED` goes out, and is the caller's own where it comes back in the same
/// process.
#[test]
fn a_cancellation_comes_back_as_one_only_in_the_same_process() {
    let status = || Status::from(ToolError::new(ErrorKind::Cancelled, "the caller gave up"));
    assert_eq!(status().code(), Code::Cancelled);
    assert_eq!(ToolError::from(status()).kind(), ErrorKind::Cancelled);
    let arrived = through_headers(status());
    assert_eq!(ToolError::from(arrived).kind(), ErrorKind::Upstream);
}

/// A trusted peer that contradicts its own status is not believed either.
#[test]
fn a_trusted_peer_is_believed_only_what_fits_its_status() {
    let ours = Status::from(ToolError::new(ErrorKind::CircuitOpen, ""));
    let forged = Status::with_details(Code::Internal, "x", ours.details().to_vec().into());
    let error = from_trusted_peer(forged);
    assert_eq!(error.kind(), ErrorKind::Upstream);
    assert_eq!(error.execution(), Execution::Unknown);
}

/// What arrives of a status.
fn through_headers(status: Status) -> Status {
    Status::from_header_map(status.into_http::<()>().headers()).unwrap()
}

/// Users' row 3: a remote model reads which of its arguments is wrong, and nothing of an inferred
/// error.
#[test]
fn the_reason_for_refused_arguments_crosses_both_wires() {
    let number = ToolCall::new("weather").with_json_str("[1").unwrap_err();
    let city = ToolError::new(ErrorKind::InvalidInput, "city: must not be empty");
    for (error, named) in [(number, "line 1"), (city, "city: must not be empty")] {
        let error = error.for_call(&ToolCall::new("weather").info());
        let body: Value = serde_json::from_str(error.to_http().body()).unwrap();
        let reason = body["error"]["reason"].as_str().unwrap();
        assert!(reason.contains(named), "{reason}");
        let back = ToolError::from(through_headers(error.into()));
        assert!(back.model_message().contains(reason), "{back:?}");
    }
    let upstream = ToolError::from_box("HTTP 422: db.internal has no such city".into());
    assert!(!upstream.to_http().body().contains("db.internal"));
}

/// Users' row 3: a status has one text, whichever way it becomes an error.
#[tokio::test]
async fn a_status_has_the_same_text_through_a_transport() {
    let arguments = ToolError::new(ErrorKind::InvalidInput, "city: must not be empty");
    let named = through_headers(arguments.into());
    for (status, text) in [
        (
            Status::not_found("no such city"),
            "gRPC NotFound: no such city",
        ),
        (named, "city: must not be empty"),
    ] {
        let (made, sent) = (ToolError::from(status.clone()), status.clone());
        let client =
            tower::service_fn(move |_: ToolCall| std::future::ready(Err::<(), _>(sent.clone())));
        let called = transport(client).oneshot(ToolCall::new("weather")).await;
        let called = called.unwrap_err();
        let boxed = ToolError::from_box(status.into());
        for error in [&made, &called, &boxed] {
            assert_eq!(error.message(), text);
        }
        let model = made.for_call(&ToolCall::new("weather").info());
        assert_eq!(model.model_message(), called.model_message());
    }
}

/// A peer that contradicts itself is believed the status alone.
#[test]
fn a_kind_that_contradicts_the_code_is_not_believed() {
    let ours = Status::from(ToolError::new(ErrorKind::CircuitOpen, ""));
    let forged = Status::with_details(Code::Internal, "x", ours.details().to_vec().into());
    assert_eq!(ToolError::from(forged).kind(), ErrorKind::Upstream);
    for (domain, key, value) in [
        ("tower-toolcall", "kind", "no_such_kind"),
        ("tower-toolcall", "other", "panicked"),
        ("example.com", "kind", "panicked"),
    ] {
        let facts = [(key.to_owned(), value.to_owned())];
        let details =
            ErrorDetails::with_error_info("X", domain, std::collections::HashMap::from(facts));
        let status = Status::with_error_details(Code::Internal, "x", details);
        assert_eq!(ToolError::from(status).kind(), ErrorKind::Upstream);
    }
}

/// In one process nothing is lost, behind other errors neither.
#[test]
fn a_status_made_of_an_error_still_is_that_error() {
    let sent = ToolError::new(ErrorKind::RateLimited, "429 of db.internal").with_detail("a", 1);
    let error = ToolError::from(Status::from(sent.clone()));
    assert_eq!(error.message(), "429 of db.internal");
    assert_eq!(error.execution(), Execution::NotStarted);
    let boxed = ToolError::from_box(Status::from(sent).into());
    assert_eq!(boxed.message(), "429 of db.internal");
    assert_eq!(boxed.execution(), Execution::NotStarted);
    assert!(boxed.details().is_some());
}

/// E2: found through a chain; a step of several proves nothing of the others (R6).
#[test]
fn a_status_is_found_under_other_errors() {
    let bare = ToolError::from_box(Status::not_found("x").into());
    assert_eq!(bare.kind(), ErrorKind::NotFound);
    assert_eq!(bare.execution(), Execution::Unknown);
    assert!(bare.source().unwrap().is::<Status>());
    let error = anyhow::Error::from(Status::not_found("x")).context("second step");
    let error = ToolError::from_box(error.into());
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.execution(), Execution::Unknown);
    assert!(error.message().starts_with("second step: "), "{error}");
}

/// A delay that 32 bits cannot say is not shortened: the repeat is refused.
#[test]
fn a_pushback_too_long_for_the_wire_is_a_refusal() {
    let status =
        |delay| Status::from(ToolError::new(ErrorKind::RateLimited, "").with_retry_after(delay));
    let pushback = |delay| {
        status(delay)
            .metadata()
            .get("grpc-retry-pushback-ms")
            .unwrap()
            .clone()
    };
    assert_eq!(pushback(Duration::from_nanos(1)), "1");
    assert_eq!(
        pushback(Duration::from_millis(i32::MAX as u64)),
        "2147483647"
    );
    assert_eq!(pushback(Duration::from_secs(86_400 * 365)), "-1");
    assert_eq!(pushback(Duration::MAX), "-1");
    let error = ToolError::from(through_headers(status(Duration::from_secs(86_400 * 365))));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(86_400 * 365)));
    assert!(error.is_retryable());
}

/// V1, R6: a connection that was never made: on the wire of a transport the tool did not run.
#[tokio::test]
async fn a_server_that_is_not_there_was_not_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    let channel = Endpoint::try_from(format!("http://{at}"))
        .unwrap()
        .connect_lazy();
    let status = call(channel, request("ok", "")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let seen = ToolError::from_transport(status.clone());
    assert_eq!(
        (seen.kind(), seen.execution(), seen.evidence()),
        (
            ErrorKind::ConnectionFailed,
            Execution::NotStarted,
            Evidence::Reported
        )
    );
    // Out of a tool it may be of a second step.
    let boxed = ToolError::from_box(status.clone().into());
    // Users' row 3: the cause is readable, and no value is shown as Rust writes it.
    for error in [&seen, &boxed, &ToolError::from(status)] {
        let text = error.message();
        assert!(text.contains("Connection refused"), "{text}");
        assert!(
            text.starts_with("gRPC Unavailable: ") && !text.contains("Error("),
            "{text}"
        );
    }
    assert_eq!(boxed.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(boxed.execution(), Execution::Unknown);
    let error = Endpoint::try_from(format!("http://{at}"))
        .unwrap()
        .connect()
        .await
        .unwrap_err();
    assert_eq!(
        ToolError::from_box(error.into()).kind(),
        ErrorKind::ConnectionFailed
    );
}

/// A server that dies in the middle of a call leaves open whether the tool ran.
#[tokio::test]
async fn a_connection_lost_in_the_middle_is_ambiguous() {
    let server = grpc(ms(60_000)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let to = server.at;
    let cable = tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        drop(listener);
        let mut far = TcpStream::connect(to).await.unwrap();
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    });
    let channel = Endpoint::try_from(url).unwrap().connect().await.unwrap();
    let calling = tokio::spawn(call(channel, request("hang", "")));
    server.tools.until_running(1).await;
    cable.abort();
    let error = ToolError::from(calling.await.unwrap().unwrap_err());
    assert_eq!(error.execution(), Execution::Unknown, "{error}");
}

/// T5: the client's `grpc-timeout` bounds the call.
#[tokio::test]
async fn the_clients_timeout_is_the_deadline_of_the_call() {
    let server = grpc(ms(60_000)).await;
    let channel = connect(&server).await;
    let answer = call(channel.clone(), request("ok", "")).await.unwrap();
    assert_eq!(answer["has_deadline"], true); // the stack's own
    // W17: also a short one.
    let mut hurried = request("ok", "");
    hurried.set_timeout(ms(300));
    call(channel.clone(), hurried).await.unwrap();
    let mut hang = request("hang", "");
    // The reserve of the deadline layer is taken off, so its answer is before tonic's own.
    hang.set_timeout(ms(700));
    let status = call(channel, hang).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(ToolError::from(status).kind(), ErrorKind::Timeout);
    server.tools.until_running(0).await;
}

/// V17: a handler that panics resets its stream with `CANCEL`, and tonic makes `CANCELLED` of it: a
/// failure that counts, not a call that its caller gave up.
#[tokio::test]
async fn a_handler_that_panics_is_a_failure_and_no_cancellation() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let panics = tower::service_fn(|_: http::Request<tonic::body::Body>| async {
        panic!("in the handler") as Result<http::Response<tonic::body::Body>, Infallible>
    });
    let incoming = TcpIncoming::from(listener);
    let serving = tokio::spawn(Server::builder().serve_with_incoming(panics, incoming));
    for _ in 0..3 {
        let channel = Endpoint::try_from(url.clone()).unwrap().connect_lazy();
        let status = call(channel, request("ok", "")).await.unwrap_err();
        let error = ToolError::from_box(status.into());
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Upstream | ErrorKind::ConnectionFailed
            ),
            "{error}"
        );
        assert_eq!(error.execution(), Execution::Unknown);
    }
    serving.abort();
}
