use std::{any::type_name, fmt};

use tower_layer::Layer;

use super::service::ToolResultService;
use crate::outcome::ByError;

/// Layer that makes a [`ToolResult`](super::ToolResult) of whatever happens. See the
/// [module docs](super) for an example.
#[derive(Clone, Copy)]
#[must_use]
pub struct ToolResultLayer<C = ByError> {
    classifier: C,
}

impl Default for ToolResultLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl ToolResultLayer {
    /// A layer for which every answer is a success.
    pub fn new() -> Self {
        Self {
            classifier: ByError,
        }
    }
}

impl<C> ToolResultLayer<C> {
    /// Sets who tells answers that are errors in the tool's own words from successes. Default: every
    /// `Ok` is a success. For MCP tools: `McpClassifier`.
    pub fn with_classifier<D>(self, classifier: D) -> ToolResultLayer<D> {
        ToolResultLayer { classifier }
    }
}

impl<S, C: Clone> Layer<S> for ToolResultLayer<C> {
    type Service = ToolResultService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ToolResultService::new(inner, self.classifier.clone())
    }
}

impl<C> fmt::Debug for ToolResultLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolResultLayer")
            .field("classifier", &format_args!("{}", type_name::<C>()))
            .finish()
    }
}
