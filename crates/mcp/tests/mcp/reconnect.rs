//! A connection that is lost and made again, to a real server in this process (X8).

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use expect_test::expect;
use futures_util::future::join_all;
use rmcp::ServiceExt as _;
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tokio_util::sync::CancellationToken;
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ReplaySafety, ToolCall, ToolError,
    backoff::{Backoff, Jitter},
    flow::CallExt as _,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};
use tower_toolcall_mcp::{McpAnswer, McpNotifications, McpReconnect, McpService, McpTools};
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::{log::Log, server::Server};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How attempts go.
#[derive(Clone, Copy, Debug)]
enum How {
    Works,
    Takes(u64),
    ClosesAtOnce,
    Fails(&'static str),
    Hangs,
    Panics,
    PanicsAtOnce,
}

/// Servers that can be killed, and the way to them.
#[derive(Clone)]
struct Lab {
    how: Arc<Mutex<How>>,
    /// When attempts were made.
    attempts: Arc<Mutex<Vec<Instant>>>,
    wires: Arc<Mutex<Vec<AbortHandle>>>,
    /// What keeps connections up, and attempts that go on.
    alive: Arc<AtomicUsize>,
    server: Server,
    /// Told, it stops what goes over the wires, and leaves them open.
    mute: Arc<Notify>,
    start: Instant,
}

/// Counts what is alive.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Lab {
    fn new(how: How) -> Self {
        Self {
            how: Arc::new(Mutex::new(how)),
            attempts: Arc::default(),
            wires: Arc::default(),
            alive: Arc::default(),
            server: Server::default(),
            mute: Arc::default(),
            start: Instant::now(),
        }
    }

    fn set(&self, how: How) {
        *self.how.lock().unwrap() = how;
    }

    /// Without chance.
    fn leaf(&self) -> McpReconnect {
        let lab = self.clone();
        let connect = move || {
            let lab = lab.clone();
            lab.attempts.lock().unwrap().push(Instant::now());
            let how = *lab.how.lock().unwrap();
            assert!(!matches!(how, How::PanicsAtOnce), "the connector panics");
            async move { lab.connect().await }
        };
        McpReconnect::new("docs", connect).with_backoff(backoff())
    }

    async fn connect(self) -> Result<((impl Send + Sync, Alive), McpService), BoxError> {
        let alive = Alive::new(&self.alive);
        let how = *self.how.lock().unwrap();
        match how {
            How::Works | How::ClosesAtOnce => {}
            How::Takes(n) => sleep(ms(n)).await,
            How::Fails(why) => {
                tokio::task::yield_now().await;
                return Err(why.into());
            }
            How::Hangs => std::future::pending().await,
            How::Panics | How::PanicsAtOnce => panic!("the connector panics"),
        }
        let client = McpNotifications::new().serve(self.wire()).await?;
        if let How::ClosesAtOnce = how {
            self.kill();
            while !client.peer().is_transport_closed() {
                tokio::task::yield_now().await;
            }
        }
        let service = McpService::new(client.peer().clone());
        Ok(((client, alive), service))
    }

    /// A wire to a server of its own, which can be cut.
    fn wire(&self) -> tokio::io::DuplexStream {
        let (mut near, ours) = tokio::io::duplex(64 * 1024);
        let (theirs, mut far) = tokio::io::duplex(64 * 1024);
        let server = self.server.clone();
        tokio::spawn(async move {
            server
                .serve(theirs)
                .await?
                .waiting()
                .await
                .map_err(anyhow::Error::from)
        });
        let mute = Arc::clone(&self.mute);
        let wire = tokio::spawn(async move {
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
                () = mute.notified() => {}
            }
            std::future::pending().await
        });
        self.wires.lock().unwrap().push(wire.abort_handle());
        ours
    }

    /// Cuts all wires.
    fn kill(&self) {
        self.wires.lock().unwrap().drain(..).for_each(|w| w.abort());
    }

    /// The same, and waits until that is seen.
    async fn killed(&self, leaf: &McpReconnect) {
        self.kill();
        while leaf.is_connected() {
            tokio::task::yield_now().await;
        }
    }

    /// When attempts were made, in milliseconds.
    fn attempts(&self) -> Vec<u128> {
        let attempts = self.attempts.lock().unwrap();
        let since = |at: &Instant| at.duration_since(self.start).as_millis();
        attempts.iter().map(since).collect()
    }

    fn now(&self) -> u128 {
        self.start.elapsed().as_millis()
    }

    async fn settles_at(&self, alive: usize) {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(self.alive.load(SeqCst), alive);
    }
}

