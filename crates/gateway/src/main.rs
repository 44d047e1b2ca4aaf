//! An MCP gateway: two third-party MCP servers and a local tool behind the whole stack, for MCP
//! clients and for plain HTTP ones together.
//!
//! `gateway wrap -- COMMAND` is another program: see [`wrap`]. The docs of [`CommandLine`],
//! [`Given`] and [`wrap::Options`] are the texts of `--help`.

mod auth;
mod config;
mod current;
mod events;
mod gateway;
mod hosts;
mod in_flight;
mod jwt;
mod listen;
mod options;
mod output;
mod pages;
mod pin;
mod upstream;
mod wrap;

use std::{
    env,
    io::{self, Write as _},
    panic,
    process::ExitCode,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use clap::{
    CommandFactory as _, FromArgMatches as _, Parser, Subcommand, builder::Resettable,
    error::ErrorKind,
};
use tokio::{
    net::TcpListener,
    signal,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};
use tower_toolcall::redact::redact_text;
use tower_toolcall_mcp::GatewayHandler;

use self::{
    current::{Live, Plan},
    gateway::Gateway,
    options::{Format, Given, Options},
    output::Output,
};

/// How long the last lines of a log have to be read.
const LAST_LINES: Duration = Duration::from_secs(1);

/// An MCP gateway with timeouts, circuit breakers, a trace and metrics
///
/// Serves the tools of MCP servers to MCP clients and to plain HTTP ones. Calls have timeouts, a
/// deadline, circuit breakers, a redacted trace and metrics. At `http://127.0.0.1:8931` there are:
///
///   /mcp                                    MCP over streamable HTTP
///   POST /rpc                               JSON-RPC 2.0: tools/call
///   POST /tools/{tool}/call                 plain HTTP
///   POST /servers/{id}/tools/{tool}/call    plain HTTP
///   /health                                 which servers are there; 503 while it closes
///   /metrics                                for Prometheus
///   /healthz, /readyz                       for probes: it lives; all servers are known
///
/// `gateway wrap -- COMMAND` needs none of that: it is one MCP server in front of another, over
/// stdin and stdout.
#[derive(Debug, Parser)]
#[command(name = "gateway", version, verbatim_doc_comment, after_long_help = include_str!("help.txt"))]
#[command(args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(flatten)]
    given: Given,
    #[command(subcommand)]
    program: Option<Program>,
}

#[derive(Debug, Subcommand)]
enum Program {
    Wrap(wrap::Options),
    /// Writes the digests of all tools of the servers to the file of `[pins]`, or `catalog.lock`
    ///
    /// Prints the differences from the file that is there, and texts with hidden characters. With
    /// `[pins]` in its file, the gateway hides tools that have changed since.
    #[command(verbatim_doc_comment)]
    Pin(Given),
}

fn main() -> ExitCode {
    let mut command = CommandLine::command();
    // The environment of `wrap` is its server's.
    if env::args_os().nth(1).is_some_and(|word| word == "wrap") {
        command = command.mut_args(|arg| arg.env(Resettable::Reset));
    }
    let matches = command.try_get_matches();
    match matches.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(CommandLine {
            program: Some(Program::Wrap(options)),
            ..
        }) => wrap::main(options),
        Ok(CommandLine {
            program: Some(Program::Pin(given)),
            ..
        }) => match config::load(&given) {
            Ok(_) if given.check => say(&wrong(&anyhow::anyhow!("--check: `pin` has none"))),
            Ok((_, plan)) => match pin::run(plan) {
                Ok(text) => {
                    let _ = io::stdout().write_all(text.as_bytes());
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    say(&wrong(&error));
                    ExitCode::FAILURE
                }
            },
            Err(error) => say(&wrong(&error)),
        },
        Ok(CommandLine { given, .. }) => match checked(&given) {
            Ok((options, plan)) if given.check => {
                let text = config::explained(&options, &plan);
                let _ = io::stdout().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Ok((options, plan)) => serve(given, options, plan),
            Err(error) => say(&wrong(&error)),
        },
        Err(error) => say(&error),
    }
}

