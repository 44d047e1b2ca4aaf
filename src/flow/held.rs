use super::Ticket;
use crate::call::CallInfo;

/// The ticket of a layer that does not care whether its calls are dropped or panic: what the layer
/// holds for a call.
pub struct Held<T> {
    pub(crate) info: CallInfo,
    pub(crate) own: T,
}

impl<T> Ticket for Held<T> {
    const REPORTS: bool = false;

    fn info(&self) -> &CallInfo {
        &self.info
    }
}

crate::text::opaque_debug!({T} Held<T>);
