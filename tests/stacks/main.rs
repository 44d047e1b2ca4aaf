//! Whole stacks: in any order, with tools that fail and servers whose answers get lost.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod batch;
mod evidence;
mod faults;
mod order;
