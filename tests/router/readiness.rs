//! Rule 3 and trap 18: a route's own instance is polled until it is ready, by the call that wants
//! it.

use std::time::Duration;

use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};
use tower_test::mock::{self, Mock};
use tower_toolcall::{
    BoxError, ErrorKind, Execution, ToolCall,
    router::{Router, RouterBuilder},
};
use tower_toolcall_test::Step;

use crate::kit::{answers, limited};

type Handle = mock::Handle<ToolCall, &'static str>;

/// Two routes, none of them ready.
fn two() -> (Router<&'static str>, Handle, Handle) {
    let (a, mut of_a): (Mock<_, _>, Handle) = mock::pair();
    let (b, mut of_b): (Mock<_, _>, Handle) = mock::pair();
    of_a.allow(0);
    of_b.allow(0);
    let router = RouterBuilder::<&'static str>::new()
        .tool("a", a)
        .tool("b", b)
        .build();
    (router.unwrap(), of_a, of_b)
}

#[tokio::test]
async fn a_route_that_is_not_ready_blocks_no_other() {
    let (mut router, _of_a, mut of_b) = two();
    let mut first = task::spawn(router.ready().await.unwrap().call(ToolCall::new("a")));
    assert_pending!(first.poll());
    of_b.allow(1);
    let mut second = task::spawn(router.ready().await.unwrap().call(ToolCall::new("b")));
    assert_pending!(second.poll());
    of_b.next_request().await.unwrap().1.send_response("b");
    assert_eq!(assert_ready_ok!(second.poll()), "b");
    assert_pending!(first.poll());
}

#[tokio::test]
async fn a_call_waits_for_its_route() {
    let (mut router, mut of_a, _of_b) = two();
    let mut call = task::spawn(router.call(ToolCall::new("a")));
    assert_pending!(call.poll());
    of_a.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    of_a.next_request().await.unwrap().1.send_response("a");
    assert_eq!(assert_ready_ok!(call.poll()), "a");
}

/// 47: the wait for a route ends with the call. The second case is the caller's token.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_route_ends_at_the_deadline_and_when_the_caller_cancels() {
    let (router, _of_a, _of_b) = two();
    let at = Instant::now() + Duration::from_secs(2);
    let token = CancellationToken::new();
    let due = router.clone().oneshot(ToolCall::new("a").with_deadline(at));
    let cancelled = ToolCall::new("b").with_cancellation(token.clone());
    let mut cancelled = task::spawn(router.oneshot(cancelled));
    assert_pending!(cancelled.poll());
    token.cancel();
    for (error, kind, tool) in [
        (
            assert_ready_err!(cancelled.poll()),
            ErrorKind::Cancelled,
            "b",
        ),
        (due.await.unwrap_err(), ErrorKind::DeadlineExceeded, "a"),
    ] {
        assert_eq!((error.kind(), error.tool()), (kind, Some(tool)));
        assert_eq!(error.execution(), Execution::NotStarted);
    }
    assert_eq!(Instant::now(), at);
}

/// Trap 24.
#[tokio::test]
async fn a_readiness_error_is_the_result_of_its_call() {
    let (mut router, mut of_a, _of_b) = two();
    of_a.send_error(BoxError::from("connection refused"));
    let mut call = task::spawn(router.ready().await.unwrap().call(ToolCall::new("a")));
    let error = assert_ready_err!(call.poll());
    assert_eq!(error.kind(), ErrorKind::ConnectionFailed);
    assert_eq!(error.tool(), Some("a"));
}

#[tokio::test]
async fn a_waiting_call_that_is_dropped_gives_its_place_back() {
    let (tool, probe, semaphore) = limited(answers());
    let router = RouterBuilder::<&'static str>::new()
        .tool("t", tool)
        .build()
        .unwrap();
    let held = semaphore.clone().acquire_owned().await.unwrap();
    let mut waits = task::spawn(router.clone().oneshot(ToolCall::new("t")));
    let mut next = task::spawn(router.clone().oneshot(ToolCall::new("t")));
    assert_pending!(waits.poll());
    assert_pending!(next.poll());
    drop(waits);
    drop(held);
    assert_eq!(assert_ready_ok!(next.poll()), "answer");
    assert_eq!((probe.count(), semaphore.available_permits()), (1, 1));
}

#[tokio::test]
async fn a_running_call_that_is_dropped_drops_the_tools() {
    let (tool, probe, semaphore) = limited(Step::hang());
    let router = RouterBuilder::<&'static str>::new()
        .server("s", tool, ["t"])
        .build();
    let mut call = task::spawn(router.unwrap().oneshot(ToolCall::new("s__t")));
    assert_pending!(call.poll());
    assert_eq!((probe.in_flight(), semaphore.available_permits()), (1, 0));
    drop(call);
    assert_eq!((probe.in_flight(), semaphore.available_permits()), (0, 1));
}

#[tokio::test]
async fn a_call_that_is_never_polled_reaches_nobody() {
    let (tool, probe, semaphore) = limited(answers());
    let mut router = RouterBuilder::<&'static str>::new()
        .tool("t", tool)
        .build()
        .unwrap();
    drop(router.call(ToolCall::new("t")));
    assert_eq!((probe.count(), semaphore.available_permits()), (0, 1));
}

/// The service is dropped once it was called: what it holds is not held for as long as the call
/// takes.
#[tokio::test]
async fn a_running_call_holds_no_service() {
    let held = std::sync::Arc::new(());
    let in_it = held.clone();
    let tool = tower::service_fn(move |_: ToolCall| {
        let _ = &in_it;
        std::future::pending::<Result<&'static str, BoxError>>()
    });
    let mut router = RouterBuilder::<&'static str>::new()
        .tool("t", tool)
        .build()
        .unwrap();
    let mut call = task::spawn(router.call(ToolCall::new("t")));
    assert_pending!(call.poll());
    assert_eq!(
        std::sync::Arc::strong_count(&held),
        2,
        "here and in the router"
    );
}

/// A tool's place is free as soon as it has answered, although the future is still there.
#[tokio::test]
async fn nothing_is_held_once_the_answer_is_there() {
    let (tool, probe, semaphore) = limited(answers());
    let mut router = RouterBuilder::<&'static str>::new()
        .tool("t", tool)
        .build()
        .unwrap();
    let mut call = task::spawn(router.call(ToolCall::new("t")));
    assert_ready_ok!(call.poll());
    assert_eq!((probe.in_flight(), semaphore.available_permits()), (0, 1));
    drop(call);
}
