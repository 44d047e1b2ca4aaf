//! Watches the caller's cancellation token.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
};

use crate::call::ToolCall;

pin_project_lite::pin_project! {
    /// Ready once the caller has cancelled; never for a call without a token.
    #[derive(Debug, Default)]
    pub(crate) struct Caller {
        #[pin]
        cancelled: Option<tokio_util::sync::WaitForCancellationFutureOwned>,
    }
}

impl Caller {
    pub(crate) fn of(call: &ToolCall) -> Self {
        Self {
            cancelled: call.cancellation().map(|t| t.clone().cancelled_owned()),
        }
    }

    /// It, taken out before it was polled.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            cancelled: self.cancelled.take(),
        }
    }

    pub(crate) fn has_cancelled(call: &ToolCall) -> bool {
        call.cancellation().is_some_and(|t| t.is_cancelled())
    }

    pub(crate) fn poll_cancelled(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.project().cancelled.as_pin_mut() {
            // A busy inner future uses up the task's budget, and must not delay the cancellation.
            Some(cancelled) => Pin::new(&mut tokio::task::coop::unconstrained(cancelled)).poll(cx),
            None => Poll::Pending,
        }
    }
}
