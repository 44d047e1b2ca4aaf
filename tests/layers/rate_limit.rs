use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use http::StatusCode;
use tokio::time::{Instant, sleep};
use tokio_test::task;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, Event, Execution, Key, Keys, Outcome, ToolCall, ToolError,
    backoff::Jitter,
    circuit_breaker::CircuitBreakerLayer,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryLayer, RetryPolicy},
};
use tower_toolcall_test::{Events, Script, Step};

use crate::kit::secs;

fn call() -> ToolCall {
    ToolCall::new("search").with_server("docs")
}

fn limited(retry_after: Option<u64>) -> ToolError {
    let error = ToolError::new(ErrorKind::RateLimited, "429 Too Many Requests");
    match retry_after {
        Some(after) => error.with_retry_after(secs(after)),
        None => error,
    }
}

/// When the tool was called.
type Calls = Arc<Mutex<Vec<Instant>>>;

trait Tool:
    Service<ToolCall, Response = usize, Error = ToolError, Future: Send> + Clone + Send
{
}
impl<S> Tool for S where
    S: Service<ToolCall, Response = usize, Error = ToolError, Future: Send> + Clone + Send
{
}

/// A tool whose first call meets a limit.
fn limited_once(hint: Option<u64>) -> (Calls, impl Tool) {
    tool(move |n| if n == 1 { Err(limited(hint)) } else { Ok(n) })
}

/// A tool that answers by the number of its call, from 1.
fn tool(answer: impl Fn(usize) -> Result<usize, ToolError> + Clone + Send) -> (Calls, impl Tool) {
    let calls = Calls::default();
    let seen = Arc::clone(&calls);
    let tool = service_fn(move |_: ToolCall| {
        let mut seen = seen.lock().unwrap();
        seen.push(Instant::now());
        let result = answer(seen.len());
        async move { result }
    });
    (calls, tool)
}

fn count(calls: &Calls) -> usize {
    calls.lock().unwrap().len()
}

/// L1, L2, L4: without a hint the call is sent again after 30 s, by the layer alone; the server's
/// delay wins, and is never shortened. After three attempts the last error is returned.
#[tokio::test(start_paused = true)]
async fn alone_it_waits_and_sends_the_call_again() {
    for (hint, limits, waits) in [(None, 1, 30..=31), (Some(7), 1, 7..=8), (Some(1), 9, 2..=4)] {
        let (calls, tool) = tool(move |n| {
            if n <= limits {
                Err(limited(hint))
            } else {
                Ok(n)
            }
        });
        let start = Instant::now();
        let result = RateLimitBackoffLayer::new()
            .layer(tool)
            .oneshot(call())
            .await;
        let took = start.elapsed();
        assert!(
            took >= secs(*waits.start()) && took <= secs(*waits.end()),
            "{took:?}"
        );
        match result {
            Ok(answer) => assert_eq!((answer, limits, count(&calls)), (2, 1, 2)),
            Err(error) => {
                let told = (error.kind(), error.attempts(), limits, count(&calls));
                assert_eq!(told, (ErrorKind::RateLimited, Some(3), 9, 3));
            }
        }
    }
}

/// Trap 7: a limit that was met in the middle of the work does not make a call safe to repeat.
#[tokio::test(start_paused = true)]
async fn a_limit_after_which_the_tool_may_have_run_is_not_repeated() {
    let (calls, tool) = tool(|_| Err(limited(Some(1)).with_execution(Execution::Unknown)));
    let gate = RateLimitBackoffLayer::new().layer(tool.clone());
    gate.oneshot(call()).await.unwrap_err();
    let retrier = RetryLayer::default().layer(tool);
    retrier.oneshot(call()).await.unwrap_err();
    assert_eq!(count(&calls), 2);
}

/// Other failures are not its business.
#[tokio::test(start_paused = true)]
async fn other_failures_pass() {
    let (calls, tool) = tool(|_| Err(ToolError::new(ErrorKind::Upstream, "503")));
    let result = RateLimitBackoffLayer::new().layer(tool).oneshot(call());
    let kind = result.await.unwrap_err().kind();
    assert_eq!((kind, count(&calls)), (ErrorKind::Upstream, 1));
}

