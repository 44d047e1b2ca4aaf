use std::task::{Context, Poll};

use tower_service::Service;

use super::{
    FaultLayer,
    faults::Happens,
    future::{ResponseFuture, State},
};
use crate::{
    call::ToolCall,
    edge::testing::{future::StepFuture, step::Step},
    error::ToolError,
    kit::{
        inner::call_in_place,
        preparing::WaitLimit,
        ready::{Prepared, Taken},
    },
};

/// Makes calls fail, at random and repeatably. See [`FaultLayer`].
#[derive(Clone, Debug)]
pub struct Fault<S> {
    inner: Prepared<S>,
    layer: FaultLayer,
}

impl<S> Fault<S> {
    pub(super) fn new(inner: S, layer: FaultLayer) -> Self {
        let inner = Prepared::new(inner);
        Self { inner, layer }
    }
}

crate::kit::inner::accessors!(@kept {S} Fault<S>, inner.svc);

impl<S> Service<ToolCall> for Fault<S>
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
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let mut info = Some(call.info());
        let mut lost = match self.layer.next(&call) {
            None => None,
            Some(Happens::Afterwards(step)) => Some((step, call.copy())),
            // Neither needs what is reserved below, and nothing sleeps on it.
            Some(Happens::Instead(step)) => {
                self.inner.renew();
                let step = StepFuture::new(step, call, None);
                let ran = false;
                return ResponseFuture::new(State::Step { step, ran }, info);
            }
            Some(Happens::Delay(delay)) => {
                self.inner.renew();
                let state = State::Delayed {
                    delay: StepFuture::new(Step::ok(()).after(delay), call.copy(), None),
                    limit: WaitLimit::of(&call),
                    svc: Some(self.inner.svc.clone()),
                    call: Some(call),
                };
                return ResponseFuture::new(state, info);
            }
        };
        let state = match self.inner.take() {
            Taken::Ready => {
                call.release();
                return call_in_place(self.inner.get(), call, |fut| {
                    let (fut, lost) = (Some(fut), lost.take());
                    ResponseFuture::new(State::Called { fut, lost }, info.take())
                });
            }
            Taken::Wait(svc) => State::preparing(svc, call, lost),
            Taken::Failed(error) => State::Failed { error: Some(error) },
        };
        ResponseFuture::new(state, info)
    }
}
