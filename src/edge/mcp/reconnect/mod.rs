//! A connection that is made again when it is lost.

mod attempt;
mod connection;
mod history;
mod ping;
mod service;
mod settings;
mod shared;

pub use self::{connection::McpConnection, service::McpReconnect};
