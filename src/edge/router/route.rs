use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use tower_service::Service;

use super::IntoAnswer;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::preparing::{Preparing, Unprepared},
};

pub(super) type Boxed<Res> = Pin<Box<dyn Future<Output = Result<Res, ToolError>> + Send>>;

/// A service behind a name, its type erased. Its second argument is the names that the caller used,
/// if the call has others by now.
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
            run(svc, call).await.map_err(|mut error| {
                match known_as {
                    Some(outer) => error.readdress(&info, &outer),
                    None => error.address(&info),
                }
                error
            })
        })
    })
}

/// Waits for this very instance to be ready, within the call's deadline and until its caller
/// cancels, and calls it.
async fn run<S, Res>(mut svc: S, call: ToolCall) -> Result<Res, ToolError>
where
    S: Service<ToolCall>,
    S::Response: IntoAnswer<Res>,
    S::Error: Into<ToolError>,
{
    let first = poll_fn(|cx| Poll::Ready(svc.poll_ready(cx).map_err(Into::into))).await;
    let response = match first {
        Poll::Ready(ready) => {
            ready?;
            let response = svc.call(call);
            drop(svc);
            response
        }
        Poll::Pending => {
            let mut waits = pin!(Preparing::new(svc, &call));
            let ready = poll_fn(|cx| waits.as_mut().poll(cx).map_ok(drop)).await;
            ready.map_err(Unprepared::into_error)?;
            waits.service().call(call)
        }
    };
    response.await.map_err(Into::into)?.into_answer()
}
