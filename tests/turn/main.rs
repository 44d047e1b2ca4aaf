//! Turns of all formats: what the providers ask of results holds always.

mod kit;
mod recorded;
mod repeats;
mod rules;
mod soak;
mod streams;
