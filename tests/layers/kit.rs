//! The contract that every layer keeps, as one set of tests; see [`contract!`].
//!
//! Two inner services: `tower_test::mock`, which panics when it is called without having been
//! ready, and a [`Script`] behind tower's `ConcurrencyLimit`, because the mock knows no
//! reservations: what a layer takes from the semaphore and forgets to give back shows there.

use std::{
    fmt::Debug,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Context,
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, advance},
};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit};
use tower_layer::Layer;
use tower_test::mock::{self, Mock};
use tower_toolcall::{
    BoxError, Claim, ErrorKind, Execution, ToolCall, ToolError,
    circuit_breaker::{BreakerState, CircuitBreakerLayer},
    flow::CallExt,
    rate_limit::RateLimitBackoffLayer,
    result::ToolResultLayer,
    retry::{RetryLayer, RetryPolicy},
    switch::Switch,
    tool_metrics::Metrics,
};
use tower_toolcall_test::{Events, Script, Step};

/// What a layer makes of any of the inner services.
pub(crate) trait Stack:
    Service<ToolCall, Response = &'static str, Error = ToolError, Future: Send> + Clone + Send
{
}

impl<S> Stack for S where
    S: Service<ToolCall, Response = &'static str, Error = ToolError, Future: Send> + Clone + Send
{
}

pub(crate) type MockTool = Mock<ToolCall, &'static str>;
/// It also counts its futures, for as long as they exist.
pub(crate) type Probe = Script<&'static str>;
pub(crate) type Limited = ConcurrencyLimit<Probe>;

/// How a layer treats readiness (rule 3 of the design).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Passes the inner service's readiness through.
    Passes,
    /// Is always ready, and waits for the inner service in its future.
    Eager,
}

/// What a layer makes of a panic below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Panics {
    Pass,
    BecomeErrors,
}

/// A tool behind a limit of one, and the means to look at both.
pub(crate) fn limited(does: Step<&'static str>) -> (Limited, Probe, Arc<Semaphore>) {
    let probe = Script::always(does);
    let semaphore = Arc::new(Semaphore::new(1));
    let limited = ConcurrencyLimit::with_semaphore(probe.clone(), semaphore.clone());
    (limited, probe, semaphore)
}

pub(crate) fn answers() -> Step<&'static str> {
    Step::ok("answer")
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn call() -> ToolCall {
    ToolCall::new("search").with_server("docs").with_id("c1")
}

/// A tool that uses up its task's budget at each poll.
pub(crate) async fn busy(_: ToolCall) -> Result<(), BoxError> {
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel::<()>();
    while tx.send(()).is_ok() {
        rx.recv().await;
    }
    Ok(())
}

/// A call for layers that refuse calls, or let them wait.
pub(crate) fn held_call() -> ToolCall {
    call().with_session_id("s1")
}

pub(crate) async fn passes_the_response<L>(layer: L)
where
    L: Layer<MockTool, Service: Stack>,
{
    let (mut svc, mut handle) = mock::spawn_layer(layer);
    assert_ready_ok!(svc.poll_ready());
    let mut response = task::spawn(svc.call(call()));
    assert_pending!(response.poll());
    let (request, respond) = handle.next_request().await.unwrap();
    assert_eq!((request.tool(), request.id()), ("search", Some("c1")));
    respond.send_response("answer");
    assert!(response.is_woken());
    assert_eq!(assert_ready_ok!(response.poll()), "answer");
}

pub(crate) async fn converts_an_inner_error_and_names_the_call<L>(layer: L)
where
    L: Layer<MockTool, Service: Stack>,
{
    let (mut svc, mut handle) = mock::spawn_layer(layer);
    assert_ready_ok!(svc.poll_ready());
    let mut response = task::spawn(svc.call(call()));
    assert_pending!(response.poll());
    let (_, respond) = handle.next_request().await.unwrap();
    respond.send_error("503 Service Unavailable");
    let error = assert_ready_err!(response.poll());
    assert_eq!(error.kind(), ErrorKind::Upstream);
    names(&error, &call());
}

/// Issue 47: each error that comes out of a layer has the names of its call.
fn names(error: &ToolError, call: &ToolCall) {
    assert_eq!(
        (error.tool(), error.server(), error.call_id()),
        (Some(call.tool()), call.server(), call.id()),
        "{error:?}"
    );
}

