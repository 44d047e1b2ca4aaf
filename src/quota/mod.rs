//! A layer that limits the calls of a key per period.
//!
//! | at a glance | |
//! |---|---|
//! | does | spends units that come back at an even rate |
//! | place | outside deadline and retry |
//! | default | none: the quota is required; a call waits for its turn, 30 s at most |
//! | the caller sees | [`RateLimited`](crate::ErrorKind::RateLimited), not started |
//! | method | `ServiceBuilderExt::tool_quota` |
//!
//! A [`Quota`] is a bucket of units. A call takes one unit ([or more](QuotaBuilder::with_cost));
//! units come back one by one at an even rate: 60 per minute are one per second. The bucket's size
//! is the burst: the units that can be used together after a time without calls. By default it is
//! what comes back in a period. In any time `t`, calls use at most `burst + units * t / period`
//! units. A call passes immediately if its units are there. Each tool of each server has its own
//! bucket ([`Key`](crate::Key)).
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ToolCall,
//!     quota::{Quota, QuotaLayer},
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), AnyError> {
//! let tool = service_fn(|_call: ToolCall| async {
//!     Ok::<_, AnyError>("done")
//! });
//! let quota = Quota::per_minute(60)?.with_burst(2)?;
//! let stack = ServiceBuilder::new()
//!     .layer(QuotaLayer::new(quota))
//!     .service(tool);
//!
//! // Two immediately, then one per second.
//! let start = Instant::now();
//! for seconds in [0, 0, 1, 2] {
//!     stack.clone().oneshot(ToolCall::new("search")).await?;
//!     assert_eq!(start.elapsed().as_secs(), seconds);
//! }
//! # Ok(()) }
//! ```
//!
//! A quota for each agent, with an expensive tool, and without waiting:
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, ErrorKind, Key, ToolCall,
//!     quota::{Quota, QuotaLayer},
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), AnyError> {
//! let layer = QuotaLayer::builder(Quota::per_hour(100)?)
//!     .with_keys(Key::by(|call| call.agent_id().unwrap_or("")))
//!     .with_tool_cost("deep_research", 60)
//!     .with_fail_fast()
//!     .build()?;
//! let quotas = layer.handle();
//! let tool = service_fn(|_call: ToolCall| async { Ok::<_, AnyError>("done") });
//! let stack = ServiceBuilder::new().layer(layer).service(tool);
//!
//! let call = ToolCall::new("deep_research").with_agent_id("planner");
//! stack.clone().oneshot(call.clone()).await?;
//! assert_eq!(quotas.remaining(&call), 40);
//! let error = stack.oneshot(call).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::RateLimited);
//! assert_eq!(error.retry_after_seconds(), Some(20 * 36)); // until there are 60 again
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! [`RateLimited`](crate::ErrorKind::RateLimited), not started, with `retry_after`: the time until
//! the call's units are there, if no other call takes them. It is a
//! [refusal](crate::ToolError::is_own_refusal): no retry layer repeats it, no breaker counts it and
//! no cooldown begins. [`InvalidInput`](crate::ErrorKind::InvalidInput) with the code
//! [`QUOTA_IMPOSSIBLE`], not started, for a call that costs more than the burst.
//! [`Cancelled`](crate::ErrorKind::Cancelled), not started, if the caller cancelled during the
//! wait; [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded), not started, if the inner
//! service became ready too late. Errors of the inner service pass, stamped with the call's names;
//! an inner readiness error is the result of the call that meets it.
//!
//! # Cancel safety
//!
//! A future that is dropped before its call was sent gives the units back. They are lost only if
//! the call's turn has come by then, and others wait behind it.
//!
//! # Differences from `tower::limit::RateLimit`
//!
//! `RateLimit` has one limit for all calls, and cannot be cloned. It counts calls in windows of
//! fixed length, so that twice as many as granted can pass around the end of a window. Callers wait
//! in `poll_ready` without a bound. Here each key has a bucket, services are cloned, and a call
//! that cannot have its turn in time is refused. A call that does not wait allocates nothing in
//! both.
//!
//! # Details
//!
//! What happens to a call:
//!
//! - **Its units are there**: it takes them and is sent. They are used up, however it ends.
//! - **They will be there in time**: it takes them in advance and waits for its turn: for 30 s at
//!   most ([`with_max_wait`](QuotaBuilder::with_max_wait)), not beyond its deadline, and not after
//!   its caller has cancelled. Turns come in the order in which calls came. A waiting call holds no
//!   reservation of the inner service.
//! - **They will not be there in time**, or the layer [fails fast](QuotaBuilder::with_fail_fast):
//!   it is refused immediately, with the time until they are.
//! - **Its future is dropped before it was sent**: it gives its units back. Calls that wait behind
//!   it keep their turns. The next call that has to wait gets the returned one.
//!
//! The numbers are your own, and hold before a server has said anything. After a server's 429,
//! [`rate_limit`](crate::rate_limit) acts.
//!
//! ## Order
//!
//! If the quota is what a caller may use: outside deadline, poll and retry. A call then costs its
//! units once, however often it is sent or its job is asked for, and its wait does not use up the
//! time of the tool. If it is what a server grants: directly outside the rate-limit layer, so that
//! each attempt costs.
//!
//! The layer is always ready: back-pressure ends here. If the inner service is not ready for a
//! call, the call waits for that first, and takes its units when it is about to be sent.
//!
//! ## Bounds
//!
//! At most 10,000 keys are kept ([`Keys`](crate::Keys)). Keys with a full bucket are evicted before
//! others. A key that is evicted too early begins with a full bucket when it comes back. If all
//! places are taken, calls with new keys pass without a quota: in a shared bucket a caller who
//! invents names would use up the units of others. So a key should be something that callers cannot
//! invent, such as an agent that was authenticated, or a tool inside an
//! [`IdentityLayer`](crate::identity).
//!
//! The longest wait bounds the number of calls of a key that wait. The time between two units is a
//! whole number of nanoseconds, rounded up.
//!
//! When its turn has come, a call is sent as soon as its future is polled and the inner service is
//! ready. If that is late for several calls, they are sent together, although their turns came one
//! after the other.
//!
//! ## Panics
//!
//! A call that has to wait panics outside a tokio runtime, or in one without the time driver. A
//! panic of a function for the key or the cost passes to the caller of the service; nothing was
//! taken by then.
//!
//! ## Clone
//!
//! All services made from one layer value, or from its clones, share the buckets. Readiness is not
//! shared.

mod bucket;
mod gcra;
mod handle;
mod layer;
mod limit;
mod rate;

#[doc(inline)]
pub use crate::error::QUOTA_IMPOSSIBLE;

pub use self::{
    handle::QuotaHandle,
    layer::{QuotaBuilder, QuotaLayer},
    limit::{QuotaService, ResponseFuture},
    rate::Quota,
};
pub use crate::kit::keyed::KeyedBuilder;
