use super::{Health, registry::Visit};
use crate::flow::service;

service! {
    /// Records in a [`Health`] registry how calls end. See the [module docs](super) for an example.
    HealthService<S>, Health => Visit
}