pub(crate) async fn treats_readiness_as_documented<L>(layer: L, readiness: Readiness)
where
    L: Layer<MockTool, Service: Stack>,
{
    let (mut svc, mut handle) = mock::spawn_layer(layer);
    handle.allow(0);
    if readiness == Readiness::Passes {
        assert_pending!(svc.poll_ready());
        handle.allow(1);
        assert_ready_ok!(svc.poll_ready());
        return;
    }
    assert_ready_ok!(svc.poll_ready());
    let mut response = task::spawn(svc.call(call()));
    assert_pending!(response.poll());
    assert_pending!(pin!(handle.next_request()).as_mut().poll(&mut noop()));
    handle.allow(1);
    assert!(response.is_woken());
    assert_pending!(response.poll());
    let (_, respond) = handle.next_request().await.unwrap();
    respond.send_response("answer");
    assert_eq!(assert_ready_ok!(response.poll()), "answer");
}

pub(crate) async fn an_inner_readiness_error_reaches_the_caller<L>(layer: L, readiness: Readiness)
where
    L: Layer<MockTool, Service: Stack>,
{
    let (mut svc, mut handle) = mock::spawn_layer(layer);
    handle.send_error("connection refused");
    let error = match readiness {
        Readiness::Passes => assert_ready_err!(svc.poll_ready()),
        Readiness::Eager => {
            // The failure is kept until a call has met it.
            assert_ready_ok!(svc.poll_ready());
            assert_ready_ok!(svc.poll_ready());
            let mut response = task::spawn(svc.call(call()));
            let error = assert_ready_err!(response.poll());
            names(&error, &call());
            error
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    // It is the result of one call.
    handle.allow(1);
    assert_ready_ok!(svc.poll_ready());
    let mut next = task::spawn(svc.call(call()));
    assert_pending!(next.poll());
    handle
        .next_request()
        .await
        .unwrap()
        .1
        .send_response("answer");
    assert_eq!(assert_ready_ok!(next.poll()), "answer");
}

/// W1: a wait for readiness ends at the call's deadline, or when its caller cancels, wherever the
/// layer stands.
pub(crate) async fn a_wait_for_readiness_ends_with_the_deadline_or_the_token<L>(
    layer: L,
    readiness: Readiness,
) where
    L: Layer<MockTool, Service: Stack>,
{
    // It stands in `poll_ready`, which knows no call.
    if readiness == Readiness::Passes {
        return;
    }
    let (mut svc, mut handle) = mock::spawn_layer(layer);
    handle.allow(0);
    let waits = |svc: &mut mock::Spawn<L::Service>, call| {
        assert_ready_ok!(svc.poll_ready());
        let mut response = task::spawn(svc.call(call));
        assert_pending!(response.poll());
        response
    };
    let second = Duration::from_secs(1);
    let mut response = waits(&mut svc, call().with_deadline(Instant::now() + second));
    advance(second).await;
    assert!(response.is_woken());
    let error = assert_ready_err!(response.poll());
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.execution(), Execution::NotStarted);
    names(&error, &call());

    {
        let token = tokio_util::sync::CancellationToken::new();
        let mut response = waits(&mut svc, call().with_cancellation(token.clone()));
        token.cancel();
        assert!(response.is_woken());
        let error = assert_ready_err!(response.poll());
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(error.execution(), Execution::NotStarted);
        names(&error, &call());
    }
}

/// W2: not when somebody drops the finished future.
pub(crate) async fn the_inner_future_is_gone_with_its_answer<L>(layer: L)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, semaphore) = limited(answers());
    let mut svc = layer.layer(limited);
    let mut response = task::spawn(svc.ready().await.unwrap().call(call()));
    assert_eq!(assert_ready_ok!(response.poll()), "answer");
    assert_eq!(probe.in_flight(), 0);
    assert_eq!(semaphore.available_permits(), 1);
    drop(response);
}

