//! An MCP gateway: two third-party MCP servers and a local tool behind the whole stack, for MCP clients and for plain
//! HTTP ones at once.
//!
//! ```text
//! tests/run --no-run                           # installs the servers under target/; needs Node.js and Python
//! cargo run --features full --example gateway  # until Ctrl-C
//! ```
//!
//! | at `http://127.0.0.1:8931` | |
//! |---|---|
//! | `/mcp` | MCP over streamable HTTP |
//! | `POST /rpc` | JSON-RPC 2.0: `tools/call` |
//! | `POST /tools/{tool}/call`, `POST /servers/{id}/tools/{tool}/call` | plain HTTP |
//! | `/health` | which servers are there; 503 while MCP's calls end before it closes |
//! | `/metrics` | for Prometheus |
//!
//! The servers are npm's `@modelcontextprotocol/server-everything` and PyPI's `mcp-server-time`. Kill one: it is started
//! again by the next call.
//!
//! Settings come from the environment, over the preset `gateway`: `TOOL_TIMEOUT=5`, `TOOL_RETRY_ATTEMPTS=2` and so on; see
//! `tower_toolcall::settings`. `PORT` chooses another port; 0 any free one.

#[path = "gateway.rs"]
mod gateway;
mod pages;
mod upstream;

use std::{env, io};

use anyhow::Context as _;
use tokio::{net::TcpListener, signal};
use tower_toolcall::{event, settings::Settings};
use tracing::{Level, Metadata};
use tracing_subscriber::{filter::filter_fn, prelude::*};

use self::gateway::Gateway;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let settings = Settings::gateway().with_env()?;
    show_events();
    let port = env::var("PORT").unwrap_or_else(|_| "8931".into());
    let address = format!("127.0.0.1:{port}");
    let listener = TcpListener::bind(&address).await.context(address)?;
    let gateway = Gateway::start(settings).await?;

    let here = format!("http://{}", listener.local_addr()?);
    println!("{} tools at", gateway.tools().len());
    println!("  {here}/mcp      MCP");
    println!("  {here}/rpc      JSON-RPC");
    println!("  {here}/health   {here}/metrics");
    for server in gateway.upstreams() {
        println!("{} is process {}", server.name, server.pid());
    }

    let stop = async {
        ctrl_c().await;
        println!("draining; Ctrl-C again cuts it short");
    };
    let twice = async {
        ctrl_c().await;
        ctrl_c().await;
    };
    tokio::select! {
        served = gateway.serve(listener, stop) => served?,
        () = twice => {}
    }
    println!("done");
    Ok(())
}

async fn ctrl_c() {
    // Where there is no such thing, it has to be killed.
    if let Err(error) = signal::ctrl_c().await {
        eprintln!("no Ctrl-C here: {error}");
        std::future::pending::<()>().await;
    }
}

/// Prints what the layers have to tell: calls, connections, breakers, servers that come and go.
fn show_events() {
    // Without the spans, in which the same is told once more.
    let shown =
        |m: &Metadata<'_>| m.is_event() && m.target() == event::TARGET && *m.level() <= Level::INFO;
    let events = tracing_subscriber::fmt::layer()
        .with_writer(io::stdout)
        .with_target(false)
        .with_filter(filter_fn(shown));
    tracing_subscriber::registry().with(events).init();
}