/// Prints help, the version, or an error of the command line, which may have secrets.
fn say(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    if error.use_stderr() {
        // Each part alone: the name of an option would make a secret of the first word behind it.
        let parts: Vec<_> = text.trim_end().split("\n\n").map(redact_text).collect();
        let errors = Output::new(io::stderr());
        errors.say(parts.join("\n\n"));
        errors.finish(LAST_LINES);
    } else {
        let _ = io::stdout().write_all(text.as_bytes());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Writes panics to a log: the default hook waits for the reader of stderr, with its thread.
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

/// Returns the error of a configuration, as one of the command line is shown.
fn wrong(error: &anyhow::Error) -> clap::Error {
    CommandLine::command().error(ErrorKind::ValueValidation, format!("{error:#}"))
}

/// Reads the configuration, and the files that it names.
#[tokio::main(flavor = "current_thread")]
async fn checked(given: &Given) -> anyhow::Result<(Options, Plan)> {
    let (options, plan) = config::load(given)?;
    if let Some(auth) = &plan.auth {
        auth.load().await?;
    }
    plan.pins.as_ref().map(|pins| pins.read()).transpose()?;
    Ok((options, plan))
}

fn serve(given: Given, options: Options, plan: Plan) -> ExitCode {
    let log = Output::new(io::stdout());
    let log = match given.log {
        Format::Json => log.with_json(),
        Format::Text => log,
    };
    let errors = Output::new(io::stderr());
    say_panics(&errors);
    let code = match run(given, options, plan, &log) {
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
async fn run(given: Given, options: Options, plan: Plan, log: &Output) -> anyhow::Result<()> {
    events::show(log);
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.with_context(|| options.listen.to_string())?;
    let signals = signals(log.clone())?;
    // Without a file a terminal that is closed ends the program.
    #[cfg(unix)]
    let hangups = match &given.config {
        Some(_) => Some(signal::unix::signal(signal::unix::SignalKind::hangup())?),
        None => None,
    };
    if plan.auth.is_none() && !options.listen.ip().is_loopback() {
        log.say("requests from other machines are taken without a token: [auth] is missing");
    }
    let gateway = Gateway::start(options, plan).await?;
    #[cfg(unix)]
    if let Some(hangups) = hangups {
        tokio::spawn(reload_at(hangups, given, gateway.reloaded(), log.clone()));
    }

    let here = format!("http://{}", listener.local_addr()?);
    log.say(format_args!("{} tools at", gateway.tools().len()));
    log.say(format_args!("  {here}/mcp      MCP"));
    log.say(format_args!("  {here}/rpc      JSON-RPC"));
    log.say(format_args!("  {here}/health   {here}/metrics"));
    for server in gateway.upstreams() {
        if let Some(id) = server.process_id() {
            log.say(format_args!("{} is process {id}", server.name()));
        }
    }

    let cut = gateway.serve(listener, signals).await?;
    for calls in cut.chunk_by(|a, b| a == b) {
        log.say(format_args!("cut short: {} of {}", calls.len(), calls[0]));
    }
    log.say("done");
    Ok(())
}

/// Reads the file again at each SIGHUP.
#[cfg(unix)]
async fn reload_at(
    mut hangups: signal::unix::Signal,
    given: Given,
    (live, handler): (Live, GatewayHandler),
    log: Output,
) {
    while let Some(()) = hangups.recv().await {
        let reloaded = async {
            let (_, mut plan) = config::load(&given)?;
            if let Some(auth) = plan.auth.as_mut().and_then(Arc::get_mut) {
                if let Some(before) = &live.now().auth {
                    auth.keep_keys(before);
                }
                auth.load().await?;
            }
            live.reload(plan, &handler)
        };
        match reloaded.await {
            Ok(()) => log.say("reloaded; listen, hosts, bounds and times stay as they were"),
            Err(error) => log.say(format_args!("not reloaded: {error:#}")),
        }
    }
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
