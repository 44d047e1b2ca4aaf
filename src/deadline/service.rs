use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;
use tower_service::Service;

use super::{
    future::{Limit, ResponseFuture, State},
    layer::Settings,
};
use crate::{
    call::{Claim, ToolCall},
    error::ToolError,
    kit::{
        caller::Caller,
        drain::Drain,
        inner::call_in_place,
        preparing::{GivenUp, Preparing},
        ready::{Prepared, Taken},
    },
};

/// Ends calls at their deadline. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
pub struct Deadline<S> {
    inner: Prepared<S>,
    settings: Settings,
}

impl<S> Deadline<S> {
    pub(super) fn new(inner: S, settings: Settings) -> Self {
        Self {
            inner: Prepared::new(inner),
            settings,
        }
    }
}

impl<S: Clone> Deadline<S> {
    /// The call is not started, and the inner service's reservation is given back.
    #[cold]
    fn refuse(&mut self, call: &ToolCall) -> ToolError {
        self.inner.renew();
        match Caller::has_cancelled(call) {
            true => GivenUp::Cancelled.error(),
            false => GivenUp::Deadline.error().with_elapsed(Duration::ZERO),
        }
    }
}

crate::kit::inner::accessors!(@kept {S} Deadline<S>, inner.svc);

impl<S> Service<ToolCall> for Deadline<S>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future>;

    /// Always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let now = Instant::now();
        // Also where this layer sets a tighter deadline, the owner of the outer one watches the token.
        let is_drained = call.is_claimed(Claim::Drain);
        let at = self.settings.limit(now, &mut call);
        let limit = Limit {
            since: now,
            // The owner of the deadline waits for the call that it ends.
            at: at.filter(|_| !call.is_claimed(Claim::Drain)),
            budget: self.settings.budget,
            attempt: call.attempt(),
            is_untrusted: call.is_deadline_untrusted(),
        };
        let mut info = Some(call.info());
        let mut caller = match is_drained {
            true => Caller::default(),
            false => Caller::of(&call),
        };
        let mut drain = Drain::of(&mut call, self.settings.drain);
        if self.settings.drain.is_some() {
            call.claim(Claim::Drain);
        }
        let state = if Caller::has_cancelled(&call) || at.is_some_and(|at| at <= now) {
            State::Refused {
                error: Some(self.refuse(&call)),
            }
        } else {
            match self.inner.take() {
                Taken::Ready => {
                    call.release();
                    return call_in_place(self.inner.get(), call, |fut| {
                        let state = State::Called { fut: Some(fut) };
                        ResponseFuture::new(state, limit, caller.take(), drain.take(), info.take())
                    });
                }
                Taken::Wait(svc) => State::Preparing {
                    preparing: Preparing::new(svc, &call),
                    call: Some(call),
                },
                Taken::Failed(error) => State::Refused { error: Some(error) },
            }
        };
        ResponseFuture::new(state, limit, caller, drain, info)
    }
}
