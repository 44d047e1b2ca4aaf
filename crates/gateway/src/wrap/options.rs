//! What the command line and the file say.

use std::{ffi::OsString, fs, net::SocketAddr, time::Duration};

use anyhow::{Context as _, bail, ensure};
use toml::{Table, Value};
use tower_toolcall::settings::Settings;

pub(crate) const HELP: &str = include_str!("help.txt");

/// What is not in a file. One that names a preset begins with that instead.
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

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) settings: Settings,
    pub(crate) trace: bool,
    pub(crate) metrics: bool,
    /// Where they are served.
    pub(crate) metrics_at: Option<SocketAddr>,
    pub(crate) restarts: bool,
    pub(crate) command: Vec<OsString>,
}

impl Options {
    /// `None` asks for help.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> anyhow::Result<Option<Self>> {
        let mut arguments = arguments.into_iter();
        let (mut file, mut metrics_at, mut off) = (None, None, Vec::new());
        loop {
            let flag = arguments.next().context("`-- COMMAND` is missing")?;
            let flag = flag.to_str().unwrap_or_default();
            match flag {
                "--" => break,
                "--help" | "-h" => return Ok(None),
                "--config" => file = Some(arguments.next().context("--config FILE")?),
                "--metrics" => {
                    let at = arguments.next().and_then(|at| at.into_string().ok());
                    let at = at.context("--metrics ADDRESS:PORT")?;
                    let address = at.parse().with_context(|| format!("--metrics {at}"));
                    metrics_at = Some(address?);
                }
                "--no-timeout" | "--no-deadline" | "--no-breaker" | "--no-trace"
                | "--no-metrics" | "--no-restart" => off.push(flag.to_owned()),
                other => {
                    bail!("there is no flag `{other}`: see --help. The command stands behind `--`")
                }
            }
        }
        let command: Vec<_> = arguments.collect();
        ensure!(!command.is_empty(), "there is no command behind `--`");
        let is_on = |flag: &str| !off.iter().any(|off| off == flag);
        ensure!(
            metrics_at.is_none() || is_on("--no-metrics"),
            "--metrics and --no-metrics contradict each other"
        );
        let settings_of = |file: &OsString| settings(&fs::read_to_string(file)?);
        let mut settings = match &file {
            Some(file) => settings_of(file).with_context(|| file.display().to_string())?,
            None => settings("")?,
        };
        if !is_on("--no-timeout") {
            settings.timeout.default = Duration::from_secs(365 * 24 * 3600);
            settings.timeout.idle_timeout = None;
            for tool in settings.tools.values_mut() {
                tool.timeout = None;
            }
        }
        if !is_on("--no-deadline") {
            settings.deadline.budget = None;
        }
        if !is_on("--no-breaker") {
            settings.circuit_breaker.enabled = false;
        }
        let _ = settings.stack().build()?;
        Ok(Some(Self {
            settings,
            trace: is_on("--no-trace"),
            metrics: is_on("--no-metrics"),
            metrics_at,
            restarts: is_on("--no-restart"),
            command,
        }))
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