/// Trap 18. `ConcurrencyLimit` panics when an instance is called that has no permit.
pub(crate) async fn a_clone_is_not_ready_because_the_original_is<L>(layer: L, readiness: Readiness)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, _) = limited(answers());
    let mut svc = layer.layer(limited);
    svc.ready().await.unwrap();
    let mut clone = svc.clone();
    let polled = clone.poll_ready(&mut noop());
    match readiness {
        Readiness::Passes => assert_pending!(polled),
        Readiness::Eager => {
            assert_ready_ok!(polled);
            let mut second = task::spawn(clone.call(call()));
            assert_pending!(second.poll());
            assert_eq!(probe.count(), 0);
        }
    }
    // The original's turn is its own still.
    assert_eq!(svc.call(call()).await.unwrap(), "answer");
    assert_eq!(probe.count(), 1);
}

pub(crate) async fn a_future_dropped_before_its_first_poll_gives_everything_back<L>(layer: L)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, semaphore) = limited(Step::hang());
    let mut svc = layer.layer(limited);
    let response = svc.ready().await.unwrap().call(call());
    drop(response);
    assert_eq!(probe.in_flight(), 0);
    assert_eq!(semaphore.available_permits(), 1);
}

pub(crate) async fn a_future_dropped_in_flight_gives_everything_back<L>(layer: L)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, semaphore) = limited(Step::hang());
    let mut svc = layer.layer(limited);
    let mut response = task::spawn(svc.ready().await.unwrap().call(call()));
    assert_pending!(response.poll());
    assert_eq!(semaphore.available_permits(), 0);
    drop(response);
    assert_eq!(probe.in_flight(), 0);
    assert_eq!(semaphore.available_permits(), 1);
}

pub(crate) async fn a_future_dropped_while_it_waits_for_readiness_gives_its_place_back<L>(
    layer: L,
    readiness: Readiness,
) where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, semaphore) = limited(answers());
    let mut svc = layer.layer(limited);
    let held = semaphore.clone().acquire_owned().await.unwrap();
    let mut ready = svc.clone();
    let polled = ready.poll_ready(&mut noop());
    match readiness {
        Readiness::Passes => assert_pending!(polled),
        Readiness::Eager => {
            assert_ready_ok!(polled);
            let mut response = task::spawn(ready.call(call()));
            assert_pending!(response.poll());
            drop(response);
        }
    }
    drop(ready);
    drop(held);
    assert_eq!(probe.count(), 0);
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(
        svc.ready().await.unwrap().call(call()).await.unwrap(),
        "answer"
    );
}

pub(crate) async fn a_completed_call_gives_its_permit_back<L>(layer: L)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, semaphore) = limited(answers());
    let mut svc = layer.layer(limited);
    for _ in 0..3 {
        let answer = svc.ready().await.unwrap().call(call()).await;
        assert_eq!(answer.unwrap(), "answer");
    }
    assert_eq!(probe.count(), 3);
    // An instance may hold the permit of a next call that it has prepared.
    drop(svc);
    assert_eq!(semaphore.available_permits(), 1);
}

pub(crate) async fn a_panic_below_leaks_nothing<L>(layer: L, panics: Panics)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, semaphore) = limited(Step::panic("the probe panics"));
    let mut svc = layer.layer(limited);
    let mut response = task::spawn(svc.ready().await.unwrap().call(call()));
    match (catch_unwind(AssertUnwindSafe(|| response.poll())), panics) {
        (Ok(polled), Panics::BecomeErrors) => {
            let error = assert_ready!(polled).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Panicked);
            names(&error, &call());
        }
        (Err(payload), Panics::Pass) => {
            assert_eq!(
                payload.downcast_ref::<String>().unwrap(),
                "the probe panics"
            );
        }
        (polled, _) => panic!("{polled:?}"),
    }
    drop(response);
    assert_eq!(probe.in_flight(), 0);
    assert_eq!(semaphore.available_permits(), 1);
}

pub(crate) async fn works_in_a_spawned_task<L>(layer: L)
where
    L: Layer<Limited, Service: Stack + 'static>,
    <L::Service as Service<ToolCall>>::Future: 'static,
{
    let (limited, ..) = limited(answers());
    let svc = layer.layer(limited);
    let answer = tokio::spawn(svc.oneshot(call())).await.unwrap();
    assert_eq!(answer.unwrap(), "answer");
}

