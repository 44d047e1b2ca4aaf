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

use super::{message, process::Process, server::Server};

/// How long a new process has to answer `initialize`. Some are fetched from a registry first.
const START: Duration = Duration::from_secs(60);

/// How many seconds a process that let a call run out of time has to answer a `ping`. One that does
/// not is ended.
const PING: u32 = 10;

/// The processes that were started in a row and have answered nothing.
#[derive(Default)]
pub(crate) struct Starts {
    in_vain: u32,
    /// When there may be another one.
    next: Option<Instant>,
}

impl Server {
    /// The process; a new one if it has ended.
    ///
    /// # Errors
    ///
    /// If none can be started, or none may be yet.
    pub(crate) async fn live(self: &Arc<Self>) -> Result<Arc<Process>, ToolError> {
        if let Some(process) = self.current() {
            return Ok(process);
        }
        let starts = Arc::clone(&self.starts).lock_owned().await;
        if let Some(process) = self.current() {
            return Ok(process);
        }
        // In a task of its own: a request that is given up meanwhile stops no other's.
        let server = Arc::clone(self);
        let started = tokio::spawn(async move { server.restart(starts).await }).await;
        let started = started.unwrap_or_else(|_| Err(unavailable("it is not started any more")));
        // Until there is another process, a breaker counts one failure.
        started.map_err(|error| match self.restarts {
            true => error.with_outage(&self.state().outage),
            false => error,
        })
    }

    async fn restart(
        self: &Arc<Self>,
        mut starts: OwnedMutexGuard<Starts>,
    ) -> Result<Arc<Process>, ToolError> {
        // Two would be in each other's way.
        self.last().ended.cancelled().await;
        if !self.restarts || self.closing.is_cancelled() || self.over.is_cancelled() {
            return Err(unavailable("it has ended"));
        }
        if self.has_answered.swap(false, Relaxed) {
            *starts = Starts::default();
        }
        let now = Instant::now();
        let wait = starts.next.map(|next| next.saturating_duration_since(now));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            self.state().outage.retry_after(wait);
            let error = unavailable("it has ended, and is not started again yet");
            return Err(error.with_retry_after(wait));
        }
        starts.in_vain += 1;
        let backoff = Backoff::default().with_jitter(Jitter::None);
        let delay = backoff.delay(starts.in_vain, 0);
        starts.next = Some(now + delay);
        self.state().outage.retry_after(delay);

        let spawned = Process::spawn(&self.command, Some(message::new_name() + ":"));
        let (process, child) = spawned.map_err(|error| unavailable(&error.to_string()))?;
        self.state().process = Arc::clone(&process);
        self.run(Arc::clone(&process), child);
        let greets = timeout(START, self.greet(&process));
        let greeted = match self.closing.run_until_cancelled(greets).await {
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
        std::mem::replace(&mut self.state().outage, process.outage.clone()).end();
        info!("the MCP server is started again");
        // Its tools may be others.
        if self.state().session.initialize.is_some() {
            let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
            self.client.send(changed.to_owned()).await;
        }
        Ok(process)
    }

    /// Begins the session anew, as the client did. One of the revision 2026-07-28 has none.
    async fn greet(&self, process: &Process) -> Result<(), ToolError> {
        let Some((id, initialize)) = self.state().session.initialize.clone() else {
            return Ok(());
        };
        let answer = process.ask(&id, initialize).await;
        let answer =
            answer.ok_or_else(|| unavailable("it has ended before it answered `initialize`"))?;
        if !message::is_result(&answer) {
            return Err(unavailable("it refuses to `initialize` again"));
        }
        let session = self.state().session.clone();
        if let Some(initialized) = &session.initialized {
            process.to.send(initialized.clone()).await;
        }
        // Nobody waits for the answers.
        for line in session.lasting() {
            let line = message::under_id(line, &message::new_id());
            process.to.send(line).await;
        }
        Ok(())
    }

    /// The error of a request without an answer.
    pub(crate) fn lost(&self, process: &Process) -> ToolError {
        let status = process.status();
        let mut text = format!(
            "The MCP server has ended ({status}) before the tool answered; it may have run all the same. Do not repeat the same call."
        );
        if self.restarts {
            text += " The next call starts the server again.";
        }
        let message = format!("the MCP server has ended ({status}) before it answered");
        let error = ToolError::new(ErrorKind::ConnectionFailed, message).with_model_message(text);
        error.with_outage(&process.outage)
    }

    /// Ends a process that does not answer a `ping` either.
    pub(crate) fn check(self: &Arc<Self>, process: &Arc<Process>) {
        let runtime = Handle::try_current().ok().filter(|_| self.restarts);
        let Some(runtime) = runtime else { return };
        let (server, process) = (Arc::clone(self), Arc::clone(process));
        runtime.spawn(async move {
            // One at a time.
            let id = format!(r#""wrap-{}-ping""#, std::process::id());
            let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let mut ping = pin!(process.ask(&id, ping));
            for _ in 0..PING {
                if timeout(Duration::from_secs(1), &mut ping).await.is_ok() {
                    return;
                }
                // While the client does not read earlier messages, the server's are not read
                // either.
                server.client.room().await;
            }
            warn!("the MCP server does not answer a ping within {PING} s: it is ended");
            process.stop.cancel();
        });
    }
}

/// The error of a request that was not sent.
pub(super) fn unavailable(why: &str) -> ToolError {
    let message = format!("the MCP server is not there: {why}");
    ToolError::new(ErrorKind::ConnectionFailed, message).with_execution(Execution::NotStarted)
}
