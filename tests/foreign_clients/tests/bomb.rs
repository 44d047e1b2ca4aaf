//! HTTP tools over clients that decompress: the limit of an answer is behind that.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{convert::Infallible, iter, time::Duration};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use futures_util::stream;
use http::{Method, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{body::Frame, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_http::decompression::Decompression;
use tower_toolcall::{ErrorKind, Execution, ToolCall};
use tower_toolcall_http::{HttpTool, ReqwestClient};

/// A MiB of spaces, in deflate blocks after which the same bytes mean another one.
fn mebibyte() -> Bytes {
    let mut compress = Compress::new(Compression::best(), false);
    let mut out = Vec::with_capacity(1 << 16);
    let spaces = vec![b' '; 1 << 20];
    compress
        .compress_vec(&spaces, &mut out, FlushCompress::Full)
        .unwrap();
    assert_eq!(compress.total_in(), 1 << 20);
    out.into()
}

/// A server whose answers have a GiB of spaces, in about a MiB.
async fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mebibyte = mebibyte();
        while let Ok((stream, _)) = listener.accept().await {
            let mebibyte = mebibyte.clone();
            let answer = service_fn(move |_| {
                let head = Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
                let pieces = iter::once(head).chain(iter::repeat_n(mebibyte.clone(), 1024));
                let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
                let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
                let answer = Response::builder().header("content-encoding", "gzip");
                std::future::ready(answer.body(body))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    at
}

/// H4: a gzip bomb is given up at the limit of the answer.
#[tokio::test]
async fn a_gzip_bomb_is_given_up_at_the_limit() {
    // reqwest panics without one, also where no URL needs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tool = HttpTool::new(Method::GET, server().await).unwrap();
    let reqwest = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let hyper = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let by_reqwest = tool
        .clone()
        .client::<_, Bytes>(ReqwestClient::from_client(reqwest));
    let by_hyper = tool.client::<_, Full<Bytes>>(Decompression::new(hyper));
    let call = || ToolCall::new("order");
    let limit = Duration::from_secs(60);
    for answer in [
        tokio::time::timeout(limit, by_reqwest.oneshot(call())).await,
        tokio::time::timeout(limit, by_hyper.oneshot(call())).await,
    ] {
        let error = answer.unwrap().unwrap_err();
        assert_eq!(error.message(), "the answer has more than 1048576 bytes");
        assert_eq!(
            (error.kind(), error.execution()),
            (ErrorKind::Reported, Execution::Completed)
        );
    }
}
