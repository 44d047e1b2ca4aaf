//! HTTP tools over TLS: whom a client does not trust gets no request.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use tower_toolcall::{ErrorKind, Execution, ToolCall, ToolError};
use tower_toolcall_http::{HttpAnswer, HttpTool, ReqwestClient};

/// A server whose certificate nobody has signed but itself.
struct Server {
    at: String,
    certificate: CertificateDer<'static>,
    requests: Arc<AtomicUsize>,
}

async fn server() -> Server {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Server {
        at: format!("https://localhost:{port}/orders"),
        certificate,
        requests: Arc::default(),
    };
    let requests = Arc::clone(&server.requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            let requests = Arc::clone(&requests);
            let answer = service_fn(move |_: Request<Incoming>| {
                requests.fetch_add(1, SeqCst);
                let body = Full::<Bytes>::from(r#"{"order": 7}"#);
                std::future::ready(Ok::<_, Infallible>(Response::new(body)))
            });
            let serve = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(serve);
        }
    });
    server
}

fn trusting(certificates: &[CertificateDer<'static>]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// What a POST gives by reqwest, and by hyper-util.
async fn sent(server: &Server, config: ClientConfig) -> [Result<HttpAnswer, ToolError>; 2] {
    let tool = HttpTool::new(Method::POST, server.at.clone()).unwrap();
    let reqwest = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .tls_backend_preconfigured(config.clone())
        .build()
        .unwrap();
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http1()
        .build();
    let hyper = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(https);
    let by_reqwest = tool
        .clone()
        .client::<_, Bytes>(ReqwestClient::from_client(reqwest));
    let by_hyper = tool.client::<_, Full<Bytes>>(hyper);
    let call = || ToolCall::new("order");
    [
        by_reqwest.oneshot(call()).await,
        by_hyper.oneshot(call()).await,
    ]
}

/// H4: a handshake that fails has sent nothing, so that a POST may be repeated.
#[tokio::test]
async fn a_self_signed_certificate_is_refused_before_anything_is_sent() {
    let server = server().await;
    for answer in sent(&server, trusting(&[])).await {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionFailed, "{error}");
        assert_eq!(error.execution(), Execution::NotStarted, "{error}");
    }
    assert_eq!(server.requests.load(SeqCst), 0);
}

#[tokio::test]
async fn a_certificate_that_is_trusted_is_taken() {
    let server = server().await;
    let config = trusting(std::slice::from_ref(&server.certificate));
    for answer in sent(&server, config).await {
        assert_eq!(answer.unwrap().into_json(), json!({ "order": 7 }));
    }
    assert_eq!(server.requests.load(SeqCst), 2);
}
