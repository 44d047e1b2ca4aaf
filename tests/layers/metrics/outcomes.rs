//! How calls end (T7).

use std::time::Duration;

use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, Outcome, ReplaySafety, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    circuit_breaker::{CircuitBreakerLayer, Trip},
    deadline::DeadlineLayer,
    outcome::classify_fn,
    rate_limit::RateLimitBackoffLayer,
    retry::RetryLayer,
    timeout::TimeoutLayer,
    tool_metrics::{Metrics, OTHER},
};

use super::{answer, call, run, stats};

#[tokio::test(start_paused = true)]
async fn every_way_to_end_is_counted_apart() {
    let metrics = Metrics::new();
    for tool in ["works", "fails", "times_out", "skips", "cancels", "refuses"] {
        run(&metrics, tool).await;
        // What was refused before it was sent shows of no tool yet that there is one.
        let row = match tool {
            "skips" | "refuses" => OTHER,
            tool => tool,
        };
        let before = usize::from(tool == "refuses") as u64;
        let mut stats = metrics
            .snapshot()
            .tools
            .into_iter()
            .find(|t| t.tool == row)
            .unwrap()
            .stats;
        stats.calls -= before;
        stats.attempts -= before;
        assert_eq!(
            (stats.calls, stats.in_flight, stats.attempts),
            (1, 0, 1),
            "{tool}"
        );
    }
    assert_eq!(stats(&metrics, "works").successes, 1);
    assert_eq!(stats(&metrics, "fails").errors, 1);
    assert_eq!(stats(&metrics, "times_out").timeouts, 1);
    let other = metrics.snapshot();
    let other = other.tool(None, OTHER).unwrap();
    assert_eq!((other.skipped, other.breaker_rejected), (1, Some(1)));
    assert_eq!(stats(&metrics, "cancels").cancelled, 1);

    let total = metrics.snapshot().total;
    assert_eq!((total.calls, total.successes, total.errors), (6, 1, 2));
    // Four of six: a call that was given up is no error.
    assert_eq!(total.error_rate, 0.666667);
    let codes: Vec<_> = total.codes.iter().map(|(c, n)| (c.as_str(), *n)).collect();
    let expected = [
        ("CANCELLED", 1),
        ("CIRCUIT_OPEN", 1),
        ("TOOL_DEADLINE_EXCEEDED", 1),
        ("TOOL_EXECUTION_FAILED", 1),
        ("TOOL_TIMEOUT", 1),
    ];
    assert_eq!(codes, expected);
}

/// T6, T7: by the layers themselves, and without a listener.
#[tokio::test(start_paused = true)]
async fn slow_timed_out_skipped_and_failed_are_four_things() {
    let metrics = Metrics::new();
    let stack = |timeout| {
        ServiceBuilder::new()
            .layer(metrics.layer())
            .layer(DeadlineLayer::inherited())
            .layer(TimeoutLayer::new(timeout))
            .service(service_fn(answer))
    };
    let ms = Duration::from_millis;
    let second = || call("takes_a_second");
    stack(ms(1_100)).oneshot(second()).await.unwrap();
    stack(ms(900)).oneshot(second()).await.unwrap_err();
    let late = second().with_deadline(tokio::time::Instant::now());
    stack(ms(900)).oneshot(late).await.unwrap_err();
    stack(ms(900)).oneshot(call("fails")).await.unwrap_err();

    let all = stats(&metrics, "takes_a_second");
    assert_eq!((all.calls, all.successes, all.slow), (3, 1, Some(1)));
    assert_eq!((all.timeouts, all.skipped, all.errors), (1, 1, 0));
    let failed = stats(&metrics, "fails");
    assert_eq!((failed.errors, failed.slow, failed.timeouts), (1, None, 0));
}

