use std::sync::Arc;

use super::layer::Settings;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::{Flow, Gate, Gated, Readiness},
};

/// Checks the arguments of calls. See the [module docs](super) for an example.
pub type Validate<S> = Gated<S, Checks>;

/// Response future for [`Validate`].
pub type ResponseFuture<S, F> = Flow<S, F, CallInfo>;

#[derive(Clone)]
pub struct Checks(pub(super) Arc<Settings>);

crate::text::opaque_debug!({} Checks);

impl<Res> Gate<Res> for Checks {
    type Ticket = CallInfo;

    #[inline]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<CallInfo, ToolError> {
        let info = call.info();
        self.0.admit(call, &info)?;
        Ok(info)
    }
}
