//! A server, and the two clients.

use std::{
    convert::Infallible,
    fmt::{Debug, Write as _},
    future::{Future, ready},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Notify};
use tower::{Service, ServiceExt};
use tower_toolcall::{ToolCall, ToolError};
use tower_toolcall_http::{HttpAnswer, HttpTool, ReqwestClient};
use tracing::{Level, field::Field};
use tracing_subscriber::layer::SubscriberExt as _;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

/// Chunks without an end.
pub(crate) fn endless(chunk: &'static [u8]) -> Body {
    let frame = move || Ok::<_, Infallible>(Frame::data(Bytes::from_static(chunk)));
    StreamBody::new(stream::repeat_with(frame)).boxed_unsync()
}

/// Never ends, and tells when it is dropped.
pub(crate) fn hangs(dropped: Arc<Notify>) -> Body {
    struct OnDrop(Arc<Notify>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    let dropped = OnDrop(dropped);
    let frame = stream::poll_fn(move |_| {
        let _ = &dropped;
        Poll::<Option<Result<Frame<Bytes>, Infallible>>>::Pending
    });
    StreamBody::new(frame).boxed_unsync()
}

/// A request as the server got it.
pub(crate) type Got = Request<Bytes>;

/// A server that keeps its requests. It ends with its runtime.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) at: String,
    got: Arc<Mutex<Vec<Got>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Speaks HTTP/1 and HTTP/2. Answers request `n`, counted from 0, as the function says.
    pub(crate) async fn start(
        answer: impl Fn(usize, &Got) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let got = Arc::new(Mutex::new(Vec::new()));
        let (server, answer) = (
            Self {
                at,
                got: Arc::clone(&got),
                connections: Arc::default(),
            },
            Arc::new(answer),
        );
        let connections = Arc::clone(&server.connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, SeqCst);
                let (got, answer) = (Arc::clone(&got), Arc::clone(&answer));
                let handle = service_fn(move |request: Request<Incoming>| {
                    let (got, answer) = (Arc::clone(&got), Arc::clone(&answer));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let mut got = got.lock().unwrap();
                        got.push(Request::from_parts(head, body));
                        Ok::<_, Infallible>(answer(got.len() - 1, got.last().unwrap()))
                    }
                });
                let io = TokioIo::new(stream);
                tokio::spawn(async move {
                    let serve = auto::Builder::new(TokioExecutor::new());
                    let _ = serve.serve_connection(io, handle).await;
                });
            }
        });
        server
    }

    pub(crate) fn count(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    /// The paths of the requests, with their queries.
    pub(crate) fn paths(&self) -> Vec<String> {
        let got = self.got.lock().unwrap();
        let path = |got: &Got| got.uri().path_and_query().map(ToString::to_string);
        got.iter().filter_map(path).collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub(crate) fn headers(&self, name: &str) -> Vec<String> {
        let got = self.got.lock().unwrap();
        let value = |got: &Got| {
            got.headers()
                .get(name)
                .map(|v| v.to_str().unwrap().to_owned())
        };
        got.iter()
            .map(|got| value(got).unwrap_or_default())
            .collect()
    }

    pub(crate) fn tool(&self, method: Method, path: &str) -> HttpTool {
        HttpTool::new(method, format!("{}{path}", self.at)).unwrap()
    }
}

pub(crate) fn hyper() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

/// Speaks HTTP/2 from the first byte on.
pub(crate) fn hyper_http2() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http()
}

/// A URL where nobody listens.
pub(crate) async fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/?key=c4n4ry", listener.local_addr().unwrap())
}

/// The two leaves of a tool.
pub(crate) fn leaves(tool: &HttpTool) -> [Leaf; 2] {
    [
        Leaf::new(tool.clone().client::<_, Full<Bytes>>(hyper())),
        Leaf::new(
            tool.clone()
                .client::<_, Bytes>(ReqwestClient::new().unwrap()),
        ),
    ]
}

/// A leaf of either client.
#[derive(Clone)]
pub(crate) struct Leaf(tower::util::BoxCloneSyncService<ToolCall, HttpAnswer, ToolError>);

impl Leaf {
    pub(crate) fn new<S>(leaf: S) -> Self
    where
        S: Service<ToolCall, Response = HttpAnswer, Error = ToolError>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        Self(tower::util::BoxCloneSyncService::new(leaf))
    }

    pub(crate) async fn send(&self, arguments: Value) -> Result<HttpAnswer, ToolError> {
        self.0.clone().oneshot(call(arguments)).await
    }
}

impl Service<ToolCall> for Leaf {
    type Response = HttpAnswer;
    type Error = ToolError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpAnswer, ToolError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        self.0.call(call)
    }
}

/// The leaf of a tool whose client is a function.
pub(crate) fn answered_by(
    tool: HttpTool,
    answer: impl Fn(&Got) -> Response<Body> + Clone + Send + Sync + 'static,
) -> Leaf {
    let client = tower::service_fn(move |got: Got| ready(Ok::<_, Infallible>(answer(&got))));
    Leaf::new(tool.client(client))
}

/// A leaf whose server always answers so.
pub(crate) fn says(tool: HttpTool, status: u16, body: &'static str) -> Leaf {
    answered_by(tool, move |_| {
        let answer = Response::builder().status(status);
        answer.body(full(body)).unwrap()
    })
}

pub(crate) fn call(arguments: Value) -> ToolCall {
    ToolCall::new("order").with_json(arguments).unwrap()
}

pub(crate) fn no_arguments() -> Value {
    json!({})
}

/// Hears the warnings of a thread.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub(crate) fn heard() -> (Self, tracing::subscriber::DefaultGuard) {
        let warnings = Self::default();
        let subscriber = tracing_subscriber::registry().with(warnings.clone());
        (warnings, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut text = event.metadata().name().to_owned();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            let _ = write!(text, " {field}={value:?}");
        });
        if *event.metadata().level() == Level::WARN {
            self.0.lock().unwrap().push(text);
        }
    }
}
