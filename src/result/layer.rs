use std::any::type_name;

use tower_layer::Layer;

use super::service::ToolResultService;
use crate::{flow::Prepared, outcome::ByError};

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
    /// Makes a layer for which every answer is a success, unless the tool service has
    /// [reported](crate::Record::set_reported) an error.
    pub fn new() -> Self {
        Self {
            classifier: ByError,
        }
    }
}

impl<C> ToolResultLayer<C> {
    /// Sets the classifier that decides whether an `Ok` is an error result. Default: an `Ok` is a
    /// success. With any classifier an error that the tool service has
    /// [reported](crate::Record::set_reported) is an error result, as `McpService` does for
    /// `isError`.
    pub fn with_classifier<D>(self, classifier: D) -> ToolResultLayer<D> {
        ToolResultLayer { classifier }
    }
}

impl<S, C: Clone> Layer<S> for ToolResultLayer<C> {
    type Service = ToolResultService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ToolResultService {
            inner: Prepared::new(inner),
            classifier: self.classifier.clone(),
        }
    }
}

crate::text::debug_fields! {
    {C} |_| ToolResultLayer<C> { classifier: format_args!("{}", type_name::<C>()) }
}
