//! What a span costs that the sampler drops.

use std::{cell::RefCell, sync::Arc};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    Answer, AnyError, ToolCall,
    trace::{TraceHooks, TraceLayer},
};
use tracing_subscriber::prelude::*;

use crate::kit::{Log, configure_process};

/// How many rows of 34 bytes the arguments have: 17 KiB.
const ROWS: u64 = 512;

/// Notes that somebody wanted the answer.
#[derive(Clone, Default)]
struct Asked(Arc<std::sync::atomic::AtomicBool>);

impl TraceHooks<String> for Asked {
    fn output_bytes(&self, response: &String) -> Option<u64> {
        Some(response.len() as u64)
    }

    fn answer<'a>(&self, response: &'a String) -> Option<Answer<'a>> {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        Some(Answer::Text(response))
    }
}

/// Calls a tool under OpenTelemetry's layer with this sampler, with a log beside it or without: how
/// many bytes were allocated, whether the answer was asked for, and what the log says.
async fn call(sampler: Sampler, has_log: bool) -> (u64, bool, String) {
    configure_process();
    let provider = SdkTracerProvider::builder().with_sampler(sampler).build();
    let log = Log::default();
    let writer = log.clone();
    let fmt = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(move || writer.clone());
    let _guard = tracing_subscriber::registry()
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("test")))
        .with(has_log.then_some(fmt))
        .set_default();
    let asked = Asked::default();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("sunny".to_owned()) });
    let traced = TraceLayer::new()
        .with_hooks(asked.clone())
        .with_output(true)
        .layer(tool);
    let rows: Vec<_> = (0..ROWS)
        .map(|n| json!({ "row": n, "city": "Reykjavik" }))
        .collect();
    let arguments = json!({ "password": "hunter2", "rows": rows });
    let call = ToolCall::new("search").with_json(arguments).unwrap();
    let counted = RefCell::new(Some((traced, call)));
    let allocated = allocation_counter::measure(|| {
        let (traced, call) = counted.take().unwrap();
        let mut calling = std::pin::pin!(traced.oneshot(call));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(calling.as_mut().poll(&mut cx).is_ready());
    });
    let said = log.text();
    let asked = asked.0.load(std::sync::atomic::Ordering::SeqCst);
    (allocated.bytes_total, asked, said)
}

/// W16: nothing is built for a context that is not sampled.
#[tokio::test]
async fn arguments_and_answers_are_not_redacted_for_a_span_that_is_sampled_out() {
    let (dropped, asked, _) = call(Sampler::AlwaysOff, false).await;
    assert!(!asked);
    let (kept, asked, _) = call(Sampler::AlwaysOn, false).await;
    assert!(asked);
    assert!(kept > dropped + 5 * ROWS, "{kept} bytes, {dropped}");
}

/// W16: who logs beside it reads all the same.
#[tokio::test]
async fn a_log_has_the_arguments_of_a_span_that_is_sampled_out() {
    let (_, asked, log) = call(Sampler::AlwaysOff, true).await;
    assert!(asked);
    assert!(log.contains("[REDACTED]") && log.contains("sunny"), "{log}");
    assert!(!log.contains("hunter2"));
}
