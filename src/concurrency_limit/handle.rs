use std::sync::Arc;

use serde::Serialize;

use super::limit::{KeyLimit, Settings};
use crate::{
    call::ToolCall,
    kit::registry::{Entry, Registry},
    text::Short,
};

/// Reads how many calls run and wait.
///
/// Cheap to clone. Keeps working when the layer and its services are gone.
///
/// ```
/// use tower_toolcall::{ToolCall, concurrency_limit::ConcurrencyLimitLayer};
///
/// let layer = ConcurrencyLimitLayer::new(8);
/// let handle = layer.handle();
///
/// assert_eq!(handle.running(&ToolCall::new("search")), 0);
/// assert!(handle.loads().is_empty());
/// ```
#[derive(Clone)]
pub struct ConcurrencyLimitHandle {
    pub(super) registry: Registry<KeyLimit>,
    pub(super) settings: Arc<Settings>,
}

impl ConcurrencyLimitHandle {
    /// Returns how many calls shared one state because the function of [`Key::by`](crate::Key::by)
    /// picked an empty text for them. The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.registry.inert().calls()
    }

    /// Returns how many calls with this call's key run. Of the call only what the key is made of
    /// matters.
    pub fn running(&self, call: &ToolCall) -> usize {
        let entry = self.registry.peek(&call.info());
        entry.map_or(0, |entry| entry.value().running())
    }

    /// Returns how many calls with this call's key wait for their turn.
    pub fn waiting(&self, call: &ToolCall) -> usize {
        let entry = self.registry.peek(&call.info());
        entry.map_or(0, |entry| entry.value().waiting())
    }

    /// Returns every key of which calls run or wait, in the order of server and tool.
    pub fn loads(&self) -> Vec<Load> {
        let entries = self.registry.entries();
        let load = |entry: &Arc<Entry<KeyLimit>>| {
            let limit = entry.value();
            let (running, waiting) = (limit.running(), limit.waiting());
            (running + waiting > 0).then(|| Load {
                server: entry.server().map(str::to_owned),
                tool: entry.name().map(str::to_owned),
                running,
                waiting,
            })
        };
        entries.iter().filter_map(load).collect()
    }
}

crate::text::debug_fields! { {} |_| ConcurrencyLimitHandle { settings, .. } }

/// A key of which calls run or wait.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Load {
    /// The server part of the key, the first 256 bytes.
    pub server: Option<String>,
    /// The tool part of the key, or the result of a key function, the first 256 bytes.
    pub tool: Option<String>,
    /// How many calls run.
    pub running: usize,
    /// How many calls wait for their turn.
    pub waiting: usize,
}

crate::text::debug_fields! {
    /// Shows the key short and redacted, as events do.
    {} |this| Load {
        server: this.server.as_deref().map(Short::name),
        tool: this.tool.as_deref().map(Short::name),
        running, waiting,
    }
}
