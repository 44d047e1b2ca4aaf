//! The memory that callers and models can make a program take, counted by a global allocator.
//!
//! Each test runs its server, its clients and its tools on one thread, which is what the allocator
//! counts.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod answers;
mod bodies;
mod jobs;
mod kept;
mod lines;
mod mcp;
mod models;

use std::fmt::Write as _;

use allocation_counter::{AllocationInfo, measure};
use tower_toolcall::MAX_VALUES;

const MB: u64 = 1_000_000;

/// Runs this on one thread. Returns what it allocated.
fn counted(run: impl Future<Output = ()>) -> AllocationInfo {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    measure(|| runtime.block_on(run))
}

/// Values that take least text.
fn small_values(bytes: usize) -> String {
    format!(r#"{{"a":[0{}]}}"#, ",0".repeat(bytes / 2))
}

/// As many values as are taken, of those that take most memory: objects of one member, ten levels
/// deep.
fn worst_values() -> String {
    let deep = format!("{}0{}", r#"{"a":"#.repeat(10), "}".repeat(10));
    let each = 10 * 2 + 1;
    let mut text = format!(r#"{{"a":[{deep}"#);
    for _ in 1..(MAX_VALUES - 20) / each {
        write!(text, ",{deep}").unwrap();
    }
    text + "]}"
}
