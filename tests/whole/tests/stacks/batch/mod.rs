//! Several calls at once, and one after the other.

mod drops;

mod ids;
mod kit;
mod parallel;
mod sequence;
mod stacks;
