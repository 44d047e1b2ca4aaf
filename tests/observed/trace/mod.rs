//! What a subscriber sees.

mod batch;
mod lines;
mod longest;
mod settings;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use expect_test::expect;
use serde_json::json;
use tower::{Layer as _, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    Answer, BoxError, CallInfo, Classify, ErrorKind, Event, Keys, Outcome, ReplaySafety, ToolCall,
    ToolError,
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    fit::FitLayer,
    health::Health,
    outcome::{ByError, classify_fn},
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    trace::{End, TraceHooks, TraceLayer},
};
use tower_toolcall_test::{Script, Step};
use tracing::{Subscriber, field::Visit, span};
use tracing_subscriber::{layer::Context, prelude::*, registry::LookupSpan};

use crate::listening;

type Fields = BTreeMap<String, String>;

/// Records everything: spans with all their fields, and events.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Seen>>);

#[derive(Clone, Debug, Default)]
struct Seen {
    spans: Vec<(Option<String>, String, Fields)>,
    ids: Vec<u64>,
    records: usize,
    events: Vec<(tracing::Level, String, Fields)>,
}

struct Collect<'a>(&'a mut Fields);

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

/// Records what happens in this test.
fn record() -> (Record, tracing::subscriber::DefaultGuard) {
    listening();
    let record = Record::default();
    let guard = tracing_subscriber::registry()
        .with(record.clone())
        .set_default();
    (record, guard)
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Record {
    fn on_new_span(&self, attrs: &span::Attributes<'_>, id: &span::Id, cx: Context<'_, S>) {
        let mut fields = Fields::new();
        attrs.record(&mut Collect(&mut fields));
        let parent = cx
            .span(id)
            .and_then(|s| s.parent())
            .map(|s| s.name().to_owned());
        let mut seen = self.0.lock().unwrap();
        seen.spans
            .push((parent, attrs.metadata().name().into(), fields));
        seen.ids.push(id.into_u64());
    }
    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, _: Context<'_, S>) {
        let mut seen = self.0.lock().unwrap();
        seen.records += 1;
        if let Some(i) = seen.ids.iter().rposition(|i| *i == id.into_u64()) {
            values.record(&mut Collect(&mut seen.spans[i].2));
        }
    }
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Collect(&mut fields));
        let name = fields.remove("message").unwrap_or_default();
        assert_eq!(name, event.metadata().name());
        let level = *event.metadata().level();
        self.0.lock().unwrap().events.push((level, name, fields));
    }
}

impl Record {
    fn taken(&self) -> Seen {
        self.0.lock().unwrap().clone()
    }
}

impl Seen {
    fn names(&self) -> Vec<(tracing::Level, &str)> {
        self.events.iter().map(|e| (e.0, e.1.as_str())).collect()
    }
}

