//! A layer that backs off after a server's rate limit, for all calls of a key together.
//!
//! | at a glance | |
//! |---|---|
//! | does | holds back all calls of a key after a rate limit, and repeats the call that met it |
//! | place | inside retry, outside the breaker |
//! | default | 3 attempts; cooldown as the server asks, else 30 s; waits of 300 s at most |
//! | the caller sees | [`RateLimited`](crate::ErrorKind::RateLimited) with `retry_after` |
//! | method | `ServiceBuilderExt::tool_rate_limit` |
//!
//! When a call meets a rate limit (a 429 or another form, by the [classifier](crate::Classify)), a
//! cooldown begins for its key: as long as the server asks, or 30 s if it gives no time. Until it
//! ends no call of that key is sent: each waits for its turn, or is refused immediately if its turn
//! would come too late.
//!
//! After the cooldown the waiting calls are sent one by one, so that they do not meet the limit
//! together again. The rate starts at one call per second and doubles each second. If a call meets
//! the limit again, a new cooldown begins. The next start is at half of the rate that failed, and
//! returns to that rate within ten seconds before it grows further. Two minutes after the last
//! limit, no call is held back.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     ErrorKind, ToolCall, ToolError,
//!     rate_limit::RateLimitBackoffLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let tool = service_fn(|call: ToolCall| async move {
//!     match call.attempt() {
//!         1 => Err(ToolError::new(
//!             ErrorKind::RateLimited,
//!             "429",
//!         )
//!         .with_retry_after(Duration::from_secs(5))),
//!         _ => Ok("done"),
//!     }
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(RateLimitBackoffLayer::new())
//!     .service(tool);
//!
//! let start = Instant::now();
//! assert_eq!(
//!     stack.oneshot(ToolCall::new("search")).await.unwrap(),
//!     "done"
//! );
//! assert!(start.elapsed() >= Duration::from_secs(5));
//! # }
//! ```
//!
//! One limit for a whole server, and no waiting:
//!
//! ```
//! use tower_toolcall::{Key, rate_limit::RateLimitBackoffLayer};
//!
//! # fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let layer = RateLimitBackoffLayer::builder()
//!     .with_keys(Key::Server)
//!     .with_fail_fast()
//!     .build()?;
//! # let _ = layer; Ok(()) }
//! ```
//!
//! [`hint`](crate::hint) reads the delays that a server asks for in headers.
//!
//! # Errors
//!
//! [`RateLimited`](crate::ErrorKind::RateLimited) with `retry_after`: the server's own error after
//! the last attempt, or immediately if the wait would exceed 300 s or the deadline, or if an inner
//! layer refused the next attempt; or ours, not started, for a call that could not have its turn in
//! time; or [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded), if the inner service became
//! ready too late. [`Cancelled`](crate::ErrorKind::Cancelled) if the caller's token fires during
//! the wait. Errors of the inner service pass, stamped with the call's names.
//!
//! # Cancel safety
//!
//! Nothing is lost when the future is dropped: a turn that was given to it is given to the next
//! call that asks. (Calls that wait already keep theirs.) When a cooldown is extended, calls that
//! wait ask again when their old turn comes, so a later call may then be sent before them.
//!
//! # Details
//!
//! The call that met the limit is sent again, at most 3 times in all, if it surely did not run: the
//! tool or its service reports so, by its own error or by a 429 on its own connection. A call that
//! may have run is repeated only if it is marked as [safe](crate::ReplaySafety::Safe). Its last
//! error carries [`retry_after`](crate::ToolError::retry_after).
//!
//! A limit that is known by an error's text alone
//! ([`Evidence::Inferred`](crate::Evidence::Inferred)) delays only its own call, unless
//! [configured](RateLimitBackoffBuilder::with_text_limits). [`RateLimitBackoffLayer::handle`] lists
//! the cooldowns, ends them and begins others.
//!
//! A success may report that it used up the server's grant
//! ([`Outcome::with_cooldown`](crate::Outcome::with_cooldown)); that begins a cooldown as well. So
//! does a failing server that says when it is back, by a 503 with `Retry-After` for example: other
//! calls wait. The call that met it is repeated by a retry layer, not by this one.
//!
//! ## Limits per user
//!
//! If the upstream limits each user, use [`with_keys`](RateLimitBackoffBuilder::with_keys) and
//! [`Key::per_principal`](crate::Key::per_principal): then user B does not wait for A's 429.
//! Settings with `token.endpoint` do so by default.
//!
//! ## Order
//!
//! Outside the breaker, so that a wait holds no probe's place; inside the retry layer, or without
//! one. With an outer retrier, this layer holds calls back and does not repeat them. An inner
//! retrier repeats everything but rate limits, and the attempts of both count together (if an error
//! reports them: an `Ok` that a classifier takes for a limit reports none). So the two never
//! multiply attempts, nor sleep twice. It is always ready: back-pressure ends here; bound the load
//! with an outer limit. A waiting call holds no reservation of the inner service.
//!
//! ## Bounds
//!
//! At most 10,000 keys are kept ([`Keys`](crate::Keys)), and a key that cools down is not evicted.
//! If all places are taken, calls with new keys pass, and are not repeated. A cooldown is shared
//! for 300 s at most ([`with_max_cooldown`](RateLimitBackoffBuilder::with_max_cooldown)), whatever
//! a server says.
//!
//! ## Panics
//!
//! A call that has to wait panics outside a tokio runtime, or in one without the time driver.
//!
//! ## Clone
//!
//! All services made from one layer value, or from its clones, share the cooldowns. Readiness is
//! not shared. Each service that the layer makes (not each clone) takes some KiB for reference
//! counts per thread.

mod gate;
mod handle;
mod keyed;
mod layer;
mod shared;
mod turn;

pub use self::{
    handle::{Cooldown, RateLimitHandle},
    layer::{RateLimitBackoffBuilder, RateLimitBackoffLayer},
    shared::{OwnCooldown, OwnCooldowns},
    turn::{RateLimitBackoff, ResponseFuture},
};
pub use crate::kit::{keyed::KeyedBuilder, lagged::Lagged};
