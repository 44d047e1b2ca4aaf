//! Several calls at once, and one after the other.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod drops;

mod ids;
mod kit;
mod parallel;
mod sequence;
mod stacks;
