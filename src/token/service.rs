use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::{
    UpstreamToken,
    answer::Token,
    exchange::{Asking, Kept},
    layer::{Needs, TokenLayer},
    target::TokenRequest,
};
use crate::{
    call::{CallExt, CallInfo, ToolCall},
    error::{ErrorKind, Evidence, Execution, ToolError},
    flow::{
        Step,
        again::{After, Again, Before, Enter, Repeated, Repeats, Shared, Way},
    },
    kit::{
        attempts::{self, Template},
        lane, limit,
    },
};

/// Gives calls the token of their tool. See the [module docs](super) for an example.
pub type Tokens<S, X> = Repeats<S, TokenLayer<X>>;

/// Response future for [`Tokens`].
pub type ResponseFuture<S, F, X> = Repeated<S, F, Bearer<S, X>>;

impl<S, X> Enter<S> for TokenLayer<X>
where
    S: Service<ToolCall> + Clone,
    X: Service<ToolCall, Response = Token, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Ticket = Bearer<S, X>;

    fn enter(shared: &Shared<S, Self>, call: &mut ToolCall) -> Result<Self::Ticket, ToolError> {
        let Self { exchange, settings } = &shared.settings;
        let mut bearer = Bearer {
            info: call.info(),
            renewal: None,
            asking: None,
            refused: None,
        };
        let needs = settings.needs(call);
        if let Needs::Nothing = needs {
            return Ok(bearer);
        }
        let Some(subject) = call.subject_token().cloned() else {
            let text =
                "the call has no token of the one for whom it is made, or a longer one than 16 KiB";
            return Err(ToolError::refusal(ErrorKind::Denied, text));
        };
        let Needs::Token(target) = needs else {
            // Hidden since it is on the call.
            call.extensions_mut().insert(UpstreamToken::new(subject));
            return Ok(bearer);
        };
        let request = TokenRequest::new(subject, target);
        let kept = exchange.kept(call, &request);
        if kept.as_ref().is_none_or(Kept::is_refusable) {
            bearer.renewal = Some(Renewal {
                call: call.copy(),
                request,
                shared: shared.keep(),
                token: kept.clone(),
            });
        }
        if let Some(kept) = kept {
            kept.put_on(call);
            bearer.info = call.info();
        }
        Ok(bearer)
    }
}

/// A call with its token, or without one.
pub struct Bearer<S, X> {
    info: CallInfo,
    renewal: Option<Renewal<S, X>>,
    asking: Option<Asking>,
    /// The server's answer to the first token.
    refused: Option<ToolError>,
}

crate::text::debug_fields! { {S, X} |_| Bearer<S, X> { .. } }

/// The parts to ask for a token and to send the call with it. Used for a call without a token, and
/// for a call with a token that may have been revoked.
struct Renewal<S, X> {
    call: ToolCall,
    request: TokenRequest,
    shared: Arc<lane::Kept<Template<S, TokenLayer<X>>>>,
    /// With which it was sent.
    token: Option<Kept>,
}

impl<S, X> Renewal<S, X> {
    /// Returns whether a server has refused the token with which the call was sent: by a status on
    /// the tool service's own connection, and so without doing anything.
    fn is_refused(&self, error: &ToolError) -> bool {
        let is_401 = error.status().is_some_and(|status| status == 401);
        let is_unsent = error.execution() == Execution::NotStarted && !error.is_after_ambiguous();
        self.token.is_some() && is_401 && is_unsent && error.evidence() == Evidence::Reported
    }
}

impl<S, X> Before<S> for Bearer<S, X>
where
    S: Service<ToolCall> + Clone,
    X: Service<ToolCall, Response = Token, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    /// Reserves nothing while the provider is asked.
    fn arrive(&mut self, _: &ToolCall, _: bool) -> Result<Way, ToolError> {
        Ok(match &self.renewal {
            Some(Renewal { token: None, .. }) => Way::Wait,
            _ => Way::Go,
        })
    }

    fn poll_turn(
        &mut self,
        call: &mut ToolCall,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<S::Response>, ToolError>> {
        let asking = self.asking.get_or_insert_with(|| {
            let renewal = self
                .renewal
                .as_ref()
                .expect("kept while a token is asked for");
            let TokenLayer { exchange, settings } = &renewal.shared.settings;
            exchange.ask(&renewal.call, renewal.request.clone(), settings)
        });
        let asked = ready!(asking.as_mut().poll(cx));
        self.asking = None;
        // The call is sent a last time.
        self.renewal = None;
        Poll::Ready(match asked {
            Ok(token) => {
                if self.refused.is_some() {
                    call.next_attempt();
                }
                token.put_on(call);
                self.info = call.info();
                Ok(None)
            }
            Err(error) => {
                let error = limit::check(call).err().unwrap_or(error);
                Err(self.gave_up(error, Step::Wait))
            }
        })
    }

    /// Returns the error to give up with. The caller's cancellation takes precedence over the
    /// server's answer, and that over all else.
    fn gave_up(&mut self, error: ToolError, _: Step) -> ToolError {
        match self.refused.take() {
            Some(refused) if error.kind() != ErrorKind::Cancelled => refused,
            _ => error,
        }
    }

    fn not_ready(&mut self, _: &mut ToolCall, error: ToolError) -> Result<(S, Way), ToolError> {
        Err(self.gave_up(error, Step::Go))
    }
}

impl<S, X> Again<S> for Bearer<S, X>
where
    S: Service<ToolCall> + Clone,
    X: Service<ToolCall, Response = Token, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    fn again(&mut self, result: Result<S::Response, ToolError>) -> After<S, S::Response> {
        let error = match (result, &mut self.renewal) {
            (Err(error), Some(renewal)) if renewal.is_refused(&error) => {
                if let Some(token) = renewal.token.take() {
                    let exchange = &renewal.shared.settings.exchange;
                    exchange.forget(&renewal.request, &token);
                }
                self.info.end_attempt(true);
                self.refused = Some(error.for_call(&self.info));
                return After::Again(renewal.shared.fresh(), renewal.call.copy(), Way::Wait);
            }
            (Err(error), _) => attempts::ended(self.refused.take(), error),
            (Ok(answer), _) => return After::End(Ok(answer)),
        };
        After::End(Err(error.for_call(&self.info)))
    }
}
