//! The health registry (X6).

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::json;
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_test::{assert_pending, task};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ToolCall, ToolError,
    error::Outage,
    event::Event,
    health::{Availability, Health, HealthBuilder, Reason},
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
};
use tower_toolcall_test::{Script, Step};

use Availability::{Available, Degraded, Unavailable};

use crate::kit::secs;

struct Bench {
    health: Health,
    tools: BoxCloneSyncService<ToolCall, (), ToolError>,
    tool: Script<()>,
}

impl Bench {
    fn new(health: Health) -> Self {
        let tool = Script::always(Step::ok(()));
        let timed = TimeoutLayer::new(secs(10)).layer(tool.clone());
        Self {
            tools: BoxCloneSyncService::new(health.layer().layer(timed)),
            health,
            tool,
        }
    }

    fn default() -> Self {
        Self::new(Health::new())
    }

    fn refusing() -> Self {
        Self::new(Health::builder().with_refusal(true).build().unwrap())
    }

    fn set(&self, does: Step<()>) {
        self.tool.set_then(does);
    }

    fn call(&self) -> impl Future<Output = Result<(), ToolError>> + Send + use<> {
        let call = ToolCall::new("search").with_server("docs").with_id("c1");
        self.tools.clone().oneshot(call)
    }

    async fn fails(&self, kind: ErrorKind) {
        self.set(Step::fail(kind));
        self.call().await.unwrap_err();
    }

    #[track_caller]
    fn is(&self, state: Availability, failures: u32, reason: Option<Reason>) {
        let docs = self.health.server("docs").unwrap();
        assert_eq!(docs.state, state);
        assert_eq!(docs.failures, failures);
        assert_eq!(docs.reason, reason);
    }
}

#[tokio::test(start_paused = true)]
async fn three_failures_in_a_row_make_a_server_unavailable() {
    let bench = Bench::default();
    assert!(bench.health.server("docs").is_none());
    bench.call().await.unwrap();
    bench.is(Available, 0, None);

    advance(secs(5)).await;
    bench.fails(ErrorKind::ConnectionFailed).await;
    bench.is(Degraded, 1, Some(Reason::ConnectionFailed));
    advance(secs(1)).await;
    bench.set(Step::hang());
    bench.call().await.unwrap_err();
    bench.is(Degraded, 2, Some(Reason::Timeout));
    bench.fails(ErrorKind::ConnectionFailed).await;
    bench.is(Unavailable, 3, Some(Reason::ConnectionFailed));
    let since = bench.health.server("docs").unwrap().since;
    assert_eq!(since, Instant::now());

    advance(secs(7)).await;
    bench.fails(ErrorKind::Timeout).await;
    bench.is(Unavailable, 4, Some(Reason::Timeout));
    let told = serde_json::to_value(bench.health.snapshot()).unwrap();
    let expected = json!([{
        "server": "docs", "state": "unavailable", "reason": "timeout", "failures": 4, "for_ms": 7000,
        "probe_in_ms": null,
    }]);
    assert_eq!(told, expected);
    assert_eq!(bench.tool.count(), 5, "by default it only looks on");
}

/// System A.
#[tokio::test(start_paused = true)]
async fn one_failure_is_enough_by_setting() {
    let bench = Bench::new(Health::builder().with_threshold(1).build().unwrap());
    bench.fails(ErrorKind::Timeout).await;
    bench.is(Unavailable, 1, Some(Reason::Timeout));
}

