use std::{sync::Arc, time::Duration};

use serde::{Serialize, Serializer};

use super::{
    gate::MAX_COOLDOWN,
    keyed::{KeyGate, Shared},
};
use crate::{
    call::ToolCall,
    event::transition::millis,
    kit::registry::{Entry, Registry},
    text::Short,
};

/// Reads the cooldowns of a layer, ends them, and begins others.
///
/// Cheap to clone. Keeps working when the layer and its services are gone.
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall::{ToolCall, rate_limit::RateLimitBackoffLayer};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let layer = RateLimitBackoffLayer::new();
/// let handle = layer.handle();
///
/// let search = ToolCall::new("search").with_server("docs");
/// handle.cool(&search, Duration::from_secs(60)); // another process has met the limit
/// assert!(handle.remaining(&search).is_some());
/// handle.clear(&search);
/// assert!(handle.cooldowns().is_empty());
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimitHandle {
    pub(super) registry: Registry<KeyGate>,
    pub(super) shared: Arc<Shared>,
}

impl RateLimitHandle {
    /// Returns how many calls shared one state because the function of [`Key::by`](crate::Key::by)
    /// picked an empty text for them. The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.registry.inert().calls()
    }

    /// Returns how long a cooldown still holds back the calls with this call's key; `None` if there
    /// is none. Of the call only what the key is made of matters. The gradual return after a
    /// cooldown is not counted.
    pub fn remaining(&self, call: &ToolCall) -> Option<Duration> {
        let entry = self.registry.peek(&call.info())?;
        entry.value().remaining(self.shared.now())
    }

    /// Returns every key that cools down now, in the order of server and tool.
    pub fn cooldowns(&self) -> Vec<Cooldown> {
        let now = self.shared.now();
        let entries = self.registry.entries();
        let cooling = |entry: &Arc<Entry<KeyGate>>| {
            Some(Cooldown {
                server: entry.server().map(str::to_owned),
                tool: entry.name().map(str::to_owned),
                remaining: entry.value().remaining(now)?,
            })
        };
        entries.iter().filter_map(cooling).collect()
    }

    /// Ends the cooldown of this call's key, and the gradual return after it: calls are sent
    /// immediately from now on. A call that waits already is sent when its own wait ends.
    pub fn clear(&self, call: &ToolCall) {
        if let Some(entry) = self.registry.peek(&call.info()) {
            self.shared.clear(&entry);
        }
    }

    /// Ends the cooldowns of all keys.
    pub fn clear_all(&self) {
        let entries = self.registry.entries();
        entries.iter().for_each(|entry| self.shared.clear(entry));
    }

    /// Begins a cooldown for this call's key, as if a server had asked for it: for at most one day.
    /// A longer current cooldown stays. Does nothing if the cooldown is zero, or if all places for
    /// keys are taken.
    pub fn cool(&self, call: &ToolCall, cooldown: Duration) {
        if cooldown.is_zero() {
            return;
        }
        let make = || KeyGate::new(&self.shared);
        let entry = self.registry.get_known(&call.info(), make);
        self.shared
            .begin(&entry, None, cooldown.min(MAX_COOLDOWN), true);
    }
}

crate::text::debug_fields! { {} |this| RateLimitHandle { settings: this.shared.settings, .. } }

/// A key that cools down.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cooldown {
    /// The server part of the key, the first 256 bytes.
    pub server: Option<String>,
    /// The tool part of the key, or the result of a key function, the first 256 bytes.
    pub tool: Option<String>,
    /// How long its calls are still held back. In JSON as whole milliseconds, rounded up.
    #[serde(rename = "remaining_ms", serialize_with = "in_millis")]
    pub remaining: Duration,
}

fn in_millis<S: Serializer>(remaining: &Duration, to: S) -> Result<S::Ok, S::Error> {
    millis::serialize(&Some(*remaining), to)
}

crate::text::debug_fields! {
    /// Shows the key short and redacted, as events do.
    {} |this| Cooldown {
        server: this.server.as_deref().map(Short::name),
        tool: this.tool.as_deref().map(Short::name),
        remaining,
    }
}
