//! OpenTelemetry end to end: what a collector receives, and what a server learns of its caller.

mod collector;
mod execution;
mod export;
mod propagation;
mod server;
