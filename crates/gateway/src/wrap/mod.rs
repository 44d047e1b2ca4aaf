//! `gateway wrap -- COMMAND`: the layers before any MCP server over stdio.
//!
//! A gateway to many servers must parse and rewrite messages. Here, with one client and one server,
//! each message passes unchanged, whatever its revision of MCP. Only `tools/call` goes through the
//! stack: the tool service sends the client's own line, and the answer has the server's own result.
//! [`server`] is the server as its client sees it, [`process`] one process of it, [`restart`]
//! starts the next one, [`session`] has the state for that, [`requests`] the open requests of the
//! client, [`calls`] the stack.

mod calls;
mod message;
mod options;
mod process;
mod queue;
mod requests;
mod restart;
mod server;
mod session;

pub(crate) use self::options::Options;

use std::{
    future::IntoFuture as _,
    io::{self, IsTerminal as _},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{Router, middleware::from_fn_with_state, serve::ListenerExt as _};
use tokio::{
    io::{BufReader, stdin, stdout},
    net::TcpListener,
    runtime,
    task::yield_now,
    time::{sleep, timeout},
};
use tower_toolcall::{redact::redact_text, settings::Settings, tool_metrics::Metrics};
use tracing::warn;

use self::{
    calls::Calls,
    message::{Head, INVALID_REQUEST, Line},
    process::GRACE,
    queue::{Queue, queue},
    requests::Requests,
    server::Server,
};
use super::{
    LAST_LINES, events,
    hosts::{self, Hosts},
    output::Output,
    pages, say_panics,
};

/// How long requests have to be answered when the client has closed our stdin.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

pub(crate) fn main(options: Options) -> ExitCode {
    let stderr = Output::new(io::stderr());
    say_panics(&stderr);
    let code = match options.settings() {
        Ok(settings) => serve(options, &settings, &stderr).map_err(|error| (1, error)),
        Err(error) => Err((2, error)),
    };
    let code = code.unwrap_or_else(|(code, error)| {
        stderr.say(redact_text(&format!("gateway wrap: {error:#}")));
        code
    });
    stderr.finish(LAST_LINES);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn serve(options: Options, settings: &Settings, stderr: &Output) -> anyhow::Result<i32> {
    if !options.no_trace {
        events::show_with_arguments(stderr, io::stderr().is_terminal());
    }
    // One thread: what a task does before it waits is done before others go on, so messages keep
    // their order.
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(run(options, settings, stderr));
    // A thread may wait for stdin for ever.
    runtime.shutdown_background();
    code
}

async fn run(options: Options, settings: &Settings, stderr: &Output) -> anyhow::Result<i32> {
    let metrics = (!options.no_metrics).then(Metrics::new);
    if let (Some(metrics), Some(at)) = (&metrics, options.metrics) {
        let listener = TcpListener::bind(at).await;
        let listener = listener.with_context(|| format!("--metrics {at}"))?;
        let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
        tokio::spawn(axum::serve(listener, page(metrics, at)).into_future());
    }
    let signals = signals()?;
    // If it ends before the last message, the client is gone.
    let (client, waiting) = queue();
    let written = tokio::spawn(queue::write(waiting, stdout()));
    let command = options.command[0].clone();
    let server = match Server::start(options.command, !options.no_restart, client.clone()) {
        Ok(server) => server,
        Err(error) => {
            stderr.say(format_args!("gateway wrap: {}: {error}", command.display()));
            return Ok(127);
        }
    };
    let calls = Calls::new(settings, metrics.as_ref(), Arc::clone(&server))?;
    let requests = Requests::new(calls, Arc::clone(&server), client.clone());

    let session = async {
        listen(&requests, &server, &client).await;
        let answers = async {
            server.close().await;
            while requests.any() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(LAST_ANSWERS, answers).await;
        sleep(GRACE).await;
    };
    // How long the client has to read what it was told.
    let limit = tokio::select! {
        () = session => LAST_ANSWERS,
        () = server.over.cancelled() => LAST_ANSWERS,
        () = client.closed() => Duration::ZERO,
        () = signals => Duration::from_secs(1),
    };
    let ended = timeout(GRACE * 3, server.stop()).await;
    let all = async { (client.close().await, written.await) };
    let _ = timeout(limit, all).await;
    if let Some(seen) = metrics.map(|metrics| metrics.snapshot())
        && seen.total.calls > 0
    {
        stderr.say(seen);
    }
    Ok(ended.unwrap_or(1))
}

/// Passes on what the client says, until it says no more.
async fn listen(requests: &Arc<Requests>, server: &Server, client: &Queue) {
    let mut stdin = BufReader::new(stdin());
    loop {
        let line = match message::next_line(&mut stdin).await {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => return warn!("the client cannot be read: {error}"),
        };
        for message in message::messages(line) {
            if let Err(error) = hear(requests, server, message).await {
                client.send(error).await;
            }
            // Others have their turn.
            yield_now().await;
        }
    }
}

/// # Errors
///
/// The answer to a line that is not a message, or to a refused request. The server does not get the
/// line, because it could read a call in it.
async fn hear(requests: &Arc<Requests>, server: &Server, line: Line) -> Result<(), Line> {
    let Some(head) = Head::of(&line) else {
        return Err(message::no_message(&line));
    };
    match (head.id.clone(), head.method.as_deref()) {
        (id, Some(_)) if !head.has_version() => {
            let id = id.as_deref().unwrap_or("null");
            let why = "`jsonrpc` is not \"2.0\"";
            return Err(message::failure(id, INVALID_REQUEST, why));
        }
        (Some(id), Some(method)) => requests.begin(id, method, &head, &line).await?,
        (None, Some("tools/call")) => {
            let why = "a call has an id";
            return Err(message::failure("null", INVALID_REQUEST, why));
        }
        (None, Some("notifications/cancelled")) => {
            let id = head.params().request_id;
            if !id.is_some_and(|id| requests.cancel(&id, &line)) {
                server.pass(line).await;
            }
        }
        (None, Some("notifications/initialized")) => server.initialized(line).await,
        (Some(id), None) => server.reply(&id, line).await,
        (None, _) => server.pass(line).await,
    }
    Ok(())
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

/// `/metrics`, as the gateway has it. At an address that others reach they may name this machine as
/// they like.
fn page(metrics: &Metrics, at: SocketAddr) -> Router {
    let page = pages::metrics_page(metrics.clone());
    if !at.ip().is_loopback() {
        return page;
    }
    let hosts = Hosts::loopback();
    page.layer(from_fn_with_state(hosts, hosts::check))
}