/// L3: while a key cools nothing is sent to it; afterwards its calls return one by one.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_to_a_cooling_key_and_calls_return_gradually() {
    let (calls, tool) = limited_once(Some(10));
    let stack = RateLimitBackoffLayer::new().layer(tool);
    let start = Instant::now();
    let first = tokio::spawn(stack.clone().oneshot(call()));
    sleep(secs(1)).await;
    let others: Vec<_> = (0..20)
        .map(|_| tokio::spawn(stack.clone().oneshot(call())))
        .collect();
    sleep(secs(8)).await;
    assert_eq!(count(&calls), 1);
    first.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    let calls = calls.lock().unwrap();
    let after: Vec<_> = calls[1..].iter().map(|at| *at - start).collect();
    assert_eq!(after.len(), 21);
    assert!(after[0] >= secs(10));
    // No two of the first at once; the last ones soon after each other.
    assert!(after[1] - after[0] >= Duration::from_millis(900));
    assert!(after[20] - after[19] <= Duration::from_millis(150));
    assert!(after[20] - after[0] <= secs(5));
}

/// L3, C1: another key is not held back.
#[tokio::test(start_paused = true)]
async fn another_key_is_not_held_back() {
    for (key, held) in [(Key::Tool, false), (Key::Server, true)] {
        let (_, tool) = limited_once(Some(10));
        let layer = RateLimitBackoffLayer::builder()
            .with_keys(key)
            .with_fail_fast();
        let stack = layer.build().unwrap().layer(tool);
        stack.clone().oneshot(call()).await.unwrap_err();
        let other = ToolCall::new("weather").with_server("docs");
        assert_eq!(stack.oneshot(other).await.is_err(), held);
    }
}

/// L3: in this mode the remaining time is told at once.
#[tokio::test(start_paused = true)]
async fn it_may_refuse_at_once() {
    let (calls, tool) = tool(|_| Err(limited(Some(10))));
    let layer = RateLimitBackoffLayer::builder().with_fail_fast();
    let stack = layer.build().unwrap().layer(tool);
    stack.clone().oneshot(call()).await.unwrap_err();
    sleep(secs(4)).await;
    let start = Instant::now();
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!((start.elapsed(), count(&calls)), (Duration::ZERO, 1));
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.execution(), Execution::NotStarted);
    let remaining = error.retry_after().unwrap();
    assert!(
        remaining >= secs(6) && remaining <= secs(7),
        "{remaining:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_debug_of_a_future_names_its_state() {
    let (_, tool) = tool(|_| Err(limited(Some(10))));
    let layer = RateLimitBackoffLayer::new();
    let mut ready = layer.layer(tool.clone());
    std::future::poll_fn(|cx| ready.poll_ready(cx))
        .await
        .unwrap();
    let called = format!("{:?}", ready.call(call()));
    let preparing = format!("{:?}", layer.layer(tool.clone()).call(call()));
    layer.handle().cool(&call(), secs(60));
    let waiting = format!("{:?}", layer.layer(tool.clone()).call(call()));
    layer.handle().cool(&call(), secs(3600));
    let refused = format!("{:?}", layer.layer(tool).call(call()));
    for (debug, state) in [
        (called, "Called"),
        (preparing, "Preparing"),
        (waiting, "Waiting"),
        (refused, "Refused"),
    ] {
        assert!(debug.contains(&format!("state: {state},")), "{debug}");
    }
}

/// L2, trap 10: neither slept nor shortened.
#[tokio::test(start_paused = true)]
async fn a_cooldown_above_the_maximum_is_returned_at_once() {
    let (calls, tool) = tool(|_| Err(limited(Some(86_400))));
    let layer = RateLimitBackoffLayer::builder().with_max_wait(secs(290));
    let stack = layer.build().unwrap().layer(tool);
    let start = Instant::now();
    let error = stack.clone().oneshot(call()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(86_400)));
    let error = stack.oneshot(call()).await.unwrap_err();
    // Others are held back for 300 s at most.
    assert_eq!(error.retry_after(), Some(secs(300)));
    assert_eq!((start.elapsed(), count(&calls)), (Duration::ZERO, 1));
}

