use serde::{Deserialize, Serialize};

use super::Settings;
use crate::trace::TraceLayer;

/// Which spans there are, and what the span of a call shows: `[trace]`. See [`TraceLayer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TraceSettings {
    /// Whether the redacted arguments stand in it. Default: yes.
    pub arguments: bool,
    /// Whether the redacted answer stands in it. Default: no.
    pub output: bool,
    /// Whether each attempt has a span of its own inside it. Default: no.
    pub attempts: bool,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self {
            arguments: true,
            output: false,
            attempts: false,
        }
    }
}

impl Settings {
    /// The layer for the span of a call alone.
    pub fn trace_layer(&self) -> TraceLayer {
        TraceLayer::new()
            .with_arguments(self.trace.arguments)
            .with_output(self.trace.output)
    }
}
