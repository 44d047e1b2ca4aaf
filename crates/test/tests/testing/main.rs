//! The testing kit itself.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod events;
mod faults;
mod replay;
mod script;

use std::time::Duration;

use tower_toolcall::ToolCall;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn call() -> ToolCall {
    ToolCall::new("search").with_server("docs").with_id("c1")
}