/// W5: the maximum is of what the server asked for, not of what chance adds to it.
#[tokio::test(start_paused = true)]
async fn a_cooldown_of_exactly_the_maximum_is_waited_out() {
    for told in [Some(30), None] {
        let (calls, tool) = limited_once(told);
        let layer = RateLimitBackoffLayer::builder()
            .with_default_cooldown(secs(30))
            .with_max_wait(secs(30));
        let stack = layer.build().unwrap().layer(tool);
        let start = Instant::now();
        stack.oneshot(call()).await.unwrap();
        assert_eq!(count(&calls), 2);
        // A second at most is chance's.
        assert!(start.elapsed() >= secs(30) && start.elapsed() <= secs(31));
    }
    // What is longer by itself is not.
    let (calls, tool) = tool(|_| Err(limited(Some(31))));
    let layer = RateLimitBackoffLayer::builder().with_max_wait(Duration::from_millis(30_500));
    let stack = layer.build().unwrap().layer(tool);
    let start = Instant::now();
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!((start.elapsed(), count(&calls)), (Duration::ZERO, 1));
    assert_eq!(error.retry_after(), Some(secs(31)));
}

/// Trap 10.
#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_deadline_is_not_begun() {
    let (calls, tool) = tool(|_| Err(limited(Some(10))));
    let stack = RateLimitBackoffLayer::new().layer(tool);
    let start = Instant::now();
    for attempts in [1, 1] {
        let call = call().with_deadline(start + secs(10));
        let error = stack.clone().oneshot(call).await.unwrap_err();
        assert!(error.retry_after().unwrap() >= secs(10));
        assert_eq!((start.elapsed(), count(&calls)), (Duration::ZERO, attempts));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_no_clock_reaches_is_returned() {
    let error = limited(None).with_retry_after(Duration::MAX);
    let (_, tool) = tool(move |_| Err(error.clone()));
    let layer = RateLimitBackoffLayer::builder().with_max_wait(Duration::MAX);
    let stack = layer.build().unwrap().layer(tool);
    for _ in 0..2 {
        let error = stack.clone().oneshot(call()).await.unwrap_err();
        assert!(error.retry_after().unwrap() > secs(1 << 40));
    }
}

/// L2: a success may tell that nothing is left.
#[tokio::test(start_paused = true)]
async fn a_success_that_used_up_the_limit_holds_back_the_next_call() {
    let (calls, tool) = tool(Ok);
    let layer = RateLimitBackoffLayer::builder()
        .classify_fn(|result: Result<&usize, &ToolError>| match result {
            Ok(1) => Outcome::success().with_cooldown(secs(5)),
            _ => Outcome::success(),
        })
        .build()
        .unwrap();
    let stack = layer.layer(tool);
    let start = Instant::now();
    stack.clone().oneshot(call()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    stack.oneshot(call()).await.unwrap();
    assert!(start.elapsed() >= secs(5));
    assert_eq!(count(&calls), 2);
}

/// L4, trap 13: in all four nestings of a retrier and a gate a limited call is sent three times at
/// most, other failures are repeated by the retrier, and no wait is made twice.
#[tokio::test(start_paused = true)]
async fn retrier_and_gate_do_not_multiply_in_any_order() {
    let retry = || RetryLayer::new(RetryPolicy::new().assume_replay_safe());
    let gate = RateLimitBackoffLayer::new;
    macro_rules! run {
        ($answer:expr, $($layer:expr),*) => {{
            let (calls, tool) = tool($answer);
            let stack = ServiceBuilder::new()$(.layer($layer))*.service(tool);
            let start = Instant::now();
            let result = stack.oneshot(call()).await;
            (result.is_ok(), count(&calls), start.elapsed().as_secs())
        }};
    }
    let always = |_| Err(limited(Some(10)));
    let upstream = |n| match n {
        3 => Ok(n),
        _ => Err(ToolError::new(ErrorKind::Upstream, "503")),
    };
    macro_rules! both {
        ($($layer:expr),*) => { (run!(always, $($layer),*), run!(upstream, $($layer),*)) };
    }
    for (always, upstream) in [
        both!(retry(), gate()),
        both!(gate(), retry()),
        both!(gate(), gate(), retry()),
        both!(retry(), gate(), retry()),
    ] {
        let (ok, calls, waited) = always;
        assert!(!ok && calls == 3, "{always:?}");
        // Two waits of ten seconds and a little more.
        assert!((20..=24).contains(&waited), "{always:?}");
        assert_eq!((upstream.0, upstream.1), (true, 3), "{upstream:?}");
    }
}

/// The documented order: time spent waiting for a turn holds no probe, and a limit is no failure.
#[tokio::test(start_paused = true)]
async fn above_a_breaker_limits_do_not_count() {
    let breaker = CircuitBreakerLayer::new();
    let (_, tool) = tool(|_| Err(limited(Some(1))));
    let stack = ServiceBuilder::new()
        .layer(RateLimitBackoffLayer::new())
        .layer(breaker.clone())
        .service(tool);
    for _ in 0..10 {
        stack.clone().oneshot(call()).await.unwrap_err();
    }
    assert_eq!(breaker.handle().breaker(&call()).snapshot().failed_total, 0);
}

/// O2.
#[tokio::test(start_paused = true)]
async fn each_limit_is_an_event() {
    let limits = Events::pick(|event| match event {
        Event::RateLimited {
            attempt,
            hinted,
            cooldown,
            ..
        } => Some((*attempt, *hinted, cooldown.as_secs())),
        _ => None,
    });
    let layer = RateLimitBackoffLayer::builder()
        .with_listener(limits.clone())
        .build()
        .unwrap();
    let (_, tool) = tool(|n| Err(limited((n == 1).then_some(7))));
    let _ = layer.layer(tool).oneshot(call()).await;
    limits.assert([(1, true, 7), (2, false, 30), (3, false, 30)]);
}

/// Rule 6.
#[tokio::test(start_paused = true)]
async fn a_cooling_key_is_not_forgotten_and_beyond_the_bound_calls_pass() {
    let (calls, tool) = tool(|_| Err(limited(Some(60))));
    let layer = RateLimitBackoffLayer::builder()
        .with_keys(Keys::default().at_most(2).known(["a", "b"]))
        .with_fail_fast();
    let stack = layer.build().unwrap().layer(tool);
    for name in ["a", "b", "c", "c", "a", "b"] {
        stack
            .clone()
            .oneshot(ToolCall::new(name))
            .await
            .unwrap_err();
    }
    // Both calls of `c` were sent, the second ones of `a` and `b` were not.
    assert_eq!(count(&calls), 4);
}

#[test]
fn impossible_settings_are_refused() {
    let builder = RateLimitBackoffLayer::builder;
    let cooldown = |of| builder().with_default_cooldown(of);
    // The setting that is zero is at fault, not the default that gives way to it.
    let longest = builder().with_max_cooldown(Duration::ZERO);
    for (built, field) in [
        (builder().with_attempts(0), "attempts"),
        (cooldown(Duration::ZERO), "default_cooldown"),
        (cooldown(Duration::MAX), "default_cooldown"),
        (longest, "max_cooldown"),
    ] {
        assert_eq!(built.build().unwrap_err().field(), field);
    }
}

/// L4: nor do they multiply when limits and other failures come in turn; and the error tells the
/// true number.
#[tokio::test(start_paused = true)]
async fn mixed_failures_do_not_multiply_either() {
    let answers = [503, 503, 429, 503, 429, 429];
    let (calls, tool) = tool(move |n| {
        Err(match answers[n - 1] {
            503 => ToolError::new(ErrorKind::Upstream, "503"),
            _ => limited(Some(1)),
        })
    });
    let retry = RetryLayer::new(RetryPolicy::new().assume_replay_safe());
    let stack = RateLimitBackoffLayer::new().layer(retry.layer(tool));
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!((count(&calls), error.attempts()), (3, Some(3)));
}

/// Trap 13: a gate outside does not switch a retry off that would have happened.
#[tokio::test(start_paused = true)]
async fn a_gate_outside_leaves_a_retrier_its_retries() {
    let (calls, tool) = tool(|n| match n {
        1 => Err(ToolError::new(ErrorKind::Upstream, "503")),
        2 => Err(limited(Some(1))),
        n => Ok(n),
    });
    let retry = RetryLayer::new(RetryPolicy::new().assume_replay_safe());
    let stack = RateLimitBackoffLayer::new().layer(retry.layer(tool));
    assert_eq!(stack.oneshot(call()).await.unwrap(), 3);
    assert_eq!(count(&calls), 3);
}

/// L3: above a retrier too, it refuses at once and sends nothing to a cooling key.
#[tokio::test(start_paused = true)]
async fn above_a_retrier_it_may_refuse_at_once_as_well() {
    let (calls, tool) = tool(|_| Err(limited(Some(10))));
    let layer = RateLimitBackoffLayer::builder().with_fail_fast();
    let stack = layer
        .build()
        .unwrap()
        .layer(RetryLayer::default().layer(tool));
    let start = Instant::now();
    stack.clone().oneshot(call()).await.unwrap_err();
    stack.oneshot(call()).await.unwrap_err();
    assert_eq!((count(&calls), start.elapsed()), (1, Duration::ZERO));
}

/// A hint of zero does not mean that everybody may come at once.
#[tokio::test(start_paused = true)]
async fn a_hint_of_zero_is_a_second() {
    let (calls, tool) = limited_once(Some(0));
    let stack = RateLimitBackoffLayer::new().layer(tool);
    let start = Instant::now();
    let all: Vec<_> = (0..50)
        .map(|_| tokio::spawn(stack.clone().oneshot(call())))
        .collect();
    sleep(Duration::from_millis(900)).await;
    assert_eq!(count(&calls), 1);
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert!(start.elapsed() <= secs(15), "{:?}", start.elapsed());
}

/// Rule 6, trap 10: where no limit can be kept, a call is not repeated either.
#[tokio::test(start_paused = true)]
async fn beyond_the_bound_a_limit_is_returned_at_once() {
    let (calls, tool) = tool(|_| Err(limited(Some(60))));
    let layer = RateLimitBackoffLayer::builder().with_keys(Keys::default().at_most(1));
    let stack = layer.build().unwrap().layer(tool);
    let mut first = task::spawn(stack.clone().oneshot(ToolCall::new("a")));
    assert!(first.poll().is_pending());
    let error = stack.oneshot(ToolCall::new("b")).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(60)));
    assert_eq!(count(&calls), 2);
}

