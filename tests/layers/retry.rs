use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, advance, sleep};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit, service_fn,
    util::BoxCloneSyncService,
};
use tower_toolcall::{
    ErrorKind, Event, Execution, Key, Keys, Outcome, ReplaySafety, ToolCall, ToolError, Trust,
    backoff::{Backoff, Jitter},
    deadline::DeadlineLayer,
    flow::CallExt,
    rate_limit::RateLimitBackoffLayer,
    retry::{RetryBudget, RetryLayer, RetryPolicy, RetryRefusal},
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Events, Step};

use crate::kit::{self, secs};

/// A call that may run twice.
fn call() -> ToolCall {
    ToolCall::new("search")
        .with_server("docs")
        .with_replay_safety(ReplaySafety::Safe)
}

/// Without chance: 1 s, 2 s, 4 s.
fn policy() -> RetryPolicy {
    RetryPolicy::new().with_backoff(Backoff::default().with_jitter(Jitter::None))
}

/// A tool that counts its calls and answers by their number, from 1.
fn tool<F>(
    answer: F,
) -> (
    Arc<AtomicUsize>,
    impl Service<ToolCall, Response = usize, Error = ToolError, Future: Send> + Clone + Send,
)
where
    F: Fn(usize, ToolCall) -> Result<usize, ToolError> + Clone + Send,
{
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let tool = service_fn(move |call: ToolCall| {
        let result = answer(count.fetch_add(1, SeqCst) + 1, call);
        async move { result }
    });
    (calls, tool)
}

/// Makes a call of a tool that always fails. Returns its error, how often it was sent, and how long
/// that took.
async fn failed(
    policy: RetryPolicy,
    error: ToolError,
    call: ToolCall,
) -> (ToolError, usize, Duration) {
    let (calls, tool) = tool(move |_, _| Err(error.clone()));
    let start = Instant::now();
    let error = RetryLayer::new(policy).layer(tool).oneshot(call).await;
    (error.unwrap_err(), calls.load(SeqCst), start.elapsed())
}

/// The policy without delays: all calls are within one window of a budget.
fn quick() -> RetryPolicy {
    policy().with_backoff(Backoff::fixed(Duration::ZERO).unwrap())
}

fn upstream() -> ToolError {
    ToolError::new(ErrorKind::Upstream, "503 Service Unavailable")
}

fn fails(kind: ErrorKind) -> impl Fn(usize, ToolCall) -> Result<usize, ToolError> + Clone + Send {
    move |_, _| Err(ToolError::new(kind, "as it is"))
}

/// The reasons for which retries were refused.
fn refusals() -> Events<RetryRefusal> {
    Events::pick(|event| match event {
        Event::RetryRefused { reason, .. } => Some(*reason),
        _ => None,
    })
}

/// R1, R3, trap 8: three attempts in all, after 1 s and 2 s, and the last error tells of them.
#[tokio::test(start_paused = true)]
async fn three_attempts_after_one_and_two_seconds() {
    let (calls, tool) =
        tool(|n, _| Err(ToolError::new(ErrorKind::Upstream, format!("failure {n}"))));
    let start = Instant::now();
    let error = RetryLayer::new(policy()).layer(tool).oneshot(call()).await;
    assert_eq!((calls.load(SeqCst), start.elapsed()), (3, secs(3)));
    let error = error.unwrap_err();
    assert_eq!((error.message(), error.attempts()), ("failure 3", Some(3)));
}

/// R1, trap 10: the default jitter never shortens a delay.
#[tokio::test(start_paused = true)]
async fn the_default_delays_are_not_shorter() {
    let (_, _, took) = failed(RetryPolicy::new(), upstream(), call()).await;
    assert!(took >= secs(3) && took <= Duration::from_millis(3760));
}

/// R2: what may be mended by a repetition, and what may not.
#[tokio::test(start_paused = true)]
async fn what_is_repeated() {
    use ErrorKind::{ConnectionFailed, Overloaded, PollTimeout, RateLimited, Timeout, Upstream};
    let repeats = |kind| {
        matches!(
            kind,
            Timeout | ConnectionFailed | Upstream | Overloaded | RateLimited | PollTimeout
        )
    };
    for &kind in ErrorKind::ALL {
        let error = ToolError::new(kind, "as it is");
        let (_, sent, _) = failed(RetryPolicy::new(), error, call()).await;
        assert_eq!(sent, if repeats(kind) { 3 } else { 1 }, "{kind:?}");
    }
}

/// R6, trap 7: after an ambiguous failure a call is not repeated unless somebody knows that it may
/// be.
#[tokio::test(start_paused = true)]
async fn what_may_have_run_is_repeated_only_if_that_is_safe() {
    use ReplaySafety::{Safe, Unknown, Unsafe};
    for (safety, policy, attempts) in [
        (Unknown, policy(), 1),
        (Unsafe, policy(), 1),
        (Safe, policy(), 3),
        (Unknown, policy().assume_replay_safe(), 3),
        (Unsafe, policy().assume_replay_safe(), 1),
        (Unknown, policy().with_replay_safety(|_| Safe), 3),
        (Unknown, policy().with_replay_safety(|_| Unsafe), 1),
        (Unsafe, policy().with_replay_safety(|_| Safe), 1),
    ] {
        let error = ToolError::new(ErrorKind::Timeout, "late");
        let call = ToolCall::new("pay").with_replay_safety(safety);
        let (_, sent, _) = failed(policy, error, call).await;
        assert_eq!(sent, attempts, "{safety:?}");
    }
}