/// A tool may panic before it has a future.
pub(crate) async fn a_panic_in_call_leaks_nothing<L>(layer: L, panics: Panics)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, _, semaphore) = limited(Step::panic_in_call("the probe panics"));
    let mut svc = layer.layer(limited);
    svc.ready().await.unwrap();
    match (catch_unwind(AssertUnwindSafe(|| svc.call(call()))), panics) {
        (Ok(response), Panics::BecomeErrors) => {
            let error = response.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Panicked);
            names(&error, &call());
        }
        (Err(payload), Panics::Pass) => {
            assert_eq!(
                payload.downcast_ref::<String>().unwrap(),
                "the probe panics"
            );
        }
        // A layer may call what is below it from its future.
        (Ok(response), Panics::Pass) => {
            let mut response = task::spawn(response);
            let payload = catch_unwind(AssertUnwindSafe(|| response.poll())).unwrap_err();
            assert_eq!(
                payload.downcast_ref::<String>().unwrap(),
                "the probe panics"
            );
        }
        (Err(_), Panics::BecomeErrors) => panic!("it passed"),
    }
    drop(svc);
    assert_eq!(semaphore.available_permits(), 1);
}

/// Trap 23 and rule 3b: a refusal gives the inner's reservation back before its future is polled.
pub(crate) async fn a_refusal_gives_the_reservation_back<L>(layer: L, refused: ToolCall)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, semaphore) = limited(answers());
    let mut svc = layer.layer(limited);
    svc.ready().await.unwrap();
    assert_eq!(semaphore.available_permits(), 0);
    let response = svc.call(refused.clone());
    assert_eq!(semaphore.available_permits(), 1);
    names(&response.await.map(drop).unwrap_err(), &refused);
    assert_eq!(probe.count(), 0);
}

/// Trap 23: a refusal waits for nothing, whatever is ready. A layer that passes on the readiness of
/// its service has waited before.
pub(crate) async fn a_refusal_waits_for_no_readiness<L>(layer: L, kind: ErrorKind)
where
    L: Layer<MockTool, Service: Stack>,
{
    let (mut svc, mut handle) = mock::spawn_layer(layer);
    handle.allow(0);
    if svc.poll_ready().is_pending() {
        return assert_eq!(kind, ErrorKind::NotFound, "it is that of unknown names");
    }
    let error = assert_ready_err!(task::spawn(svc.call(held_call())).poll());
    assert_eq!(error.kind(), kind);
}

/// Trap 13: our own refusals are repeated by no layer, and are nobody's failure.
pub(crate) async fn a_refusal_is_repeated_by_none_and_counted_against_nobody<L>(
    layer: L,
    kind: ErrorKind,
) where
    L: Layer<Probe, Service: Stack>,
{
    let probe = Script::always(answers());
    let (metrics, breaker) = (Metrics::new(), CircuitBreakerLayer::new());
    let gate = RateLimitBackoffLayer::new();
    let stack = ServiceBuilder::new()
        .layer(metrics.layer())
        .layer(RetryLayer::new(RetryPolicy::new().assume_replay_safe()))
        .layer(gate.clone())
        .layer(breaker.clone())
        .service(layer.layer(probe.clone()));
    let start = Instant::now();
    for _ in 0..20 {
        let error = stack.clone().oneshot(held_call()).await.unwrap_err();
        names(&error, &held_call());
        assert_eq!((error.kind(), error.attempts()), (kind, None));
        assert_eq!(error.execution(), Execution::NotStarted);
        assert!(error.is_own_refusal());
    }
    assert_eq!((start.elapsed(), probe.count()), (Duration::ZERO, 0));
    let seen = breaker.handle().breaker(&held_call()).snapshot();
    assert_eq!((seen.state, seen.failed_total), (BreakerState::Closed, 0));
    assert!(gate.handle().cooldowns().is_empty());
    let total = metrics.snapshot().total;
    assert_eq!((total.calls, total.rejected), (20, 20));
}

