//! What hostile and broken servers can do.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use expect_test::expect;
use futures_util::{StreamExt, stream};
use http::{Method, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::{io::AsyncReadExt, net::TcpListener};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{ErrorKind, Execution, ToolCall, timeout::TimeoutLayer, token::UpstreamToken};
use tower_toolcall_http::{HttpAnswer, HttpTool, ReqwestClient};

use crate::kit::{
    Body, Server, answered_by, call, closed_port, endless, full, leaves, no_arguments,
};

/// H4: a body without an end is given up at the limit; a `Content-Length` over it is not read at
/// all.
#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let server = Server::start(|_, got| match got.uri().path() {
        "/endless" => Response::new(endless(&[b'x'; 1 << 14])),
        "/announced" => Response::new(full(vec![b'x'; 70_000])),
        _ => Response::new(full(vec![b'x'; 65_536])),
    })
    .await;
    let tool = server
        .tool(Method::GET, "/{{ at }}")
        .with_max_bytes(65_536)
        .unwrap();
    for leaf in leaves(&tool) {
        for at in ["endless", "announced"] {
            let error = leaf
                .send(serde_json::json!({ "at": at }))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reported, "{at}");
            expect!["the answer has more than 65536 bytes"].assert_eq(error.message());
        }
        assert!(leaf.send(serde_json::json!({ "at": "fits" })).await.is_ok());
    }
}

/// H4: a GiB is given up after a MiB; what the server could send beyond that is in buffers.
#[tokio::test]
async fn a_body_of_a_gib_is_not_read() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let server = Server::start(move |_, _| {
        static CHUNK: [u8; 1 << 16] = [b' '; 1 << 16];
        let counted = Arc::clone(&counted);
        let frames = stream::iter(0..1 << 14).map(move |_| {
            counted.fetch_add(CHUNK.len(), SeqCst);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&CHUNK)))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    })
    .await;
    for leaf in leaves(&server.tool(Method::GET, "/")) {
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reported);
        expect!["the answer has more than 1048576 bytes"].assert_eq(error.message());
    }
    let sent = sent.load(SeqCst) >> 20;
    assert!((2..64).contains(&sent), "{sent} MiB for two calls");
}

/// H4: nothing is read of a body that is announced as too long; this one never comes.
#[tokio::test]
async fn an_announced_length_over_the_limit_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1048577\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, head).await;
            open.push(stream);
        }
    });
    for leaf in leaves(&HttpTool::new(Method::GET, at).unwrap()) {
        let answer = tokio::time::timeout(Duration::from_secs(20), leaf.send(no_arguments()));
        let error = answer.await.unwrap().unwrap_err();
        expect!["the answer has more than 1048576 bytes"].assert_eq(error.message());
    }
}

/// The status is what counts of an error, however long its body is.
#[tokio::test]
async fn an_error_with_an_endless_body_keeps_its_status_and_beginning() {
    let server = Server::start(|_, _| {
        let mut answer = Response::new(endless(b"down for maintenance\n"));
        *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
        answer
    })
    .await;
    let tool = server.tool(Method::GET, "/").with_max_bytes(1_000).unwrap();
    for leaf in leaves(&tool) {
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Upstream);
        assert!(error.body().unwrap().starts_with("down for maintenance"));
        assert!(HttpAnswer::of_error(&error).is_some());
    }
}

/// The status is what counts: it waits two seconds for a body that stalls.
#[tokio::test(start_paused = true)]
async fn an_error_with_a_body_that_stalls_keeps_its_status() {
    let tool = HttpTool::new(Method::GET, "http://h/").unwrap();
    let leaf = answered_by(tool, |_| {
        let begun = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("maintenance")))]);
        let stalls = begun.chain(stream::pending());
        let mut answer = Response::new(StreamBody::new(stalls).boxed_unsync());
        *answer.status_mut() = http::StatusCode::NOT_FOUND;
        answer
    });
    let begun = tokio::time::Instant::now();
    let error = leaf.send(no_arguments()).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    assert_eq!(
        (error.kind(), error.body()),
        (
            ErrorKind::NotFound,
            Some("maintenance... [the rest of the body was not read]")
        )
    );
}