/// R6: what surely did not run may always be repeated.
#[tokio::test(start_paused = true)]
async fn what_did_not_start_is_repeated_even_if_it_is_unsafe() {
    for error in [
        ToolError::new(ErrorKind::RateLimited, "429"),
        ToolError::new(ErrorKind::ConnectionFailed, "refused")
            .with_execution(Execution::NotStarted),
        ToolError::new(ErrorKind::Overloaded, "shed"),
    ] {
        let call = ToolCall::new("pay").with_replay_safety(ReplaySafety::Unsafe);
        assert_eq!(failed(RetryPolicy::new(), error, call).await.1, 3);
    }
}

/// R6, trap 7: a rate limit that was met in the middle of the work, by this call or by one that it
/// made, does not make it safe.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_after_which_the_tool_may_have_run_is_not_repeated() {
    for error in [
        ToolError::from_box("order placed; mail failed: HTTP 429".into()),
        ToolError::new(ErrorKind::RateLimited, "429").with_tool("mail"),
        ToolError::new(ErrorKind::RateLimited, "429").with_execution(Execution::Completed),
        ToolError::new(ErrorKind::RateLimited, "429")
            .with_tool("pay")
            .with_server("another bank"),
    ] {
        let call = ToolCall::new("pay").with_server("bank");
        assert_eq!(failed(RetryPolicy::new(), error, call).await.1, 1);
    }
}

/// R6: the call's own word beats the rule's, and that beats what is assumed, in whatever order they
/// are set.
#[tokio::test(start_paused = true)]
async fn a_rule_holds_beside_an_assumption() {
    let rule = |call: &ToolCall| match call.tool() {
        "pay" => ReplaySafety::Unsafe,
        _ => ReplaySafety::Unknown,
    };
    for policy in [
        policy().with_replay_safety(rule).assume_replay_safe(),
        policy().assume_replay_safe().with_replay_safety(rule),
    ] {
        for (name, attempts) in [("pay", 1), ("look", 3)] {
            let error = ToolError::new(ErrorKind::Timeout, "late");
            let (_, sent, _) = failed(policy.clone(), error, ToolCall::new(name)).await;
            assert_eq!(sent, attempts, "{name}");
        }
    }
}

/// The last error says that the call may have run, if any attempt may have.
#[tokio::test(start_paused = true)]
async fn an_ambiguous_attempt_is_not_forgotten() {
    let (_, tool) = tool(|n, _| {
        Err(match n {
            1 => ToolError::new(ErrorKind::Timeout, "slow"),
            _ => ToolError::new(ErrorKind::CircuitOpen, "open"),
        })
    });
    let error = RetryLayer::default().layer(tool).oneshot(call()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CircuitOpen);
    assert_eq!(error.execution(), Execution::Unknown);
    assert_eq!(error.attempts(), Some(2));
}

/// R5, rule 3d: the wait for a service to become ready is bounded by the deadline as well.
#[tokio::test(start_paused = true)]
async fn no_attempt_is_sent_after_the_deadline() {
    let (calls, tool) = tool(fails(ErrorKind::Upstream));
    let semaphore = Arc::new(tokio::sync::Semaphore::new(1));
    let tool = ConcurrencyLimit::with_semaphore(tool, Arc::clone(&semaphore));
    let start = Instant::now();
    let call = call().with_deadline(start + secs(5));
    let running = tokio::spawn(RetryLayer::new(policy()).layer(tool).oneshot(call));
    sleep(Duration::from_millis(500)).await;
    let _held = semaphore.acquire_owned().await.unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert_eq!((start.elapsed(), calls.load(SeqCst)), (secs(5), 1));
    assert_eq!(error.kind(), ErrorKind::Upstream);
    assert_eq!(error.attempts(), Some(1));
}

/// R4, R6: a refusal is never silent.
#[tokio::test(start_paused = true)]
async fn each_refusal_is_an_event_with_its_reason() {
    let one_retry = RetryBudget::new(0.0, 1).unwrap();
    let undeclared = ToolCall::new("t");
    let declared = undeclared.clone().with_replay_safety(ReplaySafety::Unsafe);
    let late = call().with_deadline(Instant::now() + secs(1));
    let (error, busy) = (upstream, upstream().with_retry_after(secs(301)));
    let few = policy().with_budget(one_retry);
    for (policy, call, error, expected) in [
        (policy(), call(), error(), RetryRefusal::Exhausted),
        (policy(), undeclared, error(), RetryRefusal::NotMarkedSafe),
        (policy(), declared, error(), RetryRefusal::Unsafe),
        (few, call(), error(), RetryRefusal::Budget),
        (policy(), late, error(), RetryRefusal::Deadline),
        (policy(), call(), busy, RetryRefusal::TooLong),
    ] {
        let refused = refusals();
        failed(policy.with_listener(refused.clone()), error, call).await;
        refused.assert([expected]);
    }
}

