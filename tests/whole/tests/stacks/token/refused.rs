//! A token that the tool refuses, although its time is not over.

use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_toolcall::{
    ErrorKind, Evidence, ToolCall, ToolError, flow::CallExt, token::UpstreamToken,
};

use super::kit::{Provider, SECOND, Stack, Upstream, call, unauthorized};

const FIRST: &str = "alice->orders[]#1";
const SECOND_ONE: &str = "alice->orders[]#2";

/// A stack whose first token is a minute old.
async fn aged(provider: &Provider, upstream: &Upstream) -> Stack {
    let stack = Stack::new(&provider.layer(), upstream);
    assert_eq!(stack.send(call("alice")).await.unwrap(), FIRST);
    sleep(60 * SECOND).await;
    stack
}

/// H2: once more, with another one.
#[tokio::test(start_paused = true)]
async fn a_call_whose_kept_token_is_refused_is_sent_once_more() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = aged(&provider, &upstream).await;
    upstream.refuse(FIRST, 1);
    let mut call = call("alice");
    let observation = call.observe();
    assert_eq!(stack.send(call).await.unwrap(), SECOND_ONE);
    assert_eq!((provider.asked(), upstream.calls()), (2, 3));
    assert_eq!(observation.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_refusal_is_the_answer() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = aged(&provider, &upstream).await;
    upstream.refuse(FIRST, 1);
    upstream.refuse(SECOND_ONE, 1);
    let error = stack.send(call("alice")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(error.tool(), Some("order"));
    assert_eq!((provider.asked(), upstream.calls()), (2, 3));
}

/// The next one would be refused as well.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_at_once_is_not_replaced() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = Stack::new(&provider.layer(), &upstream);
    upstream.refuse(FIRST, 2);
    for _ in 0..2 {
        let error = stack.send(call("alice")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
    assert_eq!((provider.asked(), upstream.calls()), (1, 2));
}

/// All who were refused share the new one.
#[tokio::test(start_paused = true)]
async fn a_hundred_refusals_are_one_exchange() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = aged(&provider, &upstream).await;
    upstream.refuse(FIRST, 100);
    let many: Vec<_> = (0..100).map(|_| stack.spawn(call("alice"))).collect();
    for one in many {
        assert_eq!(one.await.unwrap().unwrap(), SECOND_ONE);
    }
    assert_eq!(provider.asked(), 2);
}

/// What the server has said goes before what the provider says.
#[tokio::test(start_paused = true)]
async fn if_there_is_no_other_token_the_refusal_is_the_answer() {
    let down = || ToolError::new(ErrorKind::ConnectionFailed, "refused");
    let first = tower_toolcall::token::Token::new(FIRST);
    let provider = Provider::answering([Ok(first), Err(down())]);
    let upstream = Upstream::default();
    let stack = aged(&provider, &upstream).await;
    upstream.refuse(FIRST, 1);
    let error = stack.send(call("alice")).await.unwrap_err();
    assert_eq!((error.kind(), provider.asked()), (ErrorKind::Denied, 2));
}

/// Evidence before action: a number in a text, or an error out of a tool's own client, is no status
/// on this wire.
#[tokio::test(start_paused = true)]
async fn words_of_an_error_ask_for_no_token() {
    let inferred = ToolError::from_box("HTTP 401 Unauthorized".into());
    assert_eq!(inferred.evidence(), Evidence::Inferred);
    for error in [inferred, ToolError::new(ErrorKind::Denied, "401")] {
        let provider = Provider::default();
        let tool = service_fn(move |_: ToolCall| std::future::ready(Err::<(), _>(error.clone())));
        let stack = provider.layer().layer(tool);
        for _ in 0..2 {
            stack.clone().oneshot(call("alice")).await.unwrap_err();
            sleep(60 * SECOND).await;
        }
        assert_eq!(provider.asked(), 1);
    }
}

/// H2: a call that may have done something is not sent again by anybody but a retry layer.
#[tokio::test(start_paused = true)]
async fn a_401_of_a_tool_that_may_have_run_asks_for_no_token() {
    let provider = Provider::default();
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = calls.clone();
    let tool = service_fn(move |_: ToolCall| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let error = unauthorized().with_execution(tower_toolcall::Execution::Unknown);
        std::future::ready(Err::<(), _>(error))
    });
    let stack = provider.layer().layer(tool);
    for _ in 0..2 {
        stack.clone().oneshot(call("alice")).await.unwrap_err();
        sleep(60 * SECOND).await;
    }
    let calls = calls.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!((provider.asked(), calls), (1, 2));
}