/// Trap 13: our own refusals tell nothing of the server.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_an_inner_gate_closes_no_outer_one() {
    let (calls, tool) = limited_once(Some(600));
    let of_the_server = RateLimitBackoffLayer::builder().with_keys(Key::Server);
    let inner = RateLimitBackoffLayer::builder().with_max_cooldown(secs(600));
    let inner = inner.build().unwrap().layer(tool);
    inner.clone().oneshot(call()).await.unwrap_err();
    let stack = of_the_server.build().unwrap().layer(inner);
    let error = stack.clone().oneshot(call()).await.unwrap_err();
    assert!(error.retry_after().unwrap() >= secs(599));
    let other = ToolCall::new("weather").with_server("docs");
    stack.oneshot(other).await.unwrap();
    assert_eq!(count(&calls), 2);
}

/// The documented success path of a server that says so each time: its pace, not half of it.
#[tokio::test(start_paused = true)]
async fn a_server_that_tells_its_pace_is_not_slowed_down() {
    let (_, tool) = tool(Ok);
    let layer = RateLimitBackoffLayer::builder()
        .classify_fn(|_: Result<&usize, &ToolError>| Outcome::success().with_cooldown(secs(1)))
        .build()
        .unwrap();
    let stack = layer.layer(tool);
    let start = Instant::now();
    for _ in 0..30 {
        stack.clone().oneshot(call()).await.unwrap();
    }
    assert!(start.elapsed() >= secs(29) && start.elapsed() <= secs(36));
}

