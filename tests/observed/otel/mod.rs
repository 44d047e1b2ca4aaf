//! OpenTelemetry end to end: what a collector receives, and what a server learns of its caller.

mod collector;
mod execution;
mod export;
mod fields;
mod propagation;
mod sampling;
mod server;

use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

use crate::listening;

/// Sets the propagator that most programs have, for the whole process: trace context and baggage.
fn configure_process() {
    listening();
    opentelemetry::global::set_text_map_propagator(TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
    ]));
}
