use super::{Health, registry::Visit};
use crate::flow::{Flow, Gated};

/// Records in a [`Health`] registry how calls end. See the [module docs](super) for an example.
pub type HealthService<S> = Gated<S, Health>;

/// Response future for [`HealthService`].
pub type ResponseFuture<S, F> = Flow<S, F, Visit>;
