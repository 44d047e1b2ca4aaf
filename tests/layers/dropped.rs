//! D1: a call that a layer holds back, and whose caller hangs up, was not sent: outer layers count
//! no attempt, no latency and no failure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::Semaphore,
    time::{Instant, advance, sleep, timeout},
};
use tokio_test::{assert_pending, task};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    CallInfo, ErrorKind, ReplaySafety, ToolCall, ToolError,
    cache::CacheLayer,
    call::JobRef,
    circuit_breaker::{BreakerState, CircuitBreakerLayer, Rates},
    concurrency_limit::{self, ConcurrencyLimitLayer},
    health::{Availability, Health},
    middleware,
    once::OnceLayer,
    policy::{Approval, ApprovalDecision, PolicyLayer},
    poll::{Job, PollLayer, Polled, Started},
    rate_limit::RateLimitBackoffLayer,
    repeat_guard::RepeatGuardLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    tool_metrics::Metrics,
    trace::{End, TraceHooks, TraceLayer},
};
use tower_toolcall_test::{FaultLayer, Faults, Script, Step};
use tracing::Span;
use tracing_subscriber::util::SubscriberInitExt;

use crate::kit::{self, Limited, secs};

type Tool = Script<&'static str>;
type Does = fn() -> Step<&'static str>;
type Stack = BoxCloneSyncService<ToolCall, &'static str, ToolError>;

fn pay() -> ToolCall {
    ToolCall::new("pay")
        .with_server("bank")
        .with_agent_id("a1")
        .with_once_key("k1")
        .with_json(json!({ "euros": 20 }))
        .unwrap()
}

/// The call that the layer meets before the one that is observed.
const BEFORE: [Does; 4] = [
    || Step::ok("answer"),
    Step::hang,
    || Step::fail(ErrorKind::RateLimited).with_retry_after(secs(240)),
    || Step::status(500),
];

/// The first attempt of the call that is observed, and whether it may run twice. The next attempts
/// hang.
const FIRST: [(Does, ReplaySafety); 3] = [
    (Step::hang, ReplaySafety::Unsafe),
    (|| Step::status(500), ReplaySafety::Safe),
    (
        || Step::fail(ErrorKind::RateLimited).with_retry_after(secs(5)),
        ReplaySafety::Unsafe,
    ),
];

/// When the inner service is ready.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ready {
    Always,
    Never,
    /// After the first poll.
    Later,
    /// For one attempt.
    Once,
}

/// Records how many attempts a span is told of.
#[derive(Clone, Default)]
struct Attempts(Arc<AtomicU32>);

impl<Res> TraceHooks<Res> for Attempts {
    fn on_end(&self, _: &CallInfo, end: &End<'_, Res>, _: &Span) {
        self.0.fetch_add(end.attempts(), Relaxed);
    }
}

/// D1: at each point at which a call can be dropped, the observers of a layer report as many
/// attempts as the tool service has received requests. Of a call that was not sent there is no
/// latency and no failure, and its key is free. All that was reserved is given back.
pub(crate) async fn observers_report_what_was_sent<L>(layer: impl Fn() -> L)
where
    L: Layer<Limited, Service: kit::Stack>,
{
    let _heard = tracing_subscriber::registry().set_default();
    for before in BEFORE {
        for (first, replay) in FIRST {
            for ready in [Ready::Always, Ready::Never, Ready::Later, Ready::Once] {
                let mut polls = 0;
                while drop_after(polls, &layer(), before(), first(), replay, ready).await {
                    polls += 1;
                }
            }
        }
    }
}

