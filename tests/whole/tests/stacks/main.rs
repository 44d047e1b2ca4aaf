//! Whole stacks: in any order, with tools that fail and servers whose answers get lost, with
//! settings, tokens and traces.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod answers;
mod batch;
mod dropped;
mod evidence;
mod faults;
#[path = "../../../observed/kit.rs"]
mod observed;
mod order;
mod otel;
mod over_http;
mod systems;
mod token;
mod turns;