/// What is seen of a call of `tool`, and its result.
async fn watch<F, Fut>(call: ToolCall, tool: F) -> (Seen, Result<&'static str, ToolError>)
where
    F: Fn(ToolCall) -> Fut + Clone,
    Fut: Future<Output = Result<&'static str, BoxError>>,
{
    let (record, _guard) = record();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(DeadlineLayer::inherited())
        .layer(TimeoutLayer::new(Duration::from_secs(10)))
        .layer(CatchPanicLayer::new())
        .service(service_fn(tool));
    let result = stack.oneshot(call).await;
    let seen = record.taken();
    (seen, result)
}

/// What is seen of one call of a tool in a layer.
async fn seen_of<L, Res>(layer: L, does: Step<Res>) -> Seen
where
    L: tower::Layer<Script<Res>>,
    L::Service: tower::Service<ToolCall>,
{
    let (record, _guard) = record();
    let _ = layer.layer(Script::always(does)).oneshot(call()).await;
    record.taken()
}

fn call() -> ToolCall {
    ToolCall::new("search")
        .with_server("docs")
        .with_id("c1")
        .with_trace_id("t1")
        .with_json(json!({ "query": "tower", "api_key": "s3cr3t-canary" }))
        .unwrap()
}

const DEBUG: tracing::Level = tracing::Level::DEBUG;
const INFO: tracing::Level = tracing::Level::INFO;
const WARN: tracing::Level = tracing::Level::WARN;
const ERROR: tracing::Level = tracing::Level::ERROR;

#[tokio::test(start_paused = true)]
async fn a_success_is_one_span_with_what_the_layers_below_did() {
    let (seen, _) = watch(call(), |_| async { Ok("done") }).await;
    let [(parent, name, fields)] = &seen.spans[..] else {
        panic!("{seen:?}")
    };
    assert_eq!((parent.as_deref(), name.as_str()), (None, "execute_tool"));
    for (field, value) in [
        ("otel.name", "execute_tool search"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "search"),
        ("gen_ai.tool.call.id", "c1"),
        ("gen_ai.tool.type", "function"),
        ("tool.server", "docs"),
        ("tool.trace_id", "t1"),
        ("tool.success", "true"),
        ("tool.attempts", "1"),
        ("tool.slow", "false"),
        ("tool.timeout_ms", "10000.0"),
        (
            "gen_ai.tool.call.arguments",
            r#"{"api_key":"[REDACTED]","query":"tower"}"#,
        ),
    ] {
        assert_eq!(
            fields.get(field).map(String::as_str),
            Some(value),
            "{field}"
        );
    }
    assert_eq!(
        seen.names(),
        [(DEBUG, "tool.start"), (INFO, "tool.success")]
    );
}

/// T7: slow, timed out, skipped and failed are told apart.
#[tokio::test(start_paused = true)]
async fn each_way_to_end_has_its_event_and_its_error_type() {
    let sleep = |s| tokio::time::sleep(Duration::from_secs(s));
    let (slow, _) = watch(call(), move |_| async move {
        sleep(9).await;
        Ok("done")
    })
    .await;
    assert_eq!(
        slow.names(),
        [
            (DEBUG, "tool.start"),
            (WARN, "tool.slow"),
            (INFO, "tool.success")
        ]
    );
    assert_eq!(slow.spans[0].2["tool.slow"], "true");

    let (timeout, _) = watch(call(), move |_| async move {
        sleep(11).await;
        Ok("done")
    })
    .await;
    assert_eq!(timeout.names()[1..], [(WARN, "tool.timeout")]);
    assert_eq!(timeout.spans[0].2["error.type"], "timeout");
    assert_eq!(timeout.events[1].2["timeout_ms"], "10000.0");

    let spent = call().with_deadline(tokio::time::Instant::now());
    let (skipped, _) = watch(spent, |_| async { Ok("done") }).await;
    assert_eq!(skipped.names()[1..], [(WARN, "tool.skipped")]);
    assert_eq!(skipped.spans[0].2["error.type"], "deadline_exceeded");

    let (failed, _) = watch(call(), |_| async { Err("502 Bad Gateway".into()) }).await;
    assert_eq!(failed.names()[1..], [(ERROR, "tool.failure")]);
    assert_eq!(failed.spans[0].2["error.type"], "upstream");
    assert_eq!(failed.spans[0].2["otel.status_code"], "ERROR");
    assert_eq!(failed.events[1].2["code"], "UPSTREAM_ERROR");

    let (panicked, _) = watch(call(), |_| async { panic!("boom") }).await;
    assert_eq!(panicked.names()[1..], [(ERROR, "tool.failure")]);
    assert_eq!(panicked.spans[0].2["error.type"], "panicked");
}

/// Rule 4: a call that is dropped unfinished is seen, by the subscriber and by the listener.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_seen_as_cancelled() {
    let (record, _guard) = record();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    let layer = TraceLayer::new().with_listener(move |event: &Event<'_>| {
        if let Event::Cancelled { call, elapsed, .. } = *event {
            log.lock().unwrap().push((call.tool().to_owned(), elapsed));
        }
    });
    let stack = ServiceBuilder::new().layer(layer).service(service_fn(|_| {
        std::future::pending::<Result<(), BoxError>>()
    }));
    let mut response = tokio_test::task::spawn(stack.oneshot(call()));
    tokio_test::assert_pending!(response.poll());
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(response);

    assert_eq!(
        *heard.lock().unwrap(),
        [("search".to_owned(), Duration::from_secs(2))]
    );
    let seen = record.taken();
    assert_eq!(
        seen.names(),
        [(DEBUG, "tool.start"), (INFO, "tool.cancelled")]
    );
    assert_eq!(seen.events[1].2["duration_ms"], "2000.0");
    assert_eq!(seen.spans[0].2["error.type"], "cancelled");
}

