//! `gateway wrap -- COMMAND`: one word before the command of any stdio server.
//!
//! ```text
//! cargo install --path . --example gateway --features full  # puts `gateway` where cargo puts programs
//! ```
//!
//! The messages are not parsed and written anew, as a gateway to many servers has to: with one client and one server each message
//! passes as it came, whatever MCP it is of. Only `tools/call` goes through the stack: its leaf sends the client's own line, and the answer
//! has the server's own result. [`server`] is the server as its client sees it, [`process`] one process of it, [`restart`] how the next one
//! comes to be, [`session`] what that has to know, [`calls`] the stack.
#![doc = concat!("\n```text\n", include_str!("help.txt"), "\n```")]

mod calls;
mod client;
mod message;
mod options;
mod process;
mod restart;
mod server;
mod session;

use std::{
    ffi::OsString,
    future::IntoFuture as _,
    io::{self, IsTerminal as _},
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{Router, middleware::from_fn_with_state};
use serde_json::value::RawValue;
use tokio::{
    io::{BufReader, stdin},
    net::TcpListener,
    runtime,
    time::{sleep, timeout},
};
use tower_toolcall::metrics::Metrics;
use tracing::warn;

use self::{
    calls::{Asked, Calls},
    client::Client,
    message::{Head, Kind, Line},
    options::{HELP, Options},
    process::GRACE,
    server::Server,
};
use super::{events, hosts, pages};

/// How long requests have to be answered when the client has closed our stdin.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let options = match Options::parse(arguments) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => {
            eprintln!("gateway wrap: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    if options.trace {
        events::show_with_arguments(io::stderr, io::stderr().is_terminal());
    }
    // One thread: tasks run in the order in which they are begun, so requests keep theirs.
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(run(options));
    // A thread may wait for stdin for ever.
    runtime.shutdown_background();
    Ok(ExitCode::from(u8::try_from(code?).unwrap_or(1)))
}

async fn run(options: Options) -> anyhow::Result<i32> {
    let metrics = options.metrics.then(Metrics::new);
    if let (Some(metrics), Some(at)) = (&metrics, options.metrics_at) {
        let listener = TcpListener::bind(at).await;
        let listener = listener.with_context(|| format!("--metrics {at}"))?;
        tokio::spawn(axum::serve(listener, page(metrics)).into_future());
    }
    let mut signals = pin!(signals()?);
    let (client, writer) = Client::new();
    let command = options.command[0].clone();
    let server = match Server::start(options.command, options.restarts, client.clone()) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("gateway wrap: {}: {error}", command.display());
            return Ok(127);
        }
    };
    let calls = Calls::new(
        &options.settings,
        metrics.as_ref(),
        server.clone(),
        client.clone(),
    )?;

    tokio::select! {
        () = listen(&server, &calls) => tokio::select! {
            () = last_answers(&server, &calls) => {}
            () = signals.as_mut() => {}
            () = client.gone() => {}
        },
        () = signals.as_mut() => {}
        () = server.over() => {}
        () = client.gone() => {}
    }
    let ended = timeout(GRACE * 3, server.stop()).await;
    writer.finish(&client, Duration::from_secs(1)).await;
    if let Some(seen) = metrics.map(|metrics| metrics.snapshot())
        && seen.total.calls > 0
    {
        eprint!("{seen}");
    }
    Ok(ended.unwrap_or(1))
}

/// Passes on what the client says, until it says no more.
async fn listen(server: &Server, calls: &Calls) {
    let mut stdin = BufReader::new(stdin());
    loop {
        match message::next_line(&mut stdin).await {
            Ok(Some(line)) => hear(server, calls, line).await,
            Ok(None) => return,
            Err(error) => return warn!("the client cannot be read: {error}"),
        }
    }
}

async fn hear(server: &Server, calls: &Calls, line: Line) {
    let Some(head) = Head::of(&line) else {
        return server.pass(line).await;
    };
    match head.kind() {
        // The server says what it thinks of parameters that are none.
        Kind::Request(id, "tools/call") => match Asked::of(&head) {
            Some(asked) => calls.begin(id, asked, line).await,
            None => server.forward(id, "tools/call", &line).await,
        },
        Kind::Request(id, method) => server.forward(id, method, &line).await,
        Kind::Notification(method @ "notifications/cancelled") => match head.param("requestId") {
            Some(id) if calls.cancel(&id, head.params.map_or("", RawValue::get)) => {}
            Some(id) => server.cancel(&id, line).await,
            None => server.notify(method, &line).await,
        },
        Kind::Notification(method) => server.notify(method, &line).await,
        Kind::Response(id) => server.reply(&id, line).await,
        Kind::Other => server.pass(line).await,
    }
}

/// Lets the server answer what it was asked, and end.
async fn last_answers(server: &Server, calls: &Calls) {
    let answers = async {
        server.close().await;
        while calls.any() || server.is_asked() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let ends = async {
        let _ = timeout(LAST_ANSWERS, answers).await;
        sleep(GRACE).await;
    };
    tokio::select! {
        () = ends => {}
        () = server.over() => {}
    }
}

/// Until the first of these signals. Without it this program would end, and not its server.
fn signals() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        Ok(async move {
            tokio::select! {
                _ = hang_up.recv() => {}
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

/// `/metrics`, as the gateway has it.
fn page(metrics: &Metrics) -> Router {
    let hosts: Arc<[String]> = hosts::LOOPBACK.map(str::to_owned).into();
    pages::metrics_page(metrics.clone()).layer(from_fn_with_state(hosts, hosts::check))
}
