//! A leaf that is a transport is believed, by the types of its errors.

use std::{io, sync::atomic::Ordering::SeqCst};

use tonic::Status;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    BoxError, ErrorKind, Evidence, Execution, ReplaySafety, ToolCall, ToolError, retry::RetryLayer,
    transport::transport,
};

use super::kit::Tool;

/// The error of a leaf, and how often a retry layer sent the call.
async fn sent<E>(error: impl Fn() -> E) -> (u32, ToolError)
where
    E: Into<BoxError>,
{
    let tool = Tool::new(error);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .service(transport(tool.clone()));
    let call = ToolCall::new("search").with_replay_safety(ReplaySafety::Unknown);
    let error = stack.oneshot(call).await.unwrap_err();
    (tool.runs.load(SeqCst), error)
}

fn seen(error: &ToolError) -> (ErrorKind, Execution, Evidence) {
    (error.kind(), error.execution(), error.evidence())
}

const REFUSED: (ErrorKind, Execution, Evidence) = (
    ErrorKind::ConnectionFailed,
    Execution::NotStarted,
    Evidence::Reported,
);

const LOST: (ErrorKind, Execution, Evidence) = (
    ErrorKind::ConnectionFailed,
    Execution::Unknown,
    Evidence::Reported,
);

/// V1: with the README's defaults, a refused connection is repeated.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_of_a_transport_is_repeated() {
    for kind in [
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::AddrNotAvailable,
    ] {
        let (runs, error) = sent(|| io::Error::from(kind)).await;
        assert_eq!((runs, seen(&error)), (3, REFUSED), "{kind}");
        let below = || anyhow::Error::from(io::Error::from(kind)).context("connecting");
        let (runs, error) = sent(below).await;
        assert_eq!((runs, seen(&error)), (3, REFUSED), "{kind}");
    }
    let (runs, error) = sent(|| io::Error::from(io::ErrorKind::ConnectionReset)).await;
    assert_eq!((runs, seen(&error)), (1, LOST));
}

/// V1: a transport's texts prove no more than others.
#[tokio::test(start_paused = true)]
async fn a_text_of_a_transport_proves_nothing() {
    for text in include_str!("texts.txt").lines() {
        let (runs, error) = sent(|| text).await;
        assert_eq!(
            (runs, error.execution(), error.evidence()),
            (1, Execution::Unknown, Evidence::Inferred),
            "{text}"
        );
    }
}

/// The code is a status on the leaf's own wire, and proves no more than that it arrived.
#[tokio::test(start_paused = true)]
async fn a_grpc_status_of_a_transport_is_its_word() {
    for code in (1..=16).map(tonic::Code::from_i32) {
        let (runs, error) = sent(|| Status::new(code, "HTTP 503, retry in 1s")).await;
        assert_eq!(
            (runs, error.execution(), error.evidence()),
            (1, Execution::Unknown, Evidence::Reported),
            "{code:?}"
        );
        assert_ne!(error.kind(), ErrorKind::Cancelled);
    }
    let (runs, error) =
        sent(|| Status::from_error(tonic::ConnectError("refused".into()).into())).await;
    assert_eq!((runs, seen(&error)), (3, REFUSED));
}

/// V17: HTTP/2 says by type that the peer has not looked at the request.
#[tokio::test(start_paused = true)]
async fn a_refused_stream_has_not_started() {
    let refused = || h2::Error::from(h2::Reason::REFUSED_STREAM);
    let (runs, error) = sent(refused).await;
    assert_eq!((runs, seen(&error)), (3, REFUSED));
    let (runs, error) = sent(|| Status::from_error(refused().into())).await;
    assert_eq!((runs, seen(&error)), (3, REFUSED));
    let (runs, error) = sent(|| h2::Error::from(h2::Reason::CANCEL)).await;
    assert_eq!((runs, error.kind()), (1, ErrorKind::Upstream));
    // Out of a tool it may be of a second request.
    let error = ToolError::from_box(refused().into());
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.execution(), Execution::Unknown);
}

/// An error that the leaf has made itself passes as it is, stamped.
#[tokio::test]
async fn a_transports_own_error_passes() {
    let limited = || {
        ToolError::from_status(http::StatusCode::SERVICE_UNAVAILABLE, "busy")
            .with_retry_after(std::time::Duration::from_secs(1))
    };
    let mut leaf = transport(Tool::new(limited));
    let error = leaf.call(ToolCall::new("search")).await.unwrap_err();
    assert_eq!(error.tool(), Some("search"));
    assert_eq!(error.execution(), Execution::NotStarted);
}

mod through_hyper {
    use std::convert::Infallible;

    use http_body_util::Empty;
    use hyper::{Request, Response, body::Bytes, client::conn::http1, server, service::service_fn};
    use hyper_util::{
        client::legacy::{Client, connect::HttpConnector},
        rt::{TokioExecutor, TokioIo},
    };
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn closed_port() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    }

    /// V1: hyper-util's client could not connect.
    #[tokio::test]
    async fn a_client_that_could_not_connect_has_not_started_the_call() {
        let at = closed_port().await;
        let client: Client<HttpConnector, Empty<Bytes>> =
            Client::builder(TokioExecutor::new()).build_http();
        let get = || client.get(format!("http://{at}/").parse().unwrap());
        let error = ToolError::from_transport(get().await.unwrap_err());
        assert_eq!(seen(&error), REFUSED, "{error}");
        let error = ToolError::from_box(get().await.unwrap_err().into());
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        assert_eq!(error.execution(), Execution::Unknown);
    }

    /// V17: the upstream closes its connection; each further call is a failure that counts.
    #[tokio::test]
    async fn a_connection_that_the_upstream_has_closed_is_a_lost_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let hello =
                service_fn(|_| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
            let _ = server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), hello)
                .await;
        });
        let stream = TcpStream::connect(at).await.unwrap();
        let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let get = || Request::new(Empty::<Bytes>::new());
        assert!(client.send_request(get()).await.is_ok());
        serving.abort();
        let _ = connection.await;
        for _ in 0..3 {
            let error = client.send_request(get()).await.unwrap_err();
            let text = error.to_string();
            let error = ToolError::from_box(error.into());
            assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{text}");
            assert!(error.is_retryable());
        }
    }
}