/// Drops a call after so many polls, ten seconds apart. Returns whether it could go on.
async fn drop_after<L>(
    polls: u32,
    layer: &L,
    before: Step<&'static str>,
    first: Step<&'static str>,
    replay: ReplaySafety,
    ready: Ready,
) -> bool
where
    L: Layer<Limited, Service: kit::Stack>,
{
    let case = format!("{polls} polls, {before:?}, {first:?}, {ready:?}");
    let call = || {
        let call = kit::call().with_agent_id("a1").with_once_key("k1");
        let call = call.with_timeout(secs(15));
        call.with_replay_safety(replay)
    };
    let mut running = task::spawn(layer.layer(kit::limited(before).0).oneshot(call()));
    let _ = running.poll();

    let tool = Tool::new([first]).then(Step::hang());
    let permits = Arc::new(Semaphore::new(usize::from(ready != Ready::Never)));
    let limited = tower::limit::ConcurrencyLimit::with_semaphore(tool.clone(), permits.clone());
    let mut held = None;
    if ready == Ready::Later {
        held = permits.clone().try_acquire_owned().ok();
    }
    let (once, metrics, attempts) = (OnceLayer::new(), Metrics::new(), Attempts::default());
    let health = Health::builder().with_threshold(1).build().unwrap();
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let trace = TraceLayer::new().with_hooks(attempts.clone());
    let observed = metrics.layer().layer(trace.layer(layer.layer(limited)));
    let mut stack = once.layer(breaker.layer(health.layer().layer(observed)));

    let mut response = task::spawn(stack.ready().await.unwrap().call(call()));
    let mut sent_for = secs(0);
    let mut is_pending = true;
    for _ in 0..polls {
        is_pending = response.poll().is_pending();
        if !is_pending {
            break;
        }
        held = None;
        if ready == Ready::Once && tool.count() > 0 {
            held = permits.clone().try_acquire_owned().ok();
        }
        let is_running = tool.in_flight() > 0;
        advance(secs(10)).await;
        sent_for += secs(10) * u32::from(is_running);
    }
    let hangs = tool.in_flight() > 0;
    drop((response, held));
    assert_eq!(tool.in_flight(), 0, "{case}");
    let free = usize::from(ready != Ready::Never);
    assert_eq!(permits.available_permits(), free, "{case}");
    let sent = u32::try_from(tool.count()).unwrap();
    // It may have sent the call elsewhere, and its own waits count.
    let is_function = std::any::type_name::<L>().contains("FromFnLayer");
    let all = metrics.snapshot().total;
    assert_eq!(all.attempts, u64::from(sent), "metrics, {case}");
    assert_eq!(attempts.0.load(Relaxed), sent, "trace, {case}");
    let breakers = breaker.handle().snapshot();
    let failed = breakers.iter().any(|b| b.state == BreakerState::Open);
    if sent == 0 {
        assert!(!failed, "breaker, {case}");
        let server = health.server("docs");
        let is_down = server.is_some_and(|s| s.state != Availability::Available);
        assert!(!is_down, "health, {case}");
    } else if is_pending && hangs && !is_function {
        assert_eq!(failed, sent_for >= secs(15), "breaker, {case}");
    }
    if is_pending {
        assert_eq!(all.latency.count == 0, sent == 0, "latency, {case}");
        let next = Tool::always(Step::ok("answer"));
        let again = once.layer(next).oneshot(call()).await;
        let is_free = !hangs || replay == ReplaySafety::Safe;
        if sent > 0 || !is_function {
            assert_eq!(again.is_ok(), is_free, "key, {case}");
        }
    }
    is_pending && polls < 6
}

/// Layers that hold calls back by other means than those of the table.
#[tokio::test(start_paused = true)]
async fn observers_of_a_layer_that_waits_report_what_was_sent() {
    observers_report_what_was_sent(|| {
        middleware::from_fn(|call, mut next| async move {
            sleep(secs(25)).await;
            next.run(call).await
        })
    })
    .await;
    observers_report_what_was_sent(OnceLayer::new).await;
    observers_report_what_was_sent(|| CacheLayer::new(secs(60), ["docs__search"]).unwrap()).await;
    let silent =
        || service_fn(|_: Approval| std::future::pending::<Result<ApprovalDecision, ToolError>>());
    let policy = || PolicyLayer::new().ask("search").with_approver(silent());
    observers_report_what_was_sent(policy).await;
    let breaker = || {
        CircuitBreakerLayer::builder()
            .with_trip(1)
            .with_open_for(secs(10))
    };
    let breaker = || breaker().with_probe_wait(secs(60)).build().unwrap();
    observers_report_what_was_sent(breaker).await;
}

