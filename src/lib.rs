#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod answer;
pub mod cache;
pub mod call;
#[cfg(feature = "cancel")]
pub mod cancel;
pub mod catch_panic;
pub mod check;
pub mod circuit_breaker;
pub mod concurrency_limit;
mod config;
pub mod deadline;
mod edge;
pub mod error;
pub mod event;
pub mod fit;
mod foreign;
pub mod hint;
pub mod identity;
pub mod key;
mod kit;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod middleware;
pub mod normalize;
pub mod once;
pub mod outcome;
pub mod policy;
pub mod poll;
pub mod quota;
pub mod rate_limit;
pub mod redact;
pub mod repeat_guard;
pub mod result;
pub mod retry;
pub mod sanitize;
mod text;
pub mod timeout;
pub mod trace;
pub mod transport;
#[cfg(feature = "validate")]
pub mod validate;

pub use self::{
    answer::{Answer, ModelText},
    call::{
        CallInfo, Claim, IdempotencyKey, Identity, MAX_DEPTH, MAX_NAME_BYTES, Observation,
        Progress, Record, ReplaySafety, ToolCall, Trust,
    },
    config::ConfigError,
    error::{AnyError, BoxError, ErrorKind, Evidence, Execution, ToolError},
    event::{Event, Listen},
    key::Key,
    outcome::{Classify, Outcome},
    result::ToolResult,
};
#[cfg(feature = "axum")]
pub use edge::axum;
#[cfg(feature = "batch")]
pub use edge::batch;
#[cfg(feature = "tower")]
pub use edge::builder::{self, ServiceBuilderExt};
#[cfg(feature = "metrics-facade")]
pub use edge::facade as metrics_facade;
pub use edge::health;
#[cfg(feature = "http-tool")]
pub use edge::http_tool;
#[cfg(feature = "mcp")]
pub use edge::mcp;
#[cfg(feature = "otel")]
pub use edge::otel;
#[cfg(feature = "router")]
pub use edge::router;
#[cfg(feature = "settings")]
pub use edge::settings;
#[cfg(feature = "shared")]
pub use edge::shared;
#[cfg(feature = "testing")]
pub use edge::testing;
#[cfg(any(feature = "http-tool", feature = "token"))]
pub use edge::token;
#[cfg(feature = "tonic")]
pub use edge::tonic;
#[cfg(feature = "turn")]
pub use edge::turn;
pub use kit::backoff;