/// Trap 20, without a layer that catches: the panic goes on up and is seen as one. Rule 4: also of
/// a tool that panics before it has a future.
#[tokio::test]
async fn a_panic_that_nobody_catches_is_seen_as_a_panic() {
    for panics in [Step::<()>::panic("boom"), Step::panic_in_call("boom")] {
        let (record, _guard) = record();
        let stack = TraceLayer::new().layer(Script::always(panics));
        let mut response = tokio_test::task::spawn(stack.oneshot(call()));
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| response.poll()));
        assert!(polled.is_err());
        drop(response);
        let seen = record.taken();
        assert_eq!(seen.spans[0].2["error.type"], "panicked");
        assert_eq!(
            seen.names(),
            [(DEBUG, "tool.start"), (ERROR, "tool.failure")]
        );
    }
}

#[tokio::test]
async fn the_callers_span_is_the_parent_and_the_tools_span_a_child() {
    let (record, _guard) = record();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .service(service_fn(|_: ToolCall| async {
            tokio::task::yield_now().await;
            tracing::info_span!("inside").in_scope(|| ());
            Ok::<(), BoxError>(())
        }));
    let outer = tracing::info_span!("agent_turn");
    let entered = outer.enter();
    let response = stack.oneshot(call());
    let mut response = tokio_test::task::spawn(response);
    tokio_test::assert_pending!(response.poll());
    drop(entered);
    tokio_test::assert_ready_ok!(response.poll());
    let seen = record.taken();
    let parents: Vec<_> = seen
        .spans
        .iter()
        .map(|s| (s.1.as_str(), s.0.as_deref()))
        .collect();
    assert_eq!(
        parents,
        [
            ("agent_turn", None),
            ("execute_tool", Some("agent_turn")),
            ("inside", Some("execute_tool")),
        ]
    );
}

/// Rule 9, trap 15: a secret in arguments and in error text reaches no span and no event.
#[tokio::test]
async fn no_secret_reaches_a_span_or_an_event() {
    let call = call()
        .with_json(json!({
            "password": "s3cr3t-canary",
            "nested": [{ "Authorization": "Bearer s3cr3t-canary" }],
            "note": "use Bearer s3cr3t-canary-0123456789 please",
            "url": "https://user:s3cr3t-canary@example.com/",
        }))
        .unwrap();
    let (seen, result) = watch(call, |_| async {
        Err("503: Authorization: Bearer s3cr3t-canary-123 was refused".into())
    })
    .await;
    let error = result.unwrap_err();
    let shown = format!("{seen:?} {error} {error:?}");
    assert!(shown.contains("[REDACTED]"));
    assert!(!shown.contains("s3cr3t-canary"), "{shown}");
}

/// E6: an answer that is the tool's own error is `Ok` for the caller and no success in the span.
#[tokio::test]
async fn an_error_in_the_tools_own_words_is_no_success_in_the_span() {
    let classifier = classify_fn(|r: Result<&&str, &ToolError>| match r {
        Ok(text) if text.starts_with("error") => Outcome::reported(),
        other => ByError.classify(other),
    });
    let layer = TraceLayer::new().with_classifier(classifier);
    let seen = seen_of(layer, Step::ok("error: no table for 40")).await;
    assert_eq!(seen.spans[0].2["tool.success"], "false");
    assert_eq!(seen.spans[0].2["error.type"], "tool_error");
    assert_eq!(seen.names()[1..], [(WARN, "tool.failure")]);
}

/// The usual set-up of an exporter: it asks for spans only.
#[tokio::test]
async fn a_subscriber_that_takes_spans_only_sees_how_the_call_ended() {
    listening();
    let record = Record::default();
    let spans_only = tracing_subscriber::filter::filter_fn(|m| m.is_span());
    let _guard = tracing_subscriber::registry()
        .with(record.clone().with_filter(spans_only))
        .set_default();
    let stack = TraceLayer::new().layer(Script::always(Step::ok(())));
    stack.oneshot(call()).await.unwrap();
    let seen = record.taken();
    assert_eq!(seen.spans[0].2["tool.success"], "true");
    assert_eq!(seen.spans[0].2["tool.attempts"], "1");
    assert!(seen.spans[0].2.contains_key("tool.duration_ms"));
}

/// Whoever writes a span as text writes all of it anew with each record. Arguments can be left out.
#[tokio::test]
async fn a_span_is_filled_once_at_its_beginning_and_once_at_its_end() {
    let (record, _guard) = record();
    for layer in [TraceLayer::new(), TraceLayer::attempts()] {
        for does in [Step::ok("done"), Step::fail(ErrorKind::Failed)] {
            let layer = layer.clone().with_arguments(false).with_output(true);
            let _ = layer.layer(Script::always(does)).oneshot(call()).await;
        }
    }
    let seen = record.taken();
    assert_eq!((seen.spans.len(), seen.records), (4, 8));
    assert!(!format!("{seen:?}").contains("gen_ai.tool.call.arguments"));
}

