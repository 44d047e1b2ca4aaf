use std::any::type_name;

use tower_layer::Layer;

use super::{handle::Metrics, service::MetricsService};
use crate::outcome::ByError;

/// Layer that counts and times calls, made by [`Metrics::layer`]. See the [module docs](super) for
/// an example.
#[derive(Clone)]
#[must_use]
pub struct MetricsLayer<C = ByError> {
    pub(super) metrics: Metrics,
    pub(super) classifier: C,
}

impl<C> MetricsLayer<C> {
    /// Sets the classifier that decides whether an `Ok` is an error result
    /// ([`Outcome::is_reported`](crate::Outcome::is_reported)). Default: an `Ok` is a success,
    /// unless the leaf has [reported](crate::Record::set_reported) an error, as `McpService` does
    /// (`isError`). That holds with any classifier.
    pub fn with_classifier<D>(self, classifier: D) -> MetricsLayer<D> {
        MetricsLayer {
            metrics: self.metrics,
            classifier,
        }
    }
}

impl<S, C: Clone> Layer<S> for MetricsLayer<C> {
    type Service = MetricsService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        MetricsService::new(inner, self.clone())
    }
}

crate::text::debug_fields! {
    {C} |this| MetricsLayer<C> {
        metrics: this.metrics,
        classifier: format_args!("{}", type_name::<C>()),
    }
}
