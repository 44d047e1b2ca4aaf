//! The servers behind the gateway: child processes, started again when they die.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    process::Stdio,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

#[cfg(unix)]
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use rmcp::{
    RoleClient,
    model::ProtocolVersion,
    service::{ClientLifecycleMode, ClientServiceExt as _, RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{TokioChildProcess, Transport},
};
use tokio::{process::Command, time::sleep};
use tower_toolcall::{BoxError, ConfigError, validate::Schemas};
use tower_toolcall_mcp::{Catalog, McpNotifications, McpReconnect, McpService, McpTools};

/// How long a server has to start.
const START: Duration = Duration::from_secs(60);

/// How long a server has for a sign of life when a call of its was given up. One that does not
/// answer, stopped or stuck, is ended and started again.
pub(crate) const PING: Duration = Duration::from_secs(5);

/// A server in a child process.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) name: Arc<str>,
    pub(crate) service: McpReconnect,
    /// Its tools as they are now.
    pub(crate) tools: McpTools,
    pid: Arc<AtomicU32>,
}

impl Upstream {
    /// Starts nothing yet: `McpReconnect::connect` does, or the first call.
    ///
    /// The schemas of its tools are kept in `schemas`.
    pub(crate) fn new(server: Server, schemas: &Schemas) -> Result<Self, ConfigError> {
        let Server { name, program } = server;
        // The program started the server, so its annotations are believed, replay safety included.
        let catalog = Catalog::default().with_server(Arc::clone(&name));
        let catalog = catalog.trust_annotations(true);
        let tools = McpTools::new(catalog).with_schemas(schemas);
        let pid = Arc::new(AtomicU32::new(0));
        let (list, running) = (tools.clone(), Arc::clone(&pid));
        let service = McpReconnect::new(Arc::clone(&name), move || {
            let (program, list, running) = (program.clone(), list.clone(), Arc::clone(&running));
            async move { connect(program, list, &running).await }
        });
        Ok(Self {
            name,
            service: service.with_ping(PING)?.with_connect_timeout(START)?,
            tools,
            pid,
        })
    }

    /// Connects, however long it takes. As long as a server was never there its tools are unknown,
    /// so no call would try.
    pub(crate) async fn connect(self) {
        while self.service.connect().await.is_err() {
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// The process that was started last; 0 if none was.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(SeqCst)
    }
}

/// A process, and the handshake with it.
async fn connect(
    program: Program,
    list: McpTools,
    running: &AtomicU32,
) -> Result<(impl Send + Sync + use<>, McpService), BoxError> {
    let file = program.file.display().to_string();
    let mut command = Command::new(program.file);
    command.args(program.arguments).envs(program.environment);
    // One that is at work when the program ends would work on.
    command.kill_on_drop(true);
    // A terminal's Ctrl-C goes to the whole group. The servers are to stay until the calls have
    // ended.
    #[cfg(unix)]
    command.process_group(0);
    // Servers talk on stderr. A log of yours is a better place for it.
    let process = TokioChildProcess::builder(command).stderr(Stdio::null());
    let (process, _) = process
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot start `{file}`: {e}")))?;
    let pid = process.id().unwrap_or(0);
    running.store(pid, SeqCst);
    let process = Grouped {
        process,
        group: Group(pid),
    };

    let handler = McpNotifications::new().with_tools(list);
    // The revision of 2026-07-28, or the older one of a server that does not know it.
    let newest_first = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    let client = handler.serve_with_lifecycle(process, newest_first).await?;
    client.service().tools().refresh(client.peer()).await?;
    let progress = client.service().progress().clone();
    let service = McpService::new(client.peer().clone()).with_progress(progress);
    Ok((client, service))
}

/// A server's process. Its group is signalled when the transport ends, and not later: the id may
/// then belong to another process.
struct Grouped {
    process: TokioChildProcess,
    #[expect(dead_code, reason = "it is dropped")]
    group: Group,
}

impl Transport<RoleClient> for Grouped {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.process.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.process.receive()
    }

    fn close(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        self.process.close()
    }
}

/// The process group of a server: `npx` and the like run the server as a child of theirs.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Ok(leader @ 1..) = self.0.try_into() {
            // It fails if no process is left.
            let _ = killpg(Pid::from_raw(leader), Signal::SIGTERM);
        }
    }
}

/// A server's name, and the command that starts it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) program: Program,
}

/// A command line.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) file: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
}

impl Server {
    /// Returns those that `tests/run` installs.
    pub(crate) fn installed() -> anyhow::Result<Vec<Self>> {
        Ok(vec![
            Self::new("everything", Program::everything()?),
            Self::new("time", Program::time()?),
        ])
    }

    pub(crate) fn new(name: &str, program: Program) -> Self {
        let name = name.into();
        Self { name, program }
    }
}

/// Reads `NAME=COMMAND`, as a shell reads words. No shell runs the command.
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
        let words = shlex::split(command).ok_or("COMMAND has a quote that does not end")?;
        let mut words = words.into_iter().map(OsString::from);
        let file = words.next().filter(|file| !file.is_empty());
        Ok(Self::new(
            name,
            Program {
                file: file.ok_or("COMMAND names no program")?,
                arguments: words.collect(),
                environment: Vec::new(),
            },
        ))
    }
}

impl Program {
    /// npm's `@modelcontextprotocol/server-everything`.
    pub(crate) fn everything() -> anyhow::Result<Self> {
        let script = installed(
            "mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
        )?;
        Ok(Self {
            file: "node".into(),
            arguments: vec![script.into(), "stdio".into()],
            environment: Vec::new(),
        })
    }

    /// PyPI's `mcp-server-time`.
    pub(crate) fn time() -> anyhow::Result<Self> {
        let arguments = ["-m", "mcp_server_time", "--local-timezone", "UTC"];
        Ok(Self {
            file: "python3".into(),
            arguments: arguments.map(OsString::from).into(),
            environment: vec![("PYTHONPATH", installed("mcp-servers-python")?.into())],
        })
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