fn backoff() -> Backoff {
    Backoff::exponential(ms(500), 2.0)
        .unwrap()
        .with_jitter(Jitter::None)
}

fn echo() -> ToolCall {
    ToolCall::new("echo").with_id("c1")
}

async fn run(leaf: &McpReconnect, call: ToolCall) -> Result<McpAnswer, ToolError> {
    leaf.clone().oneshot(call).await
}

/// A call that was not sent for want of a connection.
#[track_caller]
fn assert_not_sent(error: &ToolError, retry_after: u64) {
    assert_eq!(
        (error.kind(), error.execution(), error.retry_after()),
        (
            ErrorKind::ConnectionFailed,
            Execution::NotStarted,
            Some(ms(retry_after))
        ),
        "{error}"
    );
    assert_eq!(
        (error.tool(), error.server(), error.call_id()),
        (Some("echo"), Some("docs"), Some("c1"))
    );
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#statelessness
//# Clients SHOULD NOT use an individual task, thread, or conversation as the lifetime boundary for
//# the stdio process.
#[tokio::test(start_paused = true)]
async fn fifty_callers_make_one_connection() {
    let lab = Lab::new(How::Takes(300));
    let leaf = lab.leaf();
    assert!(!leaf.is_connected());
    let all = join_all((0..50).map(|_| run(&leaf, echo()))).await;
    assert!(all.iter().all(|answer| answer.is_ok()));
    assert_eq!((lab.attempts(), lab.now()), (vec![0], 300));
    assert!(leaf.is_connected() && leaf.service().is_some());
    lab.settles_at(1).await;
}

/// All who waited fail with that attempt, whose error they share.
#[tokio::test(start_paused = true)]
async fn fifty_callers_of_a_dead_server_make_one_attempt() {
    for first in [500, 0] {
        let lab = Lab::new(How::Fails("connection refused"));
        let delay = Backoff::fixed(ms(first)).unwrap();
        let leaf = lab.leaf().with_backoff(delay.with_jitter(Jitter::None));
        let all = join_all((0..50).map(|_| run(&leaf, echo()))).await;
        for answer in all {
            let error = answer.unwrap_err();
            assert_not_sent(&error, first);
            assert!(error.message().contains("connection refused"), "{error}");
            let source = std::error::Error::source(&error).unwrap();
            assert!(source.downcast_ref::<ToolError>().is_some());
        }
        assert_eq!(lab.attempts(), [0]);
        lab.settles_at(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_backoff_is_kept_to_the_millisecond() {
    let lab = Lab::new(How::Fails("connection refused"));
    let leaf = lab.leaf();
    for after in [500, 1000, 2000, 4000] {
        assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), after);
        // Meanwhile nothing is tried, and nobody waits.
        sleep(ms(200)).await;
        assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), after - 200);
        sleep(ms(after - 201)).await;
        assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 1);
        sleep(ms(1)).await;
    }
    lab.set(How::Works);
    run(&leaf, echo()).await.unwrap();
    assert_eq!(lab.attempts(), [0, 500, 1500, 3500, 7500]);

    // It has answered: what was is forgotten.
    lab.killed(&leaf).await;
    lab.set(How::Fails("connection refused"));
    assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 500);
}

/// R6: a retry above waits as long as it is told, and needs no other help.
#[tokio::test(start_paused = true)]
async fn a_retry_above_finds_the_server_that_comes_back() {
    let lab = Lab::new(How::Fails("connection refused"));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .service(lab.leaf());
    let comes_back = async {
        sleep(ms(400)).await;
        lab.set(How::Works);
    };
    let (answer, ()) = tokio::join!(stack.oneshot(echo()), comes_back);
    answer.unwrap();
    assert_eq!(lab.attempts().len(), 2);
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#error-handling
//# Implementations SHOULD be prepared to handle these error cases:
//# Request timeouts
#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_ends_at_its_timeout() {
    let lab = Lab::new(How::Hangs);
    let leaf = lab.leaf().with_max_wait(ms(60_000));
    let error = run(&leaf, echo()).await.unwrap_err();
    assert_not_sent(&error, 500);
    expect!["cannot connect to the MCP server `docs`: no connection after 10000ms"]
        .assert_eq(error.message());
    assert_eq!((lab.now(), lab.attempts()), (10_000, vec![0]));
    lab.settles_at(0).await;
    assert!(leaf.with_connect_timeout(Duration::ZERO).is_err());
}

