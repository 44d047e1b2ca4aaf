//! The options of the command line and the file.

use std::{ffi::OsString, fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use toml::{Table, Value};
use tower_toolcall::settings::Settings;

/// The values that a file does not set. A file with a preset begins with that instead.
const DEFAULTS: &str = r#"
preset = "gateway"          # one attempt; a breaker for 5 failures in a row

[timeout]
default = "30m"
idle_timeout = "5m"         # without an answer or progress

[deadline]
budget = "1h"               # with all that a call waits for

[rate_limit]
enabled = false
"#;

/// The sections that mean something here. Others need more than a command line can say.
const SECTIONS: &str = "preset, timeout, deadline, retry, rate_limit, circuit_breaker, concurrency, quota, repeat_guard, policy, sanitize, \
    trace, tools";

/// Runs one stdio MCP server with timeouts, a circuit breaker, a trace, metrics and restarts
///
/// Runs COMMAND, an MCP server that talks over stdin and stdout, and is that server to its client.
/// Calls of tools have timeouts, a deadline, a circuit breaker per tool, a redacted trace on stderr
/// and metrics. A server that has ended or hangs is started again. All else passes byte by byte:
/// tools, resources, prompts, sampling, elicitation, roots, logging, progress, cancellation,
/// instructions, stderr and the environment.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_override_self = true, after_long_help = include_str!("help.txt"))]
pub(crate) struct Options {
    /// Turns off timeouts
    ///
    /// Without it a call that has no answer and no progress for 5 minutes is ended, and any call
    /// after 30 minutes. The time in which the client answers the server is not counted.
    #[arg(long, verbatim_doc_comment)]
    no_timeout: bool,
    /// Turns off the deadline
    ///
    /// Without it no call takes more than an hour, with waits for a new process or for its turn.
    #[arg(long, verbatim_doc_comment)]
    no_deadline: bool,
    /// Turns off circuit breakers
    ///
    /// Without it, after 5 failures in a row, calls of a tool are refused for a minute. Failures
    /// are timeouts, lost connections and JSON-RPC errors that the caller did not cause; not
    /// isError.
    #[arg(long, verbatim_doc_comment)]
    no_breaker: bool,
    /// Turns off restarts: the program ends with its server
    ///
    /// Without it a server that has ended is started again by the next request. One that let a call
    /// run out of time, and does not answer a ping within 10 seconds, is ended.
    #[arg(long, verbatim_doc_comment)]
    pub(crate) no_restart: bool,
    /// Turns off the trace
    ///
    /// Without it each call and each change is a line on stderr, with arguments but without
    /// secrets.
    #[arg(long)]
    pub(crate) no_trace: bool,
    /// Turns off metrics: the table of calls, errors and latencies on stderr at the end
    #[arg(long, conflicts_with = "metrics")]
    pub(crate) no_metrics: bool,
    /// Serves the metrics to Prometheus as well, at `http://ADDRESS:PORT/metrics`
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Takes settings of the layers from a file, over these defaults
    ///
    /// It is as `examples/settings.toml` of the repository, and may have `preset`, `[timeout]`,
    /// `[deadline]`, `[retry]`, `[rate_limit]` (if `enabled = true`), `[circuit_breaker]`,
    /// `[concurrency]`, `[quota]`, `[repeat_guard]`, `[policy]`, `[sanitize]`, `[trace]` and
    /// `[tools.NAME]`.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    config: Option<PathBuf>,
    /// The command that starts the server, with its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl Options {
    /// Returns the settings of the layers.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let settings_of = |file: &PathBuf| settings(&fs::read_to_string(file)?);
        let mut settings = match &self.config {
            Some(file) => settings_of(file).with_context(|| file.display().to_string())?,
            None => settings("")?,
        };
        if self.no_timeout {
            settings.timeout.default = Duration::from_secs(365 * 24 * 3600);
            settings.timeout.idle_timeout = None;
            for tool in settings.tools.values_mut() {
                tool.timeout = None;
            }
        }
        if self.no_deadline {
            settings.deadline.budget = None;
        }
        if self.no_breaker {
            settings.circuit_breaker.enabled = false;
        }
        let _ = settings.stack().build()?;
        Ok(settings)
    }
}

/// A file's settings over the defaults.
fn settings(file: &str) -> anyhow::Result<Settings> {
    // Its own errors have lines.
    let _: Settings = toml::from_str(file)?;
    let own: Table = toml::from_str(file)?;
    let is_known = |section: &String| SECTIONS.split(", ").any(|known| known == section);
    if let Some(section) = own.keys().find(|section| !is_known(section)) {
        bail!("[{section}] has no effect in `wrap`; there are: {SECTIONS}");
    }
    let has = |section: &str, key: &str| own.get(section).is_some_and(|it| it.get(key).is_some());
    let has_times = has("timeout", "default") || has("deadline", "budget");
    let has_idle_timeout = has("timeout", "idle_timeout");
    let mut all: Table = match own.contains_key("preset") {
        true => Table::new(),
        false => toml::from_str(DEFAULTS)?,
    };
    for (key, value) in own {
        match (all.get_mut(&key), value) {
            (Some(Value::Table(all)), Value::Table(own)) => all.extend(own),
            (_, value) => drop(all.insert(key, value)),
        }
    }
    let mut settings: Settings = all.try_into()?;
    // Whoever sets a time has thought of how long tools run.
    let has_times = has_times || settings.tools.values().any(|tool| tool.timeout.is_some());
    if has_times && !has_idle_timeout {
        settings.timeout.idle_timeout = None;
    }
    Ok(settings)
}