/// Trap 7: what an earlier attempt may have done is not forgotten, whoever repeats.
#[tokio::test(start_paused = true)]
async fn an_ambiguous_attempt_below_is_not_forgotten() {
    for fail_fast in [false, true] {
        let (_, tool) = tool(|n| {
            Err(match n {
                1 => ToolError::new(ErrorKind::Upstream, "503"),
                _ => limited(Some(1)),
            })
        });
        let mut layer = RateLimitBackoffLayer::builder();
        if fail_fast {
            layer = layer.with_fail_fast();
        }
        let stack = ServiceBuilder::new()
            .layer(layer.build().unwrap())
            .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
            .service(tool);
        let error = stack.oneshot(call()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.execution(), Execution::Unknown, "{fail_fast}");
    }
}

/// Nothing is sent after the deadline, also by a gate that is about to open.
#[tokio::test(start_paused = true)]
async fn a_returning_gate_sends_nothing_after_the_deadline() {
    let (calls, tool) = limited_once(Some(1));
    let layer = RateLimitBackoffLayer::builder().with_attempts(1);
    let stack = layer.build().unwrap().layer(tool);
    stack.clone().oneshot(call()).await.unwrap_err();
    sleep(secs(3)).await;
    let late = call().with_deadline(Instant::now());
    let error = stack.oneshot(late).await.unwrap_err();
    assert_eq!(
        (error.kind(), count(&calls)),
        (ErrorKind::DeadlineExceeded, 1)
    );
}