/// Makes a call that waits 29 s at a limit below `observer`, and then ends, or is dropped, `after`
/// it was sent.
async fn end_after_queue<L>(observer: &L, call: ToolCall, step: Step<&'static str>, after: Duration)
where
    L: Layer<concurrency_limit::ConcurrencyLimit<Tool>, Service: kit::Stack>,
{
    let tool = Tool::new([Step::hang()]).then(step);
    let limited = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let mut before = task::spawn(limited.clone().oneshot(pay()));
    assert_pending!(before.poll());
    let mut waiting = task::spawn(observer.layer(limited).oneshot(call));
    assert_pending!(waiting.poll());
    advance(secs(29)).await;
    drop(before);
    assert_pending!(waiting.poll());
    assert_eq!(tool.in_flight(), 1);
    advance(after).await;
    let _ = waiting.poll();
}

/// D1, Z1: the time in a queue is none of the tool's, also of a call that was sent after it.
#[tokio::test(start_paused = true)]
async fn the_time_in_a_queue_below_counts_against_no_server() {
    let health = Health::builder().with_threshold(1).build().unwrap();
    let server = || health.server("bank").map(|server| server.state);
    let call = || pay().with_timeout(secs(30));
    end_after_queue(&health.layer(), call(), Step::hang(), secs(1)).await;
    assert_ne!(server(), Some(Availability::Unavailable));
    let call_until = pay().with_deadline(Instant::now() + secs(30));
    end_after_queue(&health.layer(), call_until, Step::hang(), secs(1)).await;
    assert_ne!(server(), Some(Availability::Unavailable));
    end_after_queue(&health.layer(), call(), Step::hang(), secs(30)).await;
    assert_eq!(server(), Some(Availability::Unavailable));
}

/// D1, Z1.
#[tokio::test(start_paused = true)]
async fn the_time_in_a_queue_below_opens_no_breaker() {
    let call = || pay().with_timeout(secs(30));
    let answers = |after| Step::ok("answer").after(secs(after));
    for (step, after, state) in [
        (Step::hang(), secs(9), BreakerState::Closed),
        (answers(9), secs(9), BreakerState::Closed),
        (Step::hang(), secs(10), BreakerState::Open),
        (answers(10), secs(10), BreakerState::Open),
    ] {
        let rates = Rates::over_calls(1).with_slow_call_rate(1.0, secs(10));
        let breaker = CircuitBreakerLayer::builder()
            .with_trip(rates)
            .build()
            .unwrap();
        end_after_queue(&breaker, call(), step, after).await;
        assert_eq!(breaker.handle().snapshot()[0].state, state, "{after:?}");
    }
}

/// Drops a call a minute after it has begun to wait.
async fn hang_up(stack: impl tower::Service<ToolCall, Response = &'static str, Error = ToolError>) {
    let mut waiting = task::spawn(stack.oneshot(pay().with_timeout(secs(30))));
    assert_pending!(waiting.poll());
    advance(secs(60)).await;
    assert_pending!(waiting.poll());
}

/// D1: a clone that waits beside an observed call changes nothing for it: it was not sent.
#[tokio::test(start_paused = true)]
async fn a_held_call_frees_its_key_although_its_clone_waits_too() {
    let tool = Tool::always(Step::hang());
    let busy = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let mut running = task::spawn(busy.clone().oneshot(pay()));
    assert_pending!(running.poll());
    let (once, call) = (OnceLayer::new(), pay().with_timeout(secs(30)));
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let observed = once.layer(breaker.layer(busy.clone()));
    let mut first = task::spawn(observed.oneshot(call.clone()));
    assert_pending!(first.poll());
    let mut second = task::spawn(busy.oneshot(call));
    assert_pending!(second.poll());
    advance(secs(60)).await;
    drop(first);
    assert_eq!(tool.count(), 1);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Closed);
    assert_eq!(pay_again(&once).await.unwrap(), "paid");
}

