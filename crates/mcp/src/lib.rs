//! MCP servers as tools: an [rmcp](https://docs.rs/rmcp) client as a `Service<ToolCall>`.
//!
//! [`McpServer`] is a tool service for one server, which it may start as a child process. It speaks
//! the newest revision of both sides, reconnects, and knows the list of tools. [`McpReconnect`]
//! reconnects any client of rmcp, and [`McpService`] calls through one connection.
//!
//! [`McpService`] sends each call to its MCP server as `tools/call` and answers with what came
//! back:
//!
//! - A complete result is `Ok`, also with `isError: true`: the model reads the tool's own words.
//!   [`McpClassifier`] lets breakers and retriers see the flag.
//! - `input_required` and `task` results are returned unchanged. They are never repeated, because
//!   the tool has begun to work. [`McpTask`] in a [`PollLayer`](tower_toolcall::poll::PollLayer)
//!   waits for the result of a task.
//! - Everything else is a [`ToolError`](tower_toolcall::ToolError): protocol errors, HTTP statuses
//!   with their `Retry-After` (feature `http`), lost connections. See [`recognise`] for the
//!   table.
//!
//! Dropping the response future cancels the call at the server, once: by `notifications/cancelled`,
//! or by closing the response stream over streamable HTTP of 2026-07-28. This is only a hint. The
//! message may overtake the request, and a server may go on working, so a call that timed out may
//! still run.
//!
//! rmcp has no timeout of its own: put a [`TimeoutLayer`](tower_toolcall::timeout) outside of the
//! tool service. Requests of more than 16 MiB are refused. [`McpLines`] bounds messages over stdio,
//! and `McpHttpClient` answers over HTTP.
//!
//! A connection that is lost stays lost for an [`McpService`]. [`McpServer`] and [`McpReconnect`]
//! make another one.
//!
//! In the other direction, `GatewayHandler` (feature `server`) is an MCP server that runs its tools
//! through a stack.
//!
//! With the feature `otel` the trace continues in the server: it finds the context of the current
//! span in the request's `_meta`.
//!
//! # Example
//!
//! ```no_run
//! use tower::{ServiceBuilder, ServiceExt as _};
//! use tower_toolcall::{
//!     ToolCall, answer::ModelText, identity::IdentityLayer, timeout::TimeoutLayer,
//! };
//! use tower_toolcall_mcp::McpServer;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let docs = McpServer::command("docs", "npx", ["-y", "docs-server"]);
//! docs.connect().await?;
//! let stack = ServiceBuilder::new()
//!     .layer(IdentityLayer::new(docs.clone()))
//!     .layer(TimeoutLayer::default())
//!     .service(docs.clone());
//!
//! let call = ToolCall::new("search").with_json_str(r#"{ "query": "tower" }"#)?;
//! let result = stack.oneshot(call).await?;
//! println!("{}", result.model_text());
//! docs.close().await;
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod bounds;
#[cfg(feature = "server")]
mod capabilities;
mod catalog;
mod child;
mod classify;
mod errors;
mod events;
mod extras;
mod fit;
mod future;
#[cfg(feature = "server")]
mod gateway;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod http_client;
#[cfg(feature = "http")]
mod http_post;
mod lines;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "pins")]
mod pins;
mod probe;
mod progress;
mod reconnect;
mod router;
#[cfg(feature = "validate")]
mod schemas;
mod server;
mod service;
mod tools;

use std::sync::Once;

use tower_toolcall::reader::refuse_if;

#[cfg(feature = "server")]
pub use self::gateway::{ERROR_META, GatewayHandler, ListTools, McpElicitation};
#[cfg(feature = "server-http")]
pub use self::gateway::{McpBodies, McpSessions};
#[cfg(feature = "http")]
pub use self::http_client::McpHttpClient;
#[cfg(feature = "pins")]
pub use self::pins::{OnDrift, Pins, hidden_characters};
pub use self::router::{definition, router, tool};
#[cfg(feature = "validate")]
pub use self::schemas::{McpOutput, OnInvalid};
pub use self::{
    answer::McpAnswer,
    bounds::McpBounded,
    catalog::Catalog,
    classify::{McpClassifier, McpHooks},
    errors::recognise,
    extras::{McpExtras, McpTask},
    lines::McpLines,
    progress::{McpNotifications, McpProgress},
    reconnect::{McpConnection, McpReconnect},
    server::McpServer,
    service::{IDEMPOTENCY_KEY_META, McpService, ResponseFuture},
    tools::McpTools,
};
/// Makes rmcp's errors and [`McpAnswer`] known to the layers of `tower-toolcall`, for the rest of
/// the process.
///
/// Tool services, lists of tools, classifiers, hooks, handlers and answers of this crate do it when
/// they are made. A program that has none of them calls it once at its start: where a tool service
/// of its own returns rmcp's errors, for example. Until then these are judged by their texts alone,
/// and their texts may have the server's address. What a program [registers
/// itself](tower_toolcall::error::register) before takes precedence.
///
/// ```
/// use rmcp::service::ServiceError;
/// use tower_toolcall::{ErrorKind, ToolError};
///
/// tower_toolcall_mcp::register();
/// let error = ToolError::from_box(ServiceError::UnexpectedResponse.into());
/// assert_eq!(error.kind(), ErrorKind::Reported);
/// ```
pub fn register() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        tower_toolcall::error::register(&errors::Errors);
        tower_toolcall::answer::register::<McpAnswer>();
    });
}

#[cfg(doctest)]
#[doc = concat!(include_str!("../README.md"), include_str!("../../../src/guide/from_fastmcp.md"))]
struct Readme;
