use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::{call::CallInfo, error::ToolError};

pin_project! {
    /// Response future for [`IdentityService`](super::IdentityService).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        // Waiting for the response; `spelled` are the caller's names, if they are others.
        Called { #[pin] fut: F, call: CallInfo, spelled: Option<CallInfo> },
        // There is no such tool.
        Refused { error: Option<ToolError> },
        Done,
    }
}

impl<F> ResponseFuture<F> {
    pub(super) fn called(fut: F, call: CallInfo, spelled: Option<CallInfo>) -> Self {
        let state = State::Called { fut, call, spelled };
        Self { state }
    }

    pub(super) fn refused(error: ToolError) -> Self {
        let error = Some(error);
        Self {
            state: State::Refused { error },
        }
    }
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = match this.state.as_mut().project() {
            StateProj::Called { fut, call, spelled } => {
                ready!(fut.poll(cx)).map_err(|error| match spelled {
                    Some(spelled) => error.into().readdressed(call, spelled),
                    None => error.into().for_call(call),
                })
            }
            StateProj::Refused { error } => Err(error.take().expect("refused once")),
            StateProj::Done => panic!("polled after completion"),
        };
        this.state.set(State::Done);
        Poll::Ready(result)
    }
}

crate::text::opaque_debug!({F} ResponseFuture<F>);
