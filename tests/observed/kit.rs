//! What the tests of this binary share.

use std::{
    io,
    sync::{Arc, Mutex, Once},
};

use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use tracing_subscriber::{fmt::MakeWriter, util::SubscriberInitExt};

/// Installs a subscriber for the whole process, because tracing caches for each call site whether
/// anybody listens: a thread without a subscriber must not be the first to reach one. Each test of
/// this binary calls it first.
pub(crate) fn listening() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::registry().init());
}

/// Sets the propagator that most programs have, for the whole process: trace context and baggage.
pub(crate) fn configure_process() {
    listening();
    opentelemetry::global::set_text_map_propagator(TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
    ]));
}

/// What a subscriber has written.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
