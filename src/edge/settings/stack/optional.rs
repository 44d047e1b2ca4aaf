//! Parts that a stack may lack: a layer that is switched off, and layers of the user's at a place,
//! which is empty in most stacks.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::own::Below;
use crate::{call::ToolCall, error::ToolError};

/// A layer's service, or the one below it. It is named by the layer: its service's name has that of
/// the service below in it, and would double the name of the stack with each layer.
pub enum Switched<L: Layer<S>, S> {
    On(L::Service),
    Off(S),
}

impl<L: Layer<S>, S> Switched<L, S> {
    pub(super) fn new(layer: &Option<L>, inner: S) -> Self {
        match layer {
            Some(layer) => Self::On(layer.layer(inner)),
            None => Self::Off(inner),
        }
    }
}

impl<L: Layer<S, Service: Clone>, S: Clone> Clone for Switched<L, S> {
    fn clone(&self) -> Self {
        match self {
            Self::On(service) => Self::On(service.clone()),
            Self::Off(service) => Self::Off(service.clone()),
        }
    }
}

impl<L, S> Service<ToolCall> for Switched<L, S>
where
    L: Layer<S, Service: Service<ToolCall, Response = S::Response, Error = S::Error>>,
    S: Service<ToolCall>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = SwitchedFuture<L, S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        match self {
            Self::On(service) => service.poll_ready(cx),
            Self::Off(service) => service.poll_ready(cx),
        }
    }

    // Forced inline, as is `poll`: otherwise the future that is returned is copied. 180 of the
    // 2,840 instructions that a call takes in the default stack.
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

crate::text::opaque_debug!({L: Layer<S>, S} Switched<L, S>);

pin_project! {
    #[project = SwitchedProj]
    pub enum SwitchedFuture<L, S>
    where
        L: Layer<S>,
        L::Service: Service<ToolCall>,
        S: Service<ToolCall>,
    {
        On { #[pin] fut: <L::Service as Service<ToolCall>>::Future },
        Off { #[pin] fut: S::Future },
    }
}

impl<L, S> Future for SwitchedFuture<L, S>
where
    L: Layer<S, Service: Service<ToolCall, Response = S::Response, Error = S::Error>>,
    S: Service<ToolCall>,
{
    type Output = Result<S::Response, S::Error>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            SwitchedProj::On { fut } => fut.poll(cx),
            SwitchedProj::Off { fut } => fut.poll(cx),
        }
    }
}

/// A service with layers of the user's around it, or alone.
#[derive(Debug)]
pub enum Placed<Res, S> {
    Own(Below<Res>),
    Bare(S),
}

impl<Res, S: Clone> Clone for Placed<Res, S> {
    fn clone(&self) -> Self {
        match self {
            Self::Own(below) => Self::Own(below.clone()),
            Self::Bare(service) => Self::Bare(service.clone()),
        }
    }
}

impl<Res, S> Service<ToolCall> for Placed<Res, S>
where
    S: Service<ToolCall, Response = Res, Error = ToolError>,
{
    type Response = Res;
    type Error = ToolError;
    type Future = PlacedFuture<<Below<Res> as Service<ToolCall>>::Future, S::Future>;

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
    /// One of both. An enum of them is copied when it is returned: 220 instructions for the three
    /// places of a stack.
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
