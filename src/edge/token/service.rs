use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    UpstreamToken,
    answer::Token,
    exchange::Exchange,
    future::{Again, ResponseFuture, State},
    layer::{Needs, Settings},
    subject::TokenRequest,
};
use crate::{
    call::ToolCall,
    error::{ErrorKind, ToolError},
    kit::{
        attempts::Template,
        lane::Spread,
        preparing::Preparing,
        ready::{Prepared, Taken},
    },
};

/// The state that the services of a layer share, with an instance to clone.
pub(super) type Shared<S, X> = Template<S, (Exchange<X>, Arc<Settings>)>;

/// Gives calls the token of their tool. See the [module docs](super) for an example.
pub struct Tokens<S, X> {
    inner: Prepared<S>,
    shared: Spread<Shared<S, X>>,
}

impl<S, X> Tokens<S, X> {
    pub(super) fn new(inner: S, shared: Spread<Shared<S, X>>) -> Self {
        let inner = Prepared::new(inner);
        Self { inner, shared }
    }
}

impl<S: Clone, X> Clone for Tokens<S, X> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: self.shared.clone(),
        }
    }
}

crate::kit::inner::accessors!(@kept {S, X} Tokens<S, X>, inner.svc);

impl<S, X> Tokens<S, X>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    /// Sends a call that has what it needs.
    fn send(
        &mut self,
        call: ToolCall,
        again: Option<Again<S, X>>,
    ) -> ResponseFuture<S, S::Future, X> {
        let info = call.info();
        match self.inner.take() {
            Taken::Ready => ResponseFuture::call(self.inner.get(), call, again),
            Taken::Wait(svc) => {
                let preparing = Preparing::new(svc, &call);
                let call = Some(call);
                ResponseFuture::new(State::Preparing { preparing, call }, info, again)
            }
            Taken::Failed(error) => ResponseFuture::new(State::refused(error), info, None),
        }
    }

    fn refuse(&mut self, call: &ToolCall, error: ToolError) -> ResponseFuture<S, S::Future, X> {
        self.inner.renew();
        ResponseFuture::new(State::refused(error), call.info(), None)
    }
}

impl<S, X> Service<ToolCall> for Tokens<S, X>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    X: Service<ToolCall, Response = Token> + Clone + Send + 'static,
    X::Error: Into<ToolError>,
    X::Future: Send,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future, X>;

    /// Always ready.
    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let (exchange, settings) = &self.shared.settings;
        let needs = settings.needs(&call);
        if let Needs::Nothing = needs {
            return self.send(call, None);
        }
        let Some(subject) = call.subject_token().cloned() else {
            let text =
                "the call has no token of the one for whom it is made, or a longer one than 16 KiB";
            let error = ToolError::refusal(ErrorKind::Denied, text);
            return self.refuse(&call, error);
        };
        let target = match needs {
            Needs::Token(target) => target,
            Needs::Subject | Needs::Nothing => {
                call.extensions_mut().insert(UpstreamToken::new(subject));
                return self.send(call, None);
            }
        };
        let request = TokenRequest::new(subject, target);
        let again = |call: &ToolCall, token| Again {
            call: call.copy(),
            request: request.clone(),
            shared: self.shared.keep(),
            token,
            refused: None,
        };
        match exchange.kept(&call, &request) {
            Some(kept) => {
                let again = kept
                    .is_refusable()
                    .then(|| again(&call, Some(kept.clone())));
                call.extensions_mut().insert(UpstreamToken::new(kept.token));
                self.send(call, again)
            }
            None => {
                let again = again(&call, None);
                // Nothing is reserved while the provider is asked.
                self.inner.renew();
                ResponseFuture::asking(again)
            }
        }
    }
}

impl<S: fmt::Debug, X> fmt::Debug for Tokens<S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("inner", &self.inner)
            .field("settings", &self.shared.settings.1)
            .finish_non_exhaustive()
    }
}
