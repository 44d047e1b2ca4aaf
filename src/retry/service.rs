use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{future::ResponseFuture, policy::RetryPolicy};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::{
        lane::{Kept, Spread},
        template::Template,
    },
    outcome::{ByError, Classify},
};

/// Repeats calls that failed. See the [module docs](super) for an example.
pub struct Retry<S, C = ByError> {
    inner: S,
    shared: Spread<Shared<S, C>>,
}

/// What a call keeps a reference on.
pub(super) struct Shared<S, C> {
    pub(super) template: Template<S>,
    pub(super) policy: RetryPolicy<C>,
}

impl<S, C> Retry<S, C> {
    pub(super) fn new(inner: S, shared: Spread<Shared<S, C>>) -> Self {
        Self { inner, shared }
    }
}

impl<S: Clone, C> Clone for Retry<S, C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: self.shared.clone(),
        }
    }
}

/// Whose call it is to repeat.
pub(super) enum Owner<S, C> {
    Us(Session<S, C>),
    /// Somebody above, or nobody: only its names are kept.
    Other(CallInfo),
}

/// A call that is ours to repeat.
pub(super) struct Session<S, C> {
    pub(super) call: ToolCall,
    pub(super) shared: Arc<Kept<Shared<S, C>>>,
    /// What the attempt before failed with.
    pub(super) failed: Option<ToolError>,
    /// Whether the call's recording, which its attempts share, was begun by us.
    records: bool,
}

impl<S, C> Drop for Session<S, C> {
    #[inline]
    fn drop(&mut self) {
        // Another call may take the record now.
        if self.records {
            self.call.end_recording();
        }
    }
}

crate::kit::inner::accessors!(@kept {S, C} Retry<S, C>, inner);

impl<S, C> Service<ToolCall> for Retry<S, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    // Asked for, as the compiler thinks it large: a future that is returned from a call is copied.
    #[inline(always)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let owner = if let Some(attempts) = self.shared.policy.begin(&call) {
            let records = call.begin_repeated(attempts);
            Owner::Us(Session {
                records,
                failed: None,
                call: call.clone(),
                shared: self.shared.keep(),
            })
        } else {
            Owner::Other(call.info())
        };
        ResponseFuture::new(self.inner.call(call), owner)
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Retry<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("policy", &self.shared.policy)
            .finish()
    }
}
