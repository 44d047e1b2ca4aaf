//! Spans, events, logs and figures: what observers see, and what they must not see.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod json_logs;
mod metrics_export;
mod otel;
mod redaction;
mod schedules;
mod trace;

use std::sync::Once;

use tracing_subscriber::util::SubscriberInitExt;

/// Installs a subscriber for the whole process, because tracing caches for each call site whether
/// anybody listens: a thread without a subscriber must not be the first to reach one. Each test of
/// this binary calls it first.
pub(crate) fn listening() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::registry().init());
}
