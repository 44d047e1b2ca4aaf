//! The example `gateway` in front of third parties' servers, as third parties' clients and plain HTTP ones see it.
//!
//! Real time, real processes: `tests/run` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod clients;
mod flood;
mod foreign;
mod hostile;
mod kill;
mod kit;
mod life;
mod log;
#[path = "../wrap/program.rs"]
mod program;
mod wire;

#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../examples/gateway/gateway.rs"]
mod gateway;
#[path = "../../examples/gateway/hosts.rs"]
mod hosts;
#[path = "../../examples/gateway/in_flight.rs"]
mod in_flight;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../examples/gateway/options.rs"]
mod options;
#[path = "../../examples/gateway/output.rs"]
mod output;
#[path = "../../examples/gateway/pages.rs"]
mod pages;
#[path = "../../examples/gateway/upstream.rs"]
mod upstream;
