//! What the layer does for a call.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_toolcall::{
    ErrorKind, Execution, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    deadline::DeadlineLayer,
    retry::{RetryLayer, RetryPolicy},
    timeout::TimeoutLayer,
    token::{Target, Token, TokenLayer},
};

use super::kit::{Provider, SECOND, Stack, Upstream, call, orders};

/// H2.
#[tokio::test(start_paused = true)]
async fn a_token_is_exchanged_once_and_kept() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let layer = provider.layer();
    let stack = Stack::new(&layer, &upstream);
    for _ in 0..3 {
        assert_eq!(
            stack.send(call("alice")).await.unwrap(),
            "alice->orders[]#1"
        );
    }
    assert_eq!((provider.asked(), upstream.calls()), (1, 3));
    let counts = layer.handle().counts();
    assert_eq!((counts.hits, counts.exchanged, counts.failed), (2, 1, 0));
    // 300 s less 30.
    sleep(269 * SECOND).await;
    assert_eq!(
        stack.send(call("alice")).await.unwrap(),
        "alice->orders[]#2"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_target_gets_no_token() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = Stack::new(&provider.layer(), &upstream);
    let other = ToolCall::new("weather").with_subject_token("alice");
    assert_eq!(stack.send(other).await.unwrap(), "none");
    assert_eq!(stack.send(ToolCall::new("weather")).await.unwrap(), "none");
    assert_eq!(provider.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_tool_goes_before_its_server_and_that_before_all_others() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let layer = provider
        .layer()
        .with_server("pay", Target::audience("payments"))
        .with_tool("pay__refund", Target::audience("refunds"))
        .targets(|call| (call.tool() == "mail").then(|| Target::audience("mail")));
    let stack = Stack::new(&layer, &upstream);
    let of = async |tool: &str, server: Option<&str>| {
        let mut call = ToolCall::new(tool).with_subject_token("a");
        if let Some(server) = server {
            call = call.with_server(server);
        }
        let token = stack.send(call).await.unwrap();
        token.split(['>', '[']).nth(1).unwrap_or("none").to_owned()
    };
    assert_eq!(of("order", None).await, "orders");
    assert_eq!(of("refund", Some("pay")).await, "refunds");
    assert_eq!(of("charge", Some("pay")).await, "payments");
    assert_eq!(of("mail", Some("pay")).await, "payments");
    assert_eq!(of("mail", Some("post")).await, "mail");
    assert_eq!(of("other", None).await, "none");
}

/// H2: nothing is asked for, and nothing is sent.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_subject_is_denied() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = Stack::new(&provider.layer(), &upstream);
    for nobody in [ToolCall::new("order"), call("")] {
        let error = stack.send(nobody).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.is_own_refusal() && error.tool() == Some("order"));
    }
    assert_eq!((provider.asked(), upstream.calls()), (0, 0));
}

/// H2: 1,000 callers of one key.
#[tokio::test(start_paused = true)]
async fn callers_of_one_key_share_one_exchange() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let layer = provider.layer();
    let stack = Stack::new(&layer, &upstream);
    let since = Instant::now();
    let many: Vec<_> = (0..1000).map(|_| stack.spawn(call("alice"))).collect();
    for one in many {
        assert_eq!(one.await.unwrap().unwrap(), "alice->orders[]#1");
    }
    assert_eq!((provider.asked(), since.elapsed()), (1, SECOND));
    assert_eq!(layer.handle().counts().shared, 999);
}

#[tokio::test(start_paused = true)]
async fn the_next_asks_if_the_first_caller_is_dropped() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = Stack::new(&provider.layer(), &upstream);
    let first = stack.clone();
    let first = tokio::spawn(async move { timeout(SECOND / 2, first.send(call("alice"))).await });
    tokio::task::yield_now().await;
    let many: Vec<_> = (0..100).map(|_| stack.spawn(call("alice"))).collect();
    assert!(first.await.unwrap().is_err());
    for one in many {
        assert_eq!(one.await.unwrap().unwrap(), "alice->orders[]#2");
    }
    assert_eq!(provider.asked(), 2);
}

/// The deadline of one is nobody else's.
#[tokio::test(start_paused = true)]
async fn a_callers_deadline_ends_its_own_wait() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = Stack::new(&provider.layer(), &upstream);
    let since = Instant::now();
    let soon = call("alice").with_deadline(since + SECOND / 4);
    let first = stack.spawn(soon.clone());
    tokio::task::yield_now().await;
    let (second, third) = (stack.spawn(soon), stack.spawn(call("alice")));
    for short in [first, second] {
        let error = short.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert_eq!(error.execution(), Execution::NotStarted);
        assert_eq!(since.elapsed(), SECOND / 4);
    }
    assert!(third.await.unwrap().is_ok());
    assert_eq!(upstream.calls(), 1);
}

