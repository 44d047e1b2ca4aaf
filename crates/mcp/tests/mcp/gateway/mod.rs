//! An MCP server whose tools run through a stack, between real rmcp clients and a real rmcp server:
//! in this process and over HTTP, of both revisions of the protocol.

mod answers;
mod calls;
mod cancel;
mod conformance;
mod elicitation;
mod identity;
mod kit;
mod lists;
mod names;
mod principals;
mod progress;
mod questions;
mod rounds;
mod sessions;
mod tasks;
mod trace;
mod upstream;
mod wire;
