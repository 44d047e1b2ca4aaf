//! All places where what a caller or a tool says may come to light.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Event, ReplaySafety, ToolCall, ToolError, ToolResult,
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    rate_limit::RateLimitBackoffLayer,
    result::ToolResultLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
    trace::TraceLayer,
};
use tracing::{
    Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::listening;

/// Writes down all that it hears.
#[derive(Clone, Default)]
struct Hears(Arc<Mutex<String>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = writeln!(self.0, "{field}={value:?}");
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = writeln!(self.0, "{field}={value}");
    }
}

impl Subscriber for Hears {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        span.record(&mut Line(&mut self.0.lock().unwrap()));
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut Line(&mut self.0.lock().unwrap()));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Line(&mut self.0.lock().unwrap()));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// What each sink shows of `input`, which comes as arguments, as an answer, and as the text of an
/// error.
pub(crate) fn of(input: &Value) -> Vec<(&'static str, String)> {
    let call = call(input);
    let text = match input {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    };
    let (success, heard) = run(call.clone(), Ok(input.clone()));
    let (failure, failed) = run(call.clone(), Err(text.clone()));
    let error = failure.error().unwrap().clone();
    let told = ToolError::new(ErrorKind::InvalidInput, text.clone());
    let rich = ToolError::from_box(text.clone().into())
        .with_body(&text)
        .with_detail("input", input.clone())
        .with_detail("text", text.clone())
        .with_source(BoxError::from(text.clone()));
    let serialised = |error: &ToolError| serde_json::to_string(error).unwrap();
    vec![
        ("arguments, printed", call.sanitized().to_string()),
        (
            "arguments, serialised",
            serde_json::to_string(&call.sanitized()).unwrap(),
        ),
        ("call, Debug", format!("{call:?} {:?}", call.info())),
        ("names", names(&text)),
        ("trace of a success", heard),
        ("trace of a failure", failed),
        ("error, Display", format!("{error} {told}")),
        (
            "error, Debug",
            format!("{error:?} {told:?} {rich:?} {rich:#?}"),
        ),
        ("error, serialised", serialised(&error) + &serialised(&rich)),
        ("error, message", error.message().to_owned()),
        ("error, body", rich.body().unwrap().to_owned()),
        ("error, details", rich.details().unwrap().to_string()),
        ("error, JSON-RPC", error.to_json_rpc().to_string()),
        (
            "user's message",
            error.user_message() + &told.user_message(),
        ),
        (
            "model's message",
            error.model_message() + &told.model_message(),
        ),
        ("result of a success, Debug", format!("{success:?}")),
        (
            "result of a success, serialised",
            serde_json::to_string(&success).unwrap(),
        ),
        ("result of a failure, Debug", format!("{failure:?}")),
        (
            "result of a failure, serialised",
            serde_json::to_string(&failure).unwrap(),
        ),
    ]
}

/// All that shows the names of a call, if one of them is `text`.
fn names(text: &str) -> String {
    let named = ToolCall::new(text)
        .with_server(text)
        .with_id(text)
        .with_agent_id(text)
        .with_trace_id(text)
        .with_session_id(text);
    let (success, heard) = run(named.clone(), Ok(Value::Null));
    let (failure, failed) = run(named.clone(), Err("503".into()));
    let error = failure.error().unwrap();
    format!(
        "{named:?} {success:?} {failure:?} {error} {error:?} {} {} {} {heard} {failed} {} {}",
        error.user_message(),
        error.model_message(),
        error.to_json_rpc(),
        serde_json::to_string(&success).unwrap(),
        serde_json::to_string(&failure).unwrap(),
    )
}

fn call(input: &Value) -> ToolCall {
    let arguments = match input {
        Value::Object(map) => map.clone(),
        text => [("input".to_owned(), text.clone())].into_iter().collect(),
    };
    ToolCall::new("search")
        .with_id("c1")
        .with_arguments(arguments)
        .with_replay_safety(ReplaySafety::Safe)
}

/// A call through the whole stack, and all that is heard of it.
fn run(call: ToolCall, answer: Result<Value, String>) -> (ToolResult<Value>, String) {
    listening();
    let hears = Hears::default();
    let metrics = Metrics::new();
    let _guard = tracing::subscriber::set_default(hears.clone());
    let events = hears.clone();
    let listener: Arc<dyn tower_toolcall::Listen> = Arc::new(move |event: &Event<'_>| {
        let _ = writeln!(events.0.lock().unwrap(), "{event:?}");
    });
    let breakers = CircuitBreakerLayer::builder()
        .with_listener(listener.clone())
        .build()
        .unwrap();
    let policy = RetryPolicy::default().with_listener(listener);
    let tools = ServiceBuilder::new()
        .layer(ToolResultLayer::new())
        .layer(TraceLayer::new().with_output(true))
        .layer(metrics.layer())
        .layer(DeadlineLayer::new(Duration::from_secs(3600)))
        .layer(RetryLayer::new(policy))
        .layer(
            TraceLayer::attempts()
                .with_arguments(true)
                .with_output(true),
        )
        .layer(RateLimitBackoffLayer::new())
        .layer(breakers)
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::new())
        .service(service_fn(move |_: ToolCall| {
            let answer = answer.clone();
            async move { answer.map_err(|text| BoxError::from(format!("503: {text}"))) }
        }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let Ok(result) = runtime.block_on(tools.oneshot(call));
    let mut heard = hears.0.lock().unwrap().clone();
    let snapshot = metrics.snapshot();
    let json = serde_json::to_string(&snapshot).unwrap();
    let text = metrics.prometheus();
    let _ = write!(heard, "{snapshot} {snapshot:?} {json} {text}");
    (result, heard)
}
