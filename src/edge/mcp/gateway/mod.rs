//! An MCP server whose tools run through a stack. The docs are those of [`GatewayHandler`].

mod answer;
mod changes;
mod drain;
mod handler;
mod list;
mod pages;
mod relay;
mod request;
mod server;
mod session;

pub use self::{answer::ERROR_META, handler::GatewayHandler, list::ListTools};
