//! F-1: what a newcomer copies, word for word: the landing page's tool where tools live. That it
//! compiles is most of the test; it runs, too. The README's program is in `tests/readme.rs`.
#![cfg(test)]

use std::{convert::Infallible, fmt::Debug, pin::Pin};

use axum::{Router, routing::get};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tower::Service;
use tower_toolcall::{ErrorKind, ToolError, batch::Parallel, transport::transport};

include!(concat!(env!("OUT_DIR"), "/uses.rs"));

/// What the quick start says, in a place that wants an answer.
fn answer(result: Result<(), AnyError>) -> String {
    result.map_or_else(|error| error.to_string(), |()| "done".to_owned())
}

#[tokio::test]
async fn it_compiles_and_runs_in_a_task() {
    let task: tokio::task::JoinHandle<Result<(), AnyError>> =
        tokio::spawn(async move { include!(concat!(env!("OUT_DIR"), "/body.rs")) });
    task.await.expect("it does not panic").expect("it succeeds");
}

/// As the handlers of tonic's services return them.
#[tokio::test]
async fn it_compiles_and_runs_in_a_boxed_future() {
    type Boxed = Pin<Box<dyn Future<Output = Result<(), AnyError>> + Send>>;
    let boxed: Boxed = Box::pin(async move { include!(concat!(env!("OUT_DIR"), "/body.rs")) });
    boxed.await.expect("it succeeds");
}

/// A call without its argument: the caller's mistake.
async fn refuse<S>(stack: S)
where
    S: Service<ToolCall, Response: Debug, Error = ToolError>,
{
    let error = stack.oneshot(ToolCall::new("weather")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.message(), "the field `city` is missing");
    assert_eq!(error.to_http().status(), 400);
}

/// P2: then a correct call succeeds.
#[tokio::test]
async fn calls_without_an_argument_never_open_the_circuit() {
    let program = async move { include!(concat!(env!("OUT_DIR"), "/refused.rs")) };
    let ended: Result<(), AnyError> = program.await;
    ended.expect("it succeeds");
}

#[tokio::test]
async fn it_compiles_and_runs_in_a_batch() {
    let task: tokio::task::JoinHandle<Result<(), AnyError>> =
        tokio::spawn(async move { include!(concat!(env!("OUT_DIR"), "/batch.rs")) });
    task.await.expect("it does not panic").expect("it succeeds");
}

#[tokio::test]
async fn it_compiles_and_runs_in_an_axum_handler() {
    let app = Router::new().route(
        "/",
        get(|| async move {
            answer(async move { include!(concat!(env!("OUT_DIR"), "/body.rs")) }.await)
        }),
    );
    let listener = listener().await;
    let at = listener.local_addr().expect("it is bound");
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    assert!(get_from(at).await.ends_with("done"));
    server.abort();
}

#[tokio::test]
async fn it_compiles_and_runs_in_a_hyper_server() {
    let listener = listener().await;
    let at = listener.local_addr().expect("it is bound");
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("somebody connects");
        let service = hyper::service::service_fn(|_| async move {
            let said = answer(async move { include!(concat!(env!("OUT_DIR"), "/body.rs")) }.await);
            Ok::<_, Infallible>(hyper::Response::new(said))
        });
        let http = hyper::server::conn::http1::Builder::new();
        let connection = http.serve_connection(TokioIo::new(stream), service);
        connection.await.expect("it is answered");
    });
    assert!(get_from(at).await.ends_with("done"));
    server.await.expect("it does not panic");
}

/// F-1: by `?`, by a text, our own, `anyhow`'s, and of a transport, all in a task.
#[tokio::test]
async fn tools_with_errors_of_every_kind_compile_in_a_task() {
    let kinds = tokio::spawn(async move {
        let parse = service_fn(|_: ToolCall| async move { Ok::<u8, AnyError>("x".parse()?) });
        let text = service_fn(|_: ToolCall| async move { Err::<u8, AnyError>("no city".into()) });
        let ours = service_fn(|_: ToolCall| async move {
            let error = tower_toolcall::ToolError::new(ErrorKind::Denied, "not yours");
            Err::<u8, AnyError>(error.into())
        });
        let anyhow = service_fn(|_: ToolCall| async move {
            use anyhow::Context as _;
            "x".parse::<u8>().context("reading the answer")
        });
        macro_rules! kind {
            ($tool:expr) => {
                ServiceBuilder::new()
                    .tool_retry(RetryPolicy::new())
                    .tool_catch_panic()
                    .service($tool)
                    .oneshot(ToolCall::new("t"))
                    .await
                    .unwrap_err()
                    .kind()
            };
        }
        let wire = transport(service_fn(|_: ToolCall| async move {
            Err::<u8, AnyError>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into())
        }));
        [
            kind!(parse),
            kind!(text),
            kind!(ours),
            kind!(anyhow),
            kind!(wire),
        ]
    });
    use ErrorKind::{ConnectionFailed, Denied, Failed};
    assert_eq!(
        kinds.await.expect("no panic"),
        [Failed, Failed, Denied, Failed, ConnectionFailed]
    );
}

async fn listener() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("loopback is there")
}

async fn get_from(at: std::net::SocketAddr) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = TcpStream::connect(at).await.expect("it listens");
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it takes requests");
    let mut said = String::new();
    stream.read_to_string(&mut said).await.expect("it answers");
    said
}
