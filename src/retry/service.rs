use std::{
    fmt,
    task::{Context, Poll},
};

use tokio::time::Instant;
use tower_service::Service;

use super::policy::RetryPolicy;
use crate::{
    call::{Claim, ToolCall},
    error::{Execution, ToolError},
    flow::again::{After, Again, Arrival, Repeated, Way, response_future},
    kit::{
        attempts::{Attempts, Resend, Template},
        lane::Spread,
    },
    outcome::{ByError, Classify},
};

response_future! {
    Retry<S, C>, Attempts<S, RetryPolicy<C>>, where { C: Classify<S::Response>, }
}

/// Repeats calls that failed. See the [module docs](super) for an example.
pub struct Retry<S, C = ByError> {
    inner: S,
    shared: Spread<Template<S, RetryPolicy<C>>>,
}

impl<S, C> Retry<S, C> {
    pub(super) fn new(inner: S, shared: Spread<Template<S, RetryPolicy<C>>>) -> Self {
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

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let made = call.attempt();
        let attempts = match self.shared.settings.begin(&call) {
            Some(attempts) => {
                let records = call.begin_repeated(attempts);
                let shared = self.shared.keep();
                let claim = (Claim::Retry, made);
                Attempts::Many(Resend::new(call.copy(), shared, claim, records))
            }
            None => Attempts::Once(call.info(), made),
        };
        Repeated::call(&mut self.inner, call, &mut Arrival::new(attempts), |flow| {
            ResponseFuture { flow }
        })
    }
}

impl<S, C> Again<S> for Attempts<S, RetryPolicy<C>>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response>,
{
    fn stamp(&self, error: ToolError) -> ToolError {
        error.for_call(&self.info())
    }

    fn admit(&mut self, call: &mut ToolCall) -> Result<Way, ToolError> {
        self.begin(call);
        Ok(Way::Go)
    }

    fn gave_up(&mut self, error: ToolError) -> ToolError {
        Self::gave_up(self, error)
    }

    /// Counts as an attempt, but nothing was sent.
    fn not_ready(&mut self, call: &mut ToolCall, error: ToolError) -> Result<(S, Way), ToolError> {
        self.begin(call);
        let error = self.met(error);
        let mut sure = error.clone().with_execution(Execution::NotStarted);
        let error = error.unsent();
        if let Some(resend) = self.resend()
            && let Some(at) = decide::<_, _, S::Response>(resend, Err(&mut sure))
        {
            resend.failed = Some(error);
            return Ok((resend.fresh(), Way::Until(at)));
        }
        Err(self.end(error))
    }

    fn again(&mut self, result: Result<S::Response, ToolError>) -> After<S, S::Response> {
        let mut result = result.map_err(|e| self.met(e));
        let Some(resend) = self.resend() else {
            return After::End(result);
        };
        let at = decide(resend, result.as_mut().map(|answer| &*answer));
        match result.as_mut() {
            result if at.is_some() => resend.call.keep_job(result.err().map(|e| &*e)),
            Err(error) => resend.settings().judge(&resend.call, error),
            Ok(_) => {}
        }
        self.next(at.map(Way::until), result)
    }
}

#[inline]
fn decide<S, C, Res>(
    resend: &Resend<S, RetryPolicy<C>>,
    result: Result<&Res, &mut ToolError>,
) -> Option<Instant>
where
    C: Classify<Res>,
{
    resend.settings().decide(&resend.call, result)
}

impl<S: fmt::Debug, C> fmt::Debug for Retry<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("policy", &self.shared.settings)
            .finish()
    }
}
