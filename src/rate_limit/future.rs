use super::{gated::Gated, keyed::Gates};
use crate::kit::attempts::{Wait, response_future};

response_future! {
    /// Response future for [`RateLimitBackoff`](super::RateLimitBackoff).
    Wait<S>, Gates, Gated<C>
}
