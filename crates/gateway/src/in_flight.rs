//! The bound of calls in flight. A call counts while its body is read, because bodies take memory.

use std::sync::Arc;

use axum::{
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header::RETRY_AFTER},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::StreamExt as _;
use tokio::sync::Semaphore;

/// Refuses a POST with 503, without reading its body, while `calls` has no permit.
/// A call ends with its response's body: `/mcp` answers in a stream.
pub(crate) async fn bound(
    State(calls): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let Ok(permit) = calls.try_acquire_owned() else {
        let mut busy = (StatusCode::SERVICE_UNAVAILABLE, "too many calls\n").into_response();
        busy.headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return busy;
    };
    let response = next.run(request).await;
    if response.body().is_end_stream() || response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let body = body.into_data_stream();
        Body::from_stream(body.inspect(move |_| {
            let _until_dropped = &permit;
        }))
    })
}
