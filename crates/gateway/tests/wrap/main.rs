//! `gateway wrap -- COMMAND` between clients and servers of third parties, and a server that fails
//! in every way.
//!
//! Real time, real processes: `tests/run` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#![cfg(unix)]

mod clients;
mod command_line;
mod end;
mod faults;
mod kit;
#[path = "../load/mod.rs"]
mod load;
mod peers;
mod requests;
mod same;
mod sdks;
mod settings;