/// An error of the tool included.
#[tokio::test(start_paused = true)]
async fn any_answer_makes_a_server_available() {
    for answer in [
        Step::ok(()),
        Step::fail(ErrorKind::Failed),
        Step::fail(ErrorKind::Reported),
        Step::fail(ErrorKind::Upstream),
        Step::fail(ErrorKind::RateLimited),
    ] {
        for failures in 1..=4 {
            let bench = Bench::default();
            for _ in 0..failures {
                bench.fails(ErrorKind::Timeout).await;
            }
            bench.set(answer.clone());
            let _ = bench.call().await;
            bench.is(Available, 0, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_says_nothing_of_the_server_changes_nothing() {
    let bench = Bench::default();
    for kind in [
        ErrorKind::Cancelled,
        ErrorKind::CircuitOpen,
        ErrorKind::Overloaded,
        ErrorKind::DeadlineExceeded,
        ErrorKind::Panicked,
        ErrorKind::Internal,
        ErrorKind::InvalidInput,
    ] {
        bench.fails(ErrorKind::Timeout).await;
        bench.fails(kind).await;
        bench.is(Degraded, 1, Some(Reason::Timeout));
        bench.set(Step::ok(()));
        bench.call().await.unwrap();
        bench.fails(kind).await;
        bench.is(Available, 0, None);
    }
}

/// Trap 6.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_a_timeout_if_its_deadline_had_passed() {
    let bench = Bench::default();
    bench.set(Step::hang());
    assert!(timeout(secs(1), bench.call()).await.is_err());
    bench.is(Available, 0, None);

    let call = ToolCall::new("search").with_server("docs");
    let call = call.with_deadline(Instant::now() + secs(5));
    let mut late = task::spawn(bench.tools.clone().oneshot(call));
    assert_pending!(late.poll());
    advance(secs(5)).await;
    drop(late);
    bench.is(Degraded, 1, Some(Reason::Timeout));
}

#[tokio::test(start_paused = true)]
async fn servers_are_told_apart_and_tools_are_not() {
    let bench = Bench::new(Health::builder().with_threshold(2).build().unwrap());
    bench.set(Step::fail(ErrorKind::Timeout));
    for (tool, server) in [
        ("a", Some("x")),
        ("b", Some("x")),
        ("a", Some("y")),
        ("a", None),
    ] {
        let mut call = ToolCall::new(tool);
        if let Some(server) = server {
            call = call.with_server(server);
        }
        bench.tools.clone().oneshot(call).await.unwrap_err();
    }
    let all: Vec<_> = bench
        .health
        .snapshot()
        .into_iter()
        .map(|s| (s.server.map(|s| s.to_string()), s.state))
        .collect();
    let expected = [
        (None, Degraded),
        (Some("x".to_owned()), Unavailable),
        (Some("y".to_owned()), Degraded),
    ];
    assert_eq!(all, expected);
}

async fn unavailable(bench: &Bench) {
    for _ in 0..3 {
        bench.fails(ErrorKind::ConnectionFailed).await;
    }
}

#[track_caller]
fn assert_refused(result: Result<(), ToolError>, retry_after: u64) {
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution(), error.retry_after()),
        (
            ErrorKind::ConnectionFailed,
            Execution::NotStarted,
            Some(secs(retry_after))
        )
    );
    assert_eq!(error.tool(), Some("search"));
    assert_eq!(error.server(), Some("docs"));
    assert_eq!(error.call_id(), Some("c1"));
}

#[tokio::test(start_paused = true)]
async fn by_setting_calls_are_refused_until_a_probe_is_answered() {
    let bench = Bench::refusing();
    unavailable(&bench).await;
    assert_refused(bench.call().await, 30);
    advance(secs(29)).await;
    assert_refused(bench.call().await, 1);
    advance(secs(1)).await;

    // One at a time.
    bench.set(Step::hang());
    let mut probe = task::spawn(bench.call());
    assert_pending!(probe.poll());
    for _ in 0..10 {
        assert_refused(bench.call().await, 1);
    }
    assert_eq!(bench.tool.count(), 4);
    // It times out: another period.
    sleep(secs(10)).await;
    assert!(probe.poll().is_ready());
    assert_refused(bench.call().await, 30);
    bench.is(Unavailable, 4, Some(Reason::Timeout));

    advance(secs(30)).await;
    bench.set(Step::fail(ErrorKind::Failed));
    bench.call().await.unwrap_err();
    bench.is(Available, 0, None);
    bench.set(Step::ok(()));
    bench.call().await.unwrap();
    assert_eq!(bench.tool.count(), 6);
}

/// C10.
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_makes_way() {
    let bench = Bench::refusing();
    unavailable(&bench).await;
    advance(secs(30)).await;
    bench.set(Step::hang());
    for _ in 0..5 {
        let mut probe = task::spawn(bench.call());
        assert_pending!(probe.poll());
        assert_refused(bench.call().await, 1);
        drop(probe);
    }
    bench.set(Step::ok(()));
    bench.call().await.unwrap();
    bench.is(Available, 0, None);
}

/// Trap 24: an inner service that fails to become ready is a sign of the server, too.
#[tokio::test(start_paused = true)]
async fn a_readiness_error_counts() {
    let health = Health::new();
    let (mock, mut handle) = tower_test::mock::pair::<ToolCall, ()>();
    handle.send_error(ToolError::new(ErrorKind::ConnectionFailed, "refused"));
    let call = ToolCall::new("search").with_server("docs");
    let error = health.layer().layer(mock).oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(health.server("docs").unwrap().state, Degraded);
}

#[tokio::test(start_paused = true)]
async fn watchers_see_each_state() {
    let bench = Bench::default();
    let mut docs = bench.health.subscribe("docs");
    assert_eq!(docs.borrow_and_update().state, Available);
    let mut all = bench.health.subscribe_all();
    assert_eq!(all.borrow_and_update().len(), 1);
    assert!(!all.has_changed().unwrap());

    let watcher = tokio::spawn(async move {
        let mut seen = Vec::new();
        while docs.changed().await.is_ok() {
            let now = docs.borrow_and_update().clone();
            seen.push((now.state, now.failures));
            if now.state == Available {
                break;
            }
        }
        seen
    });
    for _ in 0..3 {
        bench.fails(ErrorKind::Timeout).await;
        sleep(secs(1)).await;
    }
    assert!(all.has_changed().unwrap());
    assert_eq!(all.borrow_and_update()[0].state, Unavailable);
    bench.set(Step::ok(()));
    bench.call().await.unwrap();
    bench.call().await.unwrap();
    let seen = watcher.await.unwrap();
    assert_eq!(seen, [(Degraded, 1), (Unavailable, 3), (Available, 0)]);
    assert_eq!(all.borrow_and_update()[0].state, Available);
    // A success of a server that is well is no news.
    bench.call().await.unwrap();
    assert!(!all.has_changed().unwrap());
}

/// A failure counts for watchers if it changes what they act on.
#[tokio::test(start_paused = true)]
async fn watchers_of_all_servers_are_not_woken_by_each_failure() {
    let bench = Bench::default();
    let mut all = bench.health.subscribe_all();
    for (kind, is_news) in [
        (ErrorKind::Timeout, true),
        (ErrorKind::Timeout, false),
        (ErrorKind::Timeout, true),
        (ErrorKind::Timeout, false),
        (ErrorKind::ConnectionFailed, true),
        (ErrorKind::ConnectionFailed, false),
        (ErrorKind::Failed, true),
        (ErrorKind::Failed, false),
    ] {
        bench.fails(kind).await;
        assert_eq!(all.has_changed().unwrap(), is_news, "{kind}");
        all.mark_unchanged();
    }
}

/// Rule 6. A place is free again when the last watcher is gone.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_no_longer_watched_makes_way() {
    for fails in [false, true] {
        let bench = Bench::new(Health::builder().with_max_servers(16).build().unwrap());
        let watch = |n| bench.health.subscribe(&format!("watched-{n}"));
        let watched: Vec<_> = (0..16).map(watch).collect();
        bench.call().await.unwrap();
        assert!(bench.health.server("docs").is_none());
        drop(watched);
        for _ in 0..2 {
            match fails {
                true => bench.fails(ErrorKind::Timeout).await,
                false => bench.call().await.unwrap(),
            }
        }
        assert!(bench.health.server("docs").is_some());
    }
}

