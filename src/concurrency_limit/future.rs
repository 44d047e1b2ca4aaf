use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::limit::Place;
use crate::{call::ToolCall, error::ToolError, kit::hold::Held};

pin_project! {
    /// Response future for [`ConcurrencyLimit`](super::ConcurrencyLimit).
    #[project(!Unpin)]
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F> {
        #[pin]
        held: Held<S, F, Place>,
    }
}

impl<S, F> ResponseFuture<S, F> {
    pub(super) fn new(held: Held<S, F, Place>) -> Self {
        Self { held }
    }
}

impl<S> Future for ResponseFuture<S, S::Future>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().held.poll(cx)
    }
}
