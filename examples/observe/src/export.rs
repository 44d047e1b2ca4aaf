//! Traces and metrics to any collector that takes OTLP over HTTP, if the environment names one.

use opentelemetry::{metrics::MeterProvider as _, trace::TracerProvider as _};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use tower_toolcall::otel::metrics::OtelMetrics;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    prelude::*,
};

/// What is shut down at the end.
pub(crate) struct Export {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Export {
    /// `None` without `OTEL_EXPORTER_OTLP_ENDPOINT`. The exporters read that, and
    /// `OTEL_EXPORTER_OTLP_HEADERS`, themselves.
    pub(crate) fn from_env() -> anyhow::Result<Option<Self>> {
        if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
            return Ok(None);
        }
        let resource = Resource::builder().with_service_name("observe").build();
        let traces = SdkTracerProvider::builder()
            .with_batch_exporter(SpanExporter::builder().with_http().build()?)
            .with_resource(resource.clone())
            .build();
        let metrics = SdkMeterProvider::builder()
            .with_periodic_exporter(MetricExporter::builder().with_http().build()?)
            .with_resource(resource)
            .build();
        // Ours and the program's; of others, nothing below a warning.
        let filter = Targets::new()
            .with_default(LevelFilter::WARN)
            .with_target("tower_toolcall", LevelFilter::INFO)
            .with_target("observe", LevelFilter::INFO);
        let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer("observe"));
        tracing_subscriber::registry()
            .with(layer.with_filter(filter))
            .init();
        Ok(Some(Self { traces, metrics }))
    }

    /// Where [`Metrics`](tower_toolcall::tool_metrics::Metrics) send what they hear.
    pub(crate) fn sink(&self) -> OtelMetrics {
        OtelMetrics::new(&self.metrics.meter("observe"))
    }

    /// Sends what is left. Blocks.
    pub(crate) fn shutdown(&self) -> anyhow::Result<()> {
        self.traces.shutdown()?;
        Ok(self.metrics.shutdown()?)
    }
}
