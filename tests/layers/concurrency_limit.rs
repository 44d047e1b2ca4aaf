use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, advance, timeout};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_test::mock;
use tower_toolcall::{
    ErrorKind, Execution, Key, Keys, ToolCall, ToolError,
    catch_panic::CatchPanicLayer,
    circuit_breaker::CircuitBreakerLayer,
    concurrency_limit::{ConcurrencyLimit, ConcurrencyLimitHandle, ConcurrencyLimitLayer},
};
use tower_toolcall_test::{Script, Step};

use crate::kit::{self, Probe, secs};

fn call() -> ToolCall {
    kit::call()
}

fn named(name: impl AsRef<str>) -> ToolCall {
    ToolCall::new(name.as_ref())
}

/// A tool of which so many calls run at a time, and which hangs.
fn hanging(max: usize) -> (ConcurrencyLimit<Probe>, ConcurrencyLimitHandle, Probe) {
    let (layer, tool) = (
        ConcurrencyLimitLayer::new(max),
        Script::always(Step::hang()),
    );
    (layer.layer(tool.clone()), layer.handle(), tool)
}

type Running<S> = task::Spawn<<ConcurrencyLimit<S> as Service<ToolCall>>::Future>;

/// A call that was polled once.
fn begin<S>(svc: &ConcurrencyLimit<S>, call: ToolCall) -> Running<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    let mut svc = svc.clone();
    assert!(task::spawn(svc.ready()).poll().is_ready());
    let mut response = task::spawn(svc.call(call));
    assert!(response.poll().is_pending());
    response
}

