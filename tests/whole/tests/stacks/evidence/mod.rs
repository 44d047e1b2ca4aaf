//! What an error out of a tool may cause: nothing. The tools here have done their work before they
//! fail.

mod kinds;
mod kit;
mod soak;
mod texts;
mod transports;
mod types;
