use std::{future::Future, future::poll_fn, pin::Pin};

use tower_service::Service;

use super::IntoAnswer;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
};

pub(super) type Boxed<Res> = Pin<Box<dyn Future<Output = Result<Res, ToolError>> + Send>>;

/// A service behind a name, its type forgotten.
pub(super) trait Route<Res>: Send + Sync {
    /// Calls it. `known_as`: what the caller calls it, if the call does not say so any more.
    fn call(&self, call: ToolCall, known_as: Option<CallInfo>) -> Boxed<Res>;
}

/// What a service must be for that.
pub(super) struct Leaf<S>(pub(super) S);

impl<S, Res> Route<Res> for Leaf<S>
where
    S: Service<ToolCall> + Clone + Send + Sync + 'static,
    S::Response: IntoAnswer<Res>,
    S::Error: Into<ToolError>,
    S::Future: Send,
    Res: 'static,
{
    fn call(&self, call: ToolCall, known_as: Option<CallInfo>) -> Boxed<Res> {
        let (svc, info) = (self.0.clone(), call.info());
        Box::pin(async move {
            run(svc, call).await.map_err(|error| match known_as {
                Some(outer) => error.readdressed(&info, &outer),
                None => error.about(&info),
            })
        })
    }
}

/// Waits for this very instance to be ready, and calls it.
async fn run<S, Res>(mut svc: S, call: ToolCall) -> Result<Res, ToolError>
where
    S: Service<ToolCall>,
    S::Response: IntoAnswer<Res>,
    S::Error: Into<ToolError>,
{
    let ready = poll_fn(|cx| svc.poll_ready(cx)).await;
    ready.map_err(Into::into)?;
    let response = svc.call(call);
    drop(svc);
    response.await.map_err(Into::into)?.into_answer()
}
