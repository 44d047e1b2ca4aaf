use std::sync::Arc;

use super::limit::{KeyQuota, Settings};
use crate::{call::ToolCall, kit::registry::Registry};

/// Reads the remaining units of the quotas of a layer.
///
/// Cheap to clone. Keeps working when the layer and its services are gone.
///
/// ```
/// use tower_toolcall::{ToolCall, quota::{Quota, QuotaLayer}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_toolcall::ConfigError> {
/// let layer = QuotaLayer::new(Quota::per_minute(60)?);
/// assert_eq!(layer.handle().remaining(&ToolCall::new("search")), 60);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct QuotaHandle {
    pub(super) registry: Registry<KeyQuota>,
    pub(super) settings: Arc<Settings>,
}

impl QuotaHandle {
    /// Returns how many calls shared one state because the function of [`Key::by`](crate::Key::by)
    /// picked an empty text for them. The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.registry.inert().calls()
    }

    /// Returns the units that are left for the key of this call: 0 while calls wait. Only the parts
    /// of the call that make the key matter.
    pub fn remaining(&self, call: &ToolCall) -> u32 {
        match self.registry.peek(&call.info()) {
            Some(entry) => entry.value().bucket.remaining(self.settings.now()),
            None => self.settings.rate(call).burst,
        }
    }
}

crate::text::debug_fields! { {} |_| QuotaHandle { settings, .. } }
