use std::task::{Context, Poll};

use expect_test::expect;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError, catch_panic::CatchPanicLayer, timeout::TimeoutLayer,
};

async fn panics(tool: fn(ToolCall)) -> ToolError {
    let tool = service_fn(move |call: ToolCall| async move {
        tool(call);
        Ok::<(), BoxError>(())
    });
    let stack = ServiceBuilder::new()
        .layer(TimeoutLayer::default())
        .layer(CatchPanicLayer::new())
        .service(tool);
    stack.oneshot(ToolCall::new("buggy")).await.unwrap_err()
}

/// Trap 20: a panicking tool is told from a timeout and from a cancel.
#[tokio::test]
async fn a_panicking_tool_is_panicked_for_every_layer_above() {
    let error = panics(|_| panic!("no such row")).await;
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(error.tool(), Some("buggy"));
    expect!["the tool panicked: no such row"].assert_eq(error.message());
}

/// Rule 9: a panic's text may hold what the caller passed.
#[tokio::test]
async fn a_secret_in_a_panic_is_redacted() {
    let error = panics(|_| panic!("cannot use api_key={}", "s3cr3t-canary")).await;
    assert!(!format!("{error:?}").contains("s3cr3t-canary"), "{error:?}");
}

#[tokio::test]
async fn a_panic_payload_that_is_no_text_is_caught() {
    let error = panics(|_| std::panic::panic_any(7_u8)).await;
    assert_eq!(error.message(), "the tool panicked");
}

#[tokio::test]
async fn a_panic_payload_that_panics_when_it_is_dropped_is_caught() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the payload's drop");
        }
    }
    let error = panics(|_| std::panic::panic_any(Bomb)).await;
    assert_eq!(error.kind(), ErrorKind::Panicked);
}

#[tokio::test]
async fn a_foreign_error_that_panics_when_it_is_printed_is_caught() {
    #[derive(Debug)]
    struct Unprintable;
    impl std::fmt::Display for Unprintable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("in Display")
        }
    }
    impl std::error::Error for Unprintable {}
    let tool = service_fn(|_: ToolCall| async { Err::<(), BoxError>(Unprintable.into()) });
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .service(tool);
    let error = stack.oneshot(ToolCall::new("buggy")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
}

#[derive(Clone)]
struct PanicsIn(&'static str);

impl Service<ToolCall> for PanicsIn {
    type Response = ();
    type Error = BoxError;
    type Future = std::future::Ready<Result<(), BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        assert_ne!(self.0, "poll_ready", "in poll_ready");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ToolCall) -> Self::Future {
        panic!("in call")
    }
}

#[tokio::test]
async fn a_panic_in_call_and_in_poll_ready_is_caught_too() {
    for place in ["call", "poll_ready"] {
        let stack = CatchPanicLayer::new();
        let stack = ServiceBuilder::new().layer(stack).service(PanicsIn(place));
        let error = stack.oneshot(ToolCall::new("buggy")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked, "{place}");
    }
}

/// Panics when it is dropped, unless something panics already.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in drop");
        }
    }
}

#[tokio::test]
async fn a_future_that_panics_when_it_is_dropped_after_its_panic_is_reported_once() {
    struct Tool {
        _bomb: Bomb,
    }
    impl Future for Tool {
        type Output = Result<(), BoxError>;
        fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            panic!("in poll")
        }
    }
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .service(service_fn(|_: ToolCall| Tool { _bomb: Bomb }));
    let error = stack.oneshot(ToolCall::new("buggy")).await.unwrap_err();
    expect!["the tool panicked: in poll"].assert_eq(error.message());
}

/// A tool that is given up takes nobody with it: not the layer above that drops it, nor its other
/// calls.
#[tokio::test(start_paused = true)]
async fn a_future_that_panics_when_it_is_given_up_harms_nobody() {
    let tool = service_fn(|_: ToolCall| async {
        let _bomb = Bomb;
        std::future::pending::<Result<(), BoxError>>().await
    });
    let stack = ServiceBuilder::new()
        .layer(tower_toolcall::timeout::TimeoutLayer::default())
        .layer(CatchPanicLayer::new())
        .service(tool);
    let error = stack.oneshot(ToolCall::new("buggy")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

/// It has answered: what it does afterwards does not take the answer away.
#[tokio::test]
async fn a_future_that_panics_when_it_is_dropped_after_its_answer_has_answered() {
    struct Tool {
        _bomb: Bomb,
    }
    impl Future for Tool {
        type Output = Result<u8, BoxError>;
        fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            Poll::Ready(Ok(7))
        }
    }
    let stack = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .service(service_fn(|_: ToolCall| Tool { _bomb: Bomb }));
    assert_eq!(stack.oneshot(ToolCall::new("buggy")).await.unwrap(), 7);
}
