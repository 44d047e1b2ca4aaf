//! Arguments against the schemas of tools.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#![allow(
    clippy::disallowed_methods,
    reason = "what hostile schemas cost is real time"
)]

mod fuzz;
mod hostile;
mod kit;
mod misfits;
mod patterns;
mod repair;
mod schema;
mod suite;