/// Trap 6: a call that somebody outside drops after its deadline timed out.
#[tokio::test(start_paused = true)]
async fn a_call_dropped_after_its_deadline_is_seen_as_a_timeout() {
    let (record, _guard) = record();
    let stack = TraceLayer::new().layer(Script::<()>::always(Step::hang()));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
    let call = stack.oneshot(call().with_deadline(deadline));
    let dropped = tokio::time::timeout(Duration::from_secs(2), call).await;
    assert!(dropped.is_err());
    let seen = record.taken();
    assert_eq!(seen.spans[0].2["error.type"], "timeout");
    assert_eq!(seen.names()[1..], [(WARN, "tool.timeout")]);
}

/// O1: a span per attempt inside the call's, with how each ended.
#[tokio::test(start_paused = true)]
async fn each_attempt_has_a_span_inside_the_calls() {
    let (record, _guard) = record();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(RetryLayer::default())
        .layer(TraceLayer::attempts())
        .layer(TimeoutLayer::new(Duration::from_secs(10)))
        .service(service_fn(|call: ToolCall| async move {
            tracing::info_span!("inside").in_scope(|| ());
            match call.attempt() {
                1 => Err(ToolError::new(
                    ErrorKind::RateLimited,
                    "429 Too Many Requests, api_key=s3cr3t-canary".to_owned(),
                )),
                _ => Ok("done"),
            }
        }));
    stack.oneshot(call()).await.unwrap();
    let seen = record.taken();
    let names: Vec<_> = seen
        .spans
        .iter()
        .map(|(parent, name, _)| (parent.as_deref(), name.as_str()))
        .collect();
    assert_eq!(
        names,
        [
            (None, "execute_tool"),
            (Some("execute_tool"), "tool_attempt"),
            (Some("tool_attempt"), "inside"),
            (Some("execute_tool"), "tool_attempt"),
            (Some("tool_attempt"), "inside"),
        ]
    );
    let (call, first, second) = (&seen.spans[0].2, &seen.spans[1].2, &seen.spans[3].2);
    assert_eq!(
        (&*call["tool.attempts"], &*call["tool.max_attempts"]),
        ("2", "3")
    );
    assert_eq!(call["tool.success"], "true");
    assert!(call.contains_key("tool.waited_ms"));
    assert_eq!(first["otel.name"], "attempt 1 search");
    assert_eq!(
        (&*first["tool.attempt"], &*second["tool.attempt"]),
        ("1", "2")
    );
    assert_eq!(first["error.type"], "rate_limited");
    assert_eq!(first["tool.success"], "false");
    assert_eq!(second["tool.success"], "true");
    assert_eq!(second["tool.timeout_ms"], "10000.0");
    assert_eq!(second["tool.call_id"], "c1");
    // OpenTelemetry's name for a tool's execution is the call's alone: backends count by it.
    assert!(!first.contains_key("gen_ai.operation.name"));
    assert!(!format!("{seen:?}").contains("s3cr3t-canary"));
    // The events are the call's.
    assert_eq!(
        seen.names(),
        [
            (DEBUG, "tool.start"),
            (WARN, "tool.retry"),
            (INFO, "tool.success")
        ]
    );
    assert_eq!(seen.events[2].2["attempts"], "2");
    assert_eq!(seen.events[2].2["max_attempts"], "3");
}

/// An attempt that is dropped or panics ends its span, and says nothing else.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_dropped_is_cancelled_in_its_span_and_nowhere_else() {
    let (record, _guard) = record();
    let heard = Arc::new(Mutex::new(0));
    let count = heard.clone();
    let layer = TraceLayer::attempts().with_listener(move |_: &Event<'_>| {
        *count.lock().unwrap() += 1;
    });
    let stack = ServiceBuilder::new().layer(layer).service(service_fn(|_| {
        std::future::pending::<Result<(), BoxError>>()
    }));
    let mut response = tokio_test::task::spawn(stack.oneshot(call()));
    tokio_test::assert_pending!(response.poll());
    drop(response);
    let seen = record.taken();
    assert_eq!(seen.spans[0].2["error.type"], "cancelled");
    assert!(seen.events.is_empty());
    assert_eq!(*heard.lock().unwrap(), 0);
}

