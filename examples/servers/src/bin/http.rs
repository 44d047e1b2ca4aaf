//! Tools behind HTTP and JSON-RPC, each with its timeout and its breaker, and what a client sees of
//! them.
//!
//! ```text
//! cargo run -p example-servers --bin http
//! ```
//!
//! With an address, `-- 127.0.0.1:8080`, it serves until it is stopped.

use std::time::Duration;

use axum::serve::ListenerExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};
use tower_toolcall::{
    AnyError, BoxError, ServiceBuilderExt, ToolCall, router::Router, serve::Routes,
};

async fn tool(call: ToolCall) -> Result<Value, AnyError> {
    match call.tool() {
        "weather" => Ok(json!({ "city": call.arguments().get("city"), "degrees": 12 })),
        "slow" => std::future::pending().await,
        _ => Err("404 Not Found".into()),
    }
}

fn app() -> Result<axum::Router, BoxError> {
    let router = Router::builder()
        .tool("weather", service_fn(tool))
        .server("docs", service_fn(tool), ["slow", "nothing"])
        .build()?;
    let stack = ServiceBuilder::new()
        .tool_trace()
        .tool_circuit_breaker()
        .tool_timeout(Duration::from_millis(100))
        .tool_catch_panic()
        .tool(router.clone());
    Ok(Routes::new(stack).with_identity(router).into_router())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    if let Some(at) = std::env::args().nth(1) {
        let listener = TcpListener::bind(at).await?;
        let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
        return Ok(axum::serve(listener, app()?).await?);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = Client(format!("http://{}", listener.local_addr()?));
    let app = app()?;
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    tokio::spawn(async { axum::serve(listener, app).await });

    client
        .post("/tools/weather/call", json!({ "city": "Oslo" }))
        .await?;
    client.post("/tools/wether/call", json!({})).await?;
    client.post("/tools/weather/call", json!("Oslo")).await?;
    client
        .post(
            "/rpc",
            json!([
                rpc(1, json!({ "name": "weather" })),
                rpc(2, json!({ "name": "slow", "server": "docs" })),
                rpc(3, json!({ "name": "docs__nothing" })),
            ]),
        )
        .await?;
    println!("`slow` fails until its breaker opens, however it is called\n");
    for id in 3..6 {
        let slow = rpc(id, json!({ "name": "docs__slow" }));
        client.send("/rpc", &slow).await?;
    }
    client
        .post("/servers/docs/tools/slow/call", json!({}))
        .await?;
    client
        .post("/rpc", rpc(7, json!({ "name": "docs__slow" })))
        .await?;
    client
        .post("/servers/other/tools/slow/call", json!({}))
        .await
}

fn rpc(id: u32, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

struct Client(String);

impl Client {
    /// Shows the request and its answer.
    async fn post(&self, path: &str, body: Value) -> Result<(), BoxError> {
        println!("POST {path}  {body}");
        let response = self.send(path, &body).await?;
        let status = response.status().as_u16();
        match response.headers().get("retry-after") {
            Some(seconds) => println!("{status}, Retry-After: {}", seconds.to_str()?),
            None => println!("{status}"),
        }
        println!("{}\n", response.text().await?);
        Ok(())
    }

    async fn send(&self, path: &str, body: &Value) -> reqwest::Result<reqwest::Response> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let request = client.post(format!("{}{path}", self.0));
        let request = request.header("content-type", "application/json");
        request.body(body.to_string()).send().await
    }
}
