//! An MCP server whose tools run through a stack. The docs are those of [`GatewayHandler`].

mod drain;
mod elicit;
mod handler;
mod server;
mod session;
#[cfg(feature = "server-http")]
mod sessions;

#[cfg(feature = "server-http")]
pub use self::sessions::{McpBodies, McpSessions};
pub use self::{
    elicit::McpElicitation,
    handler::{GatewayHandler, ListTools},
    server::ERROR_META,
};