/// The call's patience is shorter than the attempt's, which the next call waits for.
#[tokio::test(start_paused = true)]
async fn a_call_waits_five_seconds_and_leaves_the_attempt_to_the_next() {
    let lab = Lab::new(How::Hangs);
    let leaf = lab.leaf();
    let error = run(&leaf, echo()).await.unwrap_err();
    assert_not_sent(&error, 500);
    expect!["the connection to the MCP server is still being made"].assert_eq(error.message());
    assert_eq!(lab.now(), 5000);
    sleep(ms(1000)).await;
    assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 500);
    assert_eq!((lab.now(), lab.attempts()), (10_000, vec![0]));
}

/// It counts, as of its timeout: the next attempt is made at once, and the next window is twice as
/// long.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_nobody_waits_for_fails_at_its_timeout() {
    let lab = Lab::new(How::Hangs);
    let leaf = lab.leaf();
    run(&leaf, echo()).await.unwrap_err();
    sleep(ms(5300)).await;
    assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 200);
    lab.settles_at(0).await;
    sleep(ms(200)).await;
    lab.set(How::Fails("connection refused"));
    assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 1000);
    assert_eq!(lab.attempts(), [0, 10_500]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_fast_waits_for_its_own_attempt_only() {
    let lab = Lab::new(How::Takes(9900));
    let leaf = lab.leaf().with_fail_fast();
    let mut first = task::spawn(run(&leaf, echo()));
    assert_pending!(first.poll());
    assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 500);
    sleep(ms(9800)).await;
    assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 200);
    assert_eq!(lab.now(), 9800);
    // It is left alone, and goes on all the same.
    drop(first);
    assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 200);
    sleep(ms(101)).await;
    run(&leaf, echo()).await.unwrap();
    assert_eq!((lab.now(), lab.attempts()), (9901, vec![0]));
}

/// T5, T4: not started, and the attempt is none the worse.
#[tokio::test(start_paused = true)]
async fn a_call_waits_within_its_deadline_and_until_it_is_cancelled() {
    let lab = Lab::new(How::Takes(3000));
    let leaf = lab.leaf();
    let late = echo().with_deadline(Instant::now() - ms(1));
    let error = run(&leaf, late).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert!(
        lab.attempts().is_empty(),
        "no attempt for a call that is over"
    );

    let token = CancellationToken::new();
    let cancel = async {
        sleep(ms(500)).await;
        token.cancel();
    };
    let cancelled = run(&leaf, echo().with_cancellation(token.clone()));
    let bounded = run(&leaf, echo().with_deadline(Instant::now() + ms(1000)));
    let (cancelled, bounded, waits, ()) =
        tokio::join!(cancelled, bounded, run(&leaf, echo()), cancel);
    for (error, kind) in [
        (cancelled.unwrap_err(), ErrorKind::Cancelled),
        (bounded.unwrap_err(), ErrorKind::DeadlineExceeded),
    ] {
        assert_eq!(
            (error.kind(), error.execution()),
            (kind, Execution::NotStarted)
        );
        assert_eq!((error.tool(), error.server()), (Some("echo"), Some("docs")));
    }
    waits.unwrap();
    assert_eq!((lab.now(), lab.attempts()), (3000, vec![0]));
}

/// The one who connects is dropped in the middle, with and without another one who waits.
#[tokio::test(start_paused = true)]
async fn a_caller_that_is_dropped_hands_the_attempt_over() {
    for others in [0, 1, 20] {
        let lab = Lab::new(How::Takes(3000));
        let leaf = lab.leaf();
        let mut first = task::spawn(run(&leaf, echo()));
        assert_pending!(first.poll());
        let waiting = join_all((0..others).map(|_| run(&leaf, echo())));
        let leaves = async {
            sleep(ms(1000)).await;
            drop(first);
        };
        let (all, ()) = tokio::join!(waiting, leaves);
        assert!(all.iter().all(|answer| answer.is_ok()));
        run(&leaf, echo()).await.unwrap();
        assert_eq!((lab.now(), lab.attempts()), (3000, vec![0]), "{others}");
        lab.settles_at(1).await;
    }
}

