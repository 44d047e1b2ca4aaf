//! A service with layers of the user around it, or alone, as at most places of a stack.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{call::ToolCall, error::ToolError};

/// A service with layers of the user around it, or alone.
#[derive(Clone, Debug)]
pub enum Placed<B, S> {
    Own(B),
    Bare(S),
}

impl<B, S> Service<ToolCall> for Placed<B, S>
where
    B: Service<ToolCall, Response = S::Response, Error = ToolError, Future: Unpin>,
    S: Service<ToolCall, Error = ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = PlacedFuture<B::Future, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        match self {
            Self::Own(below) => below.poll_ready(cx),
            Self::Bare(service) => service.poll_ready(cx),
        }
    }

    // Forced inline, as in `Switched`. The future first: whatever is written before it has it
    // copied.
    #[inline(always)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        match self {
            Self::Bare(service) => PlacedFuture {
                bare: Some(service.call(call)),
                own: None,
            },
            Self::Own(below) => PlacedFuture {
                own: Some(below.call(call)),
                bare: None,
            },
        }
    }
}

pin_project! {
    /// One of two futures. Not an enum as in `Switched`, because that would be copied when it is
    /// returned.
    #[derive(Debug)]
    pub struct PlacedFuture<A, B> {
        #[pin]
        bare: Option<B>,
        own: Option<A>,
    }
}

impl<A: Future + Unpin, B: Future<Output = A::Output>> Future for PlacedFuture<A, B> {
    type Output = A::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Output> {
        let this = self.project();
        match this.bare.as_pin_mut() {
            Some(fut) => fut.poll(cx),
            None => poll_own(this.own, cx),
        }
    }
}

#[cold]
fn poll_own<A: Future + Unpin>(own: &mut Option<A>, cx: &mut Context<'_>) -> Poll<A::Output> {
    Pin::new(own.as_mut().expect("one of both")).poll(cx)
}
