//! A registry of the availability of servers, learnt from calls.
//!
//! | at a glance | |
//! |---|---|
//! | does | counts timeouts and lost connections of each server |
//! | place | inside retry and rate limit, outside breaker and timeout |
//! | default | unavailable after 3 in a row; only observes |
//! | the caller sees | nothing, or a refusal if [configured](HealthBuilder::with_refusal) |
//! | method | `ServiceBuilderExt::tool_health` |
//!
//! [`Health`] is the registry, [`Health::layer`] the layer that feeds it. The registry is a view of
//! [circuit breakers](crate::circuit_breaker), one for each server. Calls that name no server share
//! one:
//!
//! | state | when |
//! |---|---|
//! | available | from the start, and after any answer, an error of the tool included |
//! | degraded | after the first timeout or connection failure |
//! | unavailable | after 3 in a row, a [setting](HealthBuilder::with_threshold) |
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     ToolCall,
//!     health::{Availability, Health},
//!     transport::transport,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let health = Health::new();
//! let client = service_fn(|_call: ToolCall| async {
//!     Err::<(), _>(std::io::Error::from(
//!         std::io::ErrorKind::ConnectionRefused,
//!     ))
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(health.layer())
//!     .service(transport(client));
//!
//! let mut docs = health.subscribe("docs");
//! for _ in 0..3 {
//!     let call = ToolCall::new("search").with_server("docs");
//!     assert!(stack.clone().oneshot(call).await.is_err());
//! }
//! assert_eq!(
//!     docs.borrow_and_update().state,
//!     Availability::Unavailable
//! );
//! println!(
//!     "{}",
//!     serde_json::to_string(&health.snapshot()).unwrap()
//! );
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
//! # Errors
//!
//! A refusal is [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed), not started, with
//! [`retry_after`](crate::ToolError::retry_after): the time to the next probe, or a second at most
//! while one is under way. A retry layer does not repeat it, and for a breaker it is neutral.
//! Errors of the inner service pass, stamped with the call's names.
//!
//! # Cancel safety
//!
//! A probe that is dropped gives its place back to the next call.
//!
//! # Details
//!
//! These change nothing: refusals by this side, cancelled calls, panics, and other errors that say
//! nothing about the server; errors that were [inferred](crate::Evidence::Inferred) from a foreign
//! error, for example from a text about connections (put a [`transport`](crate::transport) around
//! your own client); and timeouts caused by the deadline of an [untrusted
//! caller](crate::flow::CallExt::tighten_remote). A call that was dropped is a timeout if it had
//! waited past its deadline, unless an inner layer had held it back. It is also a timeout if it had
//! been pending for as long as its timeout since it was sent, 30 s if it has none. Otherwise it
//! changes nothing. `NotFound`, `InvalidInput` and `Denied` are answers if they come from the
//! server: if they have a source or an HTTP status.
//!
//! An answer counts when it comes, whenever its call began. A failure does not count if the server
//! has come back, or its calls have begun to be refused, since the call began.
//!
//! Calls that were lost with one connection are one failure
//! ([`ToolError::outage`](crate::ToolError::outage)). So is each attempt to connect that failed
//! after that, however many calls waited for it. A failed probe is not another failure if the tool
//! service reports when it connects again: calls are refused until then.
//!
//! ## Refusing calls
//!
//! By default the registry only observes, and all calls pass. If it is set to
//! [refuse](HealthBuilder::with_refusal) calls, the calls of a server fail immediately when it is
//! unavailable **and** there is evidence against the server, not only against one of its tools.
//! Evidence, since the server's last answer, is any of:
//!
//! - a connection failure; so a call fails for which an MCP server that left a ping unanswered
//!   (`McpReconnect::with_ping`) cannot be connected again;
//! - timeouts of two different tools;
//! - a timeout of the only tool that the server is known to have. A tool is known once a call of it
//!   has succeeded, or from the list of a router (`RouterBuilder::with_health`).
//!
//! So a single slow tool marks its server for watchers, and does not affect other tools; its own
//! calls are left to its [circuit breaker](crate::circuit_breaker). A call that was sent ends with
//! its own error, never with a refusal.
//!
//! The server's circuit breaker opens then. 30 s after it opened, and after each probe that failed,
//! one call passes as a probe. There is one probe at a time. A probe that is dropped or says
//! nothing is replaced by the next call; a probe that hangs is replaced after another 30 s. During
//! an outage the tool service's next attempt to connect is the next probe. After five consecutive
//! probes that said nothing every call passes, until one answers or fails. Calls that name no
//! server may be for any of them: they are never refused.
//!
//! ## Order
//!
//! Directly outside the breaker: inside retry, so that it sees attempts, and outside the timeout,
//! so that it sees timeouts. A circuit breaker guards a tool; this layer watches servers. Outside a
//! router it sees only the servers that calls name, not those in flat names:
//! pass the registry to the router, with `RouterBuilder::with_health`.
//!
//! If a call meets two of these layers, the outer one records it, if both see the same server. An
//! outer layer ignores a failure that an inner one has counted.
//!
//! ## Events
//!
//! Each change of a server's availability is an [event](crate::event), `tool.health`; it reaches
//! the [listener](HealthBuilder::with_listener) and the [watchers](Health::subscribe) of the
//! server.
//!
//! ## Clone
//!
//! Clones, and the layers and services made from them, share one registry. It keeps 1,000 servers,
//! a [setting](HealthBuilder::with_max_servers); a server that is not in use is evicted for a new
//! one. Servers that have never answered and belong to no router have half of the places at most.
//! If all places are taken by servers that are watched, in use, or unavailable since a failure in
//! the last hour, further servers are not recorded, and their calls pass.

mod layer;
mod registry;
mod service;
mod sign;

pub(crate) use self::registry::named;
pub use self::{
    layer::{HealthBuilder, HealthLayer},
    registry::Health,
    service::{HealthService, ResponseFuture},
};
pub use crate::event::availability::{Availability, AvailabilityChange, Reason, ServerHealth};