/// Rule 6. Calls that an outer layer records do not make a server lose its turn.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_answered_without_a_place_gets_the_next_one() {
    for server in [Some("docs"), None] {
        let builder = Health::builder().with_max_servers(16).with_threshold(1);
        let bench = Bench::new(builder.build().unwrap());
        let both = bench.health.layer().layer(bench.tools.clone());
        let call = |server: Option<&str>| {
            let call = ToolCall::new("search");
            both.clone().oneshot(match server {
                Some(server) => call.with_server(server),
                None => call,
            })
        };
        let watch = |n| bench.health.subscribe(&format!("watched-{n}"));
        let watched: Vec<_> = (0..16).map(watch).collect();
        call(server).await.unwrap();
        drop(watched);
        for n in 0..100 {
            call(Some(&format!("other-{n}"))).await.unwrap();
        }
        bench.set(Step::fail(ErrorKind::Timeout));
        for n in 0..16 {
            call(Some(&format!("invented-{n}"))).await.unwrap_err();
        }
        bench.set(Step::ok(()));
        call(server).await.unwrap();
        let known = bench.health.snapshot();
        assert!(
            known.iter().any(|known| known.server.as_deref() == server),
            "{server:?}"
        );
    }
}

/// Rule 6. What is unavailable is not forgotten for what is new, nor what is watched.
#[tokio::test(start_paused = true)]
async fn no_more_servers_are_kept_than_there_may_be() {
    let builder = Health::builder().with_max_servers(16).with_threshold(1);
    let bench = Bench::new(builder.build().unwrap());
    let _watched = bench.health.subscribe("watched");
    bench.fails(ErrorKind::Timeout).await;
    bench.set(Step::ok(()));
    for n in 0..1000 {
        let call = ToolCall::new("t").with_server(format!("server-{n}"));
        bench.tools.clone().oneshot(call).await.unwrap();
        assert!(bench.health.snapshot().len() <= 16);
    }
    bench.is(Unavailable, 1, Some(Reason::Timeout));
    assert!(bench.health.server("watched").is_some());

    // All places are taken by those that must stay: nothing is told of others, and they are not
    // mixed up.
    bench.set(Step::fail(ErrorKind::Timeout));
    for n in 0..100 {
        let call = ToolCall::new("t").with_server(format!("dead-{n}"));
        bench.tools.clone().oneshot(call).await.unwrap_err();
    }
    assert!(bench.health.snapshot().len() <= 16);
    let one_more = bench.health.subscribe("one more");
    assert_eq!(one_more.borrow().state, Available);
}

