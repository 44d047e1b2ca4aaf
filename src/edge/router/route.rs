use std::{future::Future, future::poll_fn, pin::Pin};

use tower_service::Service;

use super::IntoAnswer;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
};

pub(super) type Boxed<Res> = Pin<Box<dyn Future<Output = Result<Res, ToolError>> + Send>>;

/// A service behind a name, its type erased. Its second argument is the names that the caller used, if the call has others by
/// now.
pub(super) type Route<Res> = Box<dyn Fn(ToolCall, Option<CallInfo>) -> Boxed<Res> + Send + Sync>;

/// The route to a service.
pub(super) fn route<S, Res>(service: S) -> Route<Res>
where
    S: Service<ToolCall> + Clone + Send + Sync + 'static,
    S::Response: IntoAnswer<Res>,
    S::Error: Into<ToolError>,
    S::Future: Send,
    Res: 'static,
{
    Box::new(move |call, known_as| {
        let (svc, info) = (service.clone(), call.info());
        Box::pin(async move {
            run(svc, call).await.map_err(|error| match known_as {
                Some(outer) => error.readdressed(&info, &outer),
                None => error.for_call(&info),
            })
        })
    })
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