/// P1: the error says what has to be declared. Only what was declared unsafe is called so.
#[tokio::test(start_paused = true)]
async fn an_error_that_was_not_repeated_says_how_to_declare_the_call_safe() {
    let undeclared = ToolCall::new("t");
    let declared = undeclared.clone().with_replay_safety(ReplaySafety::Unsafe);
    for (call, reason, advice) in [
        (
            undeclared,
            "not_marked_safe: ",
            "declare it by `RetryPolicy::with_replay_safety` or `ToolCall::with_replay_safety`",
        ),
        (declared, "unsafe: ", "declared unsafe"),
    ] {
        let (error, ..) = failed(RetryPolicy::new(), upstream(), call).await;
        let details = error.details().unwrap().to_string();
        for part in ["retry_refused", reason, advice] {
            assert!(details.contains(part), "{part}: {details}");
        }
    }
}

/// P1: what is not repeated for another reason needs no declaration.
#[tokio::test(start_paused = true)]
async fn an_error_after_all_attempts_asks_for_no_declaration() {
    let (error, ..) = failed(RetryPolicy::new(), upstream(), call()).await;
    assert!(error.details().is_none());
}

/// P13: a delay of a rate-limit layer is not the server's.
#[tokio::test(start_paused = true)]
async fn a_retry_is_hinted_only_if_the_server_named_a_delay() {
    for (asked, hinted) in [(None, false), (Some(secs(7)), true)] {
        let retries = Events::pick(|event| match event {
            Event::Retry { hinted, .. } | Event::RateLimited { hinted, .. } => Some(*hinted),
            _ => None,
        });
        let (_, tool) = tool(move |n, _| {
            let error = ToolError::new(ErrorKind::RateLimited, "429 Too Many Requests");
            match (n, asked) {
                (1, None) => Err(error),
                (1, Some(delay)) => Err(error.with_retry_after(delay)),
                _ => Ok(n),
            }
        });
        let limit = || RateLimitBackoffLayer::builder().with_listener(retries.clone());
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new(policy().with_listener(retries.clone())))
            .layer(limit().with_fail_fast().build().unwrap())
            .layer(limit().with_fail_fast().build().unwrap())
            .service(tool);
        // The retry may meet a gate that still cools.
        let _ = stack.oneshot(call()).await;
        // Of both rate-limit layers, and of the retry.
        retries.assert([hinted; 3]);
    }
}

/// R4.
#[tokio::test(start_paused = true)]
async fn each_retry_is_an_event() {
    let retries = Events::pick(|event| match event {
        Event::Retry {
            call,
            attempt,
            delay,
            error,
            ..
        } => {
            let code = error.map(|e| e.code().to_owned());
            Some((call.tool().to_owned(), *attempt, *delay, code))
        }
        _ => None,
    });
    failed(policy().with_listener(retries.clone()), upstream(), call()).await;
    let event = |n, delay| {
        let code = Some("UPSTREAM_ERROR".to_owned());
        ("search".to_owned(), n, secs(delay), code)
    };
    retries.assert([event(1, 1), event(2, 2)]);
}

/// R5, trap 10: a delay that does not fit is not begun; the error comes at once.
#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_deadline_is_not_begun() {
    let call = call().with_deadline(Instant::now() + secs(3));
    let (error, sent, took) = failed(policy(), upstream(), call).await;
    assert_eq!((sent, took), (2, secs(1)));
    assert_eq!(error.kind(), ErrorKind::Upstream);
    assert_eq!(error.attempts(), Some(2));
}

/// L1, L2, trap 10: a delay that the server tells is never shortened, and little prolonged; a rate
/// limit without one backs off for 30 s; one of zero does not tell how long, so the backoff does;
/// one above the maximum, or that no clock reaches, is returned and not slept.
#[tokio::test(start_paused = true)]
async fn a_delay_that_the_server_tells_is_kept() {
    let told = |after| upstream().with_retry_after(after);
    let limited = ToolError::new(ErrorKind::RateLimited, "429");
    let policy = RetryPolicy::new;
    let endless = policy().with_max_delay(Duration::MAX);
    for (policy, error, waits) in [
        (policy(), told(secs(7)), Some(secs(7))),
        (policy(), limited, Some(secs(30))),
        (policy(), told(Duration::ZERO), Some(secs(1))),
        (policy(), told(secs(86_400)), None),
        (endless, told(Duration::MAX), None),
    ] {
        let failed = error.clone();
        let (_, tool) = tool(move |n, _| if n == 1 { Err(failed.clone()) } else { Ok(n) });
        let start = Instant::now();
        let answer = RetryLayer::new(policy).layer(tool).oneshot(call()).await;
        match (waits, answer) {
            (Some(least), Ok(2)) => {
                let most = least + secs(1);
                assert!((least..=most).contains(&start.elapsed()), "{error}");
            }
            (None, Err(returned)) => {
                assert_eq!(start.elapsed(), Duration::ZERO);
                assert_eq!(returned.retry_after(), error.retry_after());
            }
            (_, answer) => panic!("{answer:?}"),
        }
    }
}

/// Whoever else handles rate limits: they are returned at once, and cost no retry.
#[tokio::test(start_paused = true)]
async fn rate_limits_are_left_to_others() {
    let (calls, tool) = tool(|n, call| match n {
        1 => Err(ToolError::new(ErrorKind::RateLimited, "429").with_retry_after(secs(7))),
        // The one retry that there may be is unspent.
        2 => Err(upstream()),
        _ => Ok(call.attempt() as usize),
    });
    let events = Events::new();
    let policy = policy()
        .without_rate_limits()
        .with_budget(RetryBudget::new(0.0, 1).unwrap())
        .with_listener(events.clone());
    let stack = RetryLayer::new(policy).layer(tool);
    let start = Instant::now();
    let error = stack.clone().oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(secs(7)));
    assert_eq!(error.attempts(), Some(1));
    assert_eq!((start.elapsed(), calls.load(SeqCst)), (secs(0), 1));
    events.assert([]);
    assert_eq!(stack.oneshot(call()).await.unwrap(), 2);
}

