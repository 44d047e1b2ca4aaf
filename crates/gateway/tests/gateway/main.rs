//! The program `gateway` in front of third parties' servers, as third parties' clients and plain
//! HTTP ones see it.
//!
//! Real time, real processes: `tests/run` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod bounds;
mod clients;
mod flood;
mod foreign;
mod hostile;
mod kill;
mod kit;
mod life;
mod log;
mod servers;
mod wire;

#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/gateway.rs"]
mod gateway;
#[path = "../../src/hosts.rs"]
mod hosts;
#[path = "../../src/in_flight.rs"]
mod in_flight;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/options.rs"]
mod options;
#[path = "../../src/output.rs"]
mod output;
#[path = "../../src/pages.rs"]
mod pages;
#[path = "../../src/upstream.rs"]
mod upstream;
