//! Callers whose tokens are worth nothing: what they can fill, and whom they can push out.

use ::axum::body::Body;
use http::Request;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};
use tower_toolcall::{ErrorKind, ToolError, serve::Routes, token::TokenLayer};

use super::kit::{Provider, SECOND, Stack, Upstream, call, orders};

fn refused() -> ToolError {
    ToolError::new(ErrorKind::TokenExchange, "refused")
}

/// A key has the whole token.
#[tokio::test(start_paused = true)]
async fn a_refused_token_leaves_nothing_behind() {
    let provider = Provider::answering((0..100).map(|_| Err(refused())));
    let layer = provider.layer();
    let stack = Stack::new(&layer, &Upstream::default());
    for n in 0..100 {
        assert!(stack.send(call(&format!("garbage{n}"))).await.is_err());
    }
    assert_eq!((provider.asked(), layer.handle().len()), (100, 0));
    // Nor does one whose caller hangs up.
    let hangs_up = timeout(SECOND / 2, stack.send(call("garbage"))).await;
    assert!(hangs_up.is_err() && layer.handle().is_empty());
    stack.send(call("alice")).await.unwrap();
    assert_eq!(layer.handle().len(), 1);
}

/// As long as a header may be, and no longer.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_too_long_is_none() {
    let provider = Provider::default();
    for layer in [provider.layer(), provider.layer().pass_subject("order")] {
        let stack = Stack::new(&layer, &Upstream::default());
        let longest = "x".repeat(16 << 10);
        assert!(stack.send(call(&longest)).await.is_ok());
        let error = stack.send(call(&format!("{longest}x"))).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Denied && error.is_own_refusal());
        assert!(call(&format!("{longest}x")).subject_token().is_none());
    }
    assert_eq!(provider.asked(), 1);
}

/// As the docs have it: what strangers ask for at once is bounded, and who has a token needs no
/// place.
#[tokio::test(start_paused = true)]
async fn a_limit_around_the_exchange_holds_strangers_back() {
    let provider = Provider::default();
    let exchange = ServiceBuilder::new()
        .concurrency_limit(2)
        .service(provider.service());
    let layer = TokenLayer::new(exchange).with_tool("order", orders());
    let stack = Stack::new(&layer, &Upstream::default());
    stack.send(call("alice")).await.unwrap();
    let since = Instant::now();
    let strangers: Vec<_> = (0..10)
        .map(|n| stack.spawn(call(&format!("{n}"))))
        .collect();
    sleep(SECOND / 2).await;
    assert_eq!(provider.asked(), 3);
    stack.send(call("alice")).await.unwrap();
    let bobs = call("bob").with_deadline(since + SECOND);
    let error = stack.send(bobs).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(since.elapsed(), SECOND);
    for stranger in strangers {
        stranger.await.unwrap().unwrap();
    }
    assert_eq!((provider.asked(), since.elapsed()), (11, 5 * SECOND));
}

/// Over HTTP as a call without a token.
#[tokio::test(start_paused = true)]
async fn a_bearer_token_that_is_too_long_is_a_401() {
    let provider = Provider::default();
    let stack = provider.layer().layer(Upstream::default().service());
    let app = Routes::new(stack).with_bearer_subject().into_router();
    let long = "x".repeat(50_000);
    for (token, status) in [("alice", 200), (&long, 401)] {
        let request = Request::post("/tools/order/call")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        let request = request.body(Body::empty()).unwrap();
        let answer = app.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status);
    }
    assert_eq!(provider.asked(), 1);
}
