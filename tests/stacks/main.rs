//! Whole stacks: in any order, on random schedules, with tools that fail and answers that get lost.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod batch;
mod evidence;
mod faults;
mod order;
mod schedules;