/// S8: the size of an answer is told wherever it is known, the redacted answer if it is asked for.
#[tokio::test]
async fn the_answers_size_is_in_span_and_event_and_the_answer_if_asked_for() {
    let answer = json!({ "user": "ada", "token": "s3cr3t-canary" });
    let size = answer.to_string().len().to_string();
    for asked in [false, true] {
        let layer = TraceLayer::new().with_output(asked);
        let seen = seen_of(layer, Step::ok(answer.clone())).await;
        let span = &seen.spans[0].2;
        assert_eq!(span["tool.output_bytes"], size);
        assert_eq!(seen.events[1].2["output_bytes"], size);
        let shown = span.get("gen_ai.tool.call.result").map(String::as_str);
        let redacted = r#"{"token":"[REDACTED]","user":"ada"}"#;
        assert_eq!(shown, asked.then_some(redacted));
    }
}

/// A tool that knows its size better says so, also where the answer's type is not a usual one; but
/// the size is that of the answer that the caller gets, not that of what a layer has made it from.
#[tokio::test]
async fn a_size_that_the_tool_tells_is_taken() {
    struct Opaque;
    let tool = service_fn(|call: ToolCall| async move {
        call.info().record(|r| r.set_output_bytes(4711));
        Ok::<_, BoxError>(Opaque)
    });
    let (record, _guard) = record();
    TraceLayer::new().layer(tool).oneshot(call()).await.unwrap();
    let mapped = tool.map_response(|_| "ok");
    TraceLayer::new()
        .layer(mapped)
        .oneshot(call())
        .await
        .unwrap();
    let sizes = record.taken().spans.into_iter();
    let sizes: Vec<_> = sizes
        .map(|span| span.2["tool.output_bytes"].clone())
        .collect();
    assert_eq!(sizes, ["4711", "4"]);
}

/// Hooks are told of every way to end, and only if somebody listens.
#[tokio::test(start_paused = true)]
async fn hooks_hear_how_calls_begin_and_end() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);
    impl TraceHooks<&'static str> for Log {
        fn on_start(&self, call: &ToolCall, span: &tracing::Span) {
            assert!(!span.is_disabled());
            self.0
                .lock()
                .unwrap()
                .push(format!("start {}", call.tool()));
        }
        fn on_end(&self, call: &CallInfo, end: &End<'_, &'static str>, _: &tracing::Span) {
            let line = format!(
                "{} {:?} {:?} {:?} {} {}",
                call.tool(),
                end.answer(),
                end.error().map(ToolError::code),
                end.failure(),
                end.duration().as_secs(),
                end.attempts(),
            );
            self.0.lock().unwrap().push(line);
        }
    }
    let log = Log::default();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new().with_hooks(log.clone()))
        .service(service_fn(|call: ToolCall| async move {
            match call.tool() {
                "fails" => Err(BoxError::from("boom")),
                "hangs" => std::future::pending().await,
                "panics" => panic!("boom"),
                _ => Ok("done"),
            }
        }));
    let run = || {
        let stack = stack.clone();
        async move {
            for tool in ["works", "fails"] {
                let _ = stack.clone().oneshot(ToolCall::new(tool)).await;
            }
            let hangs = stack.clone().oneshot(ToolCall::new("hangs"));
            let _ = tokio::time::timeout(Duration::from_secs(1), hangs).await;
            let panics = tokio::spawn(stack.oneshot(ToolCall::new("panics")));
            assert!(panics.await.unwrap_err().is_panic());
        }
    };
    let (_record, guard) = record();
    run().await;
    drop(guard);
    assert_eq!(
        log.0.lock().unwrap().split_off(0),
        [
            "start works",
            "works Some(\"done\") None None 0 1",
            "start fails",
            "fails None Some(\"TOOL_EXECUTION_FAILED\") Some(Failed) 0 1",
            "start hangs",
            "hangs None None Some(Cancelled) 1 1",
            "start panics",
            "panics None None Some(Panicked) 0 1",
        ]
    );
    let _nobody = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::default());
    run().await;
    assert!(log.0.lock().unwrap().is_empty());
}

