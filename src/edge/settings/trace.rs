use super::Settings;
use crate::trace::TraceLayer;

impl Settings {
    /// The layer for the span of a call alone.
    pub fn trace_layer(&self) -> TraceLayer {
        TraceLayer::new()
            .with_arguments(self.trace.arguments)
            .with_output(self.trace.output)
    }
}
