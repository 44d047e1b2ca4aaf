use std::sync::{Arc, Weak};

use crate::event::{Event, Listen};

/// The listeners of a stack.
#[derive(Clone, Default)]
pub(super) struct Listeners(Vec<Arc<dyn Listen>>);

impl Listeners {
    pub(super) fn add(&mut self, listen: impl Listen + 'static) {
        self.0.push(Arc::new(listen));
    }

    /// Gives them to a layer, if there are any: a layer without a listener keeps less of a call.
    pub(super) fn of<L>(self: &Arc<Self>, layer: L, set: impl FnOnce(L, Arc<Self>) -> L) -> L {
        match self.0.is_empty() {
            true => layer,
            false => set(layer, Arc::clone(self)),
        }
    }
}

impl Listen for Listeners {
    fn on(&self, event: &Event<'_>) {
        for listen in &self.0 {
            listen.on(event);
        }
    }

    fn includes(&self, other: &Weak<dyn Listen>) -> bool {
        self.0.iter().any(|listen| listen.includes(other))
    }
}
