//! What a subscriber sees of several calls.

use tower_toolcall::batch::{Parallel, Sequence};

use super::*;

async fn answer(call: ToolCall) -> Result<&'static str, BoxError> {
    match call.tool() {
        "hangs" => std::future::pending().await,
        _ => Ok("done"),
    }
}

fn calls<const N: usize>(tools: [&str; N]) -> [ToolCall; N] {
    tools.map(|tool| ToolCall::new(tool).with_id(tool).with_trace_id("trace-1"))
}

fn sequence_of(seen: &Seen) -> &Fields {
    let mut of = seen
        .events
        .iter()
        .filter(|(_, name, _)| name == "tool.sequence");
    let (level, _, fields) = of.next().unwrap();
    assert!(of.next().is_none(), "once");
    assert_eq!(*level, tracing::Level::INFO);
    fields
}

fn figures(fields: &Fields) -> Vec<String> {
    let names = [
        "calls",
        "succeeded",
        "failed",
        "timed_out",
        "skipped",
        "cancelled",
        "slow_calls",
    ];
    names
        .map(|name| format!("{name} {}", fields[name]))
        .to_vec()
}

/// O2: the end of a sequence.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_sequence_is_an_event() {
    let (record, _guard) = record();
    let sequence = Sequence::new(service_fn(answer)).with_budget(Duration::from_secs(10));
    // The first call that has a trace id names it.
    let unnamed = ToolCall::new("a");
    let [named, rest @ ..] = calls(["hangs", "b", "c"]);
    let report = sequence.run([unnamed, named].into_iter().chain(rest)).await;
    let seen = record.0.lock().unwrap().clone();
    let fields = sequence_of(&seen);
    assert_eq!(report.tally().skipped, 2);
    let expected = [
        "calls 4",
        "succeeded 1",
        "failed 0",
        "timed_out 1",
        "skipped 2",
        "cancelled 0",
        "slow_calls 0",
    ];
    assert_eq!(figures(fields), expected);
    assert_eq!(
        (&*fields["duration_ms"], &*fields["budget_ms"]),
        ("9500.0", "10000.0")
    );
    assert_eq!(fields["trace_id"], "trace-1");
}

/// O2: a sequence that is dropped in the middle tells so.
#[tokio::test(start_paused = true)]
async fn a_sequence_that_is_dropped_is_an_event() {
    let (record, _guard) = record();
    let running = Sequence::new(service_fn(answer)).run(calls(["a", "hangs", "b"]));
    assert!(
        tokio::time::timeout(Duration::from_secs(2), running)
            .await
            .is_err()
    );
    let seen = record.0.lock().unwrap().clone();
    let fields = sequence_of(&seen);
    let expected = [
        "calls 3",
        "succeeded 1",
        "failed 0",
        "timed_out 0",
        "skipped 0",
        "cancelled 2",
        "slow_calls 0",
    ];
    assert_eq!(figures(fields), expected);
    assert!(!fields.contains_key("budget_ms"));
}

/// O2, T7: no layer has seen the calls that were not started, and their end is an event all the
/// same.
#[tokio::test(start_paused = true)]
async fn calls_that_were_not_started_end_with_an_event() {
    let (record, _guard) = record();
    let parallel = Parallel::new(service_fn(answer)).with_limit(1).unwrap();
    let results = parallel.clone().with_budget(Duration::from_secs(1));
    results.run(calls(["hangs", "late"])).await;
    let dropped = parallel.run(calls(["hangs", "waiting"]));
    assert!(
        tokio::time::timeout(Duration::from_secs(2), dropped)
            .await
            .is_err()
    );
    let seen = record.0.lock().unwrap().clone();
    assert_eq!(
        seen.names(),
        [
            (tracing::Level::WARN, "tool.skipped"),
            (tracing::Level::INFO, "tool.cancelled"),
        ]
    );
    let (_, _, skipped) = &seen.events[0];
    assert_eq!(skipped["tool"], "late");
    assert_eq!(skipped["code"], "TOOL_DEADLINE_EXCEEDED");
    assert_eq!(seen.events[1].2["call_id"], "waiting");
}

/// G2: the short method for spans of attempts makes such spans.
#[tokio::test]
async fn tool_trace_attempts_makes_a_span_for_each_attempt() {
    use tower_toolcall::ServiceBuilderExt as _;
    let (record, _guard) = record();
    let tools = ServiceBuilder::new()
        .tool_trace()
        .tool_trace_attempts()
        .service(service_fn(answer));
    tools.oneshot(ToolCall::new("a")).await.unwrap();
    let seen = record.0.lock().unwrap().clone();
    let names: Vec<_> = seen.spans.iter().map(|span| span.1.as_str()).collect();
    assert_eq!(names, ["execute_tool", "tool_attempt"]);
}

/// O2: calls that a cancelled batch had not begun end with an event each; once.
#[tokio::test(start_paused = true)]
async fn calls_that_were_cancelled_before_they_began_end_with_an_event() {
    let (record, _guard) = record();
    let parallel = Parallel::new(service_fn(answer)).with_limit(1).unwrap();
    let mut running = parallel.run(calls(["hangs", "waits", "waits too"]));
    assert!(
        tokio::time::timeout(Duration::from_secs(2), &mut running)
            .await
            .is_err()
    );
    running.cancel();
    running.await;
    let seen = record.0.lock().unwrap().clone();
    assert_eq!(seen.names(), [(tracing::Level::INFO, "tool.cancelled"); 2]);
}
