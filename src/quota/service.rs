use super::{
    handle::QuotaHandle,
    limit::{KeyQuota, Tokens},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::{Gate, Readiness, service},
    kit::preparing::GivenUp,
};

service! {
    /// Gives the calls of a key so many tokens per period. See the [module docs](super) for an example.
    QuotaService<S>, QuotaHandle => Tokens
}

impl<Res> Gate<Res> for QuotaHandle {
    type Ticket = Tokens;

    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Tokens, ToolError> {
        let info = call.info();
        let entry = self
            .registry
            .keep(&info, || KeyQuota::new(&self.settings, call));
        let tokens = Tokens::new(info, entry, self.settings.cost(call));
        if !ready.is_yes() {
            GivenUp::refuse(call)?;
            tokens.refusal(call).map_or(Ok(()), Err)?;
        }
        Ok(tokens)
    }
}