/// E6.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_an_error_in_the_tools_own_words_is_no_success() {
    let metrics = Metrics::new();
    let reported = classify_fn(|_: Result<&&str, &ToolError>| Outcome::reported());
    let tools = ServiceBuilder::new()
        .layer(metrics.layer().with_classifier(reported))
        .service(service_fn(answer));
    tools.oneshot(call("works")).await.unwrap();
    let stats = stats(&metrics, "works");
    assert_eq!((stats.successes, stats.errors), (0, 1));
    assert_eq!(stats.codes["TOOL_EXECUTION_FAILED"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_counted_whether_it_is_caught_below_or_not() {
    let metrics = Metrics::new();
    let below = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(CatchPanicLayer::new())
        .service(service_fn(answer));
    below.oneshot(call("panics")).await.unwrap_err();
    let above = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(metrics.layer())
        .service(service_fn(answer));
    above.oneshot(call("panics")).await.unwrap_err();
    let in_call = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(metrics.layer())
        .service(service_fn(
            |_: ToolCall| -> std::future::Ready<Result<(), BoxError>> {
                panic!("before it has a future")
            },
        ));
    in_call.oneshot(call("panics")).await.unwrap_err();
    let stats = stats(&metrics, "panics");
    assert_eq!((stats.calls, stats.panicked, stats.in_flight), (3, 3, 0));
    assert_eq!(stats.codes["INTERNAL_ERROR"], 3);
}

#[tokio::test(start_paused = true)]
async fn latencies_are_those_of_calls_that_were_sent() {
    let metrics = Metrics::new();
    for tool in ["takes_a_second", "refuses", "skips"] {
        run(&metrics, tool).await;
    }
    let latency = metrics.snapshot().total.latency;
    assert_eq!(latency.count, 1);
    assert_eq!(latency.sum, Duration::from_secs(1));
    assert_eq!(latency.mean, Duration::from_secs(1));
    for at in [latency.p50, latency.p999, latency.max] {
        let off = at.as_secs_f64() - 1.0;
        assert!((0.0..0.01).contains(&off), "{at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_longer_than_the_range_is_clamped_and_counted() {
    let ms = Duration::from_millis;
    let metrics = Metrics::builder().with_latency(ms(1), ms(500), 3);
    let metrics = metrics.build().unwrap();
    run(&metrics, "takes_a_second").await;
    let latency = stats(&metrics, "takes_a_second").latency;
    assert_eq!((latency.count, latency.clamped), (1, 1));
    assert!((ms(500)..ms(501)).contains(&latency.max), "{latency:?}");
    assert_eq!(latency.mean, ms(1_000), "the sum is exact");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let us = Duration::from_micros(1);
    let field =
        |b: tower_toolcall::tool_metrics::MetricsBuilder| b.build().unwrap_err().field().to_owned();
    assert_eq!(field(Metrics::builder().with_max_tools(0)), "max_tools");
    assert_eq!(field(Metrics::builder().with_latency(us, us, 2)), "latency");
    assert_eq!(
        field(Metrics::builder().with_latency(us, 9 * us, 6)),
        "latency"
    );
}

#[tokio::test(start_paused = true)]
async fn of_many_codes_sixteen_are_told_apart() {
    let metrics = Metrics::new();
    let coded = |call: ToolCall| async move {
        let code = call.id().unwrap_or_default().to_owned();
        Err::<(), _>(ToolError::new(ErrorKind::Failed, "no").with_code(code))
    };
    let tools = ServiceBuilder::new()
        .layer(metrics.layer())
        .service(service_fn(coded));
    for n in 0..1_000 {
        let call = call("t").with_id(format!("CODE_{n}"));
        tools.clone().oneshot(call).await.unwrap_err();
    }
    let codes = stats(&metrics, "t").codes;
    assert_eq!(codes.len(), 17);
    assert_eq!((codes["CODE_3"], codes["_other"]), (1, 984));
}

/// A call that was sent once has a latency, also if a breaker refused its second attempt.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_refused_after_its_first_attempt_is_timed() {
    let metrics = Metrics::new();
    let breaker = CircuitBreakerLayer::builder()
        .with_trip(Trip::consecutive_failures(1))
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(RetryLayer::default())
        .layer(breaker)
        .service(service_fn(|_: ToolCall| async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Err::<(), _>(BoxError::from("503"))
        }));
    let safe = call("dies").with_replay_safety(ReplaySafety::Safe);
    let error = stack.oneshot(safe).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Upstream);
    let stats = stats(&metrics, "dies");
    assert_eq!((stats.attempts, stats.latency.count), (1, 1));
    assert!(stats.latency.max >= Duration::from_secs(30));
}

/// What our own gate refuses was not sent: it is no latency of the tool.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_cooldown_refuses_is_not_timed() {
    let metrics = Metrics::new();
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(
            RateLimitBackoffLayer::builder()
                .with_fail_fast()
                .build()
                .unwrap(),
        )
        .service(service_fn(|_: ToolCall| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Err::<(), _>(ToolError::new(ErrorKind::RateLimited, "slow down"))
        }));
    for _ in 0..10 {
        stack.clone().oneshot(call("limited")).await.unwrap_err();
    }
    let stats = stats(&metrics, "limited");
    assert_eq!((stats.calls, stats.latency.count), (10, 1));
}

/// Below a layer that repeats calls, each attempt is a call, of one attempt.
#[tokio::test(start_paused = true)]
async fn below_retry_each_attempt_counts_once() {
    let metrics = Metrics::new();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::default())
        .layer(metrics.layer())
        .service(service_fn(|_: ToolCall| async {
            Err::<(), _>(BoxError::from("503"))
        }));
    let safe = call("fails").with_replay_safety(ReplaySafety::Safe);
    stack.oneshot(safe).await.unwrap_err();
    let stats = stats(&metrics, "fails");
    assert_eq!((stats.calls, stats.attempts), (3, 3));
}

/// The count of a bucket after one call that takes so long.
async fn bucket(metrics: &Metrics, takes: Duration, le: &str) -> String {
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .service(service_fn(move |_: ToolCall| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, BoxError>(())
        }));
    stack.oneshot(ToolCall::new("digs")).await.unwrap();
    let text = metrics.prometheus();
    let line = format!(r#"tool_execution_duration_ms_bucket{{server="",tool="digs",le="{le}"}} "#);
    let (_, count) = text.split_once(&line).unwrap();
    count.lines().next().unwrap().to_owned()
}

/// What is longer than the longest that is told apart fits no bound but the last.
#[tokio::test(start_paused = true)]
async fn a_clamped_call_is_only_in_the_last_bucket() {
    let (shortest, longest) = (Duration::from_micros(1), Duration::from_secs(300));
    for (le, count) in [("300000", "0"), ("+Inf", "1")] {
        let metrics = Metrics::builder().with_latency(shortest, longest, 3);
        let metrics = metrics.build().unwrap();
        let takes = Duration::from_secs(6000);
        assert_eq!(bucket(&metrics, takes, le).await, count);
    }
}

/// A timeout of 2 s ends a call a moment after 2 s: it was not in time.
#[tokio::test(start_paused = true)]
async fn a_call_that_ran_out_of_time_is_not_among_those_in_time() {
    for (le, count) in [("2000", "0"), ("5000", "1")] {
        let takes = Duration::from_micros(2_000_500);
        assert_eq!(bucket(&Metrics::new(), takes, le).await, count);
    }
}