/// D1: a call that was dropped while it was held leaves no trace on the next one that has its
/// record.
#[tokio::test(start_paused = true)]
async fn a_clone_of_a_held_call_counts_when_it_is_sent() {
    let call = pay().with_timeout(secs(30));
    let tool = Tool::always(Step::hang());
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let busy = tower::limit::ConcurrencyLimit::new(tool.clone(), 0);
    let held = breaker.layer(RepeatGuardLayer::new().layer(busy));
    let mut first = task::spawn(held.oneshot(call.clone()));
    assert_pending!(first.poll());
    drop(first);
    let sent = breaker.layer(TimeoutLayer::new(secs(300)).layer(tool));
    let mut second = task::spawn(sent.oneshot(call));
    assert_pending!(second.poll());
    advance(secs(60)).await;
    drop(second);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Open);
}

/// A foreign layer that gives an attempt a second, and makes another one a second later.
fn repeats(stack: Stack) -> Stack {
    BoxCloneSyncService::new(service_fn(move |call: ToolCall| {
        let stack = stack.clone();
        async move {
            let first = timeout(secs(1), stack.clone().oneshot(call.clone())).await;
            if let Ok(Ok(answer)) = first {
                return Ok(answer);
            }
            sleep(secs(1)).await;
            stack.oneshot(call).await
        }
    }))
}

/// Sends a call that waits in `held`, until it is cancelled after a second, to another tool.
async fn cancel_and_send_elsewhere(held: Stack) {
    let (tool, once, metrics) = (Tool::always(Step::hang()), OnceLayer::new(), Metrics::new());
    let (elsewhere, token) = (tool.clone(), CancellationToken::new());
    let caller = token.clone();
    let stack = metrics.layer().layer(service_fn(move |call: ToolCall| {
        let (held, elsewhere) = (held.clone(), elsewhere.clone());
        let refused = held.oneshot(call.clone().with_cancellation(caller.clone()));
        async move {
            refused.await.unwrap_err();
            elsewhere.oneshot(call).await
        }
    }));
    let mut response = task::spawn(once.layer(stack).oneshot(pay()));
    assert_pending!(response.poll());
    advance(secs(1)).await;
    token.cancel();
    assert_pending!(response.poll());
    drop(response);
    let attempts = metrics.snapshot().total.attempts;
    assert_eq!((tool.count(), attempts), (1, 1));
    keeps_its_key(&once).await;
}

/// The tool at a bank that gives no token, or fails to after a second.
fn without_a_token(waits: u64) -> Stack {
    use tower_toolcall::token::{Target, Token, TokenLayer};

    let provider = service_fn(move |_| async move {
        sleep(secs(waits)).await;
        Err::<Token, _>(ToolError::new(ErrorKind::Upstream, "out of order"))
    });
    let tokens = TokenLayer::new(provider).with_server("bank", Target::audience("bank"));
    let tokens = tokens.layer(Tool::always(Step::hang()));
    Stack::new(tokens.map_request(|call: ToolCall| call.with_subject_token("s3cr3t")))
}