/// Rule 6. Names that untrusted callers invent evict no server that has answered.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_answered_keeps_its_place() {
    let builder = Health::builder().with_max_servers(16).with_threshold(1);
    let bench = Bench::new(builder.build().unwrap());
    bench.call().await.unwrap();
    bench.set(Step::fail(ErrorKind::Timeout));
    for n in 0..100 {
        let call = ToolCall::new("t").with_server(format!("invented-{n}"));
        bench.tools.clone().oneshot(call).await.unwrap_err();
    }
    bench.is(Available, 0, None);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let field = |builder: HealthBuilder| builder.build().unwrap_err().field().to_owned();
    assert_eq!(field(Health::builder().with_threshold(0)), "threshold");
    let never = Health::builder().with_probe_period(Duration::ZERO);
    assert_eq!(field(never), "probe_period");
    let for_ever = Health::builder().with_probe_period(Duration::MAX);
    assert_eq!(field(for_ever), "probe_period");
    assert_eq!(field(Health::builder().with_max_servers(0)), "max_servers");
}

/// Trap 2. What began before the server came back tells of the time before.
#[tokio::test(start_paused = true)]
async fn a_failure_of_a_call_that_began_before_a_recovery_says_nothing() {
    let bench = Bench::new(Health::builder().with_threshold(1).build().unwrap());
    bench.set(Step::hang());
    let mut early = task::spawn(bench.call());
    assert_pending!(early.poll());
    bench.fails(ErrorKind::ConnectionFailed).await;
    bench.set(Step::ok(()));
    bench.call().await.unwrap();
    bench.is(Available, 0, None);

    sleep(secs(10)).await;
    let error = tokio_test::assert_ready!(early.poll()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    bench.is(Available, 0, None);
    // Unlike what begins after it.
    bench.fails(ErrorKind::ConnectionFailed).await;
    bench.is(Unavailable, 1, Some(Reason::ConnectionFailed));
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_when_it_comes() {
    let bench = Bench::default();
    let (answer, answered) = tokio::sync::oneshot::channel::<()>();
    let answered = Arc::new(Mutex::new(Some(answered)));
    let tool = service_fn(move |_: ToolCall| {
        let answered = answered.lock().unwrap().take().unwrap();
        async move { answered.await.map_err(BoxError::from) }
    });
    let slow = bench.health.layer().layer(tool);
    let call = ToolCall::new("slow").with_server("docs");
    let mut early = task::spawn(slow.oneshot(call));
    assert_pending!(early.poll());
    unavailable(&bench).await;
    answer.send(()).unwrap();
    early.await.unwrap();
    bench.is(Available, 0, None);
}

/// Trap 6. Whoever drops a call before it was polled has not asked the server.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_is_no_timeout() {
    let bench = Bench::default();
    let call = ToolCall::new("search").with_server("docs");
    let call = call.with_deadline(Instant::now() + secs(5));
    let mut tools = bench.tools.clone();
    let fut = tower::Service::call(tools.ready().await.unwrap(), call);
    advance(secs(6)).await;
    drop(fut);
    bench.is(Available, 0, None);
}

/// Trap 6. A timeout above drops the call, and so does tower's.
#[tokio::test(start_paused = true)]
async fn a_timeout_above_is_a_timeout() {
    let health = Health::new();
    let tool = service_fn(|_: ToolCall| pending::<Result<(), BoxError>>());
    let watched = health.layer().layer(tool);
    let call = || ToolCall::new("search").with_server("docs");
    let state = || health.server("docs").unwrap();

    let ours = TimeoutLayer::new(secs(30)).layer(watched.clone());
    ours.oneshot(call()).await.unwrap_err();
    assert_eq!(
        (state().failures, state().reason),
        (1, Some(Reason::Timeout))
    );
    let ours = TimeoutLayer::new(secs(5)).layer(watched.clone());
    let quick = call().with_timeout(secs(5));
    ours.oneshot(quick).await.unwrap_err();
    assert_eq!(state().failures, 2);
    let towers = tower::timeout::Timeout::new(watched.clone(), secs(30));
    towers.oneshot(call()).await.unwrap_err();
    assert_eq!((state().failures, state().state), (3, Unavailable));

    // Given up sooner than that, it tells nothing.
    let towers = tower::timeout::Timeout::new(watched, secs(29));
    towers.oneshot(call()).await.unwrap_err();
    assert_eq!(state().failures, 3);
}

/// One call is one sign, and its probe is no other's.
#[tokio::test(start_paused = true)]
async fn of_two_layers_one_tells_of_a_call() {
    let mut bench = Bench::refusing();
    bench.tools = BoxCloneSyncService::new(bench.health.layer().layer(bench.tools.clone()));
    bench.fails(ErrorKind::Timeout).await;
    bench.is(Degraded, 1, Some(Reason::Timeout));
    unavailable(&bench).await;
    advance(secs(30)).await;
    bench.set(Step::ok(()));
    bench.call().await.unwrap();
    bench.is(Available, 0, None);
}

/// Rule 6: dead servers that nobody calls any more.
#[tokio::test(start_paused = true)]
async fn what_was_unavailable_for_an_hour_makes_way() {
    let builder = Health::builder().with_max_servers(16).with_threshold(1);
    let bench = Bench::new(builder.build().unwrap());
    bench.set(Step::fail(ErrorKind::Timeout));
    for n in 0..16 {
        let call = ToolCall::new("t").with_server(format!("dead-{n}"));
        bench.tools.clone().oneshot(call).await.unwrap_err();
    }
    bench.call().await.unwrap_err();
    assert!(bench.health.server("docs").is_none());
    advance(secs(3601)).await;
    bench.call().await.unwrap_err();
    bench.is(Unavailable, 1, Some(Reason::Timeout));
}

/// Makes a call of this server time out.
fn fail_on(health: &Health, server: &str) {
    let tool =
        service_fn(|_: ToolCall| async { Err::<(), _>(ToolError::new(ErrorKind::Timeout, "")) });
    let call = ToolCall::new("search").with_server(server);
    tokio_test::block_on(health.layer().layer(tool).oneshot(call)).unwrap_err();
}

/// A look at a watched state keeps nobody from another look.
#[test]
fn a_borrowed_state_stops_no_other_look() {
    let health = Health::new();
    let docs = health.subscribe("docs");
    let borrowed = docs.borrow();
    let failing = std::thread::spawn({
        let health = health.clone();
        move || fail_on(&health, "docs")
    });
    let (done, looked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while health.server("docs").unwrap().failures == 0 {
            std::thread::yield_now();
        }
        health.snapshot();
        // Nor from watching other servers, or from calls of them.
        for n in 0..100 {
            let _watched = health.subscribe(&format!("web-{n}"));
            fail_on(&health, &format!("web-{n}"));
        }
        let _ = done.send(());
    });
    let looked = looked.recv_timeout(secs(20));
    drop(borrowed);
    failing.join().unwrap();
    assert!(looked.is_ok());
    assert_eq!(docs.borrow().state, Degraded);
}

