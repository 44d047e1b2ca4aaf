//! An MCP server whose tools run through a stack. The docs are those of [`GatewayHandler`].

mod answer;
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

#[cfg(feature = "mcp-server-http")]
pub use self::sessions::McpSessions;
pub use self::{
    answer::ERROR_META, elicit::McpElicitation, handler::GatewayHandler, list::ListTools,
};
