//! Arguments against the schemas of tools.
//!
//! A binary of its own: tracing caches for each call site whether anybody listens.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#![allow(
    clippy::disallowed_methods,
    reason = "what hostile schemas cost is real time"
)]

mod canary;
mod costly;
mod costly_patterns;
mod errors;
mod fuzz;
mod hostile;
mod kit;
mod layer;
mod patterns;
mod recursion;
mod repair;
mod schema;
mod schemas;
mod settings;
mod suite;
