use super::{asking::Permit, layer::PolicyLayer};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::{Flow, Gate, Gated, Readiness},
    kit::limit,
};

/// Allows calls, denies them, or asks for approval. See the [module docs](super) for an example.
pub type PolicyService<S> = Gated<S, PolicyLayer>;

/// Response future for [`PolicyService`].
pub type ResponseFuture<S, F> = Flow<S, F, Permit>;

impl<Res> Gate<Res> for PolicyLayer {
    type Ticket = Permit;

    #[inline]
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Permit, ToolError> {
        let info = call.info();
        match self.policy.rule_on(call, &info)? {
            None => Ok(Permit::open(info)),
            Some((approver, rule)) => {
                may_ask(call, ready)?;
                Ok(Permit::asked(call, info, &**approver, rule, &self.policy))
            }
        }
    }
}

/// Nobody is asked for a call that cannot be sent. Of arguments that are nested too deeply an
/// approver might not even be able to print, or compare, a copy.
#[cold]
fn may_ask(call: &ToolCall, ready: &Readiness) -> Result<(), ToolError> {
    if let Readiness::Failed(error) = ready {
        return Err(error.clone());
    }
    call.check().map_err(ToolError::into_own_refusal)?;
    limit::check(call)
}
