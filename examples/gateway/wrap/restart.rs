//! The next process, when one has ended or hangs.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::OwnedMutexGuard,
    time::{Instant, timeout},
};
use tower_toolcall::{
    ErrorKind, Execution, ToolError,
    backoff::{Backoff, Jitter},
};
use tracing::{info, warn};

use super::{
    message::{self, Head},
    process::{Lost, Process},
    server::Server,
    session::hash,
};

/// How long a new process has to answer `initialize`. Some are fetched from a registry first.
const START: Duration = Duration::from_secs(60);

/// How many seconds a process that let a call run out of time has to answer a `ping`. One that does not is ended.
const PING: u32 = 10;

/// The processes that were started.
pub(crate) struct Starts {
    /// How many processes in a row have answered nothing.
    in_vain: u32,
    last: Instant,
}

impl Server {
    /// The process; a new one if it has ended.
    ///
    /// # Errors
    ///
    /// If none can be started, or none may be yet.
    pub(crate) async fn live(&self) -> Result<Arc<Process>, ToolError> {
        if let Some(process) = self.current() {
            return Ok(process);
        }
        let starts = Arc::clone(&self.0.starts).lock_owned().await;
        if let Some(process) = self.current() {
            return Ok(process);
        }
        // In a task of its own: a request that is given up meanwhile stops no other's.
        let server = self.clone();
        let started = tokio::spawn(async move { server.restart(starts).await }).await;
        started.unwrap_or_else(|_| Err(unavailable("it is not started any more")))
    }

    async fn restart(
        &self,
        mut starts: OwnedMutexGuard<Starts>,
    ) -> Result<Arc<Process>, ToolError> {
        if !self.0.restarts || self.0.closing.is_cancelled() {
            return Err(unavailable("it has ended"));
        }
        // Two would be in each other's way.
        self.last().ended.cancelled().await;
        if self.0.has_answered.swap(false, Relaxed) {
            starts.in_vain = 0;
        }
        if let Some(wait) = starts.wait() {
            let error = unavailable("it has ended, and is not started again yet");
            return Err(error.with_retry_after(wait));
        }
        starts.in_vain += 1;
        starts.last = Instant::now();

        let spawned = Process::spawn(&self.0.command, false);
        let (process, child) = spawned.map_err(|error| unavailable(&error.to_string()))?;
        self.state().process = Arc::clone(&process);
        self.run(Arc::clone(&process), child, false);
        let greets = timeout(START, self.greet(&process));
        let greeted = match self.0.closing.run_until_cancelled(greets).await {
            Some(Ok(greeted)) => greeted,
            Some(Err(_)) => Err(unavailable("it does not answer `initialize`")),
            None => Err(unavailable("it has ended")),
        };
        if let Err(error) = greeted {
            process.stop.cancel();
            process.ended.cancelled().await;
            return Err(error);
        }
        process.set_ready();
        info!("the MCP server is started again");
        let (server, new) = (self.clone(), Arc::clone(&process));
        tokio::spawn(async move { server.compare_lists(&new).await });
        Ok(process)
    }

    /// Begins the session anew, as the client did. One of the revision 2026-07-28 has none.
    async fn greet(&self, process: &Process) -> Result<(), ToolError> {
        let session = self.state().session.clone();
        let Some((id, initialize)) = session.initialize.clone() else {
            return Ok(());
        };
        match process.ask(id, initialize).await {
            Ok(answer) if Head::of(&answer).is_some_and(|head| head.result.is_some()) => {}
            Ok(_) => return Err(unavailable("it refuses to `initialize` again")),
            Err(Lost) => return Err(unavailable("it has ended before it answered `initialize`")),
        }
        if let Some(initialized) = &session.initialized {
            process.to.send(initialized.clone()).await;
        }
        // Nobody waits for the answers.
        for line in session.lasting() {
            if let Some(line) = message::under_id(line, &self.new_id()) {
                process.to.send(line).await;
            }
        }
        Ok(())
    }

    /// Tells the client if the new process has other tools.
    async fn compare_lists(&self, process: &Process) {
        let session = self.state().session.clone();
        let (Some(_), Some((list, Some(before)))) = (session.initialize, session.list) else {
            return;
        };
        let id = self.new_id();
        let Some(list) = message::under_id(&list, &id) else {
            return;
        };
        let Ok(answer) = process.ask(id, list).await else {
            return;
        };
        if hash(&answer).is_some_and(|now| now != before) {
            let changed = message::notification("notifications/tools/list_changed", "{}");
            self.0.client.send(changed).await;
        }
    }

    /// The error of a request without an answer.
    pub(crate) fn lost(&self, process: &Process) -> ToolError {
        let status = process.status();
        let mut text = format!(
            "The MCP server has ended ({status}) before the tool answered; it may have run all the same. Do not repeat the same call."
        );
        if self.0.restarts {
            text += " The next call starts the server again.";
        }
        let message = format!("the MCP server has ended ({status}) before it answered");
        ToolError::new(ErrorKind::ConnectionFailed, message).with_model_message(text)
    }

    /// Ends a process that does not answer a `ping` either.
    pub(crate) fn check(&self, process: &Arc<Process>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.0.restarts || !process.begin_ping() {
            return;
        }
        let (id, process) = (self.new_id(), Arc::clone(process));
        let client = self.0.client.clone();
        runtime.spawn(async move {
            let ping = process.ask(id.clone(), message::request(&id, "ping"));
            let mut ping = pin!(ping);
            let mut seconds = 0;
            while timeout(Duration::from_secs(1), &mut ping).await.is_err() {
                // Nobody reads what the server says while the client does not read what it has said before.
                seconds = if client.has_any() { 0 } else { seconds + 1 };
                if seconds == PING {
                    warn!("the MCP server does not answer a ping within {PING} s: it is ended");
                    process.stop.cancel();
                    break;
                }
            }
            process.end_ping();
        });
    }
}

impl Starts {
    /// The first one is.
    pub(crate) fn new() -> Self {
        Self {
            in_vain: 0,
            last: Instant::now(),
        }
    }

    /// How long there is no other start.
    fn wait(&self) -> Option<Duration> {
        let backoff = Backoff::default().with_jitter(Jitter::None);
        let delay = (self.in_vain > 0).then(|| backoff.delay(self.in_vain, 0))?;
        let left = delay.checked_sub(self.last.elapsed())?;
        (!left.is_zero()).then_some(left)
    }
}

/// The error of a request that was not sent.
pub(super) fn unavailable(why: &str) -> ToolError {
    let message = format!("the MCP server is not there: {why}");
    ToolError::new(ErrorKind::ConnectionFailed, message).with_execution(Execution::NotStarted)
}
