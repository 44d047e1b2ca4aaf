//! OpenTelemetry end to end: what a collector receives, and what a server learns of its caller.
//!
//! A binary of its own, because the propagator is configured for the whole process.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#![cfg(feature = "otel")]

mod collector;
mod execution;
mod export;
mod fields;
mod propagation;
mod sampling;
mod server;

use std::sync::Once;

use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use tracing_subscriber::util::SubscriberInitExt;

/// The propagator that most programs have: trace context and baggage. And everybody listens:
/// tracing caches for each call site whether anybody does, and a thread without a subscriber must
/// not be the first to come by.
fn configure_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::registry().init());
    opentelemetry::global::set_text_map_propagator(TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
    ]));
}