#[tokio::test]
async fn of_an_error_64_kib_are_read() {
    let tool = HttpTool::new(Method::GET, "http://h/").unwrap();
    let leaf = answered_by(tool, |_| {
        let mut answer = Response::new(endless(&[b'x'; 1_000]));
        *answer.status_mut() = http::StatusCode::NOT_FOUND;
        answer
    });
    let error = leaf.send(no_arguments()).await.unwrap_err();
    let kept = HttpAnswer::of_error(&error).unwrap().clone();
    let text = kept.into_json().as_str().unwrap().to_owned();
    assert_eq!(text.trim_start_matches('x').len() + 65_536, text.len());
    assert!(text.ends_with("x... [the rest of the body was not read]"));
}

/// Is never ready.
#[derive(Clone)]
struct Unready;

impl Service<http::Request<Bytes>> for Unready {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = std::future::Pending<Result<Response<Body>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }

    fn call(&mut self, _: http::Request<Bytes>) -> Self::Future {
        unreachable!("it was not ready")
    }
}

/// R6: whatever the error is.
#[tokio::test]
async fn a_client_that_is_not_ready_has_sent_nothing() {
    let tool = HttpTool::new(Method::POST, "http://h/").unwrap();
    let error = tool.client(Unready).oneshot(ToolCall::new("x")).await;
    let error = error.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution()),
        (ErrorKind::ConnectionFailed, Execution::NotStarted)
    );
}

/// What an error of reqwest's says, down to its last source.
async fn refused_by_reqwest(url: &str) -> (tower_toolcall::ToolError, String) {
    let tool = HttpTool::new(Method::POST, url).unwrap();
    let [_, leaf] = leaves(&tool);
    let error = leaf.send(no_arguments()).await.unwrap_err();
    let mut shown = String::new();
    let mut link: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = link {
        shown += &format!("{error} {error:?}\n");
        link = error.source();
    }
    (error, shown)
}

/// Rule 9: the URL may have a key in it.
#[tokio::test]
async fn no_link_of_an_error_of_reqwests_has_the_url() {
    let (_, shown) = refused_by_reqwest(&closed_port().await).await;
    assert!(
        shown.contains("reqwest::Error") && !shown.contains("c4n4ry"),
        "{shown}"
    );
}

/// It says nothing of the server, so no breaker opens and nothing is repeated.
#[tokio::test]
async fn a_request_that_reqwest_cannot_send_is_our_own_refusal() {
    for (url, text) in [
        // reqwest has no TLS in this package.
        (
            "https://localhost/?key=c4n4ry",
            "reqwest is built without TLS",
        ),
        ("http://1.2.3.999/?key=c4n4ry", "builder error"),
    ] {
        let (error, shown) = refused_by_reqwest(url).await;
        assert_eq!(error.kind(), ErrorKind::Internal, "{shown}");
        assert!(error.is_own_refusal(), "{shown}");
        assert!(error.message().starts_with(text), "{shown}");
        assert!(!shown.contains("c4n4ry"), "{shown}");
    }
}

/// Rule 9: a client that was set up elsewhere has headers of its own.
#[test]
fn a_client_shows_nothing_of_its_settings() {
    let mut headers = http::HeaderMap::new();
    headers.insert("x-api-key", "c4n4ry".parse().unwrap());
    let client = reqwest::Client::builder().default_headers(headers).build();
    let client = ReqwestClient::from_client(client.unwrap());
    assert_eq!(format!("{client:?}"), "ReqwestClient { .. }");
}

/// H4: a gzip bomb stays folded.
#[tokio::test]
async fn a_compressed_answer_is_not_decompressed() {
    let server = Server::start(|_, _| {
        let mut answer = Response::new(full(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]));
        answer
            .headers_mut()
            .insert("content-encoding", "gzip".parse().unwrap());
        answer
    })
    .await;
    for leaf in leaves(&server.tool(Method::GET, "/")) {
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reported);
        expect!["the answer is compressed, which was not asked for"].assert_eq(error.message());
    }
    assert_eq!(server.headers("accept-encoding"), ["", ""]);
}