/// S6: what would have to be printed is not printed when nobody listens, and nobody can see the
/// size of an answer if only errors are heard: it is not measured.
#[tokio::test]
async fn nothing_is_looked_at_when_nobody_listens() {
    #[derive(Clone)]
    struct NotAsked;
    impl TraceHooks<()> for NotAsked {
        fn answer<'a>(&self, _: &'a ()) -> Option<Answer<'a>> {
            panic!("asked for the answer")
        }
        fn output_bytes(&self, _: &()) -> Option<u64> {
            panic!("asked for the size")
        }
    }
    listening();
    let errors = tracing_subscriber::registry()
        .with(tracing_subscriber::filter::LevelFilter::ERROR)
        .with(Record::default());
    let nobody = tracing::subscriber::NoSubscriber::default();
    for subscriber in [
        tracing::Dispatch::new(nobody),
        tracing::Dispatch::new(errors),
    ] {
        let _guard = tracing::dispatcher::set_default(&subscriber);
        let layer = TraceLayer::new().with_hooks(NotAsked).with_output(true);
        let stack = layer.layer(Script::always(Step::ok(())));
        stack.oneshot(call()).await.unwrap();
    }
}

/// T6: no layer above need observe the call, and nobody else listen.
#[tokio::test(start_paused = true)]
async fn a_slow_call_is_told_by_a_timeout_layer_alone() {
    let layer = TimeoutLayer::new(Duration::from_secs(10));
    let seen = seen_of(layer, Step::ok(()).after(Duration::from_secs(9))).await;
    assert_eq!(seen.names(), [(WARN, "tool.slow")]);
}

