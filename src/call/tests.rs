use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::*;
use crate::{ErrorKind, Trust};

fn call() -> ToolCall {
    ToolCall::new("search")
}

/// N3: the request moves through every layer, so its size is every layer's cost.
#[test]
fn a_call_is_40_bytes() {
    assert_eq!(size_of::<ToolCall>(), 40);
}

#[test]
fn a_clone_shares_the_arguments() {
    let a = call().with_json(json!({ "q": "x" })).unwrap();
    let b = a.clone();
    assert!(std::ptr::eq(a.arguments(), b.arguments()));
}

#[test]
fn writing_to_a_clone_leaves_the_original_alone() {
    let a = call().with_id("1");
    let b = a.clone().with_id("2");
    assert_eq!((a.id(), b.id()), (Some("1"), Some("2")));
    assert!(std::ptr::eq(a.arguments(), b.arguments()));
}

/// T5: an outer deadline is never extended inside.
#[tokio::test(start_paused = true)]
async fn a_later_deadline_never_extends_an_earlier_one() {
    let now = Instant::now();
    let mut call = call().with_deadline(now + Duration::from_secs(5));
    call.tighten(now + Duration::from_secs(9));
    assert_eq!(call.deadline(), Some(now + Duration::from_secs(5)));
    call.tighten(now + Duration::from_secs(1));
    assert_eq!(call.deadline(), Some(now + Duration::from_secs(1)));
}

#[test]
fn a_claim_is_carried_by_clones_made_after_it() {
    let call = call();
    let before = call.clone();
    assert!(!call.claim(Claim::Retry));
    assert!(call.claim(Claim::Retry));
    assert!(call.clone().is_claimed(Claim::Retry));
    assert!(!call.is_claimed(Claim::RateLimit));
    call.claim(Claim::RateLimit);
    assert!(call.clone().is_claimed(Claim::RateLimit));
    assert!(!before.is_claimed(Claim::Retry));
}

#[test]
fn attempts_are_counted_from_one() {
    let mut call = call();
    assert_eq!(call.attempt(), 1);
    call.next_attempt();
    assert_eq!(call.attempt(), 2);
}

#[test]
fn a_record_that_a_layer_keeps_for_its_attempts_is_not_observed() {
    let mut call = call();
    assert!(call.begin_repeated(3));
    let is_observed = |call: &ToolCall| {
        let mut observed = None;
        call.record(|r| observed = Some(r.is_observed()));
        observed
    };
    assert_eq!(is_observed(&call), Some(false));
    let seen = call.observe();
    assert_eq!(is_observed(&call), Some(true));
    drop(seen);
    call.end_recording();
    assert_eq!(is_observed(&call), None);
}

#[test]
fn an_observer_reads_what_layers_below_record() {
    let mut call = call();
    let seen = call.observe();
    call.next_attempt();
    call.record(|r| r.set_timeout(Duration::from_secs(4), Duration::from_secs(5)));
    call.info().record(|r| {
        r.set_slow();
        r.add_wait(Duration::from_secs(1));
        r.add_wait(Duration::from_secs(2));
        r.add_refusal();
    });
    assert_eq!(seen.timeout(), Some(Duration::from_secs(4)));
    assert_eq!(seen.configured_timeout(), Some(Duration::from_secs(5)));
    assert_eq!((seen.attempts(), seen.refusals()), (2, 1));
    assert_eq!(seen.waited(), Duration::from_secs(3));
    assert!(seen.is_slow());
}

#[test]
fn the_copies_that_a_retry_makes_share_the_record() {
    let mut call = call();
    let seen = call.observe();
    let mut copy = call.clone();
    copy.next_attempt();
    assert_eq!(seen.attempts(), 2);
}

#[test]
fn the_record_survives_copy_on_write() {
    let mut call = call();
    let seen = call.observe();
    let _template = call.clone();
    let call = call.with_id("changed below the observer");
    call.record(|r| r.set_slow());
    assert!(seen.is_slow());
}