/// A wait, here of a second, ends when the caller cancels, and leaves no place behind, although
/// its future is kept.
pub(crate) async fn a_wait_ends_when_the_caller_cancels<L>(layer: L)
where
    L: Layer<Probe, Service: Stack>,
{
    let probe = Script::always(answers());
    let svc = layer.layer(probe.clone());
    let token = tokio_util::sync::CancellationToken::new();
    let call = || held_call().with_cancellation(token.clone());
    let mut waiting = [(); 20].map(|()| task::spawn(svc.clone().oneshot(call())));
    for waiting in &mut waiting {
        assert_pending!(waiting.poll());
    }
    token.cancel();
    for waiting in &mut waiting {
        assert!(waiting.is_woken());
        let error = assert_ready_err!(waiting.poll());
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(error.execution(), Execution::NotStarted);
        names(&error, &held_call());
    }
    assert_eq!(probe.count(), 0);
    is_answered_after_a_second(svc).await;
}

/// Those who give up while they wait leave their places to others.
pub(crate) async fn a_wait_that_is_given_up_costs_others_nothing<L>(layer: L)
where
    L: Layer<Probe, Service: Stack>,
{
    let svc = layer.layer(Script::always(answers()));
    let mut waiting = [(); 20].map(|()| task::spawn(svc.clone().oneshot(held_call())));
    for waiting in &mut waiting {
        assert_pending!(waiting.poll());
    }
    drop(waiting);
    is_answered_after_a_second(svc).await;
}

async fn is_answered_after_a_second(svc: impl Stack) {
    let start = Instant::now();
    assert_eq!(svc.oneshot(held_call()).await.unwrap(), "answer");
    // Jitter adds a quarter at most.
    let elapsed = start.elapsed().as_millis();
    assert!((1000..1300).contains(&elapsed), "{elapsed}");
}

/// Rule 3d, trap 23: a call that waits holds no reservation of the inner service.
pub(crate) async fn a_wait_holds_no_reservation<L>(layer: L)
where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, _, semaphore) = limited(answers());
    let mut svc = layer.layer(limited);
    svc.ready().await.unwrap();
    assert_eq!(semaphore.available_permits(), 0);
    let mut waits = task::spawn(svc.call(held_call()));
    assert_eq!(semaphore.available_permits(), 1);
    assert_pending!(waits.poll());
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(waits.await.unwrap(), "answer");
}

/// Outer layers tell the time of the wait from that of the tool.
pub(crate) async fn the_time_of_a_wait_is_seen_above<L>(layer: L)
where
    L: Layer<Probe, Service: Stack>,
{
    let svc = layer.layer(Script::always(answers().after(Duration::from_secs(1))));
    let result = ToolResultLayer::new().layer(svc).oneshot(held_call()).await;
    let result = result.unwrap();
    assert!(result.is_success());
    let waited = result.metadata().waited().as_millis();
    assert!((1000..1300).contains(&waited), "{waited}");
}

/// A caller breaks tower's contract. What is taken for the first call is not used by the second.
pub(crate) async fn a_second_call_after_one_readiness_leaks_nothing<L>(
    layer: L,
    readiness: Readiness,
    panics: Panics,
) where
    L: Layer<Limited, Service: Stack>,
{
    let (limited, probe, semaphore) = limited(answers());
    let mut svc = layer.layer(limited);
    svc.ready().await.unwrap();
    let first = svc.call(call());
    let second = catch_unwind(AssertUnwindSafe(|| svc.call(call())));
    let second = second.map(|response| task::spawn(Box::pin(response)));
    match (second, readiness) {
        (Ok(second), Readiness::Eager) => {
            let (second, first) = tokio::join!(second, first);
            assert_eq!((first.unwrap(), second.unwrap()), ("answer", "answer"));
        }
        (second, _) => {
            // `ConcurrencyLimit` panics, in `call` or in the future that calls it.
            let polled =
                second.and_then(|mut second| catch_unwind(AssertUnwindSafe(|| second.poll())));
            match panics {
                Panics::Pass => assert!(polled.is_err()),
                Panics::BecomeErrors => {
                    let error = assert_ready_err!(polled.unwrap());
                    assert_eq!(error.kind(), ErrorKind::Panicked);
                }
            }
            assert_eq!(first.await.unwrap(), "answer");
        }
    }
    let sent = probe.count();
    assert_eq!(sent, 1 + u64::from(readiness == Readiness::Eager));
    let mut next = svc.clone();
    drop(svc);
    assert_eq!((probe.in_flight(), semaphore.available_permits()), (0, 1));
    assert_eq!(
        next.ready().await.unwrap().call(call()).await.unwrap(),
        "answer"
    );
    assert_eq!(probe.count(), sent + 1);
}