/// Once for each change, and no lock is held: a listener may look.
#[tokio::test(start_paused = true)]
async fn a_listener_hears_of_each_change() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let health = Arc::new(std::sync::OnceLock::<Health>::new());
    let (hears, looks) = (Arc::clone(&heard), Arc::clone(&health));
    let listener = move |event: &Event<'_>| {
        let Event::Health { change, call, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!((call.tool(), call.id()), ("search", Some("c1")));
        let now = looks.get().unwrap().server("docs").unwrap();
        assert_eq!((now.state, now.reason), (change.to, change.reason));
        hears.lock().unwrap().push((*change).clone());
    };
    let builder = Health::builder().with_listener(listener);
    let bench = Bench::new(builder.build().unwrap());
    health.set(bench.health.clone()).ok().unwrap();

    bench.call().await.unwrap();
    unavailable(&bench).await;
    bench.fails(ErrorKind::Timeout).await;
    bench.set(Step::ok(()));
    for _ in 0..2 {
        bench.call().await.unwrap();
    }
    let heard = serde_json::to_value(&*heard.lock().unwrap()).unwrap();
    let (from, failed) = ("from", "connection_failed");
    let expected = json!([
        { "server": "docs", from: "available", "to": "degraded", "reason": failed, "failures": 1, "generation": 1 },
        { "server": "docs", from: "degraded", "to": "unavailable", "reason": failed, "failures": 3, "generation": 2 },
        { "server": "docs", from: "unavailable", "to": "available", "reason": null, "failures": 4, "generation": 3 },
    ]);
    assert_eq!(heard, expected);
}

/// A list of tools changes with it, and nobody else tells of it: a probe that hangs tells nothing.
#[tokio::test(start_paused = true)]
async fn watchers_hear_that_a_probe_has_begun_and_how_long_it_has() {
    let bench = Bench::refusing();
    unavailable(&bench).await;
    let mut docs = bench.health.subscribe("docs");
    let mut all = bench.health.subscribe_all();
    advance(secs(30)).await;
    assert!(!docs.has_changed().unwrap() && !all.has_changed().unwrap());
    bench.set(Step::hang());
    let mut probe = task::spawn(bench.call());
    assert_pending!(probe.poll());
    let next = Some(Instant::now() + secs(30));
    assert!(docs.has_changed().unwrap() && all.has_changed().unwrap());
    assert_eq!(docs.borrow_and_update().probe_at, next);
    assert_eq!(all.borrow_and_update()[0].probe_at, next);
    // One that is refused is no news.
    assert_refused(bench.call().await, 1);
    assert!(!docs.has_changed().unwrap() && !all.has_changed().unwrap());
}

