use super::Ticket;
use crate::call::CallInfo;

/// The ticket of a layer to which drops and panics do not matter. Keeps a value of the layer.
pub struct Held<T> {
    pub(crate) info: CallInfo,
    pub(crate) own: T,
}

impl<T> Ticket for Held<T> {
    type Times = ();

    fn info(&self) -> &CallInfo {
        &self.info
    }
}

crate::text::debug_fields! { {T} |_| Held<T> { .. } }
