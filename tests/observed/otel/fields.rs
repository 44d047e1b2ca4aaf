//! What the span of a call has at INFO, and whose child it is.

use opentelemetry::{
    Context,
    trace::{
        SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
    },
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{AnyError, ErrorKind, ServiceBuilderExt as _, ToolCall, ToolError};
use tracing::{Instrument, Level, instrument::WithSubscriber};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, filter_fn},
    prelude::*,
};

use crate::kit::{Log, configure_process};

/// Makes a call that fails.
async fn fail() {
    let tool = service_fn(|_: ToolCall| async {
        let text = "the password is wrong ".repeat(9);
        Err::<(), AnyError>(ToolError::new(ErrorKind::Upstream, text).into())
    });
    let call = ToolCall::new("search")
        .with_server("docs")
        .with_json(json!({ "city": "Reykjavik", "password": "hunter2" }))
        .unwrap();
    let stack = ServiceBuilder::new().tool_trace().service(tool);
    stack.oneshot(call).await.unwrap_err();
}

/// Runs work below OpenTelemetry's layer with a filter at INFO. Returns the spans, and what a text
/// log beside it has, without our spans.
async fn exported(activates: bool, work: impl Future<Output = ()>) -> (Vec<SpanData>, String) {
    configure_process();
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("test"))
        .with_context_activation(activates)
        .with_filter(LevelFilter::INFO);
    let log = Log::default();
    let writer = log.clone();
    let fmt = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .with_filter(filter_fn(|m| {
            *m.level() <= Level::INFO && (m.is_event() || m.target() != "tower_toolcall")
        }));
    // Spans that the other two do not see are made.
    let all = filter_fn(|m| m.target() != "tower_toolcall");
    let all = tracing_subscriber::layer::Identity::new().with_filter(all);
    let subscriber = tracing_subscriber::registry()
        .with(layer)
        .with(fmt)
        .with(all);
    work.with_subscriber(subscriber).await;
    let text = log.text();
    (exporter.get_finished_spans().unwrap(), text)
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let mut found = spans.iter().filter(|span| span.name == name);
    found
        .next()
        .unwrap_or_else(|| panic!("{name} in {spans:?}"))
}

/// P13: an exporter at INFO gets all fields, and the log beside it one short line.
#[tokio::test]
async fn an_exporter_at_info_gets_the_fields() {
    let (spans, log) = exported(true, fail()).await;
    let span = named(&spans, "execute_tool search");
    let attribute = |key: &str| {
        let mut all = span.attributes.iter();
        let found = all.find(|pair| pair.key.as_str() == key);
        found.map(|pair| pair.value.to_string()).unwrap_or_default()
    };
    assert_eq!(attribute("gen_ai.tool.name"), "search");
    assert_eq!(attribute("tool.server"), "docs");
    assert_eq!(attribute("error.type"), "upstream");
    let arguments = attribute("gen_ai.tool.call.arguments");
    assert!(
        arguments.contains("Reykjavik") && arguments.contains("[REDACTED]"),
        "{arguments}"
    );
    assert!(!format!("{spans:?}").contains("hunter2"));
    let [line] = log.lines().collect::<Vec<_>>()[..] else {
        panic!("{log}")
    };
    assert!(line.chars().count() <= 200, "{line}");
    assert!(
        line.contains("tool.failure tool=search server=docs"),
        "{line}"
    );
}

/// The context of a server in front, which code of OpenTelemetry itself has made current.
fn outer() -> Context {
    let id = (TraceId::from(7), SpanId::from(8));
    let sampled = TraceFlags::SAMPLED;
    let span = SpanContext::new(id.0, id.1, sampled, true, TraceState::default());
    Context::new().with_remote_span_context(span)
}

/// A call's span is a child of tracing's current span, whether or not that is OpenTelemetry's too.
#[tokio::test]
async fn a_current_context_of_opentelemetry_does_not_replace_the_current_span() {
    for activates in [true, false] {
        let work = async {
            let call = async {
                let span = tracing::info_span!("handler");
                fail().instrument(span).await;
            };
            opentelemetry::trace::FutureExt::with_context(call, outer()).await;
        };
        let (spans, _) = exported(activates, work).await;
        let (handler, call) = (
            named(&spans, "handler"),
            named(&spans, "execute_tool search"),
        );
        assert_eq!(handler.parent_span_id, SpanId::from(8));
        assert_eq!(
            call.parent_span_id,
            handler.span_context.span_id(),
            "{activates}"
        );
    }
}

/// And of the nearest span that the exporter sees, if it does not see the current one.
#[tokio::test]
async fn a_current_span_that_is_not_exported_is_passed_over() {
    for activates in [true, false] {
        let work = async {
            let handler = tracing::info_span!("handler");
            let detail = handler.in_scope(|| tracing::debug_span!("detail"));
            fail().instrument(detail).instrument(handler).await;
        };
        let (spans, _) = exported(activates, work).await;
        let (handler, call) = (
            named(&spans, "handler"),
            named(&spans, "execute_tool search"),
        );
        assert_eq!(
            call.parent_span_id,
            handler.span_context.span_id(),
            "{activates}"
        );
        assert!(!call.attributes.is_empty());
    }
}
