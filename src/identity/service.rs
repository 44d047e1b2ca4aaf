use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{Resolve, future::ResponseFuture};
use crate::{
    call::ToolCall,
    error::ToolError,
    event::{Audience, Event, Listener},
};

/// Resolves the names of calls. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct IdentityService<S> {
    inner: S,
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) tools: Arc<dyn Resolve>,
    pub(super) listener: Listener,
    /// The observers below, which see no call that is refused here.
    pub(super) audience: Arc<Audience>,
}

impl Shared {
    /// A call of a tool that does not exist.
    #[cold]
    fn refuse(&self, call: &ToolCall, error: ToolError) -> ToolError {
        let (info, error) = (call.info(), error.into_own_refusal());
        let event = Event::NotStarted {
            call: &info,
            kind: error.kind(),
        };
        self.listener.tell_below(&self.audience, &event);
        error.for_call(&info)
    }
}

impl<S> IdentityService<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

crate::kit::inner::accessors!({S} IdentityService<S>, inner);

impl<S> Service<ToolCall> for IdentityService<S>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let identity = match call.is_resolved() {
            true => Ok(None),
            false => self.shared.tools.resolve(&call),
        };
        let (call, spelled) = match identity {
            Ok(None) => (call, None),
            Ok(Some(identity)) if call.has_names_of(&identity) => (call.resolved(&identity), None),
            Ok(Some(identity)) => {
                let spelled = call.info();
                (call.resolved(&identity), Some(spelled))
            }
            Err(error) => {
                // The reservation of the one that was ready is given back.
                self.inner = self.inner.clone();
                return ResponseFuture::refused(self.shared.refuse(&call, error));
            }
        };
        let info = call.info();
        let fut = self.inner.call(call);
        self.shared.audience.learn(&info);
        ResponseFuture::called(fut, info, spelled)
    }
}

impl<S: fmt::Debug> fmt::Debug for IdentityService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