/// D1: a call that was refused after a wait, and that a foreign layer then sends elsewhere, keeps
/// its key and is an attempt. So does one that waits for its access token, or whose token provider
/// fails.
#[tokio::test(start_paused = true)]
async fn a_refused_call_that_is_sent_elsewhere_does_not_free_the_key() {
    let tool = Tool::always(Step::hang());
    let busy = tower::limit::ConcurrencyLimit::new(tool.clone(), 0);
    let busy = RepeatGuardLayer::new().layer(busy);
    let limit = RateLimitBackoffLayer::new();
    limit.handle().cool(&pay(), secs(60));
    let delay = Faults::new().with_delay(1.0, secs(60)).unwrap();
    for held in [
        Stack::new(busy),
        Stack::new(limit.layer(tool.clone())),
        Stack::new(FaultLayer::new(1, delay).layer(tool)),
        without_a_token(60),
        without_a_token(1),
    ] {
        cancel_and_send_elsewhere(held).await;
    }
}

/// Drops a call a second after it has begun to wait in `held`. Returns how many attempts were
/// counted, and what becomes of the next call with its key.
async fn drop_while_it_waits(held: Stack) -> (u64, Result<&'static str, ToolError>) {
    let (once, metrics) = (OnceLayer::new(), Metrics::new());
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let stack = once.layer(breaker.layer(metrics.layer().layer(held)));
    let call = || pay().with_subject_token("s3cr3t");
    let mut waiting = task::spawn(stack.oneshot(call().with_timeout(secs(30))));
    assert_pending!(waiting.poll());
    advance(secs(1)).await;
    assert_pending!(waiting.poll());
    drop(waiting);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Closed);
    let again = once.layer(Tool::always(Step::ok("paid"))).oneshot(call());
    (metrics.snapshot().total.attempts, again.await)
}

/// D1: a call that waits for its access token, for which another one asks, or for its route was not
/// sent.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_has_what_it_waits_for_was_not_sent() {
    use tower_toolcall::router::RouterBuilder;

    let busy = tower::limit::ConcurrencyLimit::new(Tool::always(Step::hang()), 0);
    let router = RouterBuilder::new().server("bank", busy, ["pay"]).build();
    let busy_route = Stack::new(router.unwrap());
    for held in [without_a_token(300), busy_route] {
        let (attempts, again) = drop_while_it_waits(held).await;
        assert_eq!((attempts, again.unwrap()), (0, "paid"));
    }
}

/// A job that is never done, and is asked for after so many seconds.
#[derive(Clone)]
struct Endless(u64);

impl Job<&'static str> for Endless {
    fn started(
        &self,
        call: &ToolCall,
        _: &'static str,
    ) -> Result<Started<&'static str>, ToolError> {
        let job = JobRef::new(call, serde_json::Map::new())?;
        Ok(Started::Running(job, Some(secs(self.0))))
    }

    fn ask(&self, call: &ToolCall, _: &JobRef) -> ToolCall {
        call.follow_up()
    }

    fn read(&self, _: &ToolCall, _: &'static str) -> Result<Polled<&'static str>, ToolError> {
        Ok(Polled::Running {
            after: Some(secs(self.0)),
            note: None,
        })
    }
}

/// D1: between two polls of a job nothing is sent; the job has been started, and keeps its key.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_between_polls_was_sent_once() {
    let tool = Tool::always(Step::ok("running"));
    let polled = PollLayer::new(Endless(300)).layer(tool.clone());
    let (attempts, again) = drop_while_it_waits(Stack::new(polled)).await;
    assert_eq!((tool.count(), attempts), (1, 1));
    assert_eq!(again.unwrap_err().code(), "TOOL_OUTCOME_UNKNOWN");
}

/// Issue 48, D3: the timeout of a poll is not that of the call that waits for the job.
#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_during_a_poll_counts_as_a_failure() {
    let tool = Tool::new([Step::ok("running"), Step::hang()]);
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let stack = tower::ServiceBuilder::new()
        .layer(TimeoutLayer::new(secs(2)))
        .layer(breaker.clone())
        .layer(PollLayer::new(Endless(1)))
        .layer(TimeoutLayer::new(secs(30)))
        .service(tool.clone());
    let error = stack.oneshot(pay()).await.unwrap_err();
    assert_eq!((error.kind(), tool.count()), (ErrorKind::Timeout, 2));
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Open);
}

