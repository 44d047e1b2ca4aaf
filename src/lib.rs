// README's chart, where its file is not: of two links of a name the first one holds.
#![cfg_attr(doc, doc = include_str!("../examples/overhead/overhead.md"))]
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod answer;
mod availability;
pub mod backoff;
pub mod call;
mod caller;
#[cfg(feature = "cancel")]
pub mod cancel;
pub mod catch_panic;
pub mod check;
pub mod circuit_breaker;
mod config;
pub mod deadline;
mod edge;
pub mod error;
pub mod event;
pub mod hint;
pub mod identity;
mod in_flight;
pub mod key;
mod lane;
mod limited;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod normalize;
pub mod outcome;
mod per_tool;
pub mod rate_limit;
mod ready;
pub mod redact;
mod registry;
pub mod result;
pub mod retry;
pub mod sanitize;
mod template;
mod text;
pub mod timeout;
mod timer;
pub mod trace;
mod transition;
pub mod transport;

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
pub use edge::health;
#[cfg(feature = "mcp")]
pub use edge::mcp;
#[cfg(feature = "otel")]
pub use edge::otel;
#[cfg(feature = "router")]
pub use edge::router;
#[cfg(feature = "settings")]
pub use edge::settings;
#[cfg(feature = "tonic")]
pub use edge::tonic;
