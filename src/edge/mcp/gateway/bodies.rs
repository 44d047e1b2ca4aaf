use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use pin_project_lite::pin_project;
use serde_json::json;
use tower_service::Service;

use crate::{call::MAX_VALUES, text::values::Counter};

/// Bounds the values in the bodies of requests to rmcp's `StreamableHttpService`.
///
/// rmcp bounds the bytes of a body, 4 MiB by default. Many small values take 100 times as much once
/// they are parsed. This service counts them while the body arrives: a body with more than
/// [`MAX_VALUES`](crate::MAX_VALUES) values is refused with 413 and a JSON-RPC error (-32600), and
/// is neither read to its end nor parsed.
///
/// ```
/// use std::sync::Arc;
/// use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
/// use tower_toolcall::mcp::{GatewayHandler, McpBodies, McpSessions};
///
/// # fn serve(gateway: GatewayHandler) {
/// let sessions = Arc::new(McpSessions::default());
/// let config = StreamableHttpServerConfig::default();
/// let mcp = StreamableHttpService::new(move || Ok(gateway.clone()), sessions, config);
/// let app: axum::Router = axum::Router::new().nest_service("/mcp", McpBodies::new(mcp));
/// # let _ = app; }
/// ```
#[derive(Clone)]
pub struct McpBodies<S>(S);

impl<S> McpBodies<S> {
    /// Wraps rmcp's service.
    pub fn new(mcp: S) -> Self {
        Self(mcp)
    }
}

crate::text::opaque_debug!({S} McpBodies<S>);

type Answer = Response<BoxBody<Bytes, Infallible>>;

impl<S, B> Service<Request<B>> for McpBodies<S>
where
    S: Service<Request<CountedBody<B>>, Response = Answer>,
{
    type Response = Answer;
    type Error = S::Error;
    type Future = McpBodiesFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_refused = Arc::new(AtomicBool::new(false));
        let request = request.map(|body| CountedBody {
            body,
            counter: Counter::default(),
            is_refused: Arc::clone(&is_refused),
        });
        McpBodiesFuture {
            fut: self.0.call(request),
            is_refused,
        }
    }
}

pin_project! {
    /// Response future for [`McpBodies`].
    #[must_use = "futures do nothing unless polled"]
    pub struct McpBodiesFuture<F> {
        #[pin]
        fut: F,
        is_refused: Arc<AtomicBool>,
    }
}

impl<F, E> Future for McpBodiesFuture<F>
where
    F: Future<Output = Result<Answer, E>>,
{
    type Output = Result<Answer, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.fut.poll(cx));
        // rmcp answers every error of a body with 500.
        Poll::Ready(match this.is_refused.load(Relaxed) {
            true => Ok(refusal()),
            false => answer,
        })
    }
}

crate::text::opaque_debug!({F} McpBodiesFuture<F>);

fn refusal() -> Answer {
    let message = format!("the body has more than {MAX_VALUES} values");
    let error = json!({ "code": -32600, "message": message });
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string();
    let mut answer = Response::new(Full::from(body).boxed());
    *answer.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

pin_project! {
    /// A body whose values are counted: it fails when it has too many.
    pub struct CountedBody<B> {
        #[pin]
        body: B,
        counter: Counter,
        is_refused: Arc<AtomicBool>,
    }
}

impl<B: Body> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = BodyError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        let Some(frame) = ready!(this.body.poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(BodyError::Inner)?;
        let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        let count = frame.data_ref().map_or(0, |data| this.counter.add(data));
        if count > MAX_VALUES {
            this.is_refused.store(true, Relaxed);
            return Poll::Ready(Some(Err(BodyError::TooManyValues)));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

crate::text::opaque_debug!({B} CountedBody<B>);

/// Why a [`CountedBody`] ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError<E> {
    /// The body has more than [`MAX_VALUES`](crate::MAX_VALUES) values.
    TooManyValues,
    /// The body itself failed.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for BodyError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyValues => write!(f, "the body has more than {MAX_VALUES} values"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for BodyError<E> {}
