//! Adapters to other crates, and executors of calls: each behind its feature.
#[cfg(feature = "anyhow")]
mod anyhow;
pub mod batch;
#[cfg(feature = "tower")]
pub mod builder;
#[cfg(feature = "metrics")]
pub mod facade;
#[cfg(feature = "tonic")]
pub mod grpc_status;
#[cfg(any(feature = "hyper", feature = "tonic"))]
pub(crate) mod h2;
mod headers;
pub mod health;
#[cfg(feature = "hyper")]
pub(crate) mod hyper;
mod names;
pub(crate) mod nearest;
#[cfg(feature = "otel")]
pub mod otel;
pub mod reader;
#[cfg(feature = "reqwest")]
pub(crate) mod reqwest;
pub mod router;
#[cfg(feature = "axum")]
pub mod serve;
#[cfg(feature = "settings")]
pub mod settings;
pub mod token;
#[cfg(feature = "tower")]
pub(crate) mod tower;