/// S3: a function may send a call elsewhere, and not by its `next`.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_function_sends_elsewhere_does_not_free_the_key() {
    let (tool, once) = (Tool::always(Step::hang()), OnceLayer::new());
    let elsewhere = tool.clone();
    let routes = middleware::from_fn(move |call, _: middleware::Next<_>| {
        let elsewhere = elsewhere.clone();
        async move { elsewhere.oneshot(call).await }
    });
    let stack = once.layer(routes.layer(Tool::always(Step::hang())));
    let mut response = task::spawn(stack.oneshot(pay()));
    assert_pending!(response.poll());
    drop(response);
    assert_eq!(tool.count(), 1);
    keeps_its_key(&once).await;
}

/// D1: an attempt that was sent runs, although the one before was dropped while it was held.
#[tokio::test(start_paused = true)]
async fn an_attempt_after_one_that_was_held_counts_as_sent() {
    let tool = Tool::always(Step::hang());
    let limit = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let mut running = task::spawn(limit.clone().oneshot(pay()));
    assert_pending!(running.poll());
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let stack = breaker.layer(repeats(BoxCloneSyncService::new(limit)));
    let mut call = task::spawn(stack.oneshot(pay().with_timeout(secs(30))));
    assert_pending!(call.poll());
    advance(secs(1)).await;
    assert_pending!(call.poll());
    drop(running);
    advance(secs(1)).await;
    assert_pending!(call.poll());
    assert_eq!(tool.count(), 2);
    advance(secs(60)).await;
    drop(call);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Open);
}

/// Returns how an equal payment ends after one whose caller has hung up.
async fn pay_again(once: &OnceLayer) -> Result<&'static str, ToolError> {
    let tool = Tool::always(Step::ok("paid"));
    once.layer(tool).oneshot(pay()).await
}

/// Asserts that an equal payment is refused.
async fn keeps_its_key(once: &OnceLayer) {
    let refused = pay_again(once).await.unwrap_err();
    assert_eq!(refused.code(), "TOOL_OUTCOME_UNKNOWN");
}

/// Drops a payment in its second attempt, which a limit holds back. `layer` repeats it: the first
/// attempt has ended after `first`, and the next one begins within a minute.
async fn hang_up_in_the_second_attempt(
    tool: Tool,
    layer: impl FnOnce(Stack) -> Stack,
    first: Duration,
) {
    let limit = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let once = OnceLayer::new();
    let stack = once.layer(layer(BoxCloneSyncService::new(limit.clone())));
    let mut call = task::spawn(stack.oneshot(pay().with_timeout(secs(30))));
    assert_pending!(call.poll());
    advance(first).await;
    assert_pending!(call.poll());
    let mut other = task::spawn(limit.oneshot(pay()));
    assert_pending!(other.poll());
    advance(secs(60)).await;
    assert_pending!(call.poll());
    drop(call);
    assert_eq!(tool.count(), 2);
    keeps_its_key(&once).await;
}

/// D1: a first attempt that may have run blocks the key, although the second one is held back; also
/// of a foreign layer, which reports nothing.
#[tokio::test(start_paused = true)]
async fn a_held_second_attempt_does_not_free_the_key() {
    let tool = Tool::new([Step::fail(ErrorKind::ConnectionFailed)]).then(Step::hang());
    let policy = RetryPolicy::new().assume_replay_safe();
    let retry = |stack| BoxCloneSyncService::new(RetryLayer::new(policy).layer(stack));
    hang_up_in_the_second_attempt(tool, retry, secs(0)).await;
    hang_up_in_the_second_attempt(Tool::always(Step::hang()), repeats, secs(1)).await;
}