/// So is an answer that is one.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_a_rate_limit_is_left_to_others() {
    let (calls, tool) = tool(|n, _| Ok(n));
    let policy = policy()
        .without_rate_limits()
        .classify_fn(|_: Result<&usize, &ToolError>| Outcome::rate_limited(None));
    let stack = RetryLayer::new(policy).layer(tool);
    assert_eq!(stack.oneshot(call()).await.unwrap(), 1);
    assert_eq!(calls.load(SeqCst), 1);
}

/// R7: under a full outage, at most 1.2 requests per call; without a budget, each has its attempts.
#[tokio::test(start_paused = true)]
async fn a_full_outage_is_not_made_worse() {
    for (policy, sent) in [
        (policy(), 1150..=1200),
        (policy().without_budget(), 3000..=3000),
    ] {
        let (calls, tool) = tool(fails(ErrorKind::Upstream));
        let stack = RetryLayer::new(policy).layer(tool);
        let running: Vec<_> = (0..1000)
            .map(|_| tokio::spawn(stack.clone().oneshot(call())))
            .collect();
        for running in running {
            running.await.unwrap().unwrap_err();
        }
        assert!(sent.contains(&calls.load(SeqCst)), "{calls:?}");
    }
}

/// Calls of a tool that fails its first attempt are made; the number of those that succeed.
async fn repaired<S>(stack: &S, name: &str, server: &str, calls: usize) -> usize
where
    S: Service<ToolCall, Response = usize, Error = ToolError> + Clone,
{
    let mut repaired = 0;
    for _ in 0..calls {
        let call = ToolCall::new(name).with_server(server);
        let call = call.with_replay_safety(ReplaySafety::Safe);
        repaired += usize::from(stack.clone().oneshot(call).await.is_ok());
    }
    repaired
}

/// D6: a tool that always fails does not use up the retries of another one.
#[tokio::test(start_paused = true)]
async fn each_tool_has_a_budget_of_its_own() {
    let (_, tool) = tool(|_, call| match (call.tool(), call.attempt()) {
        ("well", 2..) => Ok(1),
        _ => Err(upstream()),
    });
    let by_server = || quick().with_budget_keys(Key::Server).unwrap();
    let in_all = || quick().with_total_budget(RetryBudget::default());
    for (policy, well, other_server) in [
        (quick(), 10, 10),
        (by_server(), 0, 10),
        (in_all(), 0, 0),
        (quick().without_budget(), 10, 10),
    ] {
        let stack = RetryLayer::new(policy).layer(tool.clone());
        assert_eq!(repaired(&stack, "flaky", "docs", 10).await, 0);
        assert_eq!(repaired(&stack, "well", "docs", 10).await, well);
        assert_eq!(repaired(&stack, "well", "wiki", 10).await, other_server);
    }
}

/// D6: keys beyond the bound share a budget.
#[tokio::test(start_paused = true)]
async fn budgets_take_keys_as_other_layers_do() {
    for max in [0, usize::MAX] {
        let error = policy().with_budget_keys(Keys::default().at_most(max));
        assert_eq!(error.unwrap_err().field(), "max_keys");
    }
    let (_, tool) = tool(|_, call| match (call.tool(), call.attempt()) {
        ("well", 2..) => Ok(1),
        _ => Err(upstream()),
    });
    let keys = Keys::by(Key::Server).at_most(1).known(["docs"]);
    let stack = RetryLayer::new(quick().with_budget_keys(keys).unwrap()).layer(tool);
    assert_eq!(repaired(&stack, "flaky", "wiki", 10).await, 0);
    assert_eq!(repaired(&stack, "well", "docs", 10).await, 10);
    assert_eq!(repaired(&stack, "well", "web", 10).await, 0);
}

/// D6: the budget of one tool is bounded as before, whatever the others do.
#[tokio::test(start_paused = true)]
async fn the_budget_of_a_tool_is_a_share_of_its_calls() {
    let (calls, tool) = tool(fails(ErrorKind::Upstream));
    let budget = RetryBudget::new(0.2, 1).unwrap();
    let stack = RetryLayer::new(quick().with_budget(budget)).layer(tool);
    repaired(&stack, "a", "docs", 1).await;
    repaired(&stack, "b", "docs", 100).await;
    assert_eq!(calls.load(SeqCst), 2 + 120);
    repaired(&stack, "a", "docs", 99).await;
    assert_eq!(calls.load(SeqCst), 2 + 120 + 99 + 19);
}

/// D6: the calls of other tools add nothing to the retries of a tool.
#[tokio::test(start_paused = true)]
async fn calls_of_other_tools_grant_no_retries() {
    let (calls, tool) = tool(|_, call| match call.tool() {
        "well" => Ok(1),
        _ => Err(upstream()),
    });
    let stack = RetryLayer::new(quick()).layer(tool);
    repaired(&stack, "well", "docs", 1_000).await;
    for n in 0..50 {
        calls.store(0, SeqCst);
        repaired(&stack, &format!("failing{n}"), "docs", 100).await;
        assert_eq!(calls.load(SeqCst), 120, "{n}");
    }
}

