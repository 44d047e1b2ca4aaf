use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::{ResponseFuture, State},
    guard::{Guard, Watched},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        inner::call_in_place,
        preparing::Preparing,
        ready::{Prepared, Taken},
    },
    outcome::{ByError, Classify},
};

/// Stops a caller that makes the same failing call again and again. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct RepeatGuard<S, C = ByError> {
    inner: Prepared<S>,
    guard: Guard,
    classifier: C,
}

impl<S, C> RepeatGuard<S, C> {
    pub(super) fn new(inner: S, guard: Guard, classifier: C) -> Self {
        Self {
            inner: Prepared::new(inner),
            guard,
            classifier,
        }
    }
}

crate::kit::inner::accessors!(@kept {S, C} RepeatGuard<S, C>, inner.svc);

impl<S, C> Service<ToolCall> for RepeatGuard<S, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future, C>;

    /// Always ready.
    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let info = call.info();
        let watched = self.guard.watch(&call, &info);
        let classifier = &self.classifier;
        let state = match self.inner.take() {
            Taken::Ready => match watched.as_ref().map_or(Ok(()), |w| w.admit(&info)) {
                Ok(()) => {
                    let mut of_call = Some((info, watched));
                    return call_in_place(self.inner.get(), call, |fut| ResponseFuture {
                        state: State::Called {
                            fut: Some(fut),
                            of_call: of_call.take(),
                        },
                        classifier: classifier.clone(),
                    });
                }
                Err(refusal) => {
                    self.inner.renew();
                    State::refused(refusal)
                }
            },
            // Judged again when it is about to run: calls that are queued here may have failed too often by then.
            Taken::Wait(svc) => match watched.as_ref().and_then(|w: &Watched| w.refusal(&info)) {
                Some(refusal) => State::refused(refusal),
                None => State::Preparing {
                    preparing: Preparing::new(svc, &call),
                    call: Some((call, watched)),
                },
            },
            Taken::Failed(error) => State::refused(error.for_call(&info)),
        };
        ResponseFuture {
            state,
            classifier: classifier.clone(),
        }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for RepeatGuard<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepeatGuard")
            .field("inner", &self.inner)
            .field("limits", &self.guard.rules.limits)
            .finish_non_exhaustive()
    }
}
