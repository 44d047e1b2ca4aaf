use std::{
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_layer::Layer;
use tower_service::Service;
use tower_toolcall::{
    BoxError, ToolCall, ToolError,
    validate::{Schema, Schemas},
};
use tracing::{field::Visit, span};
use tracing_subscriber::{layer::Context, prelude::*};

pub(crate) fn compile(schema: Value) -> Schema {
    Schema::compile(&schema).unwrap()
}

/// The schema of the tool `search`, and that of a tool of a server.
pub(crate) fn schemas() -> Schemas {
    let schemas = Schemas::new();
    schemas.insert(None, "search", search());
    schemas
}

pub(crate) fn search() -> Schema {
    compile(json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "minLength": 1 },
            "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
            "filters": { "type": "array", "items": {
                "type": "object",
                "properties": { "op": { "enum": ["eq", "ne", "lt", "gt"] }, "value": {} },
                "required": ["op"],
            } },
        },
        "required": ["query"],
        "additionalProperties": false,
    }))
}

pub(crate) fn call(arguments: Value) -> ToolCall {
    ToolCall::new("search")
        .with_id("call_1")
        .with_json(arguments)
        .unwrap()
}

pub(crate) type Tool = BoxCloneSyncService<ToolCall, Value, BoxError>;

/// A tool that answers with its arguments, and how often it was called.
pub(crate) fn echo() -> (Tool, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let tool = service_fn(move |call: ToolCall| {
        count.fetch_add(1, SeqCst);
        async move { Ok::<_, BoxError>(Value::Object(call.arguments().clone())) }
    });
    (BoxCloneSyncService::new(tool), calls)
}

/// What the tool answers below this layer, and how often it was called.
pub(crate) async fn run<L>(layer: L, call: ToolCall) -> (Result<Value, ToolError>, usize)
where
    L: Layer<Tool>,
    L::Service: Service<ToolCall, Response = Value, Error = ToolError>,
{
    let (tool, calls) = echo();
    let result = layer.layer(tool).oneshot(call).await;
    (result, calls.load(SeqCst))
}

/// Runs on the stack that a thread of tokio has. Returns how long it took, on Linux without the
/// time of other programs.
pub(crate) fn on_a_small_stack<T: Send + 'static>(
    test: impl FnOnce() -> T + Send + 'static,
) -> (T, Duration) {
    let thread = thread::Builder::new().stack_size(2 << 20);
    let timed = || {
        let begun = Instant::now();
        let result = test();
        (result, on_processor().unwrap_or_else(|| begun.elapsed()))
    };
    thread.spawn(timed).unwrap().join().unwrap()
}

/// How long this thread has run.
fn on_processor() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = stat.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// All that is traced while it lives.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<String>>);

impl Trace {
    pub(crate) fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        static ONCE: Once = Once::new();
        // Each thread has a subscriber that hears everything.
        ONCE.call_once(|| tracing_subscriber::registry().init());
        let trace = Self::default();
        let guard = tracing_subscriber::registry()
            .with(trace.clone())
            .set_default();
        (trace, guard)
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    /// The lines of the events of this name.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let begins = format!("{name} ");
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(&begins));
        lines.map(str::to_owned).collect()
    }
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Trace {
    fn on_new_span(&self, attrs: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        let text = &mut *self.0.lock().unwrap();
        write!(text, "span {}", attrs.metadata().name()).unwrap();
        attrs.record(&mut Line(text));
        text.push('\n');
    }
    fn on_record(&self, _: &span::Id, values: &span::Record<'_>, _: Context<'_, S>) {
        let text = &mut *self.0.lock().unwrap();
        text.push_str("record");
        values.record(&mut Line(text));
        text.push('\n');
    }
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let text = &mut *self.0.lock().unwrap();
        let meta = event.metadata();
        write!(text, "{} {}", meta.level(), meta.name()).unwrap();
        event.record(&mut Line(text));
        text.push_str(" \n");
    }
}