/// They may be for anybody: a dead server takes no other one with it.
#[tokio::test(start_paused = true)]
async fn calls_that_name_no_server_are_counted_and_never_refused() {
    let bench = Bench::refusing();
    bench.set(Step::fail(ErrorKind::Timeout));
    for failures in 1..=10 {
        let nameless = bench.tools.clone().oneshot(ToolCall::new("search"));
        assert_eq!(nameless.await.unwrap_err().execution(), Execution::Unknown);
        assert_eq!(bench.tool.count(), failures);
    }
    let told = &bench.health.snapshot()[0];
    assert_eq!((told.state, told.failures), (Unavailable, 10));
    assert_eq!((&told.server, told.probe_at), (&None, None));
}

/// No lock is held while events are told, whatever the listener asks for.
#[test]
fn a_listener_may_ask_for_anything() {
    let health = Arc::new(std::sync::OnceLock::<Health>::new());
    let (asks, heard) = (Arc::clone(&health), Arc::new(AtomicUsize::new(0)));
    let hears = Arc::clone(&heard);
    let listener = move |event: &Event<'_>| {
        let health = asks.get().unwrap();
        health.snapshot();
        health.server("docs");
        drop(health.subscribe("docs"));
        drop(health.subscribe_all());
        if let Event::Health { .. } = event {
            let n = hears.fetch_add(1, SeqCst);
            let tool = service_fn(|_: ToolCall| async { Ok::<_, ToolError>(()) });
            let call = ToolCall::new("t").with_server(format!("new-{n}"));
            let mut call = task::spawn(health.layer().layer(tool).oneshot(call));
            assert!(call.poll().is_ready());
        }
    };
    let builder = Health::builder().with_max_servers(8);
    let built = builder.with_listener(listener).build().unwrap();
    health.set(built.clone()).ok().unwrap();
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _all = built.subscribe_all();
        let bench = Bench::new(built);
        bench.set(Step::fail(ErrorKind::Timeout));
        for n in 0..50 {
            let call = ToolCall::new("t").with_server(format!("server-{n}"));
            tokio_test::block_on(bench.tools.clone().oneshot(call)).unwrap_err();
        }
        done.send(()).unwrap();
    });
    waits.recv_timeout(secs(60)).unwrap();
    assert_eq!(heard.load(SeqCst), 50);
}

/// Whatever threads do: each change is told once, they make one chain, and watchers have the end of
/// it.
#[test]
fn threads_agree_on_one_history() {
    let changes = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&changes);
    let listener = move |event: &Event<'_>| match event {
        Event::Health { change, .. } => hears.lock().unwrap().push((*change).clone()),
        _ => panic!("{event:?}"),
    };
    let builder = Health::builder().with_threshold(2).with_refusal(true);
    let builder = builder.with_probe_period(Duration::from_micros(50));
    let health = builder.with_listener(listener).build().unwrap();
    let (docs, all) = (health.subscribe("docs"), health.subscribe_all());
    std::thread::scope(|scope| {
        for seed in 0..4_u32 {
            let health = &health;
            scope.spawn(move || {
                let tool = service_fn(|call: ToolCall| async move {
                    match call.tool() {
                        "ok" => Ok(()),
                        "hangs" => pending().await,
                        _ => Err(ToolError::new(ErrorKind::Timeout, "")),
                    }
                });
                let tools = health.layer().layer(tool);
                let mut random = seed;
                for _ in 0..5_000 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let name = ["ok", "fails", "fails", "hangs"][(random >> 30) as usize];
                    let call = ToolCall::new(name).with_server("docs");
                    let _ = task::spawn(tools.clone().oneshot(call)).poll();
                }
            });
        }
    });
    let mut changes = changes.lock().unwrap().clone();
    changes.sort_by_key(|change| change.generation);
    let mut state = (0, Available);
    for change in &changes {
        assert_eq!((change.generation, change.from), (state.0 + 1, state.1));
        state = (change.generation, change.to);
    }
    assert!(changes.iter().any(|change| change.to == Unavailable));
    let now = health.server("docs").unwrap();
    assert_eq!(now.state, state.1);
    let seen = docs.borrow().clone();
    assert_eq!(seen.state, now.state);
    assert_eq!(seen.reason, now.reason);
    assert_eq!(seen.probe_at, now.probe_at);
    assert_eq!(all.borrow()[0].state, now.state);
    // No probe is lost.
    while health.server("docs").unwrap().probe_at > Some(Instant::now()) {
        std::thread::yield_now();
    }
    let ok = service_fn(|_: ToolCall| async { Ok::<_, ToolError>(()) });
    let call = ToolCall::new("ok").with_server("docs");
    tokio_test::block_on(health.layer().layer(ok).oneshot(call)).unwrap();
    assert_eq!(docs.borrow().state, Available);
}

