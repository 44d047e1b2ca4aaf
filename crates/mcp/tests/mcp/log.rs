//! Events and spans of the collection, as lines of JSON.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tower_toolcall::event::TARGET;
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::{fmt::format::FmtSpan, util::SubscriberInitExt as _};

use crate::observers::listen;

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Records what this thread traces at INFO, until the guard is dropped.
    pub(crate) fn begin() -> (Self, DefaultGuard) {
        Self::of(Level::INFO, FmtSpan::NONE)
    }

    /// Records these events of spans, too. Spans have their fields where DEBUG is enabled.
    pub(crate) fn with_spans(spans: FmtSpan) -> (Self, DefaultGuard) {
        Self::of(Level::DEBUG, spans)
    }

    /// Records all levels, and new spans.
    pub(crate) fn whole() -> (Self, DefaultGuard) {
        Self::of(Level::TRACE, FmtSpan::NEW)
    }

    pub(crate) fn of(level: Level, spans: FmtSpan) -> (Self, DefaultGuard) {
        listen();
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_span_events(spans)
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        (log, subscriber.set_default())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the lines of the collection's own target.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["target"] == TARGET)
            .collect()
    }

    /// Returns the lines of the events of this name.
    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        let mut lines = self.lines();
        lines.retain(|line| line["message"] == name);
        lines
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
