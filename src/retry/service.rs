use tower_service::Service;

use super::policy::RetryPolicy;
use crate::{
    call::{Claim, ToolCall},
    error::{Execution, ToolError},
    flow::{
        Step,
        again::{After, Again, Before, Enter, Repeated, Repeats, Shared, Way},
    },
    kit::attempts::{Attempts, Resend},
    outcome::{ByError, Classify},
};

/// Repeats calls that failed. See the [module docs](super) for an example.
pub type Retry<S, C = ByError> = Repeats<S, RetryPolicy<C>>;

/// Response future for [`Retry`].
pub type ResponseFuture<S, F, C = ByError> = Repeated<S, F, Attempts<S, RetryPolicy<C>>>;

impl<S, C> Enter<S> for RetryPolicy<C>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response>,
{
    type Ticket = Attempts<S, RetryPolicy<C>>;

    const PASSES: bool = true;

    fn enter(shared: &Shared<S, Self>, call: &mut ToolCall) -> Result<Self::Ticket, ToolError> {
        let made = call.attempt();
        let policy = &shared.settings;
        let granted = policy.grants(call);
        Ok(match granted.filter(|_| !call.take_claim(Claim::Retry)) {
            Some(attempts) => {
                policy.deposit(call);
                let records = call.begin_repeated(attempts);
                let claim = (Claim::Retry, made);
                Attempts::Many(Resend::new(call.copy(), shared.keep(), claim, records))
            }
            None => Attempts::Once(call.info(), made),
        })
    }
}

impl<S, C> Before<S> for Attempts<S, RetryPolicy<C>>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response>,
{
    fn admit(&mut self, call: &mut ToolCall) -> Result<Way, ToolError> {
        self.begin(call);
        Ok(Way::Go)
    }

    fn gave_up(&mut self, error: ToolError, _: Step) -> ToolError {
        Self::gave_up(self, error)
    }

    /// Counts as an attempt, but nothing was sent.
    fn not_ready(&mut self, call: &mut ToolCall, error: ToolError) -> Result<(S, Way), ToolError> {
        self.begin(call);
        let error = self.met(error);
        let mut sure = error.clone().with_execution(Execution::NotStarted);
        let error = error.unsent();
        if let Some(resend) = self.resend()
            && let policy = &resend.template.settings
            && let Some(at) = policy.decide::<S::Response>(&resend.call, Err(&mut sure))
        {
            resend.failed = Some(error);
            return Ok((resend.template.fresh(), Way::Until(at)));
        }
        Err(self.end(error))
    }
}

impl<S, C> Again<S> for Attempts<S, RetryPolicy<C>>
where
    S: Service<ToolCall> + Clone,
    C: Classify<S::Response>,
{
    fn again(&mut self, result: Result<S::Response, ToolError>) -> After<S, S::Response> {
        let mut result = result.map_err(|e| self.met(e));
        let Some(resend) = self.resend() else {
            return After::End(result);
        };
        let policy = &resend.template.settings;
        let at = policy.decide(&resend.call, result.as_mut().map(|answer| &*answer));
        match result.as_mut() {
            result if at.is_some() => resend.call.keep_job(result.err().map(|e| &*e)),
            Err(error) => policy.judge(&resend.call, error),
            Ok(_) => {}
        }
        self.next(at.map(Way::until), result)
    }
}