#[test]
fn a_call_that_is_cloned_and_sent_twice_gets_two_records() {
    let (mut a, mut b) = (call(), call());
    b.clone_from(&a);
    let (seen_a, seen_b) = (a.observe(), b.observe());
    a.record(|r| r.set_slow());
    assert!(seen_a.is_slow());
    assert!(!seen_b.is_slow());
}

#[test]
fn a_clone_that_is_sent_later_starts_with_a_clean_record() {
    let template = call();
    let mut first = template.clone();
    let seen = first.observe();
    first.next_attempt();
    first.record(|r| {
        r.set_slow();
        r.add_refusal();
        r.add_wait(Duration::from_secs(1));
        r.set_timeout(Duration::from_secs(1), Duration::from_secs(2));
    });
    drop(seen);
    let mut second = template.clone();
    let seen = second.observe();
    assert!(!seen.is_slow());
    assert_eq!((seen.attempts(), seen.refusals()), (1, 0));
    assert_eq!((seen.timeout(), seen.configured_timeout()), (None, None));
    assert_eq!(seen.waited(), Duration::ZERO);
}

#[test]
fn of_nested_timeouts_the_shortest_is_in_force_until_the_next_attempt() {
    let mut call = call();
    let s = Duration::from_secs;
    let seen = call.observe();
    assert_eq!(seen.timeout(), None);
    call.record(|r| r.set_timeout(s(5), s(5)));
    call.record(|r| r.set_timeout(s(30), s(30)));
    assert_eq!(seen.timeout(), Some(s(5)));
    call.record(|r| r.set_timeout(Duration::ZERO, s(30)));
    assert_eq!(seen.timeout(), Some(Duration::ZERO));
    call.next_attempt();
    assert_eq!(seen.timeout(), None);
    call.record(|r| r.set_timeout(Duration::MAX, Duration::MAX));
    assert_eq!(seen.timeout(), None);
}

#[test]
fn a_call_whose_recording_is_over_is_observed_afresh() {
    let mut call = call();
    let earlier = call.observe();
    call.record(|r| r.set_slow());
    drop(earlier);
    let seen = call.observe();
    assert!(!seen.is_slow());
    call.record(|r| r.add_refusal());
    assert_eq!(seen.refusals(), 1);
}

#[test]
fn a_straggler_of_an_earlier_recording_is_ignored() {
    let template = call();
    let mut first = template.clone();
    drop(first.observe());
    let mut second = template.clone();
    let seen = second.observe();
    first.record(|r| r.set_slow());
    assert!(!seen.is_slow());
}

#[test]
fn nested_observers_read_the_same_record() {
    let mut call = call();
    let outer = call.observe();
    let inner = call.observe();
    call.record(|r| r.set_slow());
    assert!(inner.is_slow());
    drop(inner);
    call.record(|r| r.add_refusal());
    assert_eq!(outer.refusals(), 1);
}

/// Rule 9: nothing that a caller passed as an argument is printed.
#[test]
fn debug_shows_names_and_sizes_and_no_value() {
    let call = call()
        .with_json(json!({ "password": "hunter2", "q": "where" }))
        .unwrap();
    let shown = format!("{call:?} {:?}", call.info());
    assert!(
        shown.contains("search") && shown.contains("2 keys"),
        "{shown}"
    );
    assert!(
        !shown.contains("hunter2") && !shown.contains("where"),
        "{shown}"
    );
}

/// Bad input: arguments that are no object are a clear error.
#[test]
fn arguments_that_are_no_object_are_refused() {
    for (value, what) in [
        (json!([1]), "an array"),
        (json!("x"), "a string"),
        (json!(1), "a number"),
    ] {
        let error = call().with_json(value).unwrap_err();
        assert_eq!(
            (error.kind(), error.tool()),
            (ErrorKind::InvalidInput, Some("search"))
        );
        assert!(error.message().contains(what), "{error}");
    }
    assert!(
        call()
            .with_json(Value::Null)
            .unwrap()
            .arguments()
            .is_empty()
    );
}

