use super::{
    handle::QuotaHandle,
    limit::{KeyQuota, Units},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::{Flow, Gate, Gated, Held, Readiness},
    kit::limit,
};

/// Gives the calls of a key so many units per period. See the [module docs](super) for an example.
pub type QuotaService<S> = Gated<S, QuotaHandle>;

/// Response future for [`QuotaService`].
pub type ResponseFuture<S, F> = Flow<S, F, Held<Units>>;

impl<Res> Gate<Res> for QuotaHandle {
    type Ticket = Held<Units>;

    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Held<Units>, ToolError> {
        let info = call.info();
        let entry = self
            .registry
            .keep(&info, || KeyQuota::new(&self.settings, call));
        let own = Units::new(entry, self.settings.cost(call));
        if !ready.is_yes() {
            limit::check(call)?;
            own.refusal(call).map_or(Ok(()), Err)?;
        }
        Ok(Held { info, own })
    }
}