/// D1: a held call that a task of its own carries on with blocks the key, because it will be sent.
#[tokio::test(start_paused = true)]
async fn a_held_call_of_a_detached_task_does_not_free_the_key() {
    let tool = Tool::new([Step::ok("paid").after(secs(90))]).then(Step::ok("paid twice"));
    let limit = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let mut running = task::spawn(limit.clone().oneshot(pay()));
    assert_pending!(running.poll());
    let detached = service_fn(move |call: ToolCall| {
        let task = tokio::spawn(limit.clone().oneshot(call));
        async move { task.await.expect("no panic") }
    });
    let once = OnceLayer::new();
    hang_up(once.layer(detached)).await;
    keeps_its_key(&once).await;
    advance(secs(60)).await;
    assert!(running.poll().is_ready());
    while tool.count() < 2 {
        tokio::task::yield_now().await;
    }
}

/// D1: of two clones of one call that run together, one waits for the other: its end frees nothing.
#[tokio::test(start_paused = true)]
async fn a_clone_that_waits_for_a_payment_does_not_free_the_key() {
    let tool = Tool::always(Step::hang());
    let once = OnceLayer::new();
    let (tx, rx) = std::sync::mpsc::channel();
    let keep = service_fn(move |call: ToolCall| {
        tx.send(call).unwrap();
        std::future::pending::<Result<&str, ToolError>>()
    });
    let mut observed = task::spawn(Metrics::new().layer().layer(keep).oneshot(pay()));
    assert_pending!(observed.poll());
    let call = rx.recv().unwrap();
    let stack = once.layer(tool.clone());
    let mut first = task::spawn(stack.clone().oneshot(call.clone()));
    assert_pending!(first.poll());
    let mut second = task::spawn(stack.oneshot(call));
    assert_pending!(second.poll());
    drop(second);
    drop(first);
    assert_eq!(tool.count(), 1);
    keeps_its_key(&once).await;
}

/// D1: a clone that waits in an outer layer of `once`, and is not observed there, frees nothing.
#[tokio::test(start_paused = true)]
async fn a_clone_that_waits_outside_does_not_free_the_key() {
    let tool = Tool::always(Step::hang());
    let once = OnceLayer::new();
    let silent =
        service_fn(|_: Approval| std::future::pending::<Result<ApprovalDecision, ToolError>>());
    let policy = PolicyLayer::new().ask("pay").with_approver(silent);
    let call = pay();
    let mut first = task::spawn(once.layer(tool.clone()).oneshot(call.clone()));
    assert_pending!(first.poll());
    let mut second = task::spawn(policy.layer(once.layer(tool.clone())).oneshot(call));
    assert_pending!(second.poll());
    drop(second);
    drop(first);
    assert_eq!(tool.count(), 1);
    keeps_its_key(&once).await;
}

/// D1: an outer layer without an observer sees what inner layers note of a call that has waited.
#[tokio::test(start_paused = true)]
async fn a_call_that_has_waited_keeps_its_record() {
    let tool = Tool::new([Step::ok("paid").after(secs(1))]).then(Step::hang());
    let limit = ConcurrencyLimitLayer::new(1);
    let inner = TimeoutLayer::new(secs(5)).layer(tool.clone());
    let limit = limit.layer(Metrics::new().layer().layer(inner));
    let breaker = CircuitBreakerLayer::builder().with_trip(1).build().unwrap();
    let mut first = task::spawn(limit.clone().oneshot(pay()));
    assert_pending!(first.poll());
    let mut second = task::spawn(breaker.layer(limit).oneshot(pay()));
    assert_pending!(second.poll());
    advance(secs(1)).await;
    assert!(first.poll().is_ready());
    assert_pending!(second.poll());
    assert_eq!(tool.count(), 2);
    // Almost the timeout, which the breaker knows from the record.
    advance(Duration::from_millis(4990)).await;
    drop(second);
    assert_eq!(breaker.handle().snapshot()[0].state, BreakerState::Open);
}
