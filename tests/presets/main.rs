//! The presets over the wire: a process of its own serves the stack that a file and the environment
//! describe, over HTTP and JSON-RPC, in front of an upstream that the test controls; and does what
//! the preset's system asked for (G3).
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod agents;
mod gateways;
mod kit;
mod numbers;
mod served;
mod upstream;
