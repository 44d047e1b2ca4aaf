//! An MCP server that runs its tools through a stack. See [`GatewayHandler`].

mod drain;
mod elicit;
mod handler;
mod pages;
mod request;
mod rounds;
mod server;
mod session;
#[cfg(feature = "server-http")]
mod sessions;
mod tasks;

#[cfg(feature = "server-http")]
pub use self::sessions::{McpBodies, McpSessions};
pub use self::{
    elicit::McpElicitation,
    handler::{GatewayHandler, ListTools},
    server::ERROR_META,
};
