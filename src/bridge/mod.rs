//! Adapters to other crates, and executors of calls: each behind its feature.
#[cfg(feature = "anyhow")]
mod anyhow;
#[cfg(feature = "metrics")]
pub mod facade;
#[cfg(feature = "tonic")]
pub mod grpc_status;
#[cfg(any(feature = "hyper", feature = "tonic"))]
pub(crate) mod h2;
mod headers;
#[cfg(feature = "hyper")]
pub(crate) mod hyper;
#[cfg(feature = "otel")]
pub mod otel;
#[cfg(feature = "reqwest")]
pub(crate) mod reqwest;
#[cfg(feature = "axum")]
pub mod serve;
#[cfg(feature = "tower")]
pub(crate) mod tower;