/// D6: a retry that the total budget refuses is not taken from the budget of its key.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_total_budget_costs_the_key_nothing() {
    let (calls, tool) = tool(fails(ErrorKind::Upstream));
    let one = || RetryBudget::new(0.0, 1).unwrap();
    let policy = quick().with_budget(one()).with_total_budget(one());
    let stack = RetryLayer::new(policy).layer(tool);
    for (after, name, sent) in [(0, "a", 2), (15, "b", 1), (6, "b", 2)] {
        advance(secs(after)).await;
        calls.store(0, SeqCst);
        repaired(&stack, name, "docs", 1).await;
        assert_eq!(calls.load(SeqCst), sent, "{name} {after} s later");
    }
}

/// D6: clones of a total budget bound several policies together; a budget of keys is only a size.
#[tokio::test(start_paused = true)]
async fn policies_share_a_total_budget() {
    let budget = RetryBudget::new(0.0, 1).unwrap();
    for (policy, sent) in [
        (quick().with_total_budget(budget.clone()), 2),
        (quick().with_total_budget(budget.clone()), 1),
        (quick().with_budget(budget.clone()), 2),
        (quick().with_budget(budget.clone()), 2),
    ] {
        let (calls, tool) = tool(fails(ErrorKind::Upstream));
        repaired(&RetryLayer::new(policy).layer(tool), "t", "docs", 1).await;
        assert_eq!(calls.load(SeqCst), sent);
    }
}

/// R1.
#[tokio::test(start_paused = true)]
async fn a_tool_may_have_its_own_schedule() {
    let own = Backoff::fixed(secs(5)).unwrap().with_jitter(Jitter::None);
    let policy = policy().with_tool("import", 2, own).unwrap();
    let call = ToolCall::new("import").with_replay_safety(ReplaySafety::Safe);
    let (_, sent, took) = failed(policy, upstream(), call).await;
    assert_eq!((sent, took), (2, secs(5)));
}

#[tokio::test(start_paused = true)]
async fn the_classifier_may_have_an_answer_repeated() {
    let policy = policy().classify_fn(|result: Result<&usize, &ToolError>| match result {
        Ok(1) => Outcome::failure(),
        _ => Outcome::success(),
    });
    let (_, tool) = tool(|n, _| Ok(n));
    let answer = RetryLayer::new(policy).layer(tool).oneshot(call()).await;
    assert_eq!(answer.unwrap(), 2);
}

/// Attempts are counted on the call, for those below.
#[tokio::test(start_paused = true)]
async fn each_attempt_knows_its_number() {
    let (_, tool) = tool(|n, call| {
        assert_eq!(call.attempt() as usize, n);
        Err(upstream())
    });
    let _ = RetryLayer::default().layer(tool).oneshot(call()).await;
}

/// R8.
#[tokio::test(start_paused = true)]
async fn the_attempts_at_one_call_have_one_key_and_other_calls_others() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&keys);
    let (_, tool) = tool(move |_, call| {
        seen.lock().unwrap().push(call.idempotency_key().unwrap());
        Err(upstream())
    });
    let stack = RetryLayer::default().layer(tool);
    let template = call();
    for _ in 0..2 {
        let _ = stack.clone().oneshot(template.clone()).await;
        sleep(secs(60)).await;
    }
    let keys = keys.lock().unwrap();
    assert_eq!(keys.len(), 6);
    assert!(keys[..3].iter().all(|key| *key == keys[0]));
    assert!(keys[3..].iter().all(|key| *key == keys[3]));
    assert_ne!(keys[0], keys[3]);
    assert_eq!(keys[0].to_string().len(), 24);
}

/// A policy that will not repeat claims nothing, so another one below may.
#[tokio::test(start_paused = true)]
async fn a_policy_of_one_attempt_leaves_the_call_to_others() {
    let (calls, tool) = tool(fails(ErrorKind::Upstream));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(policy().with_attempts(1).unwrap()))
        .layer(RetryLayer::default())
        .service(tool);
    let _ = stack.oneshot(call()).await;
    assert_eq!(calls.load(SeqCst), 3);
}

/// Rule 3d: nothing sleeps on a reservation, and each attempt waits for its own.
#[tokio::test(start_paused = true)]
async fn the_wait_holds_no_permit() {
    let (probe, tool) = tool(fails(ErrorKind::Upstream));
    let semaphore = Arc::new(tokio::sync::Semaphore::new(1));
    let tool = ConcurrencyLimit::with_semaphore(tool, Arc::clone(&semaphore));
    let mut stack = RetryLayer::default().layer(tool);
    let response = stack.ready().await.unwrap().call(call());
    let mut response = tokio_test::task::spawn(response);
    assert!(response.poll().is_pending());
    assert_eq!(semaphore.available_permits(), 1);
    // Somebody else has it when the wait is over.
    let held = Arc::clone(&semaphore).acquire_owned().await.unwrap();
    tokio::time::advance(secs(2)).await;
    assert!(response.poll().is_pending());
    assert_eq!(probe.load(SeqCst), 1);
    drop(held);
    assert!(response.poll().is_pending());
    assert_eq!(probe.load(SeqCst), 2);
}

