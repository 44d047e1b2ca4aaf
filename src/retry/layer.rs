use tower_layer::Layer;

use super::{policy::RetryPolicy, service::Retry};
use crate::{kit::per_tool::ToolNames, outcome::ByError};

/// Layer that repeats calls that failed. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct RetryLayer<C = ByError> {
    policy: RetryPolicy<C>,
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self::new(RetryPolicy::new())
    }
}

impl<C> RetryLayer<C> {
    /// Makes a layer with a policy. Its budget is shared by all services of this layer value and of
    /// its clones, and by all other users of a clone of the policy.
    pub fn new(policy: RetryPolicy<C>) -> Self {
        Self { policy }
    }

    /// Returns the names of tools that have settings of their own, and whether calls have matched
    /// them.
    pub fn tool_names(&self) -> ToolNames {
        self.policy.tool_names()
    }
}

impl<S: Clone, C: Clone> Layer<S> for RetryLayer<C> {
    type Service = Retry<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Retry::new(inner, self.policy.clone())
    }
}
