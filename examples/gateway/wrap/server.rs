//! The server as its client sees it: one, whichever process it is.

use std::{
    ffi::OsString,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use serde::de::IgnoredAny;
use tokio::{
    io::BufReader,
    process::{Child, ChildStdout},
};
use tokio_util::sync::CancellationToken;
use tower_toolcall::redact::redact_text;
use tracing::{info, warn};

use super::{
    client::Client,
    message::{self, Head, Id, Kind, Line},
    process::{Process, Wait},
    restart::Starts,
    session::Session,
};

/// Clones share the process.
#[derive(Clone)]
pub(crate) struct Server(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) command: Vec<OsString>,
    pub(super) client: Client,
    /// Whether a process that has ended is replaced.
    pub(super) restarts: bool,
    state: Mutex<State>,
    /// Held while a process is started.
    pub(super) starts: tokio::sync::Mutex<Starts>,
    /// Whether the last process has answered a request of the client's.
    pub(super) has_answered: AtomicBool,
    /// No process is started any more.
    pub(super) closing: CancellationToken,
    /// The last process has ended, and none follows.
    over: CancellationToken,
    ids: AtomicU64,
}

pub(super) struct State {
    /// The one that was started last.
    pub(super) process: Arc<Process>,
    pub(super) session: Session,
}

