//! The servers behind the gateway: child processes, started again when they die, and servers over
//! HTTP.

use std::{
    collections::HashMap,
    ffi::OsString,
    io::{self, BufRead as _, BufReader, Read},
    path::PathBuf,
    process::Stdio,
    str::FromStr,
    sync::Arc,
    thread,
    time::Duration,
};

use axum::http::{HeaderName, HeaderValue};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::{
    process::Command,
    time::{Instant, sleep},
};
use tower_toolcall::{ConfigError, call::Secret, event::shown_text, settings::ServerUrl};
use tower_toolcall_mcp::McpServer;
use tracing::info;

/// How long a server has for a sign of life when a call of its was given up. One that does not
/// answer, stopped or stuck, is ended and started again.
pub(crate) const PING: Duration = Duration::from_secs(5);

/// The longest line of a server's stderr that is logged, in bytes. The rest is left out.
const MAX_LINE: u64 = 4 << 10;

/// The most lines of a private key that has no end.
const MAX_KEY: u32 = 200;

/// The most lines of a server's stderr that are logged in a second.
const MAX_LINES: u32 = 1000;

/// Returns a server, which `McpServer::connect` or the first call starts. Its process has none of
/// these variables but its own.
pub(crate) fn upstream(server: Server, variables: &[String]) -> Result<McpServer, ConfigError> {
    let variables = variables.to_vec();
    let (name, is_trusted) = (Arc::clone(&server.name), server.is_trusted);
    let upstream = match &server.url {
        Some(url) => {
            let config = StreamableHttpClientTransportConfig::with_uri(url.expose());
            McpServer::http_with(name, config.custom_headers(server.headers()?))
        }
        None => McpServer::spawn(name, move || server.command(&variables)),
    };
    let upstream = match is_trusted {
        true => upstream.trust_annotations(),
        false => upstream,
    };
    upstream.with_connection(|connection| connection.with_ping(PING))
}

/// Connects, however long it takes. As long as a server was never there its tools are unknown, so
/// no call would try.
pub(crate) async fn connect(server: McpServer) {
    while server.connect().await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
}

/// Passes what a server writes to its stderr on to `show`, by lines and redacted, until the end of
/// all processes that have it. Never waits, because a server may do nothing else while it writes.
fn each_line(stderr: impl Read, mut show: impl FnMut(&str)) {
    let (mut stderr, mut line) = (BufReader::new(stderr), Vec::new());
    let (mut since, mut lines, mut key_lines) = (Instant::now(), 0, 0_u32);
    let left_out = |lines: u32| format!("{} lines are left out", lines - MAX_LINES);
    while let Ok(1..) = stderr.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
        if !line.ends_with(b"\n") && stderr.skip_until(b'\n').is_ok_and(|rest| rest > 0) {
            // Half a token is not recognised.
            let blank = line.iter().rposition(u8::is_ascii_whitespace);
            line.truncate(blank.unwrap_or(0));
        }
        let text = String::from_utf8_lossy(&line);
        // The lines of a private key are recognised only together.
        key_lines = match (text.contains("-----BEGIN"), text.contains("-----END")) {
            (_, true) => 0,
            (true, false) => MAX_KEY,
            (false, false) => key_lines.saturating_sub(1),
        };
        let is_within = (1..MAX_KEY).contains(&key_lines);
        if since.elapsed() >= Duration::from_secs(1) {
            if lines > MAX_LINES {
                show(&left_out(lines));
            }
            (since, lines) = (Instant::now(), 0);
        }
        lines += 1;
        if lines <= MAX_LINES && !is_within {
            show(&shown_text(text.trim_end(), usize::MAX).to_string());
        }
        line.clear();
    }
    if lines > MAX_LINES {
        show(&left_out(lines));
    }
}

/// A server's name, and the command that starts it, a program and its arguments; or its address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) words: Vec<OsString>,
    pub(crate) environment: Vec<(String, Secret)>,
    pub(crate) url: Option<ServerUrl>,
    pub(crate) headers: Vec<(String, Secret)>,
    /// Its annotations are believed.
    pub(crate) is_trusted: bool,
}

impl Server {
    /// Returns npm's `@modelcontextprotocol/server-everything` and PyPI's `mcp-server-time`, as
    /// `tests/run` installs them.
    pub(crate) fn installed() -> anyhow::Result<Vec<Self>> {
        let script = installed(
            "mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
        )?;
        let mut packages = OsString::from("PYTHONPATH=");
        packages.push(installed("mcp-servers-python")?);
        let time = [
            "python3",
            "-m",
            "mcp_server_time",
            "--local-timezone",
            "UTC",
        ];
        let time = ["env".into(), packages]
            .into_iter()
            .chain(time.map(Into::into));
        Ok(vec![
            Self::new("everything", ["node".into(), script.into(), "stdio".into()]),
            Self::new("time", time),
        ])
    }

    fn new(name: &str, words: impl IntoIterator<Item = OsString>) -> Self {
        Self {
            name: name.into(),
            words: words.into_iter().collect(),
            environment: Vec::new(),
            url: None,
            headers: Vec::new(),
            // The program starts it, so its annotations are believed, replay safety included.
            is_trusted: true,
        }
    }

    pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        // The router splits `{name}__{tool}` at the first two underscores.
        match name.is_empty() || !name.chars().all(is_plain) || format!("{name}_").contains("__") {
            true => {
                Err("NAME takes ASCII letters, digits, `-`, `.` and single `_`, not at its end")
            }
            false => Ok(()),
        }
    }

    pub(crate) fn headers(&self) -> Result<HashMap<HeaderName, HeaderValue>, ConfigError> {
        let header = |(name, value): &(String, Secret)| {
            let parsed = HeaderName::try_from(&**name).ok();
            let parsed = parsed.zip(HeaderValue::try_from(value.expose()).ok());
            let wrong = || ConfigError::new("headers", format!("`{name}` is not a valid header"));
            let (name, mut value) = parsed.ok_or_else(wrong)?;
            value.set_sensitive(true);
            Ok((name, value))
        };
        self.headers.iter().map(header).collect()
    }

    /// Says what it is, without secrets.
    pub(crate) fn shown(&self) -> String {
        let names = |named: &[(String, Secret)]| {
            let names: Vec<_> = named.iter().map(|(name, _)| &**name).collect();
            names.join(", ")
        };
        match &self.url {
            Some(url) => format!("{url}, headers: {}", names(&self.headers)),
            None => {
                // Any argument may be a secret.
                let (program, arguments) = (self.words[0].display(), self.words.len() - 1);
                let environment = names(&self.environment);
                format!("`{program}`, arguments: {arguments}, environment: {environment}")
            }
        }
    }

    fn command(&self, variables: &[String]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        for variable in variables {
            command.env_remove(variable);
        }
        let environment = self.environment.iter();
        command.envs(environment.map(|(name, value)| (name, value.expose())));
        // One that is at work when the program ends would work on.
        command.kill_on_drop(true);
        // A server that writes to our stderr waits for its reader.
        command.stderr(match io::pipe() {
            Ok((stderr, writer)) => {
                let server = Arc::clone(&self.name);
                let log = move || each_line(stderr, |text| info!("{server}: {text}"));
                match thread::Builder::new().spawn(log) {
                    Ok(_) => writer.into(),
                    Err(_) => Stdio::null(),
                }
            }
            Err(_) => Stdio::null(),
        });
        command
    }
}

/// Reads `NAME=COMMAND`, as a shell reads words; `#` begins no comment. No shell runs the command.
impl FromStr for Server {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, command) = text.split_once('=').ok_or("`=` is missing")?;
        Self::check_name(name)?;
        Ok(Self::new(name, words(command)?))
    }
}

/// Returns the words of a command, as a shell reads them.
pub(crate) fn words(command: &str) -> Result<Vec<OsString>, &'static str> {
    if command.contains('\0') {
        return Err("COMMAND has a NUL");
    }
    // `shlex` reads comments.
    let words = shlex::split(&command.replace('#', "\0"));
    let words = words.ok_or("COMMAND has a quote that does not end")?;
    match words.first().is_none_or(|file| file.is_empty()) {
        true => Err("COMMAND names no program"),
        false => Ok(words
            .iter()
            .map(|it| it.replace('\0', "#").into())
            .collect()),
    }
}

/// Returns the path of a file that `tests/run` installs under `target`.
pub(crate) fn installed(path: &str) -> anyhow::Result<PathBuf> {
    let there = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")).join(path);
    anyhow::ensure!(
        there.exists(),
        "the MCP servers are not installed: name some by `--server`, or run `tests/run --no-run` once"
    );
    Ok(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(stderr: &str) -> Vec<String> {
        let mut shown = Vec::new();
        each_line(stderr.as_bytes(), |text| shown.push(text.to_owned()));
        shown
    }

    #[test]
    fn a_secret_that_is_cut_is_not_logged() {
        let before = "x ".repeat(2040);
        let long = format!("{before}sk-ant-api03-Zq7hX2vT9kLw4bRnZq7hX2vT9k\nnext\n");
        assert_eq!(shown(&long), [before.trim_end(), "next"]);
    }

    #[test]
    fn the_lines_of_a_private_key_are_not_logged() {
        let key = "a\n-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END PRIVATE KEY-----\nb";
        let lines = shown(key);
        assert!(lines.iter().all(|line| !line.contains("MIIE")), "{lines:?}");
        assert_eq!((&*lines[0], lines.last().unwrap().as_str()), ("a", "b"));
    }

    #[test]
    fn a_key_without_an_end_hides_some_lines_only() {
        let lines = shown(&format!("-----BEGIN X-----\n{}", "line\n".repeat(300)));
        assert_eq!(lines.len(), 1 + 300 - 199);
    }

    #[test]
    fn a_talkative_server_is_read_to_the_end() {
        let lines = shown(&"line\n".repeat(5000));
        let last = lines.last().map(String::as_str);
        assert!(last.is_some_and(|last| last.ends_with("lines are left out")));
    }
}
