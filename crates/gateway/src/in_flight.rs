//! The bounds of calls in flight: their number, and the time of a body. A call counts while its
//! body is read, because bodies take memory.

use std::{
    future::Future as _,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use axum::{
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header::RETRY_AFTER},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream::poll_fn};
use tokio::{sync::Semaphore, time::sleep};

#[derive(Clone)]
pub(crate) struct Calls {
    permits: Arc<Semaphore>,
    body: Duration,
}

impl Calls {
    /// At most so many at a time, each with so much time for its body.
    pub(crate) fn new(max: u32, body: Duration) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(max as usize)),
            body,
        }
    }
}

/// Refuses a POST with 503, without reading its body, if all permits are in use, and with 408 if
/// its body takes too long. A call ends with its response's body: `/mcp` answers in a stream.
pub(crate) async fn bound(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let Ok(permit) = calls.permits.try_acquire_owned() else {
        let mut busy = (StatusCode::SERVICE_UNAVAILABLE, "too many calls\n").into_response();
        busy.headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return busy;
    };
    let is_late = Arc::new(AtomicBool::new(false));
    let request = match request.body().is_end_stream() {
        true => request,
        false => request.map(|body| timed(body, calls.body, Arc::clone(&is_late))),
    };
    let response = next.run(request).await;
    if is_late.load(Relaxed) {
        let text = format!("the body has not ended within {:?}\n", calls.body);
        return (StatusCode::REQUEST_TIMEOUT, text).into_response();
    }
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

/// A body that fails if it has not ended in time.
fn timed(body: Body, limit: Duration, is_late: Arc<AtomicBool>) -> Body {
    let (mut body, mut over) = (body.into_data_stream(), Box::pin(sleep(limit)));
    Body::from_stream(poll_fn(move |cx| {
        let data = body.poll_next_unpin(cx).map_err(axum::Error::into_inner);
        if data.is_pending() && pin!(&mut over).poll(cx).is_ready() {
            is_late.store(true, Relaxed);
            return Poll::Ready(Some(Err("the body is late".into())));
        }
        data
    }))
}