/// Dropped after any number of polls, a caller takes nothing with it.
#[tokio::test(start_paused = true)]
async fn a_drop_at_any_await_leaks_nothing() {
    let mut polls = 0;
    loop {
        let lab = Lab::new(How::Takes(10));
        let leaf = lab.leaf();
        let mut first = task::spawn(run(&leaf, echo()));
        let mut ended = false;
        for n in 0..polls {
            while n > 0 && !first.is_woken() {
                sleep(ms(1)).await;
            }
            ended = first.poll().is_ready();
            if ended {
                break;
            }
        }
        drop(first);
        let next = timeout(ms(1000), run(&leaf, echo())).await;
        next.expect("it hangs").unwrap();
        assert_eq!(lab.attempts().len(), 1, "after {polls} polls");
        drop(leaf);
        lab.settles_at(0).await;
        if ended {
            break;
        }
        polls += 1;
        assert!(polls < 200);
    }
    assert!(polls > 2, "{polls}");
}

/// R6: it may have run, and is not repeated here; the next call has another connection.
#[tokio::test(start_paused = true)]
async fn a_call_in_flight_fails_with_its_connection() {
    let lab = Lab::new(How::Works);
    let leaf = lab.leaf();
    run(&leaf, echo()).await.unwrap();
    let cut = async {
        sleep(ms(50)).await;
        lab.kill();
    };
    let hang = ToolCall::new("hang").with_replay_safety(ReplaySafety::Safe);
    let (answer, ()) = tokio::join!(run(&leaf, hang), cut);
    let error = answer.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution(), error.retry_after()),
        (ErrorKind::ConnectionFailed, Execution::Unknown, None)
    );
    assert_eq!((error.tool(), error.server()), (Some("hang"), Some("docs")));
    assert_eq!(lab.server.started.load(SeqCst), 2);
    lab.settles_at(0).await;

    let all = join_all((0..20).map(|_| run(&leaf, echo()))).await;
    assert!(all.iter().all(|answer| answer.is_ok()));
    assert_eq!(lab.attempts(), [0, 50]);
    lab.settles_at(1).await;
}

/// D1: over a connection that is there already the server has the call, so a drop does not undo it.
#[tokio::test(start_paused = true)]
async fn a_call_over_a_connection_is_sent_for_observers() {
    let lab = Lab::new(How::Works);
    let leaf = lab.leaf();
    for tool in ["echo", "echo", "hang"] {
        let mut call = ToolCall::new(tool);
        let seen = call.observe();
        let _ = timeout(ms(100), run(&leaf, call)).await;
        assert_eq!(seen.sent(None), 1, "{tool}");
    }
}

/// It learns late that its connection is lost, when there is another one.
#[tokio::test(start_paused = true)]
async fn a_late_failure_of_an_old_connection_leaves_the_new_one_alone() {
    let lab = Lab::new(How::Works);
    let leaf = lab.leaf();
    run(&leaf, echo()).await.unwrap();
    let mut late = task::spawn(run(&leaf, ToolCall::new("hang")));
    assert_pending!(late.poll());
    let cut = async {
        sleep(ms(50)).await;
        lab.kill();
    };
    let (answer, ()) = tokio::join!(run(&leaf, ToolCall::new("hang")), cut);
    answer.unwrap_err();
    run(&leaf, echo()).await.unwrap();
    lab.settles_at(2).await;

    let std::task::Poll::Ready(answer) = late.poll() else {
        panic!("its connection is lost")
    };
    let error = answer.unwrap_err();
    assert_eq!(
        (error.kind(), error.execution(), error.retry_after()),
        (ErrorKind::ConnectionFailed, Execution::Unknown, None)
    );
    drop(late);
    assert!(leaf.is_connected());
    run(&leaf, echo()).await.unwrap();
    assert_eq!(lab.attempts().len(), 2);
    lab.settles_at(1).await;
}

