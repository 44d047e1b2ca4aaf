//! Rule 8: peers that speak gRPC badly, or mean harm.

use std::{collections::HashMap, convert::Infallible};

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::Empty;
use hyper::{body::Bytes, server::conn::http2, service::service_fn as on_request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::{collection::vec, option, prelude::*};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};
use tonic::{Code, Status, metadata::MetadataMap};
use tonic_types::{ErrorDetails, StatusExt};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ServiceBuilderExt, ToolCall, ToolError, Trust,
    grpc_status::timeout,
};

use crate::{
    grpc::{call, connect, request},
    kit::{Server, Tools, ms},
};

/// A server that answers every call with these headers and no message.
async fn peer(headers: &'static [(&'static str, &'static [u8])]) -> Server {
    Server::start(Tools::default(), |listener| answer(listener, headers)).await
}

async fn answer(listener: TcpListener, headers: &'static [(&'static str, &'static [u8])]) {
    let service = on_request(move |_| async move {
        let mut response = Response::new(Empty::<Bytes>::new());
        let map = response.headers_mut();
        map.insert("content-type", HeaderValue::from_static("application/grpc"));
        for (name, value) in headers {
            let name = HeaderName::from_static(name);
            map.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        Ok::<_, Infallible>(response)
    });
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = http2::Builder::new(TokioExecutor::new());
        connections.spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

/// What a tool that asks this peer answers.
async fn asked(headers: &'static [(&'static str, &'static [u8])]) -> Result<Value, ToolError> {
    let server = peer(headers).await;
    let channel = connect(&server).await;
    let tool = service_fn(move |_: ToolCall| {
        let channel = channel.clone();
        async move { Ok::<_, BoxError>(call(channel, request("ok", "")).await?) }
    });
    let stack = ServiceBuilder::new()
        .tool_circuit_breaker()
        .tool_timeout(ms(10_000))
        .tool_catch_panic()
        .service(tool);
    stack.oneshot(ToolCall::new("ask")).await
}

/// tonic's client panics over details that are no base64: below a layer that catches it that is an
/// error like others.
#[tokio::test]
async fn details_that_are_no_base64_end_one_call() {
    let error = asked(&[
        ("grpc-status", b"5"),
        ("grpc-status-details-bin", b"!no base64!"),
    ])
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(error.execution(), Execution::Unknown);
    assert_eq!(error.tool(), Some("ask"));
}

/// E2: a status that tonic can make nothing of is an error of somebody.
#[tokio::test]
async fn a_malformed_status_is_an_error() {
    const STATUSES: &[&[(&str, &[u8])]] = &[
        &[("grpc-status", b"99")],
        &[("grpc-status", b"-1")],
        &[("grpc-status", b"x"), ("grpc-message", b"\xff%ff%zz%")],
        &[("grpc-status", b"2"), ("grpc-message", b"%ff%fe")],
        &[
            ("grpc-status", b"8"),
            ("grpc-status", b"0"),
            ("grpc-retry-pushback-ms", b"\xff"),
        ],
        &[],
    ];
    for headers in STATUSES {
        let error = asked(headers).await.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::Panicked, "{headers:?}: {error}");
        assert!(!error.message().contains('\u{fffd}'), "{error}");
    }
}

/// Bytes that are now and then a `google.rpc.Status`, whole or broken.
fn details() -> impl Strategy<Value = Vec<u8>> {
    let text = "[a-z_-]{0,12}";
    let word = prop_oneof![
        Just("kind".to_owned()),
        Just("execution".to_owned()),
        Just("retryable".to_owned()),
        Just("attempts".to_owned()),
        Just("internal".to_owned()),
        Just("not_started".to_owned()),
        Just("4294967296".to_owned()),
        text,
    ];
    let facts = vec((word.clone(), word), 0..5);
    let ours = (facts, ".{0,80}").prop_map(|(facts, reason)| {
        let facts = facts.into_iter().collect::<HashMap<_, _>>();
        let details = ErrorDetails::with_error_info(reason, "tower-toolcall", facts);
        let status = Status::with_error_details(Code::Internal, "", details);
        status.details().to_vec()
    });
    let cut = (ours, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, to)| {
        let at = at.index(bytes.len());
        bytes[at] = to;
        bytes
    });
    prop_oneof![vec(any::<u8>(), 0..200), cut]
}

proptest! {
    /// A peer's bytes are an error or nothing, and that error can be sent on by every wire.
    #[test]
    fn whatever_a_peer_writes_is_an_error(
        code in 0..17_i32,
        message in ".{0,40}",
        details in details(),
        pushback in option::of("[ -~]{0,24}"),
    ) {
        let mut metadata = MetadataMap::new();
        if let Some(value) = pushback {
            metadata.insert("grpc-retry-pushback-ms", value.parse().unwrap());
        }
        let code = Code::from_i32(code);
        let status = Status::with_details_and_metadata(code, message, details.into(), metadata);
        for error in [ToolError::from(status.clone()), ToolError::from_box(status.into())] {
            prop_assert!(error.code().chars().count() <= 64 + 3, "{}", error.code());
            let _ = (error.to_http(), error.to_json_rpc());
            let sent = Status::from(error).into_http::<()>();
            prop_assert!(Status::from_header_map(sent.headers()).is_some());
        }
    }

    /// What a client writes into the metadata is a deadline or nothing.
    #[test]
    fn whatever_a_client_waits_is_no_panic(value in "[0-9HMSmun+.: -]{0,12}") {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", value.parse().unwrap());
        headers.insert("x-envoy-expected-rq-timeout-ms", value.parse().unwrap());
        let metadata = MetadataMap::from_headers(headers);
        let call = ToolCall::new("t").with_grpc_metadata(&metadata);
        prop_assert_eq!(call.deadline(), None);
        let call = call.with_grpc_deadline(&metadata, Trust::Untrusted);
        if timeout(&metadata).is_some() {
            prop_assert!(call.deadline().is_some());
        }
    }
}

/// The largest error that there is fits into the headers that peers take, which are 16 KiB.
#[test]
fn the_largest_error_fits_into_headers() {
    let error = ToolError::new(ErrorKind::Upstream, "x")
        .with_tool("\u{1f527}".repeat(300))
        .with_server("\u{1f527}".repeat(300))
        .with_code("\u{1f527}".repeat(300))
        .with_user_message("\u{1f527}".repeat(3000))
        .with_retry_after(std::time::Duration::MAX)
        .for_call(&ToolCall::new("t").with_id("\u{1f527}".repeat(300)).info());
    let sent = Status::from(error).into_http::<()>();
    let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 32;
    let bytes: usize = sent.headers().iter().map(size).sum();
    assert!(bytes < 16 << 10, "{bytes}");
}