/// T4: an attempt is dropped before the wait for the next one.
#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_dropped_before_the_wait() {
    let probe = kit::Probe::always(Step::hang());
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(policy()))
        .layer(TimeoutLayer::new(secs(1)))
        .service(probe.clone());
    let mut response = tokio_test::task::spawn(stack.oneshot(call()));
    assert!(response.poll().is_pending());
    tokio::time::advance(Duration::from_millis(1001)).await;
    assert!(response.poll().is_pending());
    assert_eq!(probe.in_flight(), 0);
}

/// T5, trap 11: one deadline for all attempts.
#[tokio::test(start_paused = true)]
async fn the_deadline_bounds_all_attempts_together() {
    let probe = kit::Probe::always(Step::hang());
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(10)))
        .layer(RetryLayer::new(policy()))
        .layer(TimeoutLayer::new(secs(4)))
        .service(probe.clone());
    let start = Instant::now();
    let error = stack.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // 4 s, a wait of 1 s, 4 s; the wait of 2 s does not fit.
    assert_eq!((start.elapsed(), probe.count()), (secs(9), 2));
}

/// Trap 17: calls that fail together do not come back together.
#[tokio::test(start_paused = true)]
async fn each_call_has_its_own_jitter() {
    let delays = Events::pick(|event| match event {
        Event::Retry {
            delay, attempt: 1, ..
        } => Some(*delay),
        _ => None,
    });
    let policy = RetryPolicy::new()
        .without_budget()
        .with_listener(delays.clone());
    let (_, tool) = tool(fails(ErrorKind::Upstream));
    let stack = RetryLayer::new(policy).layer(tool);
    for _ in 0..50 {
        let _ = stack.clone().oneshot(call()).await;
    }
    let mut delays = delays.take();
    delays.sort();
    delays.dedup();
    assert_eq!(delays.len(), 50);
}

#[test]
fn a_policy_without_attempts_is_refused() {
    assert_eq!(policy().with_attempts(0).unwrap_err().field(), "attempts");
    let of_a_tool = policy().with_tool("t", 0, Backoff::default());
    assert_eq!(of_a_tool.unwrap_err().field(), "attempts");
}

/// The policy inside tower's own layer.
#[cfg(feature = "tower")]
mod with_tower {
    use tower::retry::RetryLayer as Towers;
    use tower_toolcall::BoxError;

    use super::*;

    /// R6, trap 7: errors are stamped before they are judged, so a nested call's error does not
    /// make this one safe; and the last one names the call.
    #[tokio::test(start_paused = true)]
    async fn a_nested_refusal_is_no_refusal_of_this_call() {
        let nested = ToolError::new(ErrorKind::ConnectionFailed, "refused")
            .with_execution(Execution::NotStarted)
            .with_tool("mail");
        let (calls, tool) = tool(move |_, _| Err(nested.clone()));
        let call = ToolCall::new("pay").with_id("c1");
        let error = Towers::new(policy()).layer(tool).oneshot(call).await;
        let error = error.unwrap_err();
        assert_eq!((calls.load(SeqCst), error.call_id()), (1, Some("c1")));
    }

    /// R8: what cannot be the same for all attempts is not offered.
    #[tokio::test(start_paused = true)]
    async fn there_is_no_idempotency_key_under_towers_layer() {
        let (_, tool) = tool(|_, mut call| {
            let _observer = call.observe();
            assert_eq!(call.idempotency_key(), None);
            Err(upstream())
        });
        let _ = Towers::new(policy()).layer(tool).oneshot(call()).await;
    }

    /// The second attempt of a layer above that claims nothing.
    fn second_attempt() -> ToolCall {
        let mut call = call();
        call.next_attempt();
        call
    }

    /// R7: a call counts for the budget whatever its attempt's number, as it does in our own layer.
    #[tokio::test(start_paused = true)]
    async fn a_later_attempt_of_a_layer_that_claims_nothing_counts_for_the_budget() {
        let policy = || policy().with_budget(RetryBudget::new(1.0, 0).unwrap());
        let (calls, tool) = tool(fails(ErrorKind::Upstream));
        let ours = RetryLayer::new(policy()).layer(tool.clone());
        ours.oneshot(second_attempt()).await.unwrap_err();
        assert_eq!(calls.swap(0, SeqCst), 2);
        let towers = Towers::new(policy()).layer(tool);
        towers.oneshot(second_attempt()).await.unwrap_err();
        assert_eq!(calls.load(SeqCst), 2);
    }

    /// R4: a policy that will not repeat says nothing, whatever the attempt's number.
    #[tokio::test(start_paused = true)]
    async fn a_policy_of_one_attempt_refuses_no_retry_of_a_later_attempt() {
        let refused = refusals();
        let policy = policy().with_listener(refused.clone());
        let (_, tool) = tool(fails(ErrorKind::Upstream));
        let stack = Towers::new(policy.with_attempts(1).unwrap()).layer(tool);
        stack.oneshot(second_attempt()).await.unwrap_err();
        refused.assert([]);
    }

    /// Trap 13: nested retriers do not multiply, ours and tower's in any order.
    #[tokio::test(start_paused = true)]
    async fn nested_retriers_do_not_multiply() {
        let (ours, towers) = (RetryLayer::default, || Towers::new(policy()));
        macro_rules! sends_three {
            ($($outer:ident in $inner:ident),*) => {$({
                let (calls, tool) = tool(fails(ErrorKind::Upstream));
                let _ = $outer().layer($inner().layer(tool)).oneshot(call()).await;
                assert_eq!(calls.load(SeqCst), 3);
            })*};
        }
        sends_three!(ours in ours, ours in towers, towers in ours, towers in towers);
    }

