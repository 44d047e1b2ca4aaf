//! A stack behind axum, with its metrics: `cargo run -p example-servers --bin axum_server`.

use std::{net::SocketAddr, time::Duration};

use axum::{routing::get, serve::ListenerExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{
    AnyError, BoxError, ServiceBuilderExt, ToolCall, serve::Routes, tool_metrics::Metrics,
};

#[derive(Deserialize)]
struct Weather {
    city: String,
}

async fn weather(call: ToolCall) -> Result<Value, AnyError> {
    let Weather { city } = call.arguments_as()?;
    match &*city {
        "Atlantis" => std::future::pending().await,
        city => Ok(json!({ "city": city, "degrees": 12 })),
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let metrics = Metrics::new();
    let stack = ServiceBuilder::new()
        .tool_metrics(&metrics)
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_millis(100))
        .tool(service_fn(weather));
    let prometheus = move || async move { metrics.prometheus() };
    let app = Routes::new(stack).into_router();
    let app = app.route("/metrics", get(prometheus));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    // With the peers' addresses, so that what one client's arguments cause is felt by that client
    // alone.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    // Without it an answer of two parts, as those of MCP, waits 40 ms for an acknowledgement.
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    tokio::spawn(async { axum::serve(listener, app).await });

    let client = reqwest::Client::builder().no_proxy().build()?;
    for city in ["Oslo", "Atlantis"] {
        let body = json!({ "city": city }).to_string();
        let request = client.post(format!("{url}/tools/weather/call")).body(body);
        let response = request
            .header("content-type", "application/json")
            .send()
            .await?;
        println!(
            "{city}: {}\n   {}",
            response.status(),
            response.text().await?
        );
    }
    let text = client
        .get(format!("{url}/metrics"))
        .send()
        .await?
        .text()
        .await?;
    println!("\n/metrics, of which:");
    for line in text
        .lines()
        .filter(|line| line.contains("weather") && line.contains("_total") && !line.ends_with(" 0"))
    {
        println!("   {line}");
    }
    Ok(())
}
