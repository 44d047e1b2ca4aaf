//! A connection that is made again when it is lost.

mod connection;
mod history;
mod service;
mod shared;

pub use self::{connection::McpConnection, service::McpReconnect};