/// A tool whose readiness may fail, with an error of the layers' type.
pub(crate) type Unready = tower::util::MapErr<MockTool, fn(BoxError) -> ToolError>;

/// Issue 48.6: a layer that is off changes nothing, adds nothing to a call or an error, and emits
/// nothing.
pub(crate) async fn is_transparent<L>()
where
    L: Layer<Limited> + Layer<Unready>,
    <L as Layer<Limited>>::Service:
        Service<ToolCall, Response = &'static str, Error = ToolError> + Clone + Debug,
    <L as Layer<Unready>>::Service: Service<ToolCall, Response = &'static str, Error = ToolError>,
{
    let off = Switch::<L>::off();
    let (limited, probe, semaphore) = limited(Step::fail(ErrorKind::Upstream));
    let mut bare = limited.clone();
    let mut svc = off.layer(limited);
    assert_eq!(format!("{svc:?}"), format!("{bare:?}"));

    let held = semaphore.clone().acquire_owned().await.unwrap();
    assert_pending!(svc.poll_ready(&mut noop()));
    drop(held);
    let error = svc.ready().await.unwrap().call(call()).await.unwrap_err();
    let expected = bare.ready().await.unwrap().call(call()).await.unwrap_err();
    assert_eq!(format!("{error:?}"), format!("{expected:?}"));

    let [called, sent] = <[ToolCall; 2]>::try_from(probe.calls()).unwrap();
    for claim in [
        Claim::Retry,
        Claim::RateLimit,
        Claim::Health,
        Claim::Drain,
        Claim::Queue,
    ] {
        assert!(!called.is_claimed(claim));
    }
    assert_eq!(format!("{called:?}"), format!("{sent:?}"));

    probe.set_then(answers());
    let events = Events::pick(|event| Some(format!("{event:?}")));
    let (answer, record) = events.run(svc, call()).await;
    assert_eq!((answer.unwrap(), events.take()), ("answer", vec![]));
    let (_, expected) = events.run(bare, call()).await;
    assert_eq!(format!("{record:?}"), format!("{expected:?}"));
    assert_eq!(semaphore.available_permits(), 1);

    let (mock, mut handle) = mock::pair();
    handle.send_error("connection refused");
    let mut svc = off.layer(mock.map_err(ToolError::from as fn(BoxError) -> ToolError));
    let error = assert_ready_err!(svc.poll_ready(&mut noop()));
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.tool(), None);
}

fn noop() -> Context<'static> {
    Context::from_waker(std::task::Waker::noop())
}

/// The contract for one layer: `contract!(name, layer, readiness, panics)`.
macro_rules! contract {
    ($name:ident, $layer:expr, $readiness:expr, $panics:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use crate::kit::{self, Panics, Readiness};

            $crate::kit::contract! { @tests
                passes_the_response($layer);
                converts_an_inner_error_and_names_the_call($layer);
                treats_readiness_as_documented($layer, $readiness);
                an_inner_readiness_error_reaches_the_caller($layer, $readiness);
                a_clone_is_not_ready_because_the_original_is($layer, $readiness);
                a_future_dropped_before_its_first_poll_gives_everything_back($layer);
                a_future_dropped_in_flight_gives_everything_back($layer);
                a_future_dropped_while_it_waits_for_readiness_gives_its_place_back($layer, $readiness);
                a_completed_call_gives_its_permit_back($layer);
                a_second_call_after_one_readiness_leaks_nothing($layer, $readiness, $panics);
                a_wait_for_readiness_ends_with_the_deadline_or_the_token($layer, $readiness);
                the_inner_future_is_gone_with_its_answer($layer);
                a_panic_below_leaks_nothing($layer, $panics);
                a_panic_in_call_leaks_nothing($layer, $panics);
                works_in_a_spawned_task($layer);
            }

            #[tokio::test(start_paused = true)]
            async fn observers_report_what_was_sent() {
                $crate::dropped::observers_report_what_was_sent(|| $layer).await
            }
        }
    };
    (@tests $($test:ident($($arg:expr),*);)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $test() {
                kit::$test($($arg),*).await
            }
        )*
    };
}
pub(crate) use contract;