/// The provider's own layers see the deadline too, and may be first to end the exchange.
#[tokio::test(start_paused = true)]
async fn a_failure_by_a_callers_deadline_is_not_shared() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let exchange = ServiceBuilder::new()
        .layer(DeadlineLayer::inherited())
        .layer(TimeoutLayer::new(10 * SECOND))
        .service(provider.service());
    let layer = TokenLayer::new(exchange).with_tool("order", orders());
    let stack = Stack::new(&layer, &upstream);
    let first = stack.spawn(call("alice").with_deadline(Instant::now() + SECOND * 4 / 5));
    tokio::task::yield_now().await;
    let second = stack.spawn(call("alice"));
    assert!(first.await.unwrap().is_err());
    assert_eq!(second.await.unwrap().unwrap(), "alice->orders[]#2");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_cancels_ends_its_own_wait() {
    use tokio_util::sync::CancellationToken;

    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = Stack::new(&provider.layer(), &upstream);
    let token = CancellationToken::new();
    let first = stack.spawn(call("alice").with_cancellation(token.clone()));
    tokio::task::yield_now().await;
    let second = stack.spawn(call("alice"));
    sleep(SECOND / 2).await;
    token.cancel();
    assert_eq!(
        first.await.unwrap().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    assert!(second.await.unwrap().is_ok());
}

fn upstream_error() -> ToolError {
    ToolError::new(ErrorKind::Upstream, "HTTP 503").with_retry_after(7 * SECOND)
}

/// H2: what cannot be had was not sent.
#[tokio::test(start_paused = true)]
async fn a_failed_exchange_is_an_error_that_its_cause_explains() {
    let invalid = ToolError::new(ErrorKind::TokenExchange, "refused by the identity provider");
    let lost = ToolError::new(ErrorKind::ConnectionFailed, "reset by peer");
    for (cause, retryable) in [
        (upstream_error(), true),
        (invalid, false),
        (lost, true),
        (ToolError::new(ErrorKind::Internal, "no"), false),
    ] {
        let delay = cause.retry_after();
        let (provider, upstream) = (Provider::answering([Err(cause)]), Upstream::default());
        let stack = Stack::new(&provider.layer(), &upstream);
        let error = stack.send(call("alice")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TokenExchange);
        assert_eq!(error.execution(), Execution::NotStarted);
        assert_eq!(error.is_retryable(), retryable);
        assert_eq!(error.retry_after(), delay);
        assert_eq!((error.tool(), upstream.calls()), (Some("order"), 0));
    }
}

/// The exchange has names of its own, and the call of the first caller has an id of its own.
#[tokio::test(start_paused = true)]
async fn a_failure_of_the_provider_is_an_error_of_each_callers_own_call() {
    let refused = || ToolError::new(ErrorKind::TokenExchange, "refused by the identity provider");
    for cause in [refused(), upstream_error()] {
        let provider = Provider::answering([Err(cause)]);
        let exchange = ServiceBuilder::new()
            .layer(TimeoutLayer::new(10 * SECOND))
            .service(provider.service());
        let layer = TokenLayer::new(exchange).with_tool("order", orders());
        let stack = Stack::new(&layer, &Upstream::default());
        let of = |n: usize| stack.spawn(call("alice").with_id(format!("call {n}")));
        let many: Vec<_> = (0..3).map(of).collect();
        for (n, one) in many.into_iter().enumerate() {
            let error = one.await.unwrap().unwrap_err();
            assert_eq!(error.call_id(), Some(&*format!("call {n}")));
            assert_eq!((error.tool(), error.server()), (Some("order"), None));
            assert_eq!(error.execution(), Execution::NotStarted);
            assert_eq!(error.evidence(), tower_toolcall::Evidence::Reported);
        }
        assert_eq!(provider.asked(), 1);
    }
}

/// Those who waited have one failure; the next call asks again.
#[tokio::test(start_paused = true)]
async fn a_failed_exchange_is_shared_and_not_kept() {
    let provider = Provider::answering([Err(upstream_error())]);
    let stack = Stack::new(&provider.layer(), &Upstream::default());
    let many: Vec<_> = (0..100).map(|_| stack.spawn(call("alice"))).collect();
    for one in many {
        assert!(one.await.unwrap().is_err());
    }
    assert_eq!(provider.asked(), 1);
    assert!(stack.send(call("alice")).await.is_ok());
}

/// Nothing has started, so that a payment may be tried again.
#[tokio::test(start_paused = true)]
async fn a_retry_above_asks_again_whatever_the_replay_safety() {
    let provider = Provider::answering([Err(upstream_error())]);
    let upstream = Upstream::default();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(RetryPolicy::new()))
        .layer(provider.layer())
        .service(upstream.service());
    let unsafe_call = call("alice").with_replay_safety(tower_toolcall::ReplaySafety::Unsafe);
    let since = Instant::now();
    assert!(stack.oneshot(unsafe_call).await.is_ok());
    assert_eq!((provider.asked(), upstream.calls()), (2, 1));
    assert!(since.elapsed() >= 9 * SECOND);
}

