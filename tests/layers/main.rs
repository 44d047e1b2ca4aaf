//! Every layer: the contract that all keep, and what each does.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod arguments;
mod auto_traits;
mod bounds;
mod cache;
mod catch_panic;
mod check;
mod circuit_breaker;
mod concurrency_limit;
mod contract;
mod deadline;
mod drain;
mod dropped;
mod errors;
mod fit;
mod flow;
mod health;
mod held;
mod inert;
mod invented_ids;
mod keys;
mod kit;
mod metrics;
mod middleware;
mod once;
mod policy;
mod poll;
mod quota;
mod rate_limit;
mod repeat_guard;
mod result;
mod retry;
mod sanitize;
#[cfg(feature = "tower")]
mod sizes;
mod stacking;
mod strangers;
mod timeout;
mod timeout_fn;
