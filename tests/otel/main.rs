//! OpenTelemetry end to end: what a collector receives, and what a server learns of its caller.
//!
//! A binary of its own, because the propagator is configured for the whole process.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#![cfg(all(feature = "otel", feature = "mcp"))]

mod collector;
mod export;
mod propagation;
mod server;

use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

/// Trace context and baggage, as most programs have it.
fn configure_propagator() {
    opentelemetry::global::set_text_map_propagator(TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
    ]));
}
