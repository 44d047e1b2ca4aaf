use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use futures_util::{FutureExt as _, StreamExt as _};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body;
use http_body_util::{
    BodyExt as _, BodyStream, Full, StreamBody,
    combinators::{BoxBody, UnsyncBoxBody},
};
use serde_json::json;
use tower_service::Service;

use crate::{call::MAX_VALUES, edge::future::Boxed, error::BoxError, text::values::Counter};

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
    S: Service<
            Request<UnsyncBoxBody<Bytes, BoxError>>,
            Response = Answer,
            Error: 'static,
            Future: Send + 'static,
        >,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Answer;
    type Error = S::Error;
    type Future = Boxed<Result<Answer, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_refused = Arc::new(AtomicBool::new(false));
        let answer = self
            .0
            .call(request.map(|body| counted(body, Arc::clone(&is_refused))));
        // rmcp answers every error of a body with 500.
        Boxed::new(answer.map(move |answer| match is_refused.load(Relaxed) {
            true => Ok(refusal()),
            false => answer,
        }))
    }
}

fn too_many() -> String {
    format!("the body has more than {MAX_VALUES} values")
}

/// Counts the values of a body, which fails when it has too many.
fn counted<B>(body: B, is_refused: Arc<AtomicBool>) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let mut counter = Counter::default();
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame.map_err(Into::into)?;
        let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        if frame.data_ref().map_or(0, |data| counter.add(data)) > MAX_VALUES {
            is_refused.store(true, Relaxed);
            return Err(too_many().into());
        }
        Ok(frame)
    });
    StreamBody::new(frames).boxed_unsync()
}

fn refusal() -> Answer {
    let error = json!({ "code": -32600, "message": too_many() });
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string();
    let mut answer = Response::new(Full::from(body).boxed());
    *answer.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}
