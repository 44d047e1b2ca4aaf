//! The MCP leaf against real rmcp servers: in process, over a scripted wire, and over HTTP.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#![cfg(feature = "mcp")]

#[cfg(feature = "mcp-http")]
mod echo;
#[cfg(feature = "mcp-http")]
mod http;
mod leaf;
#[cfg(feature = "mcp-http")]
mod limits;
mod lines;
#[cfg(all(feature = "mcp-http", feature = "settings"))]
mod lists;
#[cfg(feature = "mcp-http")]
mod loose;
mod mcp_server;
mod observers;
#[cfg(all(feature = "mcp-http", feature = "settings"))]
mod outage;
#[cfg(all(feature = "mcp-http", feature = "settings"))]
mod real;
mod reconnect;
#[cfg(feature = "mcp-http")]
mod restart;
mod server;
mod task;
mod wire;
