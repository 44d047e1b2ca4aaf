use std::{fmt, sync::Arc};

use tower_layer::Layer;

use super::{Resolve, service::IdentityService};

/// Layer that resolves the names of calls. See the [module docs](super) for an example.
#[derive(Clone)]
#[must_use]
pub struct IdentityLayer {
    tools: Arc<dyn Resolve>,
}

impl IdentityLayer {
    /// A layer that asks this table.
    pub fn new(tools: impl Resolve) -> Self {
        Self {
            tools: Arc::new(tools),
        }
    }
}

impl<S> Layer<S> for IdentityLayer {
    type Service = IdentityService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdentityService::new(inner, Arc::clone(&self.tools))
    }
}

impl fmt::Debug for IdentityLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityLayer").finish_non_exhaustive()
    }
}