impl Server {
    /// Starts the first process.
    pub(crate) fn start(
        command: Vec<OsString>,
        restarts: bool,
        client: Client,
    ) -> io::Result<Self> {
        let (process, child) = Process::spawn(&command)?;
        process.set_ready();
        let server = Self(Arc::new(Shared {
            command,
            client,
            restarts,
            state: Mutex::new(State {
                process: Arc::clone(&process),
                session: Session::default(),
            }),
            starts: tokio::sync::Mutex::new(Starts::new()),
            has_answered: AtomicBool::new(false),
            closing: CancellationToken::new(),
            over: CancellationToken::new(),
            ids: AtomicU64::new(1),
        }));
        server.run(process, child, true);
        Ok(server)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn last(&self) -> Arc<Process> {
        Arc::clone(&self.state().process)
    }

    /// The process, if it runs and knows of the session.
    pub(super) fn current(&self) -> Option<Arc<Process>> {
        Some(self.last()).filter(|process| process.is_ready())
    }

    /// An id that no client has: theirs are numbers, or random.
    pub(crate) fn new_id(&self) -> Id {
        format!(r#""wrap-{}""#, self.0.ids.fetch_add(1, Relaxed))
    }

    /// Whether the process has requests to answer.
    pub(crate) fn is_asked(&self) -> bool {
        self.current().is_some_and(|process| process.is_asked())
    }

    /// Until the process has ended and none follows.
    pub(crate) async fn over(&self) {
        self.0.over.cancelled().await;
    }

    /// The client has said all. What it has said before is still written.
    pub(crate) async fn close(&self) {
        self.0.closing.cancel();
        self.last().close_stdin().await;
    }

    /// Ends the process, unless it has ended. Returns its exit code.
    pub(crate) async fn stop(&self) -> i32 {
        self.0.closing.cancel();
        // Not while another one is started.
        let _starts = self.0.starts.lock().await;
        let process = self.last();
        process.stop.cancel();
        process.ended.cancelled().await;
        process.exit_code()
    }
}

/// From the client.
impl Server {
    /// Passes a request on. Its answer goes to the client as it comes.
    pub(crate) async fn forward(&self, id: Id, method: &str, line: &[u8]) {
        let (method, line) = (method.to_owned(), line.to_vec());
        if let Some(process) = self.current() {
            return self.pass_on(&process, id, method, line).await;
        }
        // The client may have more to say meanwhile.
        let server = self.clone();
        tokio::spawn(async move {
            match server.live().await {
                Ok(process) => server.pass_on(&process, id, method, line).await,
                Err(error) => {
                    let failure = message::failure(&id, error.message());
                    server.0.client.send(failure).await;
                }
            }
        });
    }

    async fn pass_on(&self, process: &Process, id: Id, method: String, line: Line) {
        self.state().session.note(&id, &method, &line);
        let list = method == "tools/list";
        match process.expect(id.clone(), Wait::Client { list }) {
            true => process.send(line).await,
            false => {
                let why = "the MCP server has ended or has too much to answer, or the id is in use";
                self.0.client.send(message::failure(&id, why)).await;
            }
        }
    }

    pub(crate) async fn notify(&self, method: &str, line: &[u8]) {
        if method == "notifications/initialized" {
            self.state().session.initialized = Some(line.to_vec());
        }
        self.pass(line.to_vec()).await;
    }

    /// The client does not wait for this answer any more. The line says so.
    pub(crate) async fn cancel(&self, id: &Id, line: Line) {
        if let Some(process) = self.current() {
            process.forget(id);
            process.send(line).await;
        }
    }

    /// The client answers. Its answer to a process that has ended would be that to another question of the next one.
    pub(crate) async fn reply(&self, id: &Id, line: Line) {
        let process = self.last();
        if process.forget_of_client(id) {
            process.send(line).await;
        }
    }

    /// What needs no answer, or cannot be read.
    pub(crate) async fn pass(&self, line: Line) {
        if let Some(process) = self.current() {
            process.send(line).await;
        }
    }
}

/// From the process.
impl Server {
    pub(super) fn run(&self, process: Arc<Process>, mut child: Child, is_first: bool) {
        let (server, stdout) = (self.clone(), child.stdout.take());
        tokio::spawn(async move {
            if let Some(stdout) = stdout {
                let listens = server.listen(&process, stdout);
                process.stop.run_until_cancelled(listens).await;
            }
            let left = process.end(child).await;
            let Shared { client, .. } = &*server.0;
            let why = format!("the MCP server has ended ({})", process.status());
            match server.0.closing.is_cancelled() {
                true => info!("{why}"),
                false => warn!("{why}"),
            }
            for id in left.asked {
                let why = format!("{why} before it answered");
                client.send(message::failure(&id, &why)).await;
            }
            for id in left.asks {
                let why = serde_json::json!({ "reason": why }).to_string();
                client.send(message::cancelled(&id, &why)).await;
            }
            // One that was never of use would not be the next time.
            let in_vain = is_first && !server.0.has_answered.load(Relaxed);
            if in_vain || !server.0.restarts || server.0.closing.is_cancelled() {
                server.0.over.cancel();
            }
            process.ended.cancel();
        });
    }

    async fn listen(&self, process: &Process, stdout: ChildStdout) {
        let mut stdout = BufReader::new(stdout);
        loop {
            match message::next_line(&mut stdout).await {
                Ok(Some(line)) => self.hear(process, line).await,
                Ok(None) => return,
                Err(error) => {
                    warn!("the MCP server cannot be read: {error}");
                    return process.stop.cancel();
                }
            }
        }
    }

    async fn hear(&self, process: &Process, line: Line) {
        let client = &self.0.client;
        let Some(head) = Head::of(&line) else {
            match serde_json::from_slice::<IgnoredAny>(&line) {
                Ok(_) => client.send(line).await,
                Err(_) => warn!(
                    "the MCP server has written what is no JSON to its stdout: {}",
                    excerpt(&line)
                ),
            }
            return;
        };
        match head.kind() {
            Kind::Response(id) => match process.forget(&id) {
                Some(Wait::Us { reply, .. }) => drop(reply.send(line)),
                Some(Wait::Client { list }) => {
                    self.answered();
                    if list {
                        self.state().session.note_list(&head);
                    }
                    client.send(line).await;
                }
                // The client was told that there would be none, or does not want it any more.
                None => {}
            },
            Kind::Request(id, _) => match process.expect_of_client(id.clone()) {
                true => client.send(line).await,
                false => {
                    let why = "the client has too many requests to answer";
                    process.send(message::failure(&id, why)).await;
                }
            },
            Kind::Notification(method) => {
                if method == "notifications/progress"
                    && let Some(token) = head.param("progressToken")
                {
                    process.progress(&token);
                }
                if method == "notifications/cancelled"
                    && let Some(id) = head.param("requestId")
                {
                    process.forget_of_client(&id);
                }
                client.send(line).await;
            }
            Kind::Other => client.send(line).await,
        }
    }

    /// The process is of use.
    pub(crate) fn answered(&self) {
        self.0.has_answered.store(true, Relaxed);
    }
}

/// What can be shown of a line that is no message.
fn excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(2000)]);
    redact_text(&text).chars().take(200).collect()
}
