//! The server as its client sees it: one, whichever process it is.

use std::{
    ffi::OsString,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde_json::json;
use tokio::{
    io::BufReader,
    process::{Child, ChildStdout},
    task::yield_now,
};
use tokio_util::sync::CancellationToken;
use tower_toolcall::{ToolError, call::Progress, error::Outage, redact::redact_text};
use tracing::{info, warn};

use super::{
    message::{self, Head, INTERNAL_ERROR, Id, Line},
    process::Process,
    queue::Queue,
    requests::Request,
    restart::{Starts, unavailable},
    session::Session,
};

pub(crate) struct Server {
    pub(super) command: Vec<OsString>,
    pub(super) client: Queue,
    /// A process that has ended is replaced.
    pub(super) restarts: bool,
    state: Mutex<State>,
    /// Held while a process is started.
    pub(super) starts: Arc<tokio::sync::Mutex<Starts>>,
    /// The last process has answered a request of the client.
    pub(super) has_answered: AtomicBool,
    /// No process is started any more.
    pub(super) closing: CancellationToken,
    /// The last process has ended, and none follows.
    pub(crate) over: CancellationToken,
}

pub(super) struct State {
    /// The process that was started last.
    pub(super) process: Arc<Process>,
    /// The outage of the last useful process.
    pub(super) outage: Outage,
    pub(super) session: Session,
}

impl Server {
    /// Starts the first process.
    pub(crate) fn start(
        command: Vec<OsString>,
        restarts: bool,
        client: Queue,
    ) -> io::Result<Arc<Self>> {
        let (process, child) = Process::spawn(&command, None)?;
        process.set_ready();
        let server = Arc::new(Self {
            command,
            client,
            restarts,
            state: Mutex::new(State {
                process: Arc::clone(&process),
                outage: process.outage.clone(),
                session: Session::default(),
            }),
            starts: Arc::default(),
            has_answered: AtomicBool::new(false),
            closing: CancellationToken::new(),
            over: CancellationToken::new(),
        });
        server.run(process, child);
        Ok(server)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn last(&self) -> Arc<Process> {
        Arc::clone(&self.state().process)
    }

    /// The process, if it runs and knows of the session.
    pub(super) fn current(&self) -> Option<Arc<Process>> {
        Some(self.last()).filter(|process| process.is_ready())
    }

    /// The client has said all. What it has said before is still written.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        let process = self.last();
        if process.ended.is_cancelled() {
            self.over.cancel();
        }
        process.to.close().await;
    }

    /// Ends the process, unless it has ended. Returns its exit code.
    pub(crate) async fn stop(&self) -> i32 {
        self.closing.cancel();
        let process = self.last();
        process.stop.cancel();
        process.ended.cancelled().await;
        process.exit_code()
    }
}

/// From the client.
impl Server {
    /// Sends a request, as soon as there is a process, and waits for the answer.
    ///
    /// # Errors
    ///
    /// If the process is missing, or has ended before it answered.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        request: &Arc<Request>,
        progress: Option<Progress>,
    ) -> Result<Line, ToolError> {
        let process = self.live().await?;
        let (id, line) = request.next();
        let answer = process.expect(&id, progress, request.progress_token.clone());
        let mut answer = answer.ok_or_else(|| unavailable("it has ended"))?;
        let _given_up = GivenUp {
            server: self,
            process: &process,
            request,
            id: &id,
        };
        process.to.send(line).await;
        let answer = answer.recv().await;
        let answer = answer.ok_or_else(|| self.lost(&process))?;
        self.has_answered.store(true, Relaxed);
        self.state().session.note(request, &answer);
        Ok(answer)
    }

    /// Passes on an answer of the client. An answer to a process that has ended is dropped.
    pub(crate) async fn reply(&self, id: &Id, line: Line) {
        let process = self.last();
        match process.answered_by_client(id) {
            Some(own) if own == *id => process.to.send(line).await,
            Some(own) => process.to.send(message::under_id(&line, &own)).await,
            None => {}
        }
    }

    pub(crate) async fn initialized(&self, line: Line) {
        self.state().session.initialized = Some(line.clone());
        self.pass(line).await;
    }

    /// Passes on a message that needs no answer.
    pub(crate) async fn pass(&self, line: Line) {
        if let Some(process) = self.current() {
            process.to.send(line).await;
        }
    }
}