    /// The policy inside tower's layer, over a boxed error.
    #[tokio::test(start_paused = true)]
    async fn the_policy_works_in_towers_layer_with_boxed_errors() {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let tool = service_fn(move |_: ToolCall| {
            count.fetch_add(1, SeqCst);
            async { Err::<(), BoxError>("503 Service Unavailable".into()) }
        });
        let start = Instant::now();
        let error = Towers::new(policy()).layer(tool).oneshot(call()).await;
        let error = ToolError::from_box(error.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Upstream);
        assert_eq!(error.attempts(), Some(3));
        assert_eq!((calls.load(SeqCst), start.elapsed()), (3, secs(3)));
    }
}

mod cancel {
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Trap 14: also while the next attempt waits for a service to become ready.
    #[tokio::test(start_paused = true)]
    async fn a_cancel_while_the_next_attempt_waits_for_readiness_is_the_end() {
        let (calls, tool) = tool(fails(ErrorKind::Upstream));
        let semaphore = Arc::new(tokio::sync::Semaphore::new(1));
        let tool = ConcurrencyLimit::with_semaphore(tool, Arc::clone(&semaphore));
        let token = CancellationToken::new();
        let call = call().with_cancellation(token.clone());
        let running = tokio::spawn(RetryLayer::default().layer(tool).oneshot(call));
        sleep(Duration::from_millis(500)).await;
        let _held = semaphore.acquire_owned().await.unwrap();
        sleep(secs(10)).await;
        token.cancel();
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(calls.load(SeqCst), 1);
        // What it had failed with is its cause.
        assert!(std::error::Error::source(&error).is_some());
    }

    /// Trap 14: the caller's cancel ends the wait, and nothing is sent after it.
    #[tokio::test(start_paused = true)]
    async fn a_cancel_between_two_attempts_is_the_end() {
        let (calls, tool) = tool(fails(ErrorKind::Upstream));
        let token = CancellationToken::new();
        let call = call().with_cancellation(token.clone());
        let running = tokio::spawn(RetryLayer::default().layer(tool).oneshot(call));
        sleep(Duration::from_millis(500)).await;
        token.cancel();
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(error.attempts(), Some(1));
        assert_eq!(calls.load(SeqCst), 1);
    }
}

/// What the details of an error say of the last attempt that has ended.
fn last_attempt(error: &ToolError) -> serde_json::Value {
    let details = error.details().map(|details| details.to_string());
    let details = details.unwrap_or_else(|| "{}".to_owned());
    let details: serde_json::Value = serde_json::from_str(&details).unwrap();
    details["last_attempt"].clone()
}

/// D7: the error of a call whose deadline ends the second attempt carries the first attempt's.
#[tokio::test(start_paused = true)]
async fn the_error_before_the_deadline_is_kept() {
    let stack = |layers: &str| {
        let tool = kit::Probe::new([Step::error(upstream()), Step::hang()]);
        let (retry, timeout) = (RetryLayer::new(policy()), TimeoutLayer::default());
        let deadline = DeadlineLayer::new(secs(10));
        match layers {
            "deadline" => BoxCloneSyncService::new(deadline.layer(retry.layer(tool))),
            "timeout" => BoxCloneSyncService::new(deadline.layer(retry.layer(timeout.layer(tool)))),
            _ => BoxCloneSyncService::new(DeadlineLayer::inherited().layer(retry.layer(tool))),
        }
    };
    for layers in ["deadline", "timeout", "untrusted"] {
        let mut call = call();
        if layers == "untrusted" {
            call.tighten_remote(Instant::now() + secs(10), Trust::Untrusted);
        }
        let error = stack(layers).oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{layers}");
        let last = last_attempt(&error);
        assert_eq!(last["code"], "UPSTREAM_ERROR", "{layers}");
        assert_eq!(last["message"], "503 Service Unavailable", "{layers}");
        let source = std::error::Error::source(&error).expect(layers);
        let source = source.downcast_ref::<ToolError>().expect(layers);
        assert_eq!(source.kind(), ErrorKind::Upstream, "{layers}");
    }
}

/// D7: likewise if the caller cancels the second attempt, under a layer that repeats rate limits as
/// well.
#[tokio::test(start_paused = true)]
async fn the_error_before_a_cancelled_attempt_is_kept() {
    let limit = ToolError::new(ErrorKind::RateLimited, "slow down").with_retry_after(secs(1));
    let tool = kit::Probe::new([Step::error(limit), Step::hang()]);
    let svc = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(60)))
        .layer(RateLimitBackoffLayer::new())
        .service(tool);
    let token = tokio_util::sync::CancellationToken::new();
    let cancel = async {
        sleep(secs(20)).await;
        token.cancel();
    };
    let call = call().with_cancellation(token.clone());
    let (answer, ()) = tokio::join!(svc.oneshot(call), cancel);
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(last_attempt(&error)["code"], "RATE_LIMITED");
    assert!(std::error::Error::source(&error).is_some());
}

/// D7: an earlier call of the same record, or a call that was sent once, adds nothing.
#[tokio::test(start_paused = true)]
async fn the_error_of_another_call_is_not_added() {
    let tool = kit::Probe::new([
        Step::error(upstream()),
        Step::ok("done"),
        Step::hang(),
        Step::hang(),
    ]);
    let svc = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(10)))
        .layer(RetryLayer::new(policy()))
        .service(tool);
    let call = call();
    svc.clone().oneshot(call.clone()).await.unwrap();
    for _ in 0..2 {
        let error = svc.clone().oneshot(call.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(std::error::Error::source(&error).is_none());
        assert!(last_attempt(&error).is_null());
    }
}

