use std::pin::Pin;

use tokio::time::Instant;

use super::policy::RetryPolicy;
use crate::{
    error::{Execution, ToolError},
    kit::attempts::{Repeat, Request, Resend, Wait, response_future},
    outcome::Classify,
};

response_future! {
    /// Response future for [`Retry`](super::Retry).
    Pin<Box<Wait<S>>>, RetryPolicy<C>, ByPolicy
}

/// Repeats a call as its policy decides.
pub(super) struct ByPolicy;

impl<S, C, Res> Repeat<S, RetryPolicy<C>, Res> for ByPolicy
where
    C: Classify<Res>,
{
    fn decide(
        &mut self,
        request: &mut Request<S, RetryPolicy<C>>,
        result: &mut Result<Res, ToolError>,
    ) -> Option<Instant> {
        match request {
            Request::Once { .. } => None,
            Request::Again(resend) => {
                let Some(at) = decide(resend, result.as_mut().map(|answer| &*answer)) else {
                    if let Err(error) = result {
                        resend.settings().judge(&resend.call, error);
                    }
                    return None;
                };
                resend.call.keep_job(result.as_ref().err());
                Some(at)
            }
        }
    }

    /// Counts as an attempt, but nothing was sent.
    fn not_ready(
        &mut self,
        resend: &mut Resend<S, RetryPolicy<C>>,
        error: ToolError,
    ) -> Result<Instant, ToolError> {
        resend.begin_attempt();
        let error = resend.met(error);
        let mut sure = error.clone().with_execution(Execution::NotStarted);
        let error = error.unsent();
        match decide(resend, Err(&mut sure)) {
            Some(at) => {
                resend.failed = Some(error);
                Ok(at)
            }
            None => Err(resend.end(error)),
        }
    }
}

fn decide<S, C, Res>(
    resend: &Resend<S, RetryPolicy<C>>,
    result: Result<&Res, &mut ToolError>,
) -> Option<Instant>
where
    C: Classify<Res>,
{
    resend.settings().decide(&resend.call, result)
}
