//! A plain function as a tool, with typed arguments:
//! `cargo run --example function`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt};
use tower_toolcall::{AnyError, ServiceBuilderExt, ToolCall, router::tool_fn};

#[derive(Deserialize)]
struct Trip {
    from: String,
    to: String,
    kilometres: f64,
}

async fn fare(trip: Trip) -> Result<String, AnyError> {
    if trip.to == "Atlantis" {
        std::future::pending().await
    }
    let euros = 3.0 + 1.5 * trip.kilometres;
    Ok(format!("{} to {}: {euros:.2} euros", trip.from, trip.to))
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let stack = ServiceBuilder::new()
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_millis(200))
        .tool_catch_panic()
        .tool(tool_fn(fare));

    for arguments in [
        json!({ "from": "Oslo", "to": "Bergen", "kilometres": 463 }),
        json!({ "from": "Oslo", "to": "Bergen", "kilometres": "far" }),
        json!({ "from": "Oslo", "to": "Atlantis", "kilometres": 1 }),
    ] {
        println!("fare {arguments}");
        let call = ToolCall::new("fare").with_json(arguments)?;
        match stack.clone().oneshot(call).await {
            Ok(answer) => println!("   answer  {answer}\n"),
            // What the program knows of it, and what a model is told.
            Err(error) => println!("   {}  {}\n", error.code(), error.model_message()),
        }
    }
    Ok(())
}