/// What closes before it has answered is no better than what does not come about.
#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_at_once_is_not_made_in_a_loop() {
    let lab = Lab::new(How::ClosesAtOnce);
    let leaf = lab.leaf();
    for after in [500, 1000, 2000] {
        assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), after);
        assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), after);
        lab.settles_at(0).await;
        sleep(ms(after)).await;
    }
    lab.set(How::Works);
    run(&leaf, echo()).await.unwrap();
    assert_eq!(lab.attempts(), [0, 500, 1500, 3500]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_that_is_lost_is_replaced_at_once() {
    let lab = Lab::new(How::Works);
    let leaf = lab.leaf();
    leaf.connect().await.unwrap();
    sleep(ms(60_000)).await;
    lab.killed(&leaf).await;
    assert!(leaf.service().is_none());
    run(&leaf, echo()).await.unwrap();
    assert_eq!(lab.attempts(), [0, 60_000]);
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/ping#implementation-considerations
//# Timeouts SHOULD be appropriate for the network environment
//# Excessive pinging SHOULD be avoided to reduce network overhead
//= https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/ping#error-handling
//# Timeouts SHOULD be treated as connection failures
/// By setting: who does not answer a call and does not answer a ping is lost; one that answers is
/// not.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_fallen_silent_is_noticed_by_a_ping() {
    let hang = || ToolCall::new("hang").with_deadline(Instant::now() + ms(1000));
    for ping in [Some(ms(2000)), None] {
        let lab = Lab::new(How::Works);
        let leaf = match ping {
            Some(limit) => lab.leaf().with_ping(limit).unwrap(),
            None => lab.leaf(),
        };
        run(&leaf, echo()).await.unwrap();
        for _ in 0..3 {
            let calls = (0..5).map(|_| timeout(ms(100), run(&leaf, hang())));
            assert!(join_all(calls).await.iter().all(|answer| answer.is_err()));
            sleep(ms(10)).await;
        }
        // One at a time.
        let pings = lab.server.pings.load(SeqCst);
        assert_eq!(pings, if ping.is_some() { 3 } else { 0 });
        sleep(ms(3000)).await;
        assert!(leaf.is_connected(), "it is there, and busy");

        lab.mute.notify_waiters();
        let calls = (0..5).map(|_| timeout(ms(100), run(&leaf, echo())));
        assert!(join_all(calls).await.iter().all(|answer| answer.is_err()));
        sleep(ms(1999)).await;
        assert!(leaf.is_connected());
        sleep(ms(2)).await;
        assert_eq!(leaf.is_connected(), ping.is_none());
        if ping.is_some() {
            run(&leaf, echo()).await.unwrap();
            assert_eq!(lab.attempts().len(), 2);
            lab.settles_at(1).await;
        }
        assert!(leaf.with_ping(Duration::ZERO).is_err());
    }
}

/// E2, S2: what went wrong is recognised, and no secret is told.
#[tokio::test(start_paused = true)]
async fn an_error_of_the_connector_is_recognised_and_redacted() {
    for (text, kind, after) in [
        ("HTTP 401 Unauthorized", ErrorKind::Denied, 500),
        (
            "HTTP 429 Too Many Requests, retry after 7 seconds",
            ErrorKind::RateLimited,
            7000,
        ),
        (
            "no such program: tool not found",
            ErrorKind::ConnectionFailed,
            500,
        ),
        (
            "GET https://me:s3cr3t-canary@host/mcp failed",
            ErrorKind::ConnectionFailed,
            500,
        ),
    ] {
        let lab = Lab::new(How::Fails(text));
        let leaf = lab.leaf();
        for _ in 0..2 {
            let error = run(&leaf, echo()).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{text}");
            assert_eq!(error.execution(), Execution::NotStarted);
            assert_eq!(error.retry_after(), Some(ms(after)), "{text}");
            assert!(!format!("{error} {error:?} {leaf:?}").contains("s3cr3t-canary"));
        }
        let error = leaf.connect().await.unwrap_err();
        assert_eq!((error.kind(), error.server()), (kind, Some("docs")));
    }
}

/// It counts as a failed attempt, so that a connector that always panics is not called in a loop.
/// Nobody else panics.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_connector_is_a_failed_attempt() {
    for how in [How::Panics, How::PanicsAtOnce] {
        let lab = Lab::new(how);
        let leaf = lab.leaf();
        let all = join_all((0..20).map(|_| tokio::spawn(leaf.clone().oneshot(echo())))).await;
        for answer in all {
            let error = answer.expect("the caller panicked").unwrap_err();
            assert_not_sent(&error, 500);
            assert!(error.message().contains("panicked"), "{error}");
        }
        sleep(ms(499)).await;
        assert_not_sent(&run(&leaf, echo()).await.unwrap_err(), 1);
        lab.set(How::Works);
        sleep(ms(1)).await;
        run(&leaf, echo()).await.unwrap();
        assert_eq!(lab.attempts(), [0, 500]);
        lab.settles_at(1).await;
    }
}

