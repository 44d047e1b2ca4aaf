//! Turns of all formats: what the providers ask of results holds always.

#[cfg(feature = "metrics")]
mod inert;
mod kit;
mod recorded;
mod repeats;
mod rules;
mod soak;
mod streams;
