use super::{
    handle::QuotaHandle,
    limit::{KeyQuota, Units},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::{Flow, Gate, Gated, Readiness},
    kit::preparing::GivenUp,
};

/// Gives the calls of a key so many units per period. See the [module docs](super) for an example.
pub type QuotaService<S> = Gated<S, QuotaHandle>;

/// Response future for [`QuotaService`].
pub type ResponseFuture<S, F> = Flow<S, F, Units>;

impl<Res> Gate<Res> for QuotaHandle {
    type Ticket = Units;

    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Units, ToolError> {
        let info = call.info();
        let entry = self
            .registry
            .keep(&info, || KeyQuota::new(&self.settings, call));
        let units = Units::new(info, entry, self.settings.cost(call));
        if !ready.is_yes() {
            GivenUp::refuse(call)?;
            units.refusal(call).map_or(Ok(()), Err)?;
        }
        Ok(units)
    }
}
