//! The service of a layer that converts errors of any type.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::inner;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::sent::poll_sent,
};

/// Converts errors of one type.
pub trait Convert<E>: Clone {
    fn convert(&self, error: E) -> ToolError;
}

/// Converts the errors of a service.
#[derive(Clone, Debug)]
pub struct Converted<S, C> {
    inner: S,
    by: C,
}

impl<S, C> Converted<S, C> {
    pub(crate) const fn new(inner: S, by: C) -> Self {
        Self { inner, by }
    }
}

inner::accessors!({S, C} Converted<S, C>, inner);

impl<S: Service<ToolCall>, C: Convert<S::Error>> Service<ToolCall> for Converted<S, C> {
    type Response = S::Response;
    type Error = ToolError;
    type Future = Converting<S::Future, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(|e| self.by.convert(e))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let (info, by) = (call.info(), self.by.clone());
        let fut = Some(self.inner.call(call));
        Converting { fut, info, by }
    }
}

pin_project! {
    /// Future of a call that converts its error.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Converting<F, C> {
        #[pin]
        fut: Option<F>,
        info: CallInfo,
        by: C,
    }
}

impl<F, Res, E, C> Future for Converting<F, C>
where
    F: Future<Output = Result<Res, E>>,
    C: Convert<E>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        poll_sent(this.fut, cx, this.info, |error| this.by.convert(error))
    }
}
