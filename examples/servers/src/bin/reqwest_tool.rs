//! An HTTP API by reqwest as a tool, with an error type and a classifier of your own:
//! `cargo run -p example-servers --bin reqwest_tool`.
//!
//! For endpoints that templates describe there is `HttpTool` of the crate `tower-toolcall-http`,
//! which does this and more.

use std::{error::Error, fmt, time::Duration};

use axum::{Json, Router, extract::Path, http::StatusCode, routing::get, serve::ListenerExt as _};
use reqwest::{Url, redirect::Policy};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_toolcall::{
    AnyError, BoxError, ReplaySafety, ServiceBuilderExt, ToolCall, ToolError,
    circuit_breaker::CircuitBreakerLayer,
    outcome::{ByError, Classify, Outcome, classify_fn},
    retry::RetryPolicy,
    transport::TransportLayer,
};

#[derive(Deserialize)]
struct Price {
    item: String,
}

/// reqwest's error is found through `source`: its status, or that nothing was sent.
#[derive(Debug)]
struct ShopError(reqwest::Error);

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the shop has no answer")
    }
}

impl Error for ShopError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let prices = Url::parse(&format!("http://{}/price", listener.local_addr()?))?;
    let shop = Router::new()
        .route("/price/{item}", get(price))
        .route("/secret", get(|| async { "not for the model" }));
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    let shop = tokio::spawn(async { axum::serve(listener, shop).await });

    // Follows no redirect: a redirect of a call that ran may lead to a host that refuses, and
    // `TransportLayer` would take that for a call that was not sent.
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .build()?;
    let tool = service_fn(move |call: ToolCall| {
        let (client, mut url) = (client.clone(), prices.clone());
        async move {
            let Price { item } = call.arguments_as()?;
            // Whatever the model wrote is one segment, encoded: no other path, and no query.
            url.path_segments_mut()
                .expect("http has a path")
                .push(&item);
            let response = client.get(url).send().await;
            let response = response.and_then(|r| r.error_for_status());
            let text = response.map_err(ShopError)?.text().await;
            Ok::<_, AnyError>(text.map_err(ShopError)?)
        }
    });
    // A 200 that says it cannot is a failure to the breaker.
    let classify = classify_fn(|result: Result<&String, &ToolError>| match result {
        Ok(text) if is_error(text) => Outcome::failure(),
        other => ByError.classify(other),
    });
    let breaker = CircuitBreakerLayer::builder()
        .with_classifier(classify)
        .build()?;
    let stack = ServiceBuilder::new()
        .tool_retry(RetryPolicy::new().with_replay_safety(|_: &ToolCall| ReplaySafety::Safe))
        .layer(breaker)
        .tool_timeout(Duration::from_secs(2))
        .layer(TransportLayer::new())
        .tool(tool);

    for item in [
        "milk",
        "../secret",
        "none",
        "gold",
        "gold",
        "gold",
        "gold",
        "gold",
        "milk",
    ] {
        let call = ToolCall::new("price").with_json(json!({ "item": item }))?;
        match stack.clone().oneshot(call).await {
            Ok(answer) => println!("{item}: {answer}"),
            Err(error) => println!(
                "{item}: {}, attempts: {}",
                error.code(),
                error.attempts().unwrap_or(0)
            ),
        }
    }
    shop.abort();
    Ok(())
}

fn is_error(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|answer| answer.get("error").is_some())
}

async fn price(Path(item): Path<String>) -> Result<Json<Value>, StatusCode> {
    match item.as_str() {
        "milk" => Ok(Json(json!({ "euros": 2 }))),
        "gold" => Ok(Json(json!({ "error": "the database is down" }))),
        _ => Err(StatusCode::NOT_FOUND),
    }
}
