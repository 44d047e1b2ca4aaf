use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::{Asking, ResponseFuture},
    layer::{Policy, Ruled},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    kit::{
        passing::Passing,
        preparing::GivenUp,
        ready::{Prepared, Taken},
    },
};

/// Allows calls, denies them, or asks for approval. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct PolicyService<S> {
    inner: Prepared<S>,
    policy: Arc<Policy>,
}

impl<S> PolicyService<S> {
    pub(super) fn new(inner: S, policy: Arc<Policy>) -> Self {
        let inner = Prepared::new(inner);
        Self { inner, policy }
    }
}

crate::kit::inner::accessors!(@kept {S} PolicyService<S>, inner.svc);

impl<S> Service<ToolCall> for PolicyService<S>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future>;

    /// Always ready.
    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let info = call.info();
        match self.policy.rule_on(&call, &info) {
            Ruled::Allowed => {}
            Ruled::Refused(error) => {
                self.inner.renew();
                return Passing::refused(error).into();
            }
            Ruled::Ask(approver, rule) => {
                if let Taken::Failed(error) = self.inner.take() {
                    return Passing::refused(error.for_call(&info)).into();
                }
                // Nothing is reserved while somebody thinks.
                self.inner.renew();
                if let Err(error) = may_ask(&call) {
                    return Passing::refused(error.for_call(&info)).into();
                }
                let svc = self.inner.svc.clone();
                let asking = Asking::new(call, svc, approver, rule, Arc::clone(&self.policy));
                return ResponseFuture::asking(asking);
            }
        }
        Passing::send(&mut self.inner, call, info, ResponseFuture::from)
    }
}

/// Nobody is asked for a call that cannot be sent. Of arguments that are nested too deeply an approver might not even be able to
/// print, or compare, a copy.
#[cold]
fn may_ask(call: &ToolCall) -> Result<(), ToolError> {
    call.check().map_err(ToolError::into_own_refusal)?;
    GivenUp::by(call).map_or(Ok(()), |why| Err(why.error()))
}

impl<S: fmt::Debug> fmt::Debug for PolicyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyService")
            .field("inner", &self.inner)
            .field("policy", &self.policy)
            .finish()
    }
}
