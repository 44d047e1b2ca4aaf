//! Spans, events, logs and figures: what observers see, and what they must not see.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod json_logs;
mod kit;
mod metrics_export;
mod otel;
mod redaction;
mod schedules;
mod trace;

pub(crate) use kit::listening;