/// Bad input: text that a model got wrong is an error that does not quote it.
#[test]
fn broken_json_text_is_refused_without_being_quoted() {
    let error = call()
        .with_json_str(r#"{"password": "hunter2""#)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(!format!("{error:?}").contains("hunter2"));
    assert!(call().with_json_str("  ").unwrap().arguments().is_empty());
}

fn nested(levels: usize) -> Map<String, Value> {
    let mut value = Value::Null;
    for _ in 1..levels {
        value = Value::Array(vec![value]);
    }
    Map::from_iter([("a".to_owned(), value)])
}

/// Bad input: 10,000 levels are an error, not a stack overflow, as a value and as text.
#[test]
fn ten_thousand_levels_are_refused_without_recursion() {
    let mut call = call().with_arguments(nested(10_000));
    assert_eq!(call.check().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(serde_json::to_string(&call).is_err());
    assert!(call.sanitized().to_string().len() < 1000);
    assert!(call.take_arguments().is_empty());

    let text = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(
        super::ToolCall::new("x")
            .with_json_str(&text)
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidInput
    );
    let Value::Object(map) = json!({}) else {
        unreachable!()
    };
    assert!(ToolCall::new("x").with_arguments(map).check().is_ok());
}

/// Bad input: a name of a megabyte is an error, and everything printed of it stays short.
#[test]
fn a_name_of_a_megabyte_is_refused_and_printed_short() {
    let call = ToolCall::new("x".repeat(1 << 20));
    let error = call.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let shown = format!("{call:?} {error:?} {error} {}", error.to_json_rpc());
    assert!(shown.len() < 2000, "{}", shown.len());
}

#[test]
fn names_are_checked() {
    assert!(call().check().is_ok());
    for name in ["", "a\nb", "\u{0}"] {
        assert_eq!(
            ToolCall::new(name).check().unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
}

#[test]
fn serde_carries_what_the_caller_wrote() {
    let call = call()
        .with_server("docs")
        .with_id("1")
        .with_json(json!({ "q": "x" }))
        .unwrap()
        .with_timeout(Duration::from_millis(1500))
        .with_replay_safety(ReplaySafety::Safe);
    let text = serde_json::to_string(&call).unwrap();
    assert_eq!(
        text,
        r#"{"name":"search","arguments":{"q":"x"},"id":"1","server":"docs","timeout_ms":1500,"replay_safe":true}"#
    );
    let back: ToolCall = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn serde_refuses_arguments_that_are_no_object() {
    let error = serde_json::from_str::<ToolCall>(r#"{"name":"x","arguments":[1]}"#).unwrap_err();
    assert!(
        error.to_string().contains("must be a JSON object"),
        "{error}"
    );
}

#[test]
fn arguments_are_moved_out_of_an_unshared_call_and_copied_out_of_a_shared_one() {
    let mut a = call().with_json(json!({ "q": "x" })).unwrap();
    // A handle on the names is no share in the arguments.
    let _info = a.info();
    let mut b = a.clone();
    assert_eq!(b.take_arguments().len(), 1);
    drop(b);
    assert_eq!(a.arguments().len(), 1);
    assert_eq!(a.take_arguments().len(), 1);
    assert!(a.arguments().is_empty());
}

/// T8: a report of another call, or of the time before the call, never shortens the idle time.
#[tokio::test(start_paused = true)]
async fn the_idle_time_starts_no_earlier_than_the_wait() {
    let mut call = call();
    let s = Duration::from_secs;
    let progress = call.ask_for_progress(s(5));
    tokio::time::advance(s(3)).await;
    let since = Instant::now();
    assert_eq!(progress.limit(since), Some(since + s(5)));
}

/// T8: nested idle timeouts both hear of progress.
#[tokio::test(start_paused = true)]
async fn progress_is_told_to_every_layer_that_asked() {
    let mut call = call();
    assert!(call.progress().is_none());
    let start = Instant::now();
    let s = Duration::from_secs;
    let outer = call.ask_for_progress(s(10));
    let inner = call.ask_for_progress(s(5));
    tokio::time::advance(s(3)).await;
    call.progress().unwrap().report();
    assert_eq!(outer.limit(start), Some(start + s(13)));
    assert_eq!(inner.limit(start), Some(start + s(8)));
}

/// Issue 48, D4: a table lists values of the tool that it names, and not of another one.
#[test]
fn another_server_has_none_of_the_listed_values() {
    let docs = Identity::new("search").with_server("docs");
    let docs = docs.with_timeout(Duration::from_secs(1));
    let docs = docs.with_replay_safety(ReplaySafety::Safe);
    let moved = call().resolved(&docs).with_server("shop");
    let values = |call: &ToolCall| (call.replay_safety(), call.timeout());
    assert_eq!(values(&moved), (ReplaySafety::Unknown, None));
    let own = call().with_replay_safety(ReplaySafety::Safe);
    let own = own.resolved(&docs).with_server("shop");
    assert_eq!(values(&own), (ReplaySafety::Safe, None));
}

/// Issue 48, D2: an idle timeout that is asked while a pause ends still sees it, or its end.
#[test]
fn the_end_of_a_pause_is_no_idle_time() {
    const ALLOWED: Duration = Duration::from_secs(60);
    let progress = call().ask_for_progress(ALLOWED);
    let begun = Instant::now();
    while Instant::now() == begun {}
    let paused = Instant::now();
    let pause = progress.pause();
    let limit = progress.limit_while(begun, || drop(pause));
    assert!(limit >= Some(paused + ALLOWED));
    assert!(progress.limit(begun) >= Some(paused + ALLOWED));
}

/// Issue 48: the largest number is a size, and not one that is unknown.
#[test]
fn the_largest_size_is_not_unknown() {
    let mut call = call();
    let seen = call.observe();
    call.record(|record| record.set_output_bytes(u64::MAX));
    assert!(seen.output_bytes().is_some());
}

/// Issue 48, D12: a timeout of less than a millisecond is not one of zero for the next process.
#[test]
fn a_timeout_is_written_rounded_up() {
    let call = call().with_timeout(Duration::from_micros(500));
    let written = serde_json::to_value(&call).unwrap();
    assert_eq!(written["timeout_ms"], 1);
}

/// V3.
#[tokio::test(start_paused = true)]
async fn whoever_set_the_tighter_deadline_is_remembered() {
    let now = tokio::time::Instant::now();
    let at = |secs| now + Duration::from_secs(secs);
    let mut call = ToolCall::new("t").with_deadline(at(10));
    call.tighten_remote(at(20), Trust::Untrusted);
    assert!(!call.is_deadline_untrusted());
    call.tighten_remote(at(5), Trust::Untrusted);
    call.tighten(at(6));
    assert!(call.is_deadline_untrusted() && call.clone().is_deadline_untrusted());
    assert_eq!(call.deadline(), Some(at(5)));
    call.tighten(at(4));
    assert!(!call.is_deadline_untrusted());
}

/// S-1: arguments that were parsed elsewhere.
#[test]
fn arguments_with_too_many_values_are_refused_by_the_check() {
    let items = vec![Value::Null; MAX_VALUES - 3];
    let at_most = call().with_json(json!({ "a": items })).unwrap();
    at_most.check().unwrap();
    let items = vec![Value::Null; MAX_VALUES - 2];
    let error = call().with_json(json!({ "a": items })).unwrap();
    let error = error.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.message(), "the arguments have more than 40000 values");
}