/// A call that was sent and is cancelled while it waits for its next attempt was not refused: its
/// attempts count, also if the limit was an answer.
#[tokio::test(start_paused = true)]
async fn a_cancel_between_two_attempts_is_no_refusal() {
    for is_answer in [false, true] {
        let (calls, tool) = tool(move |n| {
            if is_answer {
                Ok(n)
            } else {
                Err(limited(Some(10)))
            }
        });
        let layer = RateLimitBackoffLayer::builder()
            .classify_fn(|_: Result<&usize, &ToolError>| Outcome::rate_limited(None));
        let token = tokio_util::sync::CancellationToken::new();
        let call = call().with_cancellation(token.clone());
        let running = tokio::spawn(layer.build().unwrap().layer(tool).oneshot(call));
        sleep(secs(5)).await;
        token.cancel();
        let error = running.await.unwrap().unwrap_err();
        let told = (error.kind(), error.attempts(), count(&calls));
        assert_eq!(told, (ErrorKind::Cancelled, Some(1), 1));
        assert!(!error.is_own_refusal());
        if !is_answer {
            // The limit proves that the tool did not run, and is the cause.
            assert_eq!(error.execution(), Execution::NotStarted);
            assert!(std::error::Error::source(&error).is_some());
        }
    }
}

/// L3: only waits count for the longest wait, not the time of an attempt that had its turn at once.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_did_not_wait_takes_nothing_from_the_longest_wait() {
    let builder = RateLimitBackoffLayer::builder().with_max_wait(secs(10));
    let sent = Arc::new(AtomicUsize::new(0));
    let tool = service_fn(move |_: ToolCall| {
        let n = sent.fetch_add(1, SeqCst);
        async move {
            match n {
                0 => Err(limited(Some(1))),
                1 => {
                    sleep(secs(5)).await;
                    Err(limited(Some(8)))
                }
                _ => Ok("done"),
            }
        }
    });
    let stack = builder.build().unwrap().layer(tool);
    // It cools the key, and is given up: then calls return one by one.
    let first = tokio::time::timeout(Duration::from_millis(500), stack.clone().oneshot(call()));
    first.await.unwrap_err();
    sleep(secs(2)).await;
    assert_eq!(stack.oneshot(call()).await.unwrap(), "done");
}

/// D13: without jitter a cooldown is as long as the server, or the setting, says.
#[tokio::test(start_paused = true)]
async fn no_cooldown_is_randomised_without_jitter() {
    for (hint, wait) in [(None, 30), (Some(20), 20)] {
        for seed in 0..3 {
            let tool = Script::new([Step::error(limited(hint)), Step::ok("done")]);
            let layer = RateLimitBackoffLayer::builder()
                .with_jitter(Jitter::None)
                .with_seed(seed)
                .build()
                .unwrap();
            let start = Instant::now();
            layer.layer(tool).oneshot(call()).await.unwrap();
            assert_eq!(start.elapsed(), secs(wait));
        }
    }
}

/// D5: a 503 with a delay begins a cooldown, as a 429 does; one that is known by a text alone does
/// not.
#[tokio::test(start_paused = true)]
async fn a_failing_server_that_says_when_it_is_back_is_not_asked_earlier() {
    let unavailable = ToolError::from_status(StatusCode::SERVICE_UNAVAILABLE, "back soon");
    for (error, wait) in [
        (unavailable.with_retry_after(secs(120)), 120),
        (
            ToolError::new(ErrorKind::Overloaded, "busy").with_retry_after(secs(40)),
            40,
        ),
        (
            ToolError::from_box("503: retry after 120 seconds".into()),
            0,
        ),
    ] {
        let tool = Script::new([Step::error(error.clone()), Step::ok("done")]);
        let layer = RateLimitBackoffLayer::builder()
            .with_jitter(Jitter::None)
            .build()
            .unwrap();
        let svc = layer.layer(tool.clone());
        let met = svc.clone().oneshot(call()).await.unwrap_err();
        assert_eq!((met.kind(), tool.count()), (error.kind(), 1), "{error}");
        let start = Instant::now();
        assert_eq!(svc.oneshot(call()).await.unwrap(), "done");
        assert_eq!(start.elapsed(), secs(wait), "{error}");
    }
}

