//! Watches the caller's cancellation token.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
};

use crate::call::ToolCall;

/// Ready once the caller has cancelled; never for a call without a token.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    token: Option<tokio_util::sync::CancellationToken>,
    /// Made when the call begins to wait.
    cancelled: Option<Pin<Box<tokio_util::sync::WaitForCancellationFutureOwned>>>,
}

impl Caller {
    pub(crate) fn of(call: &ToolCall) -> Self {
        Self {
            token: call.cancellation().cloned(),
            cancelled: None,
        }
    }

    pub(crate) fn has_cancelled(call: &ToolCall) -> bool {
        call.cancellation().is_some_and(|t| t.is_cancelled())
    }

    /// Returns whether the caller has cancelled. Begins no wait.
    pub(crate) fn is_cancelled(self: Pin<&mut Self>, cx: &mut Context<'_>) -> bool {
        match &self.token {
            Some(token) => token.is_cancelled(),
            None => self.poll_cancelled(cx).is_ready(),
        }
    }

    pub(crate) fn poll_cancelled(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(token) = self.token.take() {
            self.cancelled = Some(Box::pin(token.cancelled_owned()));
        }
        match &mut self.cancelled {
            // A busy inner future uses up the task's budget, and must not delay the cancellation.
            Some(cancelled) => Pin::new(&mut tokio::task::coop::unconstrained(cancelled)).poll(cx),
            None => Poll::Pending,
        }
    }
}
