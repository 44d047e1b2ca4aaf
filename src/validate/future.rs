use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{call::ToolCall, error::ToolError, kit::passing::Passing};

pin_project! {
    /// Response future for [`Validate`](super::Validate).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F> {
        #[pin]
        pub(super) state: Passing<S, F>,
    }
}

impl<S> Future for ResponseFuture<S, S::Future>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    type Output = Result<S::Response, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().state.poll(cx)
    }
}
