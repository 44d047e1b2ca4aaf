//! What stands on the layers: adapters to other crates, and what runs calls. Each behind its feature.
#[cfg(feature = "anyhow")]
mod anyhow;
#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "batch")]
pub mod batch;
#[cfg(feature = "tower")]
pub mod builder;
mod headers;
pub mod health;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "otel")]
pub mod otel;
#[cfg(feature = "router")]
pub mod router;
#[cfg(feature = "settings")]
pub mod settings;
#[cfg(feature = "tonic")]
pub mod tonic;
