//! A layer that may be switched off, and then is not there at all.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::call::ToolCall;

/// A layer, or nothing.
#[derive(Clone, Debug)]
pub(super) struct Optional<L>(pub(super) Option<L>);

impl<S, L: Layer<S>> Layer<S> for Optional<L> {
    type Service = Switched<L::Service, S>;

    fn layer(&self, inner: S) -> Self::Service {
        match &self.0 {
            Some(layer) => Switched::On(layer.layer(inner)),
            None => Switched::Off(inner),
        }
    }
}

/// A layer's service, or the one below it.
#[derive(Clone, Debug)]
pub enum Switched<A, B> {
    On(A),
    Off(B),
}

impl<A, B> Service<ToolCall> for Switched<A, B>
where
    A: Service<ToolCall>,
    B: Service<ToolCall, Response = A::Response, Error = A::Error>,
{
    type Response = A::Response;
    type Error = A::Error;
    type Future = SwitchedFuture<A::Future, B::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), A::Error>> {
        match self {
            Self::On(service) => service.poll_ready(cx),
            Self::Off(service) => service.poll_ready(cx),
        }
    }

    // Forced inline, as is `poll`: otherwise the future that is returned is copied. 180 of the 2,840 instructions that a
    // call takes in the default stack.
    #[inline(always)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        match self {
            Self::On(service) => SwitchedFuture::On {
                fut: service.call(call),
            },
            Self::Off(service) => SwitchedFuture::Off {
                fut: service.call(call),
            },
        }
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = SwitchedProj]
    pub enum SwitchedFuture<A, B> {
        On { #[pin] fut: A },
        Off { #[pin] fut: B },
    }
}

impl<A: Future, B: Future<Output = A::Output>> Future for SwitchedFuture<A, B> {
    type Output = A::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Output> {
        match self.project() {
            SwitchedProj::On { fut } => fut.poll(cx),
            SwitchedProj::Off { fut } => fut.poll(cx),
        }
    }
}
