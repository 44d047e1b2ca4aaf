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
//! | `/health` | which servers are there; 503 while calls end before it closes |
//! | `/metrics` | for Prometheus |
//!
//! The servers are npm's `@modelcontextprotocol/server-everything` and PyPI's `mcp-server-time`. Kill one: it is started
//! again by the next call. Stop one (`kill -STOP`): its calls time out, it does not answer a ping within 5 s, and is replaced.
//!
//! Ctrl-C, or SIGTERM, closes it: new calls are refused, those that run have their time, and what takes longer is cut short
//! with an answer, and printed. A second one cuts short at once.
//!
//! Settings come from the environment, over the preset `gateway`: `TOOLCALL_TIMEOUT=5`, `TOOLCALL_RETRY_ATTEMPTS=2` and so on; see
//! `tower_toolcall::settings`. And:
//!
//! | variable | default | |
//! |---|---|---|
//! | `PORT` | 8931 | 0: any free one |
//! | `GATEWAY_HOSTS` | | hosts, separated by commas, that requests may name in `Host` and `Origin`, beside `localhost`, `127.0.0.1` and `[::1]`; others are refused with 403 |
//! | `GATEWAY_SESSIONS` | 1000 | how many sessions of MCP clients there are at most |
//! | `GATEWAY_CALLS` | 100 | how many calls there are at most at a time; others are refused with 503 before their bodies are read. One takes up to 13 MB beside its strings |
//! | `GATEWAY_GRACE` | 10 | how many seconds calls have to end when it closes |
//!
//! It logs on stdout. If that is not read, or closed, it goes on without: lines are lost, and counted where they are missing.
//!
//! `gateway wrap -- COMMAND` is another program: see [`wrap`].

mod events;
#[path = "gateway.rs"]
mod gateway;
mod hosts;
mod in_flight;
mod options;
mod output;
mod pages;
mod upstream;
mod wrap;

use std::{env, io, panic, process::ExitCode, thread, time::Duration};

use anyhow::Context as _;
use tokio::{
    net::TcpListener,
    signal,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};
use tower_toolcall::{redact::redact_text, settings::Settings};

use self::{gateway::Gateway, options::Options, output::Output};

/// How long the last lines of a log have to be read.
const LAST_LINES: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    match arguments.next() {
        None => serve(),
        Some(word) if word == "wrap" => wrap::main(arguments),
        Some(_) => {
            eprintln!("usage: gateway, or gateway wrap: see `gateway wrap --help`");
            ExitCode::from(2)
        }
    }
}

/// Makes panics lines of a log: the default hook waits for the reader of stderr, and holds up its thread.
fn say_panics(errors: &Output) {
    let errors = errors.clone();
    panic::set_hook(Box::new(move |panic| {
        let thread = thread::current();
        errors.say(redact_text(&panic.to_string()));
        // The program ends with its main thread.
        if thread.name() == Some("main") {
            errors.finish(LAST_LINES);
        }
    }));
}

fn serve() -> ExitCode {
    let (log, errors) = (Output::new(io::stdout()), Output::new(io::stderr()));
    say_panics(&errors);
    let code = match run(&log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            errors.say(format_args!("Error: {error:?}"));
            ExitCode::FAILURE
        }
    };
    log.finish(LAST_LINES);
    errors.finish(LAST_LINES);
    code
}

#[tokio::main]
async fn run(log: &Output) -> anyhow::Result<()> {
    let (settings, options) = (Settings::gateway().with_env()?, Options::from_env()?);
    events::show(log);
    let port = env::var("PORT").unwrap_or_else(|_| "8931".into());
    let address = format!("127.0.0.1:{port}");
    let listener = TcpListener::bind(&address).await.context(address)?;
    let signals = signals(log.clone())?;
    let mut gateway = Gateway::start(settings).await?;
    gateway.options = options;

    let here = format!("http://{}", listener.local_addr()?);
    log.say(format_args!("{} tools at", gateway.tools().len()));
    log.say(format_args!("  {here}/mcp      MCP"));
    log.say(format_args!("  {here}/rpc      JSON-RPC"));
    log.say(format_args!("  {here}/health   {here}/metrics"));
    for server in gateway.upstreams() {
        log.say(format_args!("{} is process {}", server.name, server.pid()));
    }

    let cut = gateway.serve(listener, signals).await?;
    for calls in cut.chunk_by(|a, b| a == b) {
        log.say(format_args!("cut short: {} of {}", calls.len(), calls[0]));
    }
    log.say("done");
    Ok(())
}

/// Each Ctrl-C and each SIGTERM.
fn signals(log: Output) -> io::Result<UnboundedReceiver<()>> {
    let (sender, signals) = unbounded_channel();
    #[cfg(unix)]
    let mut terminate = signal::unix::signal(signal::unix::SignalKind::terminate())?;
    tokio::spawn(async move {
        loop {
            #[cfg(unix)]
            let terminated = terminate.recv();
            #[cfg(not(unix))]
            let terminated = std::future::pending::<Option<()>>();
            tokio::select! {
                Ok(()) = signal::ctrl_c() => {}
                _ = terminated => {}
            }
            log.say("closing; once more cuts short what runs");
            let _ = sender.send(());
        }
    });
    Ok(signals)
}
