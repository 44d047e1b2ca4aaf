use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    UpstreamToken,
    answer::Token,
    exchange::{Asking, Kept},
    service::Shared,
    subject::TokenRequest,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::{Evidence, Execution, ToolError},
    kit::{
        inner::{self, call_in_place},
        lane,
        preparing::{GivenUp, Preparing, WaitLimit},
    },
};

pin_project! {
    /// Response future for [`Tokens`](super::Tokens).
    #[project(!Unpin)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, F, X> {
        #[pin]
        state: State<S, F>,
        info: Option<CallInfo>,
        again: Option<Again<S, X>>,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, F> {
        // Waiting for a token.
        Asking { asking: Asking, #[pin] limit: WaitLimit },
        // For the inner service to become ready.
        Preparing { #[pin] preparing: Preparing<S>, call: Option<ToolCall> },
        // Waiting for the response.
        Called { #[pin] fut: Option<F> },
        // Refused before it was sent; `None` once the error was returned.
        Refused { error: Option<ToolError> },
    }
}

/// What it takes to ask for a token and to send the call with it: of a call without one, and of one whose token may have been
/// revoked.
pub(super) struct Again<S, X> {
    pub(super) call: ToolCall,
    pub(super) request: TokenRequest,
    pub(super) shared: Arc<lane::Kept<Shared<S, X>>>,
    /// With which it was sent.
    pub(super) token: Option<Kept>,
    /// The server's answer to that.
    pub(super) refused: Option<ToolError>,
}

impl<S, F> State<S, F> {
    pub(super) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, F, X> ResponseFuture<S, F, X> {
    pub(super) fn new(state: State<S, F>, info: CallInfo, again: Option<Again<S, X>>) -> Self {
        let info = Some(info);
        Self { state, info, again }
    }

    #[inline]
    pub(super) fn call(svc: &mut S, call: ToolCall, again: Option<Again<S, X>>) -> Self
    where
        S: Service<ToolCall, Future = F>,
    {
        let (mut info, mut again) = (Some(call.info()), Some(again));
        call.release();
        call_in_place(svc, call, |fut| Self {
            state: State::Called { fut: Some(fut) },
            info: info.take(),
            again: again.take().flatten(),
        })
    }

    pub(super) fn asking(again: Again<S, X>) -> Self
    where
        X: Service<ToolCall, Response = Token> + Clone + Send + 'static,
        X::Error: Into<ToolError>,
        X::Future: Send,
    {
        Self::new(again.ask(), again.call.info(), Some(again))
    }
}

impl<S, X> Again<S, X>
where
    X: Service<ToolCall, Response = Token> + Clone + Send + 'static,
    X::Error: Into<ToolError>,
    X::Future: Send,
{
    fn ask<F>(&self) -> State<S, F> {
        let (exchange, settings) = &self.shared.settings;
        State::Asking {
            asking: exchange.ask(&self.call, self.request.clone(), settings),
            limit: WaitLimit::of(&self.call),
        }
    }

    /// Whether a server has refused the token with which the call was sent: by a status on the tool
    /// service's own connection, and so without doing anything.
    fn is_refused(&self, error: &ToolError) -> bool {
        let is_401 = error.status().is_some_and(|status| status == 401);
        let is_unsent = error.execution() == Execution::NotStarted && !error.is_after_ambiguous();
        self.token.is_some() && is_401 && is_unsent && error.evidence() == Evidence::Word
    }

    /// The error of a call that has no token. What its caller says goes before what the server has said, and that before what the provider says.
    fn give_up(self, error: ToolError) -> ToolError {
        match (GivenUp::by(&self.call), self.refused) {
            (Some(GivenUp::Cancelled), _) => GivenUp::Cancelled.error(),
            (_, Some(refused)) => refused,
            (Some(why), None) => why.error(),
            (None, None) => error,
        }
    }

    /// The call with its token, to be sent a last time.
    fn send<F>(mut self, token: Kept) -> State<S, F>
    where
        S: Clone,
    {
        if self.refused.is_some() {
            self.call.next_attempt();
        }
        let token = UpstreamToken::new(token.token);
        self.call.extensions_mut().insert(token);
        State::Preparing {
            preparing: Preparing::new(self.shared.fresh(), &self.call),
            call: Some(self.call),
        }
    }
}

impl<S, X> Future for ResponseFuture<S, S::Future, X>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    X: Service<ToolCall, Response = Token> + Clone + Send + 'static,
    X::Error: Into<ToolError>,
    X::Future: Send,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let info = this.info.as_ref().expect("there from the beginning");
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Called { fut } => {
                    let result = ready!(inner::poll(fut, cx)).map_err(Into::into);
                    match (result, this.again.as_mut()) {
                        (Err(error), Some(again)) if again.is_refused(&error) => {
                            if let Some(token) = again.token.take() {
                                again.shared.settings.0.forget(&again.request, &token);
                            }
                            again.refused = Some(error);
                            info.end_attempt(true);
                            again.ask()
                        }
                        (result, _) => {
                            return Poll::Ready(result.map_err(|e| e.for_call(info)));
                        }
                    }
                }
                StateProj::Asking { asking, limit } => {
                    let result = match asking.as_mut().poll(cx) {
                        Poll::Ready(result) => result,
                        Poll::Pending => Err(ready!(limit.poll(cx)).error()),
                    };
                    let again = this.again.take().expect("kept while a token is asked for");
                    match result {
                        Ok(token) => again.send(token),
                        Err(error) => State::refused(again.give_up(error)),
                    }
                }
                StateProj::Preparing { preparing, call } => match ready!(preparing.poll(cx)) {
                    Ok(svc) => {
                        let call = call.take().expect("called once");
                        State::Called {
                            fut: Some(svc.call(call)),
                        }
                    }
                    Err(why) => State::refused(why.into_error()),
                },
                StateProj::Refused { error } => {
                    let error = error.take().expect("polled after completion");
                    return Poll::Ready(Err(error.for_call(info)));
                }
            };
            // Drops what was waited for.
            this.state.set(next);
        }
    }
}

impl<S, F, X> fmt::Debug for ResponseFuture<S, F, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Asking { .. } => "Asking",
            State::Preparing { .. } => "Preparing",
            State::Called { .. } => "Called",
            State::Refused { .. } => "Refused",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