/// What one server's watchers do not see, because it is over, those of all may have seen: they see
/// its end too.
#[test]
fn a_change_that_is_over_at_once_does_not_stay_in_the_snapshot() {
    let health = Health::builder().with_threshold(1).build().unwrap();
    let (docs, all) = (health.subscribe("docs"), health.subscribe_all());
    let call = |fails: bool| {
        let layer = health.layer();
        std::thread::spawn(move || {
            let tool = service_fn(move |_: ToolCall| async move {
                match fails {
                    true => Err(ToolError::new(ErrorKind::Timeout, "")),
                    false => Ok(()),
                }
            });
            let call = ToolCall::new("search").with_server("docs");
            let _ = tokio_test::block_on(layer.layer(tool).oneshot(call));
        })
    };
    let until = |is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < secs(60));
            std::thread::yield_now();
        }
    };
    let is = |state| health.server("docs").unwrap().state == state;

    let looks_at_all = all.borrow();
    let first = call(true);
    until(&|| docs.borrow().state == Unavailable);
    let looks_at_docs = docs.borrow();
    let second = call(false);
    until(&|| is(Available));
    drop(looks_at_all);
    until(&|| first.is_finished());
    assert_eq!(all.borrow()[0].state, Available);
    let third = call(true);
    until(&|| is(Unavailable));
    drop(looks_at_docs);
    for call in [first, second, third] {
        call.join().unwrap();
    }
    assert_eq!(docs.borrow().state, Unavailable);
    assert_eq!(all.borrow()[0].state, Unavailable);
}

/// D3, X6: an attempt to connect is one failure, however many calls wait for it. A server that
/// refuses three attempts is unavailable.
#[tokio::test(start_paused = true)]
async fn an_attempt_to_connect_is_one_failure_however_many_calls_wait_for_it() {
    for refuses in [false, true] {
        let health = Health::builder().with_refusal(refuses).build().unwrap();
        let (bench, outage) = (Bench::new(health), Outage::new());
        let fail = async |calls: usize| {
            for _ in 0..calls {
                let error = ToolError::new(ErrorKind::ConnectionFailed, "closed");
                bench.set(Step::error(error.with_outage(&outage)));
                bench.call().await.unwrap_err();
            }
        };
        let reason = Some(Reason::ConnectionFailed);
        for (failures, state) in [(1, Degraded), (2, Degraded)] {
            outage.retry_after(secs(failures));
            fail(20).await;
            bench.is(state, failures as u32, reason);
        }
        outage.retry_after(secs(3));
        fail(1).await;
        bench.is(Unavailable, 3, reason);
        outage.end();
        advance(secs(30)).await;
        bench.set(Step::ok(()));
        bench.call().await.unwrap();
        bench.is(Available, 0, None);
        // One that is over does not count again.
        fail(1).await;
        assert!(bench.health.server("docs").unwrap().failures <= 1);
    }
}

/// A server whose tools end as they are named: `search` and `fetch` answer, other names hang, or
/// fail.
struct Tools {
    health: Health,
    stack: BoxCloneSyncService<ToolCall, (), ToolError>,
}

impl Tools {
    fn new() -> Self {
        let health = Health::builder().with_refusal(true).build().unwrap();
        let outage = Outage::new();
        let tool = service_fn(move |call: ToolCall| {
            let outage = outage.clone();
            async move {
                match call.tool() {
                    "search" | "fetch" => Ok(()),
                    "gone" => Err(ToolError::new(ErrorKind::ConnectionFailed, "so it is")),
                    "lost" => {
                        let error = ToolError::new(ErrorKind::ConnectionFailed, "lost");
                        Err(error.with_outage(&outage))
                    }
                    "no such" => Err(ToolError::from_status(http::StatusCode::NOT_FOUND, "")),
                    _ => pending().await,
                }
            }
        });
        let timed = TimeoutLayer::new(secs(10)).layer(tool);
        let stack = BoxCloneSyncService::new(health.layer().layer(timed));
        Self { health, stack }
    }