/// D7: nor is that of a call whose caller hung up during a later attempt.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_call_that_was_dropped_is_not_added() {
    let tool = kit::Probe::new([Step::error(upstream()), Step::hang(), Step::hang()]);
    let svc = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(100)))
        .layer(RetryLayer::new(policy()))
        .service(tool.clone());
    let call = call();
    let mut first = tokio_test::task::spawn(svc.clone().oneshot(call.clone()));
    assert!(first.poll().is_pending());
    tokio::time::advance(secs(60)).await;
    assert!(first.poll().is_pending());
    assert_eq!(tool.count(), 2);
    drop(first);
    let error = svc.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(last_attempt(&error).is_null(), "{error:?}");
}

/// The errors behind this one.
fn sources(error: &ToolError) -> Vec<String> {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |error| error.source())
        .map(ToString::to_string)
        .collect()
}

/// D7: a deadline of each attempt does not chain the errors of all attempts.
#[tokio::test(start_paused = true)]
async fn errors_of_attempts_do_not_form_a_chain() {
    let policy = || policy().with_attempts(8).unwrap();
    let layer = DeadlineLayer::new(secs(1));
    let svc = RetryLayer::new(policy()).layer(layer.layer(kit::Probe::always(Step::hang())));
    let error = svc.oneshot(call()).await.unwrap_err();
    assert_eq!(error.attempts(), Some(8));
    assert_eq!(last_attempt(&error)["code"], "TOOL_TIMEOUT");
    assert_eq!(sources(&error).len(), 1);

    // The error of an attempt that has its own deadline is its own.
    let steps = [
        Step::error(upstream()),
        Step::hang(),
        Step::error(ToolError::new(ErrorKind::Upstream, "the last")),
    ];
    let layer = DeadlineLayer::new(secs(1));
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&errors);
    let policy = policy().with_attempts(3).unwrap();
    let svc = ServiceBuilder::new()
        .layer(RetryLayer::new(policy))
        .map_err(move |error: ToolError| {
            seen.lock().unwrap().push(sources(&error));
            error
        })
        .layer(layer)
        .service(kit::Probe::new(steps));
    svc.oneshot(call()).await.unwrap_err();
    assert!(errors.lock().unwrap().iter().all(Vec::is_empty));
}

/// D7: of attempts that an outer and an inner layer have made, the last finished one is named.
#[tokio::test(start_paused = true)]
async fn the_last_finished_attempt_of_an_inner_layer_is_named() {
    let limit = ToolError::new(ErrorKind::RateLimited, "slow down").with_retry_after(secs(1));
    let tool = kit::Probe::new([Step::error(limit), Step::error(upstream()), Step::hang()]);
    let svc = ServiceBuilder::new()
        .layer(RateLimitBackoffLayer::new())
        .layer(DeadlineLayer::new(secs(300)))
        .layer(RetryLayer::new(policy()))
        .service(tool);
    let mut call = call();
    let _observation = call.observe();
    let error = svc.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(last_attempt(&error)["code"], "UPSTREAM_ERROR");
    assert_eq!(sources(&error).len(), 1, "{:?}", sources(&error));
}

/// D13: without jitter a call waits for exactly the time that the server, or the setting, names.
#[tokio::test(start_paused = true)]
async fn no_wait_is_randomised_without_jitter() {
    let limited = || ToolError::new(ErrorKind::RateLimited, "slow down");
    for (error, wait) in [
        (limited(), secs(30)),
        (limited().with_retry_after(secs(20)), secs(20)),
        (upstream().with_retry_after(secs(7)), secs(7)),
    ] {
        for seed in 0..3 {
            let tool = kit::Probe::new([Step::error(error.clone()), Step::ok("done")]);
            let svc = RetryLayer::new(policy().with_seed(seed)).layer(tool);
            let start = Instant::now();
            svc.oneshot(call()).await.unwrap();
            assert_eq!(start.elapsed(), wait, "{error}");
        }
    }
}

/// Becomes ready, fails to become ready, and is ready again; a clone of a failed one is a failed
/// one.
#[derive(Clone, Default)]
struct Sticky {
    polls: Arc<AtomicUsize>,
    has_failed: bool,
}

impl Service<ToolCall> for Sticky {
    type Response = usize;
    type Error = ToolError;
    type Future = std::future::Ready<Result<usize, ToolError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.has_failed |= self.polls.fetch_add(1, SeqCst) == 1;
        Poll::Ready(match self.has_failed {
            true => Err(ToolError::new(ErrorKind::ConnectionFailed, "closed")),
            false => Ok(()),
        })
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        let polls = self.polls.load(SeqCst);
        std::future::ready(match polls {
            1 => Err(upstream()),
            _ => Ok(polls),
        })
    }
}

/// An attempt after a failed readiness has a fresh instance as well.
#[tokio::test(start_paused = true)]
async fn an_instance_that_failed_is_not_cloned_for_the_next_attempt() {
    let stack = RetryLayer::new(policy()).layer(Sticky::default());
    assert_eq!(stack.oneshot(call()).await.unwrap(), 3);
}
