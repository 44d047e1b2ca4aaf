//! The servers behind the gateway: child processes, started again when they die.

use std::{
    ffi::OsString,
    io::{self, BufRead as _, BufReader, PipeReader, Read as _},
    path::PathBuf,
    process::Stdio,
    str::FromStr,
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{process::Command, time::sleep};
use tower_toolcall::{ConfigError, event::shown_text, validate::Schemas};
use tower_toolcall_mcp::McpServer;
use tracing::info;

/// How long a server has for a sign of life when a call of its was given up. One that does not
/// answer, stopped or stuck, is ended and started again.
pub(crate) const PING: Duration = Duration::from_secs(5);

/// The longest line of a server's stderr, in bytes. The rest is a line of its own.
const MAX_LINE: u64 = 4 << 10;

/// Returns a server that `McpServer::connect` starts, or the first call. The schemas of its tools
/// are kept in `schemas`.
pub(crate) fn upstream(server: Server, schemas: &Schemas) -> Result<McpServer, ConfigError> {
    McpServer::spawn(Arc::clone(&server.name), move || server.command())
        // The program started the server, so its annotations are believed, replay safety included.
        .trust_annotations()
        .with_schemas(schemas)
        .with_connection(|connection| connection.with_ping(PING))
}

/// Connects, however long it takes. As long as a server was never there its tools are unknown, so
/// no call would try.
pub(crate) async fn connect(server: McpServer) {
    while server.connect().await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
}

/// Logs what a server writes to its stderr, until the end of all processes that have it.
#[expect(clippy::disallowed_methods, reason = "it blocks its own thread")]
fn log(server: &str, stderr: PipeReader) {
    let (mut stderr, mut line) = (BufReader::new(stderr), Vec::new());
    while let Ok(1..) = stderr.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line);
        info!("{server}: {}", shown_text(text.trim_end(), usize::MAX));
        line.clear();
        // A server that writes without end must not crowd out the lines of others.
        thread::sleep(Duration::from_millis(1));
    }
}

/// A server's name, and the command that starts it: a program and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) words: Vec<OsString>,
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
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        // One that is at work when the program ends would work on.
        command.kill_on_drop(true);
        // A server that writes to our stderr waits for its reader.
        command.stderr(match io::pipe() {
            Ok((stderr, writer)) => {
                let server = Arc::clone(&self.name);
                thread::spawn(move || log(&server, stderr));
                writer.into()
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
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        // The router splits `{name}__{tool}` at the first two underscores.
        if name.is_empty() || !name.chars().all(is_plain) || format!("{name}_").contains("__") {
            return Err(
                "NAME takes ASCII letters, digits, `-`, `.` and single `_`, not at its end",
            );
        }
        // `shlex` reads comments, and no argument has a NUL.
        let words = shlex::split(&command.replace('#', "\0"));
        let words = words.ok_or("COMMAND has a quote that does not end")?;
        let words = words.iter().map(|word| word.replace('\0', "#").into());
        let server = Self::new(name, words);
        match server.words.first().is_none_or(|file| file.is_empty()) {
            true => Err("COMMAND names no program"),
            false => Ok(server),
        }
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
