use super::layer::ValidateLayer;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::{Flow, Gate, Gated, Readiness},
};

/// Checks the arguments of calls. See the [module docs](super) for an example.
pub type Validate<S> = Gated<S, ValidateLayer>;

/// Response future for [`Validate`].
pub type ResponseFuture<S, F> = Flow<S, F, CallInfo>;

impl<Res> Gate<Res> for ValidateLayer {
    type Ticket = CallInfo;

    #[inline]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<CallInfo, ToolError> {
        let info = call.info();
        self.settings.admit(call, &info)?;
        // The schema may have named secrets.
        Ok(match call.rules() == info.rules() {
            true => info,
            false => call.info(),
        })
    }
}
