//! HTTP tools against real servers, through reqwest and through hyper-util's client, alone and
//! below the layers.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod answers;
mod auto_traits;
mod codes;
mod echo;
mod ends;
mod events;
mod forbidden;
mod gateway;
mod http2;
mod job;
mod kit;
mod limits;
mod manifest;
mod mistakes;
mod operations;
mod sent;
mod settings;
mod stack;
mod words;
