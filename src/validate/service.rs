use std::sync::Arc;

use super::layer::Settings;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::{Gate, Readiness, service},
};

service! {
    /// Checks the arguments of calls. See the [module docs](super) for an example.
    Validate<S>, Checks => CallInfo
}

#[derive(Clone)]
pub(super) struct Checks(pub(super) Arc<Settings>);

impl<Res> Gate<Res> for Checks {
    type Ticket = CallInfo;

    #[inline]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<CallInfo, ToolError> {
        let info = call.info();
        self.0.admit(call, &info)?;
        Ok(info)
    }
}
