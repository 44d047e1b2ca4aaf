//! The program `gateway` in front of third parties' servers, as third parties' clients and plain
//! HTTP ones see it.
//!
//! Real time, real processes: `tests/run` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod bounds;
mod callers;
mod clients;
mod flood;
mod foreign;
mod hostile;
mod kill;
mod kit;
mod life;
#[path = "../load/mod.rs"]
mod load;
mod log;
mod product;
mod sdks;
mod servers;
#[cfg(target_os = "linux")]
mod siege;
mod wire;

#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/auth.rs"]
mod auth;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/config.rs"]
mod config;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/current.rs"]
mod current;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/hosts.rs"]
mod hosts;
#[path = "../../src/in_flight.rs"]
mod in_flight;
#[path = "../../src/jwt.rs"]
mod jwt;
#[path = "../../src/listen.rs"]
mod listen;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/options.rs"]
mod options;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/output.rs"]
mod output;
#[path = "../../src/pages.rs"]
mod pages;
#[allow(dead_code, reason = "what only the program needs")]
#[path = "../../src/pin.rs"]
mod pin;
#[path = "../../src/upstream.rs"]
mod upstream;