#[tokio::test(start_paused = true)]
async fn as_many_calls_run_as_may_and_the_others_come_after_them() {
    let tool = Script::always(Step::ok(()).after(secs(1)));
    let svc = ConcurrencyLimitLayer::new(3).layer(tool.clone());
    let start = Instant::now();
    let calls: Vec<_> = (0..10)
        .map(|_| tokio::spawn(svc.clone().oneshot(call())))
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!((tool.count(), tool.most_in_flight()), (10, 3));
    assert_eq!(start.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn calls_run_in_the_order_in_which_they_came() {
    let tool = Script::always(Step::ok(()).after(secs(1)));
    let svc = ConcurrencyLimitLayer::new(1).layer(tool.clone());
    let mut calls = Vec::new();
    for n in 0..5 {
        calls.push(tokio::spawn(
            svc.clone().oneshot(call().with_id(n.to_string())),
        ));
        tokio::task::yield_now().await;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let came: Vec<_> = tool
        .calls()
        .iter()
        .map(|c| c.id().unwrap().to_owned())
        .collect();
    assert_eq!(came, ["0", "1", "2", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_has_a_limit_of_its_own() {
    let (svc, handle, tool) = hanging(1);
    let _first = begin(&svc, call());
    let _second = begin(&svc, call());
    let _other_tool = begin(&svc, named("weather"));
    let _other_server = begin(&svc, call().with_server("other"));
    assert_eq!(tool.in_flight(), 3);
    assert_eq!((handle.running(&call()), handle.waiting(&call())), (1, 1));
    assert_eq!(
        (
            handle.running(&named("unused")),
            handle.waiting(&named("unused"))
        ),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_at_once() {
    let layer = ConcurrencyLimitLayer::builder(2).with_max_queue(3);
    let svc = layer
        .build()
        .unwrap()
        .layer(Script::always(Step::<()>::hang()));
    let _running_and_waiting: Vec<_> = (0..5).map(|_| begin(&svc, call())).collect();
    let error = svc.clone().oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(error.execution(), Execution::NotStarted);
    assert!(error.is_own_refusal() && error.is_retryable());
    assert_eq!(error.tool(), Some("search"));
    assert_eq!(error.server(), Some("docs"));
    assert_eq!(error.call_id(), Some("c1"));
}

#[tokio::test(start_paused = true)]
async fn the_default_queue_has_64_places() {
    let (svc, handle, _) = hanging(1);
    let _running_and_waiting: Vec<_> = (0..65).map(|_| begin(&svc, call())).collect();
    assert_eq!(handle.waiting(&call()), 64);
    assert!(svc.oneshot(call()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_nobody_waits() {
    let layer = ConcurrencyLimitLayer::builder(1)
        .with_max_queue(0)
        .build()
        .unwrap();
    let svc = layer.layer(Script::always(Step::<()>::hang()));
    let first = begin(&svc, call());
    assert_eq!(
        svc.clone().oneshot(call()).await.unwrap_err().kind(),
        ErrorKind::Overloaded
    );
    drop(first);
    let _again = begin(&svc, call());
}

/// Those for whose keys there is no place too.
#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_has_no_way_around() {
    let layer = ConcurrencyLimitLayer::builder(0)
        .with_keys(Keys::default().at_most(1).known(["known"]))
        .build()
        .unwrap();
    let tool = Script::always(Step::ok(()));
    let error = layer.layer(tool.clone()).oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(tool.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_beyond_all_memory_is_one() {
    let svc = ConcurrencyLimitLayer::new(usize::MAX).layer(Script::always(Step::ok(())));
    svc.oneshot(call()).await.unwrap();
}

/// W2: not when somebody drops the finished future.
#[tokio::test(start_paused = true)]
async fn a_permit_is_free_with_the_answer() {
    let layer = ConcurrencyLimitLayer::new(1);
    for step in [Step::ok(()), Step::fail(ErrorKind::Failed)] {
        let mut svc = layer.layer(Script::always(step));
        let mut response = task::spawn(svc.ready().await.unwrap().call(call()));
        let _ = assert_ready!(response.poll());
        assert_eq!(layer.handle().running(&call()), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_leaves_no_hole_in_the_queue() {
    let (svc, handle, tool) = hanging(1);
    let running = begin(&svc, call());
    let gives_up = begin(&svc, call());
    let mut waits = begin(&svc, call());
    drop(gives_up);
    assert_eq!(handle.waiting(&call()), 1);
    drop(running);
    assert!(waits.is_woken());
    assert_pending!(waits.poll());
    assert_eq!(
        (
            tool.count(),
            handle.running(&call()),
            handle.waiting(&call())
        ),
        (2, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_was_on_its_way_goes_to_the_next() {
    let (svc, handle, tool) = hanging(1);
    let running = begin(&svc, call());
    let woken = begin(&svc, call());
    let mut next = begin(&svc, call());
    drop(running);
    assert!(woken.is_woken() && !next.is_woken());
    drop(woken);
    assert!(next.is_woken());
    assert_pending!(next.poll());
    assert_eq!((tool.count(), handle.running(&call())), (2, 1));
    drop(next);
    assert_eq!((handle.running(&call()), handle.waiting(&call())), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_gives_its_place_back() {
    let (mut svc, handle, _) = hanging(1);
    let running = svc.ready().await.unwrap().call(call());
    let waiting = svc.ready().await.unwrap().call(call());
    assert_eq!((handle.running(&call()), handle.waiting(&call())), (1, 1));
    drop(waiting);
    drop(running);
    assert_eq!((handle.running(&call()), handle.waiting(&call())), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_deadline() {
    let (svc, handle, tool) = hanging(1);
    let _running = begin(&svc, call());
    let start = Instant::now();
    let hurried = call().with_deadline(start + secs(2));
    let error = svc.clone().oneshot(hurried).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.execution(), Execution::NotStarted);
    assert_eq!((start.elapsed(), error.tool()), (secs(2), Some("search")));
    // One that has no time at all takes no place.
    let late = call().with_deadline(Instant::now());
    assert_eq!(
        svc.oneshot(late).await.unwrap_err().kind(),
        ErrorKind::DeadlineExceeded
    );
    assert_eq!((tool.count(), handle.waiting(&call())), (1, 0));
}

/// The turn comes in the same moment as the end of its time.
#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_comes_too_late_is_not_sent() {
    let (svc, handle, tool) = hanging(1);
    let running = begin(&svc, call());
    let mut waits = begin(&svc, call().with_deadline(Instant::now() + secs(1)));
    let mut next = begin(&svc, call());
    advance(secs(1)).await;
    drop(running);
    let error = assert_ready_err!(waits.poll());
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_pending!(next.poll());
    assert_eq!((tool.count(), handle.running(&call())), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_gives_the_permit_back() {
    let layer = ConcurrencyLimitLayer::new(1);
    for step in [Step::<()>::panic("boom"), Step::panic_in_call("boom")] {
        let mut svc = layer.layer(Script::always(step));
        svc.ready().await.unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut response = task::spawn(svc.call(call()));
            let _ = response.poll();
        }));
        assert!(panicked.is_err());
        assert_eq!(layer.handle().running(&call()), 0);
    }
    // As the tool of a call that had waited.
    let tool = Script::new([Step::hang()]).then(Step::<()>::panic("boom"));
    let svc = layer.layer(tool);
    let running = begin(&svc, call());
    let mut waits = begin(&svc, call());
    drop(running);
    assert!(catch_unwind(AssertUnwindSafe(|| waits.poll().is_ready())).is_err());
    drop(waits);
    assert_eq!(
        (
            layer.handle().running(&call()),
            layer.handle().waiting(&call())
        ),
        (0, 0)
    );
}

/// Rule 3c.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_the_service_below_has_no_permit() {
    let layer = ConcurrencyLimitLayer::new(1);
    let (mut svc, mut below) = mock::spawn_layer::<ToolCall, &str, _>(layer.clone());
    below.allow(0);
    assert_ready_ok!(svc.poll_ready());
    let mut waits = task::spawn(svc.call(call()));
    assert_pending!(waits.poll());
    assert_eq!(
        (
            layer.handle().running(&call()),
            layer.handle().waiting(&call())
        ),
        (0, 0)
    );

    // Another call of its key has come first when the service is ready: it gives that back and
    // joins the queue.
    let other = layer.layer(Script::always(Step::<&str>::hang()));
    let running = begin(&other, call());
    below.allow(1);
    assert_pending!(waits.poll());
    assert_eq!(
        (
            layer.handle().running(&call()),
            layer.handle().waiting(&call())
        ),
        (1, 1)
    );
    drop(running);
    // A fresh instance is polled, for which the service is not ready: the turn is kept.
    below.allow(0);
    assert_pending!(waits.poll());
    assert_eq!(
        (
            layer.handle().running(&call()),
            layer.handle().waiting(&call())
        ),
        (1, 0)
    );
    below.allow(1);
    assert_pending!(waits.poll());
    let (_, respond) = below.next_request().await.unwrap();
    respond.send_response("answer");
    assert_eq!(assert_ready_ok!(waits.poll()), "answer");
    assert_eq!(layer.handle().running(&call()), 0);
}

/// Trap 22: they do not all run into a dead tool.
#[tokio::test(start_paused = true)]
async fn of_a_queue_before_a_dead_tool_only_as_many_run_as_it_takes_to_open_the_breaker() {
    let tool = Script::always(Step::<()>::fail(ErrorKind::Upstream).after(secs(1)));
    let stack = ServiceBuilder::new()
        .layer(
            ConcurrencyLimitLayer::builder(1)
                .with_max_queue(100)
                .build()
                .unwrap(),
        )
        .layer(CircuitBreakerLayer::new())
        .service(tool.clone());
    let calls: Vec<_> = (0..100)
        .map(|_| tokio::spawn(stack.clone().oneshot(call())))
        .collect();
    let mut refused = 0;
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        refused += u32::from(error.kind() == ErrorKind::CircuitOpen);
    }
    assert_eq!((tool.count(), refused), (5, 95));
}

/// What a caller invents holds back no other, and a key of which calls run stays.
#[tokio::test(start_paused = true)]
async fn invented_names_take_no_place_and_no_limit_from_others() {
    let layer = ConcurrencyLimitLayer::builder(1)
        .with_keys(Keys::default().at_most(8).known(["known"]))
        .with_max_queue(0)
        .build()
        .unwrap();
    let tool = Script::always(Step::<()>::hang());
    let svc = layer.layer(tool.clone());
    let mut calls: Vec<_> = (0..100)
        .map(|n| begin(&svc, named(format!("invented{n}"))))
        .collect();
    // Four have a place. The others pass.
    assert_eq!((tool.in_flight(), layer.handle().loads().len()), (100, 4));
    calls.push(begin(&svc, named("known")));
    for full in ["known", "invented0"] {
        let error = svc.clone().oneshot(named(full)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded, "{full}");
    }
    drop(calls);
    assert!(layer.handle().loads().is_empty());
    assert_eq!(tool.in_flight(), 0);
}

/// A tool that has answered once has a place, whatever is invented afterwards.
#[tokio::test(start_paused = true)]
async fn a_tool_that_has_answered_keeps_its_place() {
    let layer = ConcurrencyLimitLayer::builder(1)
        .with_keys(Keys::default().at_most(4))
        .with_max_queue(0);
    let layer = layer.build().unwrap();
    let tool = Script::new([Step::ok(())]).then(Step::hang());
    let svc = layer.layer(tool);
    svc.clone().oneshot(call()).await.unwrap();
    let _invented: Vec<_> = (0..100)
        .map(|n| begin(&svc, named(format!("invented{n}"))))
        .collect();
    let _running = begin(&svc, call());
    assert_eq!(layer.handle().running(&call()), 1);
    let error = svc.oneshot(call()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
}

#[tokio::test(start_paused = true)]
async fn one_limit_for_each_agent() {
    let layer = ConcurrencyLimitLayer::builder(1)
        .with_keys(Key::by(|call| call.agent_id().unwrap_or("")))
        .with_max_queue(0)
        .build()
        .unwrap();
    let svc = layer.layer(Script::always(Step::<()>::hang()));
    let of = |agent: &'static str, tool: &str| named(tool).with_agent_id(agent);
    let _a = begin(&svc, of("a", "search"));
    let _b = begin(&svc, of("b", "search"));
    assert!(svc.oneshot(of("a", "weather")).await.is_err());
}

#[tokio::test]
async fn loads_are_shown_in_order_and_redacted() {
    let (svc, handle, _) = hanging(1);
    let secret = "sk-live-".to_owned() + &"4f9a".repeat(6);
    let _calls: Vec<_> = ["b", "a", "a", secret.as_str()]
        .map(|name| begin(&svc, named(name).with_server("docs")))
        .into();
    let loads = handle.loads();
    let json = serde_json::to_value(&loads[0]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({ "server": "docs", "tool": "a", "running": 1, "waiting": 1 })
    );
    assert_eq!(loads[1].tool.as_deref(), Some("b"));
    let shown = format!("{loads:?} {handle:?} {svc:?}");
    assert!(
        shown.contains("docs") && !shown.contains(&secret),
        "{shown}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_a_limit_of_its_own() {
    let layer = ConcurrencyLimitLayer::builder(2)
        .with_tool("import", 1)
        .with_tool("docs__search", 3)
        .with_tool("off", 0)
        .with_max_queue(0)
        .with_keys(Keys::default().known(["import"]))
        .build()
        .unwrap();
    let svc = layer.layer(Script::always(Step::<()>::hang()));
    let tools = [call(), named("search"), named("import"), named("off")];
    for (call, max) in tools.into_iter().zip([3, 2, 1, 0]) {
        let _running: Vec<_> = (0..max).map(|_| begin(&svc, call.clone())).collect();
        assert_eq!(layer.handle().running(&call), max);
        let error = svc.clone().oneshot(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded);
    }
}

/// The first call of a key would decide for the tools of all others.
#[test]
fn tools_that_share_a_limit_have_none_of_their_own() {
    let builder = ConcurrencyLimitLayer::builder(2).with_tool("import", 1);
    let built = builder.with_keys(Key::Server).build();
    assert_eq!(built.unwrap_err().field(), "key");
}

/// In real time, on threads: callers who give up at any moment and tools that panic. Never do more
/// run than may, and in the end all permits are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_who_give_up_and_tools_that_panic_leave_no_trace() {
    const MAX: usize = 7;
    const CALLERS: usize = 100;
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    struct Runs(Arc<AtomicUsize>);
    impl Drop for Runs {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let tool = {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        service_fn(move |call: ToolCall| {
            let n = running.fetch_add(1, SeqCst) + 1;
            let runs = Runs(Arc::clone(&running));
            most.fetch_max(n, SeqCst);
            async move {
                let dice: usize = call.id().unwrap().parse().unwrap();
                for _ in 0..dice % 4 {
                    tokio::task::yield_now().await;
                }
                // Not a panic of the test: nothing is printed.
                if dice.is_multiple_of(11) {
                    std::panic::resume_unwind(Box::new("boom"));
                }
                drop(runs);
                Ok::<_, ToolError>(dice)
            }
        })
    };
    let layer = ConcurrencyLimitLayer::builder(MAX)
        .with_max_queue(80)
        .build()
        .unwrap();
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(layer.clone())
        .service(tool);
    let (mut answered, mut refused, mut given_up) = (0, 0, 0);
    for round in 0..400 {
        let callers: Vec<_> = (0..CALLERS)
            .map(|n| {
                let dice = round * CALLERS + n;
                let sent = stack.clone().oneshot(call().with_id(dice.to_string()));
                tokio::spawn(async move {
                    match dice % 3 {
                        // After some polls, at whatever stage the call is.
                        0 => give_up_after(dice / 3 % 6, sent).await,
                        _ => Some(sent.await),
                    }
                })
            })
            .collect();
        for caller in callers {
            match caller.await.unwrap() {
                Some(Ok(_)) => answered += 1,
                Some(Err(error)) if error.kind() == ErrorKind::Overloaded => refused += 1,
                Some(Err(error)) => assert_eq!(error.kind(), ErrorKind::Panicked),
                None => given_up += 1,
            }
        }
        let handle = layer.handle();
        assert_eq!(
            (handle.running(&call()), handle.waiting(&call())),
            (0, 0),
            "{round}"
        );
    }
    assert_eq!((running.load(SeqCst), most.load(SeqCst)), (0, MAX));
    assert!(
        answered > 0 && given_up > 0,
        "{answered} {refused} {given_up}"
    );
    // All permits are back: as many run as may.
    let _all: Vec<_> = (0..MAX)
        .map(|_| begin(&layer.layer(Script::always(Step::<()>::hang())), call()))
        .collect();
    assert_eq!(layer.handle().running(&call()), MAX);
}

async fn give_up_after<F: Future>(polls: usize, fut: F) -> Option<F::Output> {
    let mut fut = std::pin::pin!(fut);
    for _ in 0..polls {
        let once = std::future::poll_fn(|cx| Poll::Ready(fut.as_mut().poll(cx)));
        if let Poll::Ready(output) = once.await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    // Half of them wait on, for a moment.
    timeout(Duration::from_micros(polls as u64), fut).await.ok()
}
