//! Which servers are there: a registry that learns it from calls.
//!
//! [`Health`] is the registry, [`Health::layer`] the layer that feeds it. Per server, calls without one together:
//!
//! | state | when |
//! |---|---|
//! | available | from the start, and after any answer, an error of the tool included |
//! | degraded | after the first timeout or connection failure |
//! | unavailable | after 3 in a row, a [setting](HealthBuilder::with_threshold) |
//!
//! Our own refusals, cancelled calls, panics and all else that says nothing of the server change nothing. Nor does what was
//! merely [inferred](crate::Evidence::Inferred) from a foreign error, a text about connections for example: put a
//! [`transport`](crate::transport) around a client of your own. Nor does the deadline of a caller who is
//! [not trusted](crate::ToolCall::tighten_from_wire), nor a
//! call that was dropped, unless it had waited past its deadline or for as long as its timeout, 30 s if it has none: then it
//! is a timeout. `NotFound`, `InvalidInput` and `Denied` are answers if somebody else made them: if they have a source or
//! an HTTP status.
//!
//! An answer counts when it comes, whenever its call began. A failure of a call that began before the server came back says
//! nothing.
//!
//! By default it only looks on, and all calls pass. If it is to [refuse](HealthBuilder::with_refusal), calls to an unavailable server fail
//! at once; 30 s after that began, and after each failure of it, one call is let through as a probe. One at a time; one
//! that is dropped, or says nothing, makes way for the next, and one that hangs does so after another 30 s. Calls that name no
//! server may be for anybody: they are never refused.
//!
//! # Order
//!
//! Directly above the breaker: below retry, so that it sees attempts, and above the timeout, so that it sees those. A circuit
//! breaker guards a tool; this tells of servers. Around a router (feature `router`) it knows only the servers that calls name, not
//! those of flat names: give the registry to the router, by `RouterBuilder::with_health`.
//!
//! If a call meets two of these layers, the outer one tells of it, as long as both see the same server. A failure that
//! one of them has counted says nothing to one above.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{ToolCall, health::{Availability, Health}, transport::transport};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let health = Health::new();
//! let client = service_fn(|_call: ToolCall| async {
//!     Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
//! });
//! let stack = ServiceBuilder::new().layer(health.layer()).service(transport(client));
//!
//! let mut docs = health.subscribe("docs");
//! for _ in 0..3 {
//!     let call = ToolCall::new("search").with_server("docs");
//!     assert!(stack.clone().oneshot(call).await.is_err());
//! }
//! assert_eq!(docs.borrow_and_update().state, Availability::Unavailable);
//! println!("{}", serde_json::to_string(&health.snapshot()).unwrap());
//! # }
//! ```
//!
//! Unavailable after the first failure, and calls are refused:
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::health::Health;
//!
//! let health = Health::builder()
//!     .with_threshold(1)
//!     .with_refusal(true)
//!     .with_probe_period(Duration::from_secs(10))
//!     .build()?;
//! # Ok::<_, tower_toolcall::ConfigError>(())
//! ```
//!
//! # Events
//!
//! Each change of a server's availability is an [event](crate::event), `tool.health`; [a listener](HealthBuilder::with_listener) hears of
//! it, and whoever [watches](Health::subscribe) the server.
//!
//! # Errors
//!
//! A refusal is [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed), not started, with
//! [`retry_after`](crate::ToolError::retry_after): the time to the next probe, or a second at most while one is under way. A retry layer
//! does not repeat it, and for a breaker it is neutral. Errors of the inner service pass, stamped with the call's names.
//!
//! # Cancel safety
//!
//! A probe that is dropped gives its place back.
//!
//! # Clone
//!
//! Clones, and the layers and services made from them, share one registry. It keeps 1,000 servers, a
//! [setting](HealthBuilder::with_max_servers); for another one that which is not in use is forgotten. If all are watched, in use, or unavailable
//! since a failure in the last hour, nothing is told of further ones, and their calls pass.

mod cell;
mod future;
mod layer;
mod registry;
mod server;
mod service;
mod sign;
mod state;

#[cfg(feature = "router")]
pub(crate) use self::registry::named;
pub use self::{
    future::ResponseFuture,
    layer::{HealthBuilder, HealthLayer},
    registry::Health,
    server::ServerHealth,
    service::HealthService,
};
pub use crate::event::availability::{Availability, AvailabilityChange, Reason};
