//! The router: names to services, local tools and those of servers.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod answers;
mod collisions;
mod contract;
#[cfg(feature = "schemars")]
mod definitions;
mod health;
mod identity;
#[allow(dead_code, reason = "shared with the tests of the layers")]
#[path = "../layers/kit.rs"]
mod kit;
mod readiness;
mod routing;
mod stack;
mod typed;
mod unknown;
mod values;
mod withheld;
