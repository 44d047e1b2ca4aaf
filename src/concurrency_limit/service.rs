use super::{
    handle::ConcurrencyLimitHandle,
    limit::{KeyLimit, Place},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::{Flow, Gate, Gated, Held, Readiness},
    kit::limit,
};

/// Bounds how many calls of a key run at a time. See the [module docs](super) for an example.
pub type ConcurrencyLimit<S> = Gated<S, ConcurrencyLimitHandle>;

/// Response future for [`ConcurrencyLimit`].
pub type ResponseFuture<S, F> = Flow<S, F, Held<Place>>;

impl<Res> Gate<Res> for ConcurrencyLimitHandle {
    type Ticket = Held<Place>;

    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Held<Place>, ToolError> {
        let info = call.info();
        self.settings.tools.look(call);
        let entry = self
            .registry
            .keep(&info, || KeyLimit::new(&self.settings, call));
        let own = Place::new(entry);
        if !ready.is_yes() {
            limit::check(call)?;
            own.refusal(call).map_or(Ok(()), Err)?;
        }
        Ok(Held { info, own })
    }
}