/// One that is held and not polled any more, as the loser of a `select!` that is kept for later.
#[tokio::test(start_paused = true)]
async fn a_caller_that_is_never_polled_again_stands_in_nobodys_way() {
    for (how, took) in [(How::Takes(300), 300), (How::Works, 0)] {
        let lab = Lab::new(how);
        let leaf = lab.leaf();
        let mut stuck: Vec<_> = (0..3).map(|_| task::spawn(run(&leaf, echo()))).collect();
        stuck.iter_mut().for_each(|call| {
            assert_pending!(call.poll());
        });
        let all = join_all((0..20).map(|_| run(&leaf, echo()))).await;
        assert!(all.iter().all(|answer| answer.is_ok()), "{:?}", all[0]);
        assert_eq!((lab.now(), lab.attempts()), (took, vec![0]));
        // Nor does it keep an old connection up.
        lab.killed(&leaf).await;
        run(&leaf, echo()).await.unwrap();
        lab.settles_at(1).await;
        drop(stuck);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_nobody_waits_for_goes_on_and_ends_with_the_last_clone() {
    let lab = Lab::new(How::Takes(3000));
    let leaf = lab.leaf();
    for connects in [true, false] {
        let call = echo().with_deadline(Instant::now() + ms(1000));
        run(&leaf, call).await.unwrap_err();
        if connects {
            sleep(ms(2001)).await;
            assert!(leaf.is_connected());
            lab.killed(&leaf).await;
            sleep(ms(500)).await;
        }
    }
    let other = leaf.clone();
    drop(leaf);
    lab.settles_at(1).await;
    drop(other);
    lab.settles_at(0).await;
}

/// A leaf that is dropped where there is no runtime takes its attempt with it. rmcp's child process
/// spawns a task then.
#[test]
fn an_attempt_may_be_dropped_outside_the_runtime() {
    struct Spawns;
    impl Drop for Spawns {
        fn drop(&mut self) {
            tokio::spawn(async {});
        }
    }
    let alive = Arc::default();
    let count = Arc::clone(&alive);
    let leaf = McpReconnect::new("docs", move || {
        let (child, alive) = (Spawns, Alive::new(&count));
        async move {
            let _alive = (child, alive);
            std::future::pending::<Result<((), McpService), BoxError>>().await
        }
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        assert!(timeout(ms(10), leaf.connect()).await.is_err());
    });
    assert_eq!(alive.load(SeqCst), 1);
    drop(leaf);
    runtime.block_on(async {
        while alive.load(SeqCst) > 0 {
            sleep(ms(1)).await;
        }
    });
}

/// The runtime in which it was begun is no more. Those who wait in another one are told at once,
/// and it is tried there.
#[test]
fn an_attempt_ends_with_its_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let lab = Lab::new(How::Hangs);
    let leaf = lab.leaf();
    let mut never_begun = task::spawn(run(&leaf, echo()));
    {
        let _first = first.enter();
        assert_pending!(never_begun.poll());
    }
    let waits = leaf.clone().oneshot(echo());
    drop(first);
    let error = second.block_on(async { timeout(ms(50), waits).await });
    // That one was not even begun, so another has taken its place. The same once more, in the
    // middle.
    assert!(error.is_err(), "it waits for an attempt of its own");
    assert_eq!(lab.attempts().len(), 1);

    let waits = leaf.clone().oneshot(echo());
    drop(second);
    let third = runtime();
    let error = third.block_on(waits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    expect!["cannot connect to the MCP server `docs`: the runtime of the attempt has shut down"]
        .assert_eq(error.message());
    lab.set(How::Works);
    third.block_on(async {
        while let Err(error) = run(&leaf, echo()).await {
            sleep(error.retry_after().unwrap()).await;
        }
    });
    assert_eq!(lab.attempts().len(), 2);

    // Nor does a runtime that is ending hang whoever begins an attempt in it.
    lab.kill();
    let handle = third.handle().clone();
    drop(third);
    let _third = handle.enter();
    let mut late = task::spawn(run(&leaf, echo()));
    let error = match late.poll() {
        std::task::Poll::Ready(answer) => answer.unwrap_err(),
        std::task::Poll::Pending => panic!("it waits for ever"),
    };
    expect!["cannot connect to the MCP server `docs`: the runtime of the attempt has shut down"]
        .assert_eq(error.message());
}

#[tokio::test(start_paused = true)]
async fn it_is_always_ready() {
    let lab = Lab::new(How::Hangs);
    let mut leaf = tower_test::mock::Spawn::new(lab.leaf());
    for _ in 0..3 {
        assert_ready_ok!(leaf.poll_ready());
        drop(leaf.call(echo()));
    }
    assert!(
        lab.attempts().is_empty(),
        "a call that is not polled does nothing"
    );
}

/// X4: the list follows, because the connector reads it.
#[tokio::test(start_paused = true)]
async fn a_list_of_tools_is_read_again() {
    let lab = Lab::new(How::Works);
    let (tools, reads) = (McpTools::default(), Arc::new(AtomicUsize::new(0)));
    let connect = {
        let (lab, tools, reads) = (lab.clone(), tools.clone(), Arc::clone(&reads));
        move || {
            let handler = McpNotifications::new().with_tools(tools.clone());
            let (lab, reads) = (lab.clone(), Arc::clone(&reads));
            async move {
                let client = handler.serve(lab.wire()).await?;
                client.service().tools().refresh(client.peer()).await?;
                reads.fetch_add(1, SeqCst);
                Ok::<_, BoxError>(client)
            }
        }
    };
    let leaf = McpReconnect::new("docs", connect);
    leaf.connect().await.unwrap();
    assert_eq!(tools.catalog().len(), 2);
    run(&leaf, echo()).await.unwrap();
    lab.killed(&leaf).await;
    assert_eq!(tools.catalog().len(), 2, "the old list stands");
    run(&leaf, echo()).await.unwrap();
    assert_eq!(reads.load(SeqCst), 2);
}

//= https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress#implementation-notes
//# Senders and receivers SHOULD track active progress tokens
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/progress#implementation-notes
//# Clients and servers SHOULD track active progress tokens
/// T8, T4: reports and cancellations belong to the connection that a call is sent on.
#[tokio::test(start_paused = true)]
async fn progress_and_cancellation_go_over_the_new_connection() {
    let lab = Lab::new(How::Works);
    let connect = {
        let lab = lab.clone();
        move || {
            let lab = lab.clone();
            async move {
                let client = McpNotifications::new().serve(lab.wire()).await?;
                let progress = client.service().progress().clone();
                let service = McpService::new(client.peer().clone()).with_progress(progress);
                Ok::<_, BoxError>((client, service))
            }
        }
    };
    let leaf = McpReconnect::new("docs", connect);
    let idle = TimeoutLayer::new(ms(60_000)).with_idle_timeout(ms(3000));
    let stack = ServiceBuilder::new()
        .layer(idle.unwrap())
        .service(leaf.clone());
    for round in 1..=3 {
        // Five steps of two seconds.
        stack
            .clone()
            .oneshot(ToolCall::new("progress"))
            .await
            .unwrap();
        stack
            .clone()
            .oneshot(ToolCall::new("hang"))
            .await
            .unwrap_err();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(lab.server.cancelled.load(SeqCst), round);
        lab.killed(&leaf).await;
    }
}

/// Lost and made again: an event for each, and for attempts that fail.
#[tokio::test(start_paused = true)]
async fn what_becomes_of_the_connection_is_told() {
    let (log, _guard) = Log::of(Level::TRACE, FmtSpan::NONE);
    let lab = Lab::new(How::Takes(20));
    let leaf = lab.leaf();
    // However many calls are concerned.
    let many = |tool: &'static str| {
        let calls = (0..20).map(|_| run(&leaf, ToolCall::new(tool)));
        join_all(calls.collect::<Vec<_>>())
    };
    many("echo").await;
    let cut = async {
        sleep(ms(50)).await;
        lab.kill();
    };
    tokio::join!(many("hang"), cut);
    lab.set(How::Fails("refused, api_key=s3cr3t-canary"));
    many("echo").await;
    many("echo").await;
    sleep(ms(500)).await;
    lab.set(How::Works);
    run(&leaf, echo()).await.unwrap();

    let lines = log.lines();
    let told: Vec<_> = lines
        .iter()
        .map(|l| (l["level"].as_str().unwrap(), l["message"].as_str().unwrap()))
        .collect();
    let expected = [
        ("INFO", "tool.connected"),
        ("WARN", "tool.disconnected"),
        ("WARN", "tool.connect_failed"),
        ("INFO", "tool.connected"),
    ];
    assert_eq!(told, expected);
    assert!(lines.iter().all(|l| l["server"] == "docs"));
    assert_eq!(
        (&lines[0]["attempts"], &lines[0]["duration_ms"]),
        (&1.into(), &20.0.into())
    );
    assert_eq!(lines[1]["code"], "CONNECTION_FAILED");
    assert!(lines[1]["error"].as_str().unwrap().contains("is closed"));
    assert_eq!(
        (
            &lines[2]["attempts"],
            &lines[2]["delay_ms"],
            &lines[2]["code"]
        ),
        (&1.into(), &500.0.into(), &"CONNECTION_FAILED".into())
    );
    assert!(lines[2]["error"].as_str().unwrap().contains("[REDACTED]"));
    assert_eq!(lines[3]["attempts"], 2);
    // The page of the docs has every key, with its type.
    const PAGE: &str = include_str!("../../../../src/event/json_logs.md");
    for (key, value) in lines.iter().flat_map(|l| l.as_object().unwrap()) {
        let is = if value.is_string() {
            "string"
        } else {
            "number"
        };
        assert!(PAGE.contains(&format!("| `{key}` | {is} | ")), "{key}");
    }
}

/// rmcp keeps the span in which it connects: it must not be the call's, which would never end.
#[tokio::test(start_paused = true)]
async fn the_span_of_the_call_that_connects_ends_with_the_call() {
    let (log, _guard) = Log::with_spans(FmtSpan::CLOSE);
    let closed = |name: &str| {
        let mut these = log.events("close").into_iter();
        these.any(|l| l["span"]["name"] == name)
    };

    let lab = Lab::new(How::Takes(20));
    let leaf = lab.leaf();
    let stack = TraceLayer::new();
    let stack = tower::Layer::layer(&stack, leaf.clone());
    stack.oneshot(echo()).await.unwrap();
    assert!(leaf.is_connected());
    assert!(closed("execute_tool"));
    assert!(!closed("tool_connection"));
    drop(leaf);
    sleep(ms(10_000)).await;
    assert!(closed("tool_connection"));
}

/// Whoever gives up, the others have their answers: exactly one each, and nothing hangs.
#[tokio::test(start_paused = true)]
async fn callers_that_come_and_go_while_servers_die() {
    let lab = Lab::new(How::Takes(30));
    let leaf = lab.leaf().with_backoff(Backoff::fixed(ms(20)).unwrap());
    let answers = Arc::new(AtomicUsize::new(0));
    let callers = (0..40u64).map(|i| {
        let (leaf, answers) = (leaf.clone(), Arc::clone(&answers));
        tokio::spawn(async move {
            for round in 0..50 {
                let call = echo().with_deadline(Instant::now() + ms(200));
                let patience = ms(1 + (i * 7 + round * 13) % 90);
                let mut answer = pin!(run(&leaf, call));
                if i % 2 == 0 {
                    let _ = timeout(patience, answer).await;
                } else {
                    let ended = timeout(ms(201), &mut answer).await;
                    ended.expect("it outlives its deadline").ok();
                    answers.fetch_add(1, SeqCst);
                }
                sleep(ms(1)).await;
            }
        })
    });
    let callers = join_all(callers.collect::<Vec<_>>());
    let kills = async {
        for how in [
            How::Works,
            How::Hangs,
            How::Fails("refused"),
            How::ClosesAtOnce,
        ]
        .repeat(5)
        {
            sleep(ms(25)).await;
            lab.set(how);
            lab.kill();
        }
        lab.set(How::Works);
    };
    let limited = leaf.clone().with_connect_timeout(ms(50)).unwrap();
    let (all, (), _) = tokio::join!(callers, kills, limited.connect());
    assert!(all.iter().all(|caller| caller.is_ok()));
    assert_eq!(answers.load(SeqCst), 20 * 50);
    sleep(ms(20_000)).await;
    run(&leaf, echo()).await.unwrap();
    lab.settles_at(1).await;
}
