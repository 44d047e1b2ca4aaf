use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use serde::Serialize;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Capture,
    line::{Asked, End},
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::{
        in_flight::{Abandoned, Beginning, InFlight, Report},
        inner::{self, call_in_place},
    },
};

/// Layer that writes down calls and how they end: [`Capture::layer`].
///
/// # Order
///
/// Directly around the tool that a [`Replay`](super::Replay) is to replace, and below a
/// [`SanitizeLayer`](crate::sanitize::SanitizeLayer), whose rules then hold for the lines.
///
/// # Errors
///
/// Those of the inner service, stamped with the call's names.
#[derive(Clone, Debug)]
#[must_use]
pub struct CaptureLayer(Capture);

impl CaptureLayer {
    pub(super) fn new(capture: Capture) -> Self {
        Self(capture)
    }
}

impl<S> Layer<S> for CaptureLayer {
    type Service = CaptureService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CaptureService {
            inner,
            capture: self.0.clone(),
        }
    }
}

/// Writes down calls and how they end. See [`Capture`].
#[derive(Clone, Debug)]
pub struct CaptureService<S> {
    inner: S,
    capture: Capture,
}

crate::kit::inner::accessors!({S} CaptureService<S>, inner);

impl<S> Service<ToolCall> for CaptureService<S>
where
    S: Service<ToolCall, Response: Serialize, Error: Into<ToolError>>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let open = Open {
            info: call.info(),
            asked: Asked::of(&call),
            capture: self.capture.clone(),
        };
        let mut open = Beginning::new(open, None);
        call_in_place(&mut self.inner, call, |fut| ResponseFuture {
            fut: Some(fut),
            open: open.begun(),
        })
    }
}

/// A line without its end.
struct Open {
    info: CallInfo,
    asked: Asked,
    capture: Capture,
}

impl Report for Open {
    fn abandoned(self, _: Abandoned) {
        self.capture.write(&self.asked, End::Unfinished);
    }

    fn panicked(self) {
        self.capture.write(&self.asked, End::Panicked);
    }
}

pin_project! {
    /// Response future for [`CaptureService`].
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        fut: Option<F>,
        open: InFlight<Open>,
    }
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    Res: Serialize,
    E: Into<ToolError>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let open = this.open.begin_poll();
        let Poll::Ready(result) = inner::poll(this.fut, cx) else {
            this.open.wait();
            return Poll::Pending;
        };
        let result = result.map_err(|e| e.into().for_call(&open.info));
        let end = End::of(&open.info, result.as_ref());
        this.open.end(|open| open.capture.write(&open.asked, end));
        Poll::Ready(result)
    }
}

crate::text::debug_fields! {
    {F: std::fmt::Debug} |this| ResponseFuture<F> { fut: this.fut, .. }
}
