use super::{gated::Gated, keyed::Gates};
use crate::kit::attempts::response_future;

response_future! {
    /// Response future for [`RateLimitBackoff`](super::RateLimitBackoff).
    Gates, Gated<C>
}
