//! The presets over the wire: a process of its own serves the stack that a file and the environment
//! describe, over HTTP and JSON-RPC, in front of an upstream that the test controls; and does what
//! the preset's system asked for (G3).

mod agents;
mod gateways;
mod kit;
mod numbers;
mod served;
mod upstream;
