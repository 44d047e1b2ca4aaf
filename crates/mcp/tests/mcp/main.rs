//! The MCP tool service and the handler of a gateway against real rmcp servers: in process, over a
//! scripted wire, and over HTTP.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod auto_traits;
mod echo;
mod gateway;
mod http;
mod leaf;
mod limits;
mod lines;
mod lists;
mod log;
mod loose;
mod mcp_server;
mod observers;
mod outage;
mod pins;
mod real;
mod reconnect;
mod restart;
mod router;
mod schemas;
mod server;
mod stdio;
mod task;
mod wire;