/// O2: the names, levels and fields that `event` promises, all of them and no other.
#[tokio::test(start_paused = true)]
async fn each_event_has_the_level_and_the_fields_that_are_documented() {
    let (record, _guard) = record();
    let classifier = classify_fn(|r: Result<&serde_json::Value, &ToolError>| match r {
        Ok(answer) if answer["isError"] == true => Outcome::reported(),
        other => ByError.classify(other),
    });
    let breaker = CircuitBreakerLayer::builder()
        .with_keys(Keys::default().at_most(1))
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new().with_classifier(classifier))
        .layer(DeadlineLayer::inherited())
        .layer(RetryLayer::new(RetryPolicy::default()))
        .layer(RateLimitBackoffLayer::new())
        .layer(Health::new().layer())
        .layer(breaker)
        .layer(TimeoutLayer::new(Duration::from_secs(10)))
        .service(service_fn(|call: ToolCall| async move {
            let sleep = |s| tokio::time::sleep(Duration::from_secs(s));
            match call.tool() {
                "reports" => return Ok(json!({ "isError": true })),
                "fails" => {
                    return Err(ToolError::from_status(http::StatusCode::BAD_GATEWAY, "502"));
                }
                "limited" if call.attempt() == 1 => {
                    return Err(ToolError::new(ErrorKind::RateLimited, "429"));
                }
                "slow" => sleep(9).await,
                "hangs" => sleep(60).await,
                _ => {}
            }
            Ok(json!({}))
        }));
    let call = |tool: &str| {
        ToolCall::new(tool)
            .with_server("docs")
            .with_id("c1")
            .with_trace_id("t1")
            .with_agent_id("a1")
    };
    let soon = || tokio::time::Instant::now() + Duration::from_secs(1);
    for call in [
        call("works").with_timeout(Duration::from_secs(5)),
        call("reports"),
        call("slow"),
        call("limited"),
        call("hangs"),
        // Skipped; and with less time than the timeout.
        call("works").with_deadline(tokio::time::Instant::now()),
        // Refused to be sent again, and sent until its attempts are used up; then the breaker
        // opens.
        call("fails"),
        call("fails").with_replay_safety(ReplaySafety::Safe),
        call("fails").with_replay_safety(ReplaySafety::Safe),
        // Refused.
        call("fails"),
    ] {
        let _ = stack.clone().oneshot(call).await;
    }
    for _ in 0..2 {
        drop(tokio_test::task::spawn(
            stack.clone().oneshot(call("hangs")),
        ));
        let mut hangs = tokio_test::task::spawn(stack.clone().oneshot(call("hangs")));
        tokio_test::assert_pending!(hangs.poll());
    }
    let mut late =
        tokio_test::task::spawn(stack.clone().oneshot(call("hangs").with_deadline(soon())));
    tokio_test::assert_pending!(late.poll());
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(late);
    let told = ToolError::new(ErrorKind::Cancelled, "given up");
    let cancels = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(RetryLayer::default())
        .service(service_fn(move |_: ToolCall| {
            let told = told.clone();
            async move { Err::<(), _>(told) }
        }));
    cancels.oneshot(call("cancels")).await.unwrap_err();

    let seen = record.taken();
    let mut fields: BTreeMap<&str, (tracing::Level, BTreeSet<&str>)> = BTreeMap::new();
    for (level, name, of_event) in &seen.events {
        let entry = fields.entry(name).or_insert((*level, BTreeSet::new()));
        // P13: that of a failure goes by its kind. The worst is looked at.
        match name.as_str() {
            "tool.failure" => entry.0 = entry.0.min(*level),
            _ => assert_eq!(entry.0, *level, "{name}"),
        }
        entry.1.extend(of_event.keys().map(String::as_str));
    }
    let of_call = ["call_id", "server", "tool", "trace_id"];
    let lines = fields.into_iter().map(|(name, (level, fields))| {
        let is_of_call = |field: &&str| of_call.contains(field);
        let missing = of_call.len() - fields.iter().copied().filter(is_of_call).count();
        assert_eq!(
            missing,
            if name == "tool.evicted" {
                of_call.len()
            } else {
                0
            },
            "{name}"
        );
        let own = fields.into_iter().filter(|field| !is_of_call(field));
        format!("{name} {level}: {}", own.collect::<Vec<_>>().join(" "))
    });
    expect![[r#"
        tool.breaker WARN: calls failures from generation open_ms reason slow_calls to
        tool.cancelled INFO: attempts duration_ms max_attempts
        tool.evicted DEBUG: kept keys
        tool.exhausted ERROR: attempt code error
        tool.failure ERROR: attempts code duration_ms error max_attempts output_bytes status
        tool.health WARN: failures from generation reason to
        tool.inert WARN: help layer reason
        tool.rate_limited WARN: attempt code delay_ms hinted
        tool.rejected INFO: attempts code duration_ms error max_attempts retry_after_ms
        tool.retry WARN: attempt code delay_ms error hinted
        tool.retry_refused WARN: attempt code error refused
        tool.skipped WARN: code duration_ms error
        tool.slow WARN: duration_ms timeout_ms
        tool.start DEBUG: agent_id deadline_ms timeout_ms
        tool.success INFO: attempts duration_ms max_attempts output_bytes
        tool.timeout WARN: attempts code configured_timeout_ms duration_ms error max_attempts timeout_ms"#]].assert_eq(&lines.collect::<Vec<_>>().join("\n"));
}

/// W12: the opening of the breaker was the warning.
#[tokio::test(start_paused = true)]
async fn a_call_that_an_open_breaker_refuses_is_rejected_at_info_and_no_failure() {
    let (record, _guard) = record();
    let breaker = CircuitBreakerLayer::new();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .layer(breaker.clone())
        .service(service_fn(|_: ToolCall| async { Ok::<_, BoxError>(()) }));
    breaker.handle().breaker(&call()).force_open();
    stack.oneshot(call()).await.unwrap_err();

    let seen = record.taken();
    let names = seen.names();
    assert_eq!(
        names[names.len() - 2..],
        [(DEBUG, "tool.start"), (INFO, "tool.rejected")]
    );
    let (_, _, rejected) = seen.events.last().unwrap();
    assert_eq!(rejected["code"], "CIRCUIT_OPEN");
    assert_eq!(rejected["attempts"], "0");
    assert!(rejected.contains_key("retry_after_ms"), "{rejected:?}");
    let span = &seen.spans[0].2;
    assert_eq!(span["tool.outcome"], "rejected");
    assert_eq!(span["tool.attempts"], "0");
    assert_eq!(span["tool.success"], "false");
}

/// W12.
#[tokio::test(start_paused = true)]
async fn the_start_of_a_call_tells_its_agent_and_how_long_it_may_take() {
    let call = call()
        .with_agent_id("agent-1")
        .with_timeout(Duration::from_secs(3))
        .with_deadline(tokio::time::Instant::now() + Duration::from_secs(7));
    let (seen, _) = watch(call, |_| async { Ok("done") }).await;
    let (_, name, start) = &seen.events[0];
    assert_eq!(name, "tool.start");
    assert_eq!(start["agent_id"], "agent-1");
    assert_eq!(start["timeout_ms"], "3000.0");
    assert_eq!(start["deadline_ms"], "7000.0");
}

/// W13: nothing has failed where the caller does not want the answer any more.
#[tokio::test(start_paused = true)]
async fn a_call_that_its_caller_cancels_has_no_status_error() {
    let cancelled = seen_of(TraceLayer::new(), Step::<()>::fail(ErrorKind::Cancelled)).await;
    let (record, _guard) = record();
    let stack = TraceLayer::new().layer(Script::<()>::always(Step::hang()));
    let mut dropped = tokio_test::task::spawn(stack.oneshot(call()));
    tokio_test::assert_pending!(dropped.poll());
    drop(dropped);
    let dropped = record.taken();
    for span in [&cancelled.spans[0].2, &dropped.spans[0].2] {
        assert_eq!(span["tool.outcome"], "cancelled");
        assert_eq!(span["error.type"], "cancelled");
        assert_eq!(span.get("otel.status_code"), None);
        assert_eq!(span.get("otel.status_description"), None);
    }
}

/// A subscriber may take events and no spans, and of them one level only.
#[tokio::test]
async fn a_subscriber_that_takes_events_of_one_level_only_hears_them() {
    listening();
    for (level, expected) in [(INFO, "tool.success"), (DEBUG, "tool.start")] {
        let record = Record::default();
        let only = tracing_subscriber::filter::filter_fn(move |m| {
            m.is_event() && *m.level() == level && m.fields().field("tool").is_some()
        });
        let _guard = tracing_subscriber::registry()
            .with(only)
            .with(record.clone())
            .set_default();
        ServiceBuilder::new()
            .layer(TraceLayer::new())
            .service(service_fn(|_: ToolCall| async { Ok::<_, BoxError>("ok") }))
            .oneshot(call())
            .await
            .unwrap();
        let seen = record.taken();
        assert_eq!(seen.names(), [(level, expected)]);
        // P13: what is no part of the short line is recorded where DEBUG is heard.
        assert!(!seen.events[0].2.contains_key("output_bytes"));
    }
}

/// What a tool has to say while it is dropped belongs to its call.
#[tokio::test]
async fn what_happens_while_a_call_is_dropped_is_inside_its_span() {
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            tracing::info_span!("last words").in_scope(|| ());
        }
    }
    let (record, _guard) = record();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .service(service_fn(|_: ToolCall| async {
            let _last = Last;
            std::future::pending::<Result<(), BoxError>>().await
        }));
    let mut response = tokio_test::task::spawn(stack.oneshot(call()));
    tokio_test::assert_pending!(response.poll());
    drop(response);
    let seen = record.taken();
    assert_eq!(seen.spans[1].1, "last words");
    assert_eq!(seen.spans[1].0.as_deref(), Some("execute_tool"));
}