/// A request on its way. Dropping it before its answer cancels it at the server.
struct GivenUp<'a> {
    server: &'a Arc<Server>,
    process: &'a Arc<Process>,
    request: &'a Request,
    id: &'a Id,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if !self.process.forget(self.id) {
            return;
        }
        self.process.to.try_send(self.request.cancellation(self.id));
        if !self.request.cancelled.is_cancelled() {
            self.server.check(self.process);
        }
    }
}

/// From the process.
impl Server {
    pub(super) fn run(self: &Arc<Self>, process: Arc<Process>, mut child: Child) {
        let (server, stdout) = (Arc::clone(self), child.stdout.take());
        tokio::spawn(async move {
            if let Some(stdout) = stdout {
                tokio::select! {
                    () = server.listen(&process, stdout) => {}
                    () = process.stop.cancelled() => {}
                }
            }
            let asked = process.end(child).await;
            let why = format!("the MCP server has ended ({})", process.status());
            match server.closing.is_cancelled() {
                true => info!("{why}"),
                false => warn!("{why}"),
            }
            for id in asked {
                let why = json!({ "reason": why }).to_string();
                server.client.send(message::cancelled(&id, &why)).await;
            }
            // The client has their answers before this program may end.
            yield_now().await;
            // One that was never of use would not be the next time.
            let in_vain = process.prefix.is_none() && !server.has_answered.load(Relaxed);
            if in_vain || !server.restarts || server.closing.is_cancelled() {
                server.over.cancel();
            }
            process.ended.cancel();
        });
    }

    async fn listen(&self, process: &Process, stdout: ChildStdout) {
        let mut stdout = BufReader::new(stdout);
        loop {
            match message::next_line(&mut stdout).await {
                Ok(Some(line)) => {
                    for message in message::messages(line) {
                        self.hear(process, message).await;
                        self.client.room().await;
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    warn!("the MCP server cannot be read: {error}");
                    return process.stop.cancel();
                }
            }
        }
    }

    async fn hear(&self, process: &Process, line: Line) {
        let client = &self.client;
        let Some(head) = Head::of(&line) else {
            return warn!(
                "the MCP server has written a line to its stdout that is not a message: {}",
                excerpt(&line)
            );
        };
        match (head.id.clone(), head.method.as_deref()) {
            (Some(id), None) => process.answer(&id, line).await,
            (Some(id), Some(_)) => match process.ask_client(&id) {
                Ok(asked) if asked == id => client.send(line).await,
                Ok(asked) => client.send(message::under_id(&line, &asked)).await,
                // The server may not read while it is read.
                Err(why) => process
                    .to
                    .try_send(message::failure(&id, INTERNAL_ERROR, why)),
            },
            (None, Some("notifications/cancelled")) => {
                let id = head.params().request_id;
                let asked = id.as_ref().and_then(|id| process.not_asked(id));
                match (asked, head.params) {
                    (Some(asked), Some(params)) if Some(&asked) != id.as_ref() => {
                        client.send(message::cancelled(&asked, params.get())).await;
                    }
                    _ => client.send(line).await,
                }
            }
            (None, method) => {
                if method == Some("notifications/progress")
                    && let Some(token) = head.params().progress_token
                    && !process.progress(&token)
                {
                    return;
                }
                client.send(line).await;
            }
        }
    }
}

/// Returns the beginning of a line that is not a message, redacted.
fn excerpt(line: &str) -> String {
    let text: String = line.chars().take(2000).collect();
    redact_text(&text).chars().take(200).collect()
}
