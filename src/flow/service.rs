use std::{
    fmt::Debug,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{Flow, Gate, Sent, ready::Prepared};
use crate::{call::ToolCall, error::ToolError, kit::inner, text::debug_fields};

/// The service of a layer that decides about calls. Always ready.
#[derive(Clone)]
pub struct Gated<S, G> {
    inner: Prepared<S>,
    pub(crate) gate: G,
}

impl<S, G> Gated<S, G> {
    /// Creates a service that sends calls through `gate` to `inner`.
    pub fn new(inner: S, gate: G) -> Self {
        let inner = Prepared::new(inner);
        Self { inner, gate }
    }
}

inner::accessors!(@kept {S, G} Gated<S, G>, inner.svc);

impl<S, G> Service<ToolCall> for Gated<S, G>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    G: Gate<S::Response>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = Flow<S, S::Future, G::Ticket>;

    /// Always ready.
    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        Flow::send(&mut self.inner, &self.gate, call)
    }
}

debug_fields! { {S: Debug, G} |_| Gated<S, G> { inner, .. } }

/// The service of a layer that looks at the ends of calls. Ready when the inner service is, which
/// need not be [`Clone`]. The ticket's methods for waits are not called.
#[derive(Clone)]
pub struct Watched<S, G> {
    inner: S,
    pub(crate) gate: G,
}

impl<S, G> Watched<S, G> {
    pub(crate) fn new(inner: S, gate: G) -> Self {
        Self { inner, gate }
    }
}

inner::accessors!({S, G} Watched<S, G>, inner);

impl<S, G> Service<ToolCall> for Watched<S, G>
where
    S: Service<ToolCall, Error: Into<ToolError>>,
    G: Gate<S::Response>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = Sent<S::Future, G::Ticket>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        Sent::send(&mut self.inner, &self.gate, call)
    }
}

debug_fields! { {S: Debug, G} |_| Watched<S, G> { inner, .. } }