/// O1: who calls, and the timeout as it was configured. W13: a call's span has the conventions'
/// names of agent, conversation, arguments and result, and an attempt's has none.
#[tokio::test(start_paused = true)]
async fn a_span_tells_who_calls_and_both_timeouts() {
    let (record, _guard) = record();
    let call = call()
        .with_agent_id("agent-1")
        .with_session_id("session-1")
        .with_deadline(tokio::time::Instant::now() + Duration::from_secs(4));
    let attempts = TraceLayer::attempts();
    let answer = Step::ok("api_key=s3cr3t-canary");
    let answers = Script::always(answer.after(Duration::from_secs(1)));
    ServiceBuilder::new()
        .layer(TraceLayer::new().with_output(true))
        .layer(attempts.with_arguments(true).with_output(true))
        .layer(TimeoutLayer::new(Duration::from_secs(10)))
        .service(answers)
        .oneshot(call)
        .await
        .unwrap();
    let seen = record.taken();
    let (span, attempt) = (&seen.spans[0].2, &seen.spans[1].2);
    for (field, value) in [
        ("gen_ai.agent.id", "agent-1"),
        ("gen_ai.conversation.id", "session-1"),
        ("session.id", "session-1"),
        ("tool.timeout_ms", "4000.0"),
        ("tool.configured_timeout_ms", "10000.0"),
        ("gen_ai.tool.call.result", "api_key=[REDACTED]"),
    ] {
        assert_eq!(span[field], value, "{field}");
    }
    let theirs = attempt.keys().filter(|k| k.starts_with("gen_ai."));
    assert_eq!(theirs.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(attempt["session.id"], "session-1");
    assert_eq!(attempt["tool.result"], "api_key=[REDACTED]");
    assert!(attempt["tool.arguments"].contains("tower"));
}

#[tokio::test]
async fn an_answer_that_was_shortened_is_an_event_and_one_that_passes_is_none() {
    let passes = seen_of(FitLayer::new(100), Step::ok("x".repeat(100))).await;
    assert!(passes.names().is_empty());
    let seen = seen_of(FitLayer::new(100), Step::ok("x".repeat(101))).await;
    assert_eq!(seen.names(), [(tracing::Level::DEBUG, "tool.shortened")]);
    assert_eq!(seen.events[0].2["max_chars"], "100");
}
