//! The MCP leaf against real rmcp servers: in process, over a scripted wire, and over HTTP.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod echo;
mod http;
mod leaf;
mod limits;
mod lines;
#[cfg(feature = "settings")]
mod lists;
mod loose;
mod mcp_server;
mod observers;
#[cfg(feature = "settings")]
mod outage;
#[cfg(feature = "settings")]
mod real;
mod reconnect;
mod restart;
mod server;
mod task;
mod wire;
