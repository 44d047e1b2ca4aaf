//! Adapters to other crates, each behind its feature.
#[cfg(feature = "mcp")]
pub mod mcp;