/// A provider that is down fails fast, and opens no tool's breaker.
#[tokio::test(start_paused = true)]
async fn a_breaker_of_the_provider_is_not_that_of_the_tool() {
    let lost = || Err(ToolError::new(ErrorKind::ConnectionFailed, "refused"));
    let provider = Provider::answering((0..5).map(|_| lost()));
    let upstream = Upstream::default();
    let (own, of_tool) = (CircuitBreakerLayer::new(), CircuitBreakerLayer::new());
    let exchange = ServiceBuilder::new().layer(own).service(provider.service());
    let stack = ServiceBuilder::new()
        .layer(TokenLayer::new(exchange).with_tool("order", orders()))
        .layer(of_tool.clone())
        .service(upstream.service());
    for _ in 0..5 {
        stack.clone().oneshot(call("alice")).await.unwrap_err();
    }
    let error = stack.clone().oneshot(call("bob")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    assert_eq!(provider.asked(), 5);
    assert!(error.retry_after().is_some());
    let cause = std::error::Error::source(&error).unwrap();
    let cause: &ToolError = cause.downcast_ref().unwrap();
    assert_eq!(cause.kind(), ErrorKind::CircuitOpen);
    // A tool without a target is served.
    assert!(stack.oneshot(ToolCall::new("weather")).await.is_ok());
}

/// A lifetime of zero is for one call.
#[tokio::test(start_paused = true)]
async fn a_token_for_one_call_is_not_kept() {
    let single = || Ok(Token::new("single").with_lifetime(std::time::Duration::ZERO));
    let provider = Provider::answering((0..3).map(|_| single()));
    let stack = Stack::new(&provider.layer(), &Upstream::default());
    for n in 1..=3 {
        assert_eq!(stack.send(call("alice")).await.unwrap(), "single");
        assert_eq!(provider.asked(), n);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_can_be_forgotten() {
    let provider = Provider::default();
    let layer = provider.layer();
    let stack = Stack::new(&layer, &Upstream::default());
    stack.send(call("alice")).await.unwrap();
    assert_eq!(layer.handle().len(), 1);
    layer.handle().clear();
    assert!(layer.handle().is_empty());
    assert_eq!(
        stack.send(call("alice")).await.unwrap(),
        "alice->orders[]#2"
    );
}

/// Clones of a layer share its tokens.
/// The tokens are the layer's, whoever is asked for the next one.
#[tokio::test(start_paused = true)]
async fn another_exchange_leaves_the_tokens() {
    let (before, after, upstream) = (
        Provider::default(),
        Provider::default(),
        Upstream::default(),
    );
    let layer = before.layer();
    let send = call("alice");
    Stack::new(&layer, &upstream).send(send).await.unwrap();
    let layer = layer.map_exchange(|_| after.service());
    let stack = Stack::new(&layer, &upstream);
    for (subject, asked) in [("alice", 0), ("bob", 1)] {
        stack.send(call(subject)).await.unwrap();
        assert_eq!((before.asked(), after.asked()), (1, asked));
    }
    assert_eq!(layer.handle().counts().exchanged, 2);
}

/// E.3.8: the provider's time is the call's, and no attempt's at the tool; a retry finds the token.
#[tokio::test(start_paused = true)]
async fn the_tools_timeout_begins_when_the_token_is_there() {
    let (provider, since) = (Provider::default(), Instant::now());
    let attempts = Arc::new(AtomicUsize::new(0));
    let tries = Arc::clone(&attempts);
    let tool = tower::service_fn(move |_: ToolCall| {
        let n = tries.fetch_add(1, SeqCst);
        async move {
            sleep(SECOND * 3 / 4).await;
            let busy = || ToolError::from_status(http::StatusCode::SERVICE_UNAVAILABLE, "busy");
            match n {
                0 | 1 => Err(busy().with_retry_after(SECOND)),
                _ => Ok(()),
            }
        }
    });
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(10 * SECOND))
        .layer(RetryLayer::default())
        .layer(provider.layer())
        .layer(TimeoutLayer::new(SECOND))
        .service(tool);
    stack.oneshot(call("alice")).await.unwrap();
    assert_eq!((provider.asked(), attempts.load(SeqCst)), (1, 3));
    // An exchange, three attempts, two waits of 1 s or a little more.
    let took = since.elapsed().as_secs_f32();
    assert!((5.25..7.5).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_share_tokens() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let layer = provider.layer();
    for _ in 0..2 {
        let svc = layer.clone().layer(upstream.service());
        svc.oneshot(call("alice")).await.unwrap();
    }
    assert_eq!(provider.asked(), 1);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let layer = || TokenLayer::new(());
    assert_eq!(layer().with_max_keys(0).unwrap_err().field(), "max_keys");
    let none = layer().with_max_lifetime(std::time::Duration::ZERO);
    assert_eq!(none.unwrap_err().field(), "max_lifetime");
}
