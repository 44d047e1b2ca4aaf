//! An MCP server whose tools run through a stack. The docs are those of [`GatewayHandler`].

mod answer;
#[cfg(feature = "mcp-server-http")]
mod bodies;
mod changes;
mod drain;
mod elicit;
mod first;
mod handler;
mod list;
mod pages;
mod relay;
mod request;
mod server;
mod session;
#[cfg(feature = "mcp-server-http")]
mod sessions;

pub use self::{
    answer::ERROR_META, elicit::McpElicitation, handler::GatewayHandler, list::ListTools,
};
#[cfg(feature = "mcp-server-http")]
pub use self::{
    bodies::{BodyError, CountedBody, McpBodies, McpBodiesFuture},
    sessions::McpSessions,
};