    /// Calls these tools, one after the other, and asserts the states that stand between them.
    async fn run(&self, trace: &str) {
        for word in trace.split(", ") {
            let now = || self.health.server("docs").unwrap();
            match word {
                "is available" => assert_eq!(now().state, Available, "{trace}"),
                "is degraded" => assert_eq!(now().state, Degraded, "{trace}"),
                "is unavailable" => assert_eq!(now().state, Unavailable, "{trace}"),
                tool => {
                    let call = ToolCall::new(tool).with_server("docs");
                    let error = self.stack.clone().oneshot(call).await.err();
                    let expected = match tool {
                        "search" | "fetch" => None,
                        "gone" | "lost" => Some(ErrorKind::ConnectionFailed),
                        "no such" => Some(ErrorKind::NotFound),
                        _ => Some(ErrorKind::Timeout),
                    };
                    assert_eq!(error.map(|error| error.kind()), expected, "{trace}");
                }
            }
        }
    }

    /// Whether a call was refused.
    async fn refuses(&self) -> bool {
        let call = ToolCall::new("search").with_server("docs");
        let result = self.stack.clone().oneshot(call).await;
        result.is_err_and(|error| error.execution() == Execution::NotStarted)
    }
}

/// V5: evidence since the last answer: timeouts of one tool that is slow refuse no other. A tool
/// that has answered may be the slow one, and a name that the server does not know is not a tool.
/// Against the server are timeouts of two tools, and one connection failure among as many failures
/// as it takes, but none that has counted before the answer. Each caller has its own error.
#[tokio::test(start_paused = true)]
async fn evidence_is_against_a_tool_or_its_server() {
    for (trace, is_refused) in [
        (
            "search, fetch, slow, slow, is degraded, slow, is unavailable, slow, slow, slow",
            false,
        ),
        ("search, slow, slow, slow", false),
        (
            "search, fetch, slow, gone, search, is available, slower, slower, slower",
            false,
        ),
        ("no such, slow, slow, slow", true),
        (
            "search, fetch, lost, is degraded, search, lost, is available, slow, slow, slow",
            false,
        ),
        ("search, fetch, slow, slow, slower", true),
        ("search, fetch, gone, slow, slow", true),
        ("search, fetch, slow, slow, gone", true),
    ] {
        let tools = Tools::new();
        tools.run(trace).await;
        tools.run("is unavailable").await;
        let docs = tools.health.server("docs").unwrap();
        assert_eq!(docs.probe_at.is_some(), is_refused, "{trace}");
        assert_eq!(tools.refuses().await, is_refused, "{trace}");
        // A period later: a probe.
        advance(secs(30)).await;
        assert!(!tools.refuses().await, "{trace}");
        tools.run("is available").await;
    }
}

/// V5: later evidence, of a server that is unavailable already. Watchers see both at once.
#[tokio::test(start_paused = true)]
async fn an_unavailable_server_refuses_from_the_first_evidence_on() {
    let tools = Tools::new();
    tools.run("search, fetch, slow, slow").await;
    let mut docs = tools.health.subscribe("docs");
    tools.run("slow").await;
    let seen = docs.borrow_and_update().clone();
    assert_eq!((seen.state, seen.probe_at), (Unavailable, None));
    tools.run("slow, slow").await;
    docs.mark_unchanged();
    tools.run("slower").await;
    assert!(docs.has_changed().unwrap());
    let probe_at = Some(Instant::now() + secs(30));
    assert_eq!(docs.borrow_and_update().probe_at, probe_at);
    assert!(tools.refuses().await);
}

/// V5: its timeouts are those of the whole server.
#[tokio::test(start_paused = true)]
async fn a_server_of_one_tool_is_refused_by_its_timeouts() {
    let bench = Bench::refusing();
    bench.call().await.unwrap();
    for _ in 0..3 {
        bench.fails(ErrorKind::Timeout).await;
    }
    assert_refused(bench.call().await, 30);
}

/// V5: of two attempts of one call the second one may be refused; the caller has the timeout of the
/// first.
#[tokio::test(start_paused = true)]
async fn a_call_whose_repetition_is_refused_has_its_own_error() {
    let bench = Bench::refusing();
    bench.set(Step::hang());
    let policy = RetryPolicy::new().assume_replay_safe().with_attempts(5);
    let stack = RetryLayer::new(policy.unwrap()).layer(bench.tools.clone());
    let call = ToolCall::new("search").with_server("docs");
    let error = stack.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(bench.tool.count(), 3);
}

/// Callers who hang up must not keep a server refused: after five probes that told nothing all
/// calls pass.
#[tokio::test(start_paused = true)]
async fn probes_that_tell_nothing_do_not_keep_calls_refused() {
    let bench = Bench::refusing();
    unavailable(&bench).await;
    advance(secs(30)).await;
    bench.set(Step::hang());
    for _ in 0..5 {
        let mut probe = task::spawn(bench.call());
        assert_pending!(probe.poll());
    }
    let mut calls = [(); 3].map(|()| task::spawn(bench.call()));
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    // The first one that tells something is a probe.
    bench.fails(ErrorKind::ConnectionFailed).await;
    assert_refused(bench.call().await, 30);
}