/// H2, H4: the token goes to the tool's host only.
#[tokio::test]
async fn a_redirect_is_not_followed_and_the_token_stays() {
    let elsewhere = Server::start(|_, _| Response::new(full("stolen"))).await;
    let at = elsewhere.at.clone();
    let server = Server::start(move |_, got| {
        let mut answer = Response::new(full(""));
        *answer.status_mut() =
            http::StatusCode::from_bytes(&got.uri().path().as_bytes()[1..]).unwrap();
        answer.headers_mut().insert("location", at.parse().unwrap());
        answer
    })
    .await;
    let tool = server.tool(Method::POST, "/{{ status }}");
    let tool = tool
        .with_header("Authorization", "Bearer {{ upstream_token }}")
        .unwrap();
    for leaf in leaves(&tool) {
        for status in [301, 302, 303, 307, 308] {
            let mut call = call(serde_json::json!({ "status": status }));
            call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
            let error = leaf.clone().oneshot(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Failed);
            expect!["the server redirects, which is not followed"].assert_eq(error.message());
            assert_eq!(error.status().unwrap().as_u16(), status);
        }
    }
    assert_eq!((server.count(), elsewhere.count()), (10, 0));
    assert_eq!(server.headers("authorization"), ["Bearer t0k3n"; 10]);
}

/// R6, H4: a request that was not sent is known by the client's type of error.
#[tokio::test]
async fn a_refused_connection_has_not_started() {
    let tool = HttpTool::new(Method::POST, closed_port().await).unwrap();
    for leaf in leaves(&tool) {
        let error = leaf.send(no_arguments()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
        assert_eq!(error.execution(), Execution::NotStarted);
        assert!(!format!("{error} {error:?}").contains("c4n4ry"), "{error}");
    }
}

/// Accepts, reads, writes this, and closes.
async fn breaks_off_after(sent: &'static [u8]) -> HttpTool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, sent).await;
        }
    });
    HttpTool::new(Method::POST, at).unwrap()
}

/// R6, H4: what was sent may have run, wherever the connection is lost.
#[tokio::test]
async fn a_connection_that_is_lost_later_is_unknown() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\"";
    for sent in [&b""[..], b"HTTP/1.1 200 OK\r\n", head] {
        for leaf in leaves(&breaks_off_after(sent).await) {
            let error = leaf.send(no_arguments()).await.unwrap_err();
            assert_eq!(error.execution(), Execution::Unknown, "{error}");
            assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{error}");
        }
    }
}

/// A client whose bodies fail as if a connection was refused.
#[tokio::test]
async fn an_answer_that_has_begun_was_started() {
    let client = service_fn(|_: http::Request<Bytes>| async {
        let broken = stream::iter([Err::<Frame<Bytes>, _>(io::Error::from(
            io::ErrorKind::ConnectionRefused,
        ))]);
        Ok::<_, Infallible>(Response::new(StreamBody::new(broken)))
    });
    let leaf = HttpTool::new(Method::GET, "http://h/")
        .unwrap()
        .client(client);
    let error = leaf.oneshot(ToolCall::new("x")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution()),
        (ErrorKind::ConnectionFailed, Execution::Unknown)
    );
}

/// Tells when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// T4: a slow body is bounded by the timeout of the attempt, which drops the request.
#[tokio::test(start_paused = true)]
async fn a_body_that_hangs_ends_with_the_timeout() {
    let dropped = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&dropped);
    let client = service_fn(move |_: http::Request<Bytes>| {
        let guard = Dropped(Arc::clone(&dropped));
        let slow = stream::unfold((0, guard), |(n, guard)| async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Some((
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))),
                (n + 1, guard),
            ))
        });
        std::future::ready(Ok::<_, Infallible>(Response::new(
            StreamBody::new(slow).boxed_unsync(),
        )))
    });
    let tool = HttpTool::new(Method::GET, "http://h/").unwrap();
    let timeout = TimeoutLayer::new(Duration::from_secs(5));
    let mut stack = ServiceBuilder::new()
        .layer(timeout)
        .service(tool.client(client));
    let begun = tokio::time::Instant::now();
    let error = stack
        .ready()
        .await
        .unwrap()
        .call(ToolCall::new("x"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), begun.elapsed()),
        (ErrorKind::Timeout, Duration::from_secs(5))
    );
    assert!(seen.load(SeqCst));
}
