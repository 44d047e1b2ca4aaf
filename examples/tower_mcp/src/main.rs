//! Layers of ours on the tools of a tower-mcp server; then a tower-mcp client as the leaf of a
//! stack, in front of a server that has none.
//!
//! ```text
//! cargo run -p example-tower-mcp
//! ```
//!
//! Nothing to start: the first server is in this process, the second one is this program again, as
//! a child. The adapters are in `lib.rs`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use example_tower_mcp::{ClientLeaf, ToolLayers, is_error};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{Service, ServiceBuilder, ServiceExt as _};
use tower_mcp::{
    BoxError, CallToolResult, Error, McpRouter, NoParams, StdioTransport, ToolBuilder,
    client::{ChannelTransport, McpClient, StdioClientTransport},
    extract::{Context, Json, State},
};
use tower_toolcall::{
    ServiceBuilderExt as _, ToolCall, ToolError,
    circuit_breaker::{CircuitBreakerLayer, Trip},
};

/// Of one attempt.
const TIMEOUT: Duration = Duration::from_millis(200);

/// How many failures in a row open a breaker.
const FAILURES: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return Ok(StdioTransport::new(plain_server()).run().await?);
    }
    layers_on_a_server().await?;
    a_client_as_leaf().await
}

/// A client that knows nothing of us, and a server whose tools have layers.
async fn layers_on_a_server() -> Result<(), BoxError> {
    println!("1  a tower-mcp server whose tools have layers\n");
    let breaker = CircuitBreakerLayer::builder()
        .with_trip(Trip::consecutive_failures(FAILURES))
        .classify_fn(is_error)
        .build()?;
    let layers = ServiceBuilder::new()
        .layer(breaker)
        .tool_timeout(TIMEOUT)
        .tool_catch_panic();
    let on = |tool: &str| ToolLayers::new(tool, layers.clone());

    let runs = Arc::new(AtomicU32::new(0));
    let counter = runs.clone();
    let server = McpRouter::new()
        .server_info("layered", "1.0.0")
        .tool(
            ToolBuilder::new("weather")
                .handler(weather)
                .layer(on("weather"))
                .build(),
        )
        .tool(
            ToolBuilder::new("dig")
                .no_params_handler(|| async {
                    sleep(TIMEOUT * 10).await;
                    Ok(CallToolResult::text("dug"))
                })
                .layer(on("dig"))
                .build(),
        )
        .tool(
            ToolBuilder::new("rates")
                .no_params_handler(move || {
                    counter.fetch_add(1, Relaxed);
                    async { Err(Error::tool("the database is down")) }
                })
                .layer(on("rates"))
                .build(),
        );

    let client = McpClient::connect(ChannelTransport::new(server)).await?;
    client.initialize("example", "1.0.0").await?;
    for (tool, arguments) in [
        ("weather", json!({ "city": "Oslo" })),
        ("weather", json!({ "city": "Osloo" })),
        ("dig", json!({})),
        ("rates", json!({})),
        ("rates", json!({})),
        ("rates", json!({})),
        ("rates", json!({})),
    ] {
        let answer = client.call_tool(tool, arguments).await?;
        let says = if answer.is_error { "isError" } else { "ok" };
        println!("   {tool:8} {says:8} {}", answer.all_text());
    }
    println!(
        "   `rates` was called 4 times and has run {} times",
        runs.load(Relaxed)
    );
    client.shutdown().await?;
    Ok(())
}

/// A stack in front of a server without layers, in a process of its own.
async fn a_client_as_leaf() -> Result<(), BoxError> {
    println!("\n2  a stack around a tower-mcp client\n");
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or("a path that is no text")?;
    let transport = StdioClientTransport::spawn(program, &["serve"]).await?;
    let client = McpClient::connect(transport).await?;
    client.initialize("example", "1.0.0").await?;

    let breaker = CircuitBreakerLayer::builder()
        .with_trip(Trip::consecutive_failures(FAILURES))
        .classify_fn(is_error)
        .build()?;
    let stack = ServiceBuilder::new()
        .tool_deadline(Duration::from_secs(2))
        .layer(breaker)
        .tool_timeout(TIMEOUT)
        .service(ClientLeaf::new(client));

    call(&stack, "weather", json!({ "city": "Oslo" })).await?;
    call(&stack, "weather", json!({ "city": "Osloo" })).await?;
    call(&stack, "wether", json!({})).await?;
    for _ in 0..=FAILURES {
        call(&stack, "dig", json!({})).await?;
    }
    // Let the server's handler see the last cancellation.
    sleep(TIMEOUT / 4).await;
    call(&stack, "how_often", json!({})).await?;
    // The process ends in the middle of its work.
    call(&stack, "die", json!({})).await
}

/// Makes a call, and prints how it ended and what a model would read.
async fn call<S>(stack: &S, tool: &str, arguments: Value) -> Result<(), BoxError>
where
    S: Service<ToolCall, Response = CallToolResult, Error = ToolError> + Clone,
{
    let call = ToolCall::new(tool).with_json(arguments)?;
    let start = Instant::now();
    let answer = stack.clone().oneshot(call).await;
    let ms = start.elapsed().as_millis();
    let (end, text) = match &answer {
        Ok(answer) if answer.is_error => ("isError", answer.all_text()),
        Ok(answer) => ("ok", answer.all_text()),
        Err(error) => (error.code(), error.model_message()),
    };
    println!("   {tool:10} {end:18} {ms:4} ms  {text}");
    Ok(())
}

/// The same kind of tools, without layers.
fn plain_server() -> McpRouter {
    let digs = Arc::new(Digs::default());
    McpRouter::new()
        .server_info("plain", "1.0.0")
        .tool(ToolBuilder::new("weather").handler(weather).build())
        .tool(
            ToolBuilder::new("dig")
                .extractor_handler(digs.clone(), dig)
                .build(),
        )
        .tool(
            ToolBuilder::new("how_often")
                .no_params_handler(move || {
                    let (started, stopped) =
                        (digs.started.load(Relaxed), digs.stopped.load(Relaxed));
                    let text = format!(
                        "`dig` was started {started} times and told to stop {stopped} times"
                    );
                    async { Ok(CallToolResult::text(text)) }
                })
                .build(),
        )
        .tool(
            ToolBuilder::new("die")
                .no_params_handler(|| async { std::process::exit(1) })
                .build(),
        )
}

#[derive(Deserialize, JsonSchema)]
struct Weather {
    city: String,
}

async fn weather(Weather { city }: Weather) -> Result<CallToolResult, Error> {
    Ok(match city.as_str() {
        "Oslo" => CallToolResult::text("12 degrees, clear sky"),
        _ => CallToolResult::error(format!("there is no city {city}")),
    })
}

/// What became of the calls of `dig`.
#[derive(Default)]
struct Digs {
    started: AtomicU32,
    stopped: AtomicU32,
}

async fn dig(
    State(digs): State<Arc<Digs>>,
    context: Context,
    Json(_): Json<NoParams>,
) -> Result<CallToolResult, Error> {
    digs.started.fetch_add(1, Relaxed);
    tokio::select! {
        () = context.cancelled() => { digs.stopped.fetch_add(1, Relaxed); }
        () = sleep(TIMEOUT * 10) => {}
    }
    Ok(CallToolResult::text("dug"))
}
