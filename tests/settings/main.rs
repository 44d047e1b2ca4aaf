//! Settings of all layers (G1, G2, G3): files, variables, presets, checks, and the stack that is
//! built of them.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod absurd;
mod checks;
mod defaults;
mod documents;
mod explain;
mod files;
mod give_way;
mod keys;
mod kit;
mod layers;
mod names;
mod own;
mod presets;
mod results;
mod server_url;
mod stack;
mod switches;
mod texts;
mod tools;
mod variables;