/// A 403 is for the one who asks, whatever the token.
#[tokio::test(start_paused = true)]
async fn another_status_asks_for_no_token() {
    let provider = Provider::default();
    let tool = service_fn(|_: ToolCall| async {
        let status = http::StatusCode::FORBIDDEN;
        Err::<(), _>(ToolError::from_status(status, "HTTP 403"))
    });
    let stack = provider.layer().layer(tool);
    for _ in 0..2 {
        stack.clone().oneshot(call("alice")).await.unwrap_err();
        sleep(60 * SECOND).await;
    }
    assert_eq!(provider.asked(), 1);
}

/// A refusal that comes late forgets no newer token.
#[tokio::test(start_paused = true)]
async fn a_late_refusal_leaves_the_newer_token() {
    let provider = Provider::default();
    let layer = provider.layer();
    let slow = service_fn(|call: ToolCall| async move {
        let token = call
            .extensions()
            .get::<tower_toolcall::token::UpstreamToken>();
        let token = token.unwrap().expose().to_owned();
        if token == FIRST {
            sleep(20 * SECOND).await;
            return Err(unauthorized());
        }
        Ok::<_, ToolError>(token)
    });
    let stack = Stack::new(&layer, &Upstream::default());
    stack.send(call("alice")).await.unwrap();
    sleep(60 * SECOND).await;
    let late = tokio::spawn(layer.layer(slow).oneshot(call("alice")));
    sleep(SECOND).await;
    layer.handle().clear();
    assert_eq!(stack.send(call("alice")).await.unwrap(), SECOND_ONE);
    assert_eq!(late.await.unwrap().unwrap(), SECOND_ONE);
    assert_eq!(provider.asked(), 2);
}

/// D7: a deadline that ends the wait for the second send does not hide the first one's answer, nor
/// does a refusal below.
#[tokio::test(start_paused = true)]
async fn the_401_is_the_answer_if_the_second_send_is_given_up() {
    for refuses in [false, true] {
        let provider = Provider::default();
        let semaphore = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        let tool = service_fn(move |call: ToolCall| async move {
            let token = call.extensions().get::<UpstreamToken>();
            let token = token.unwrap().expose().to_owned();
            sleep(SECOND).await;
            match token == FIRST && call.deadline().is_some() {
                true => Err(unauthorized()),
                false if refuses => Err(ToolError::refusal(ErrorKind::CircuitOpen, "open")),
                false => Ok(token),
            }
        });
        let limited = ConcurrencyLimit::with_semaphore(tool, semaphore.clone());
        let stack = provider.layer().layer(limited);
        let _ = stack.clone().oneshot(call("alice")).await;
        sleep(60 * SECOND).await;
        let call = call("alice").with_deadline(Instant::now() + 5 * SECOND);
        let running = tokio::spawn(stack.oneshot(call));
        sleep(SECOND / 2).await;
        // The next one in the queue.
        let held = semaphore.acquire_owned().await.unwrap();
        let _held = (!refuses).then_some(held);
        let error = running.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), provider.asked()), (ErrorKind::Denied, 2));
        assert_eq!(error.status().map(|s| s.as_u16()), Some(401));
    }
}
