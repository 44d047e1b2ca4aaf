//! A layer that resolves the names of calls: one tool has one identity, however callers spell it.
//!
//! `charge` of the server `pay`, `pay__charge` of the server `pay`, and `pay__charge` alone are one tool. Layers that keep state for
//! each tool (a circuit breaker, the gate of a rate limit, a row of metrics) know tools by the names on the call. So names are
//! resolved outside of them, by a table that knows the tools: the `Router` (feature `router`) of the stack, a list of an MCP server's
//! tools, or anything that implements [`Resolve`].
//!
//! - Below the layer [`ToolCall::server`](crate::ToolCall::server) and [`ToolCall::tool`](crate::ToolCall::tool) are the server and the tool's own name. Tools of the program
//!   itself have no server.
//! - A tool or a server that does not exist is refused here: [`NotFound`](crate::ErrorKind::NotFound), not started (a router names those that are near). It makes no
//!   key, no gate and no row, and the service below is not called.
//! - What the table knows of the tool is written on the call where the caller said nothing: whether it may run twice, its timeout.
//! - Errors that come back, and their texts, name the tool as the caller did; errors of other calls stay as they are.
//! - A call that is [resolved](crate::ToolCall::is_resolved) already passes unchanged, so the layer may stand in a stack twice, and at an
//!   edge as well.
//! - A server that is known and whose list was never read is not unknown: its calls go on, under
//!   [one key](crate::Identity::unlisted) whatever tool they name.
//!
//! `GatewayHandler` (feature `mcp-server`) puts it around its stack by itself, axum's `Routes` do with `Routes::with_identity`.
//!
//! # Order
//!
//! Inside the result layer and the redaction rules, outside of all that looks at names: traces, metrics, whatever has a key. A layer
//! that stands outside of it has the caller's words for keys.
//!
//! # Example
//!
#![cfg_attr(all(feature = "router", feature = "tower"), doc = "```")]
#![cfg_attr(not(all(feature = "router", feature = "tower")), doc = "```ignore")]
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, BoxError, ErrorKind, ServiceBuilderExt, ToolCall, router::Router, timeout::TimeoutLayer};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! let pay = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("charged") });
//! let router = Router::builder().server("pay", pay, ["charge", "refund"]).build()?;
//!
//! let stack = ServiceBuilder::new()
//!     .tool_identity(router.clone())
//!     .tool_circuit_breaker() // one breaker for each tool, however it is called
//!     .layer(TimeoutLayer::default().with_tool("pay__charge", Duration::from_secs(60)))
//!     .service(router);
//!
//! for call in [
//!     ToolCall::new("pay__charge"),
//!     ToolCall::new("charge").with_server("pay"),
//!     ToolCall::new("pay__charge").with_server("pay"),
//! ] {
//!     assert_eq!(stack.clone().oneshot(call).await?, "charged");
//! }
//!
//! let invented = ToolCall::new("charge").with_server("anything");
//! let error = stack.oneshot(invented).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::NotFound);
//! assert_eq!(error.model_message(), "Tool 'charge' does not exist. Did you mean 'pay__charge'?");
//! # Ok(()) }
//! ```
//!
//! A table of one's own:
//!
//! ```
//! use tower_toolcall::{ErrorKind, Identity, ToolCall, ToolError, identity::{IdentityLayer, Resolve}};
//!
//! struct Aliases;
//!
//! impl Resolve for Aliases {
//!     fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
//!         match (call.named_server(), call.tool()) {
//!             (None, "search" | "find" | "lookup") => Ok(Some(Identity::new("search"))),
//!             _ => Err(ToolError::refusal(ErrorKind::NotFound, "there is no tool of this name")),
//!         }
//!     }
//! }
//!
//! let layer = IdentityLayer::new(Aliases);
//! # let _ = layer;
//! ```
//!
//! # Errors
//!
//! The table's refusal. Else those of the inner service, stamped with the caller's names.
//!
//! # Readiness
//!
//! That of the inner service. A refused call gives the reservation back at once: the inner service is replaced by a clone.
//!
//! # Cancel safety
//!
//! Dropping the response future drops the inner one.
//!
//! # Clone
//!
//! Clones share the table and the listener, and with them the metrics that count refused names.
//!
//! # Cost
//!
//! A call that has its identity's names allocates nothing. Of one that is spelled otherwise, by a flat name or by an alias, the names are
//! copied: one allocation, and a second one if a clone of the call is kept, whose extensions are then cloned deep. The arguments
//! never are. A timeout that the table knows is written to the call, which costs the same.

mod future;
mod layer;
mod resolve;
mod service;

pub use self::{
    future::ResponseFuture, layer::IdentityLayer, resolve::Resolve, service::IdentityService,
};
pub use crate::call::Identity;