/// D14: with a limit per user, a user does not wait for another one's limit.
#[tokio::test(start_paused = true)]
async fn a_limit_per_principal_holds_back_no_other_user() {
    for (key, other_waits) in [
        (Key::Tool, 60),
        (Key::Tool.per_principal(), 0),
        (Key::Server.per_principal(), 0),
    ] {
        let tool = Script::new([Step::error(limited(Some(60)))]).then(Step::ok("done"));
        let layer = RateLimitBackoffLayer::builder()
            .with_keys(key)
            .with_jitter(Jitter::None)
            .with_attempts(1)
            .build()
            .unwrap();
        let waits = async |call: ToolCall| {
            let start = Instant::now();
            let answer = layer.layer(tool.clone()).oneshot(call).await;
            (answer.is_ok(), start.elapsed())
        };
        let of = |agent: &str| call().with_agent_id(agent);
        assert_eq!(waits(of("a")).await, (false, Duration::ZERO));
        assert_eq!(waits(of("b")).await, (true, secs(other_waits)));
        assert!(waits(of("a")).await.0);
        // Calls without a principal share a limit that was not met, or have the one of all.
        assert!(waits(call()).await.0);
    }
}

/// C8: a program that shares cooldowns gets them with the text of their keys, and gives them to
/// another process by it.
#[tokio::test(start_paused = true)]
async fn a_cooldown_is_taken_over_by_the_text_of_its_key() {
    let [here, there] = [(); 2].map(|()| RateLimitBackoffLayer::new().handle());
    let mut heard = here.subscribe();
    here.cool(&call(), secs(60));
    let own = heard.next().await.unwrap().unwrap();
    assert_eq!(own.remaining, Some(secs(60)));
    assert!(!own.is_met);
    assert!(!own.is_cleared);
    assert_eq!(here.own_cooldowns().first(), Some(&own));
    let key = own.key.unwrap();
    assert!(there.adopt(&key, secs(60), true));
    assert_eq!(there.remaining(&call()), Some(secs(60)));
    assert!(there.own_cooldowns().is_empty());
    there.adopt_end(&key);
    assert_eq!(there.remaining(&call()), None);
    assert!(!there.adopt("#0000000000000007", secs(60), true));
    here.clear(&call());
    assert!(heard.next().await.unwrap().unwrap().is_cleared);
}

/// A call whose cooldown was extended asks again when its old turn comes, also if its service is
/// not ready: it is refused then if the new turn is too late, and no other call gets the old one.
#[tokio::test(start_paused = true)]
async fn a_call_asks_again_before_it_waits_for_its_service() {
    let builder = RateLimitBackoffLayer::builder().with_jitter(Jitter::None);
    let layer = builder.build().unwrap();
    let start = Instant::now();
    let late = service_fn(|_: ToolCall| async {
        sleep(secs(20)).await;
        Err::<usize, _>(limited(Some(30)))
    });
    let in_flight = tokio::spawn(
        layer
            .layer(late)
            .oneshot(call().with_deadline(start + secs(40))),
    );
    sleep(secs(1)).await;
    layer.handle().cool(&call(), secs(29));
    let (calls, tool) = tool(Ok);
    let busy = tower::limit::ConcurrencyLimit::new(tool.clone(), 0);
    let waits = call().with_deadline(start + secs(45));
    let error = layer.layer(busy).oneshot(waits.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(start.elapsed().as_secs(), 30);
    let next = layer.layer(tool).oneshot(waits).await;
    assert_eq!((error.is_own_refusal(), count(&calls)), (true, 0));
    assert_eq!(next.unwrap_err().kind(), ErrorKind::RateLimited);
    in_flight.await.unwrap().unwrap_err();
}
