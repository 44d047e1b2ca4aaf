//! Turns of all formats: what the providers ask of results holds always.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod images;
mod inert;
mod kit;
mod recorded;
mod repeats;
mod rules;
mod soak;
mod streams;
