use std::{
    future::Future,
    io,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

#[cfg(unix)]
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use rmcp::{
    RoleClient,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use tokio::{
    process::{self, ChildStdin, ChildStdout, Command},
    runtime::Handle,
    time::timeout,
};

use super::McpLines;

/// How long a process has to end by itself, and again when it was told to.
const GRACE: Duration = Duration::from_secs(3);

/// How long a process that has closed its stdout has to end, so that its status is known.
const ENDING: Duration = Duration::from_millis(500);

/// How the process of a server has ended, for the error of an attempt to connect.
#[derive(Clone, Debug, Default)]
pub(super) struct Ended(Arc<Mutex<Option<String>>>);

impl Ended {
    fn set(&self, how: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = how;
    }

    /// Returns the cause of an error, if that is the end of the process.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A server's process, and those that it has started itself: often the program only runs the
/// server.
pub(super) struct Child {
    /// `None` once it has ended.
    process: Option<process::Child>,
    pipes: AsyncRwTransport<RoleClient, McpLines<ChildStdout>, ChildStdin>,
    /// `None` once it was told to end.
    #[cfg(unix)]
    group: Option<Pid>,
    program: String,
    ended: Ended,
}

impl Child {
    pub(super) fn start(mut command: Command, ended: Ended) -> io::Result<Self> {
        let program = command.as_std().get_program().to_string_lossy();
        let program = program.into_owned();
        ended.set(None);
        #[cfg(unix)]
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = command.stderr(Stdio::inherit()).spawn();
        let mut process = process
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start `{program}`: {e}")))?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        Ok(Self {
            #[cfg(unix)]
            group: process
                .id()
                .and_then(|id| Some(Pid::from_raw(id.try_into().ok()?))),
            process: Some(process),
            pipes: AsyncRwTransport::new(McpLines::new(stdout), stdin),
            program,
            ended,
        })
    }

    /// Tells what is left of the group to end. While it does, its pipes have to be open: Node.js
    /// prints a stack when it writes to a closed one.
    fn terminate(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.group.take() {
            // It fails if there is no process left.
            let _ = killpg(group, Signal::SIGTERM);
        }
    }
}

impl Transport<RoleClient> for Child {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.pipes.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.pipes.receive().await;
        if let (None, Some(process)) = (&message, &mut self.process)
            && let Ok(Ok(status)) = timeout(ENDING, process.wait()).await
        {
            let how = format!("`{}` has ended with {status}", self.program);
            self.ended.set(Some(how));
        }
        message
    }

    async fn close(&mut self) -> io::Result<()> {
        self.pipes.close().await?;
        if let Some(process) = &mut self.process
            && timeout(GRACE, process.wait()).await.is_ok()
        {
            self.process = None;
        }
        self.terminate();
        if let Some(process) = &mut self.process
            && timeout(GRACE, process.wait()).await.is_err()
        {
            process.kill().await?;
        }
        self.process = None;
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.terminate();
        // A runtime that is shutting down leaves it at that.
        if let (Some(mut process), Ok(runtime)) = (self.process.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if timeout(GRACE, process.wait()).await.is_err() {
                    let _ = process.kill().await;
                }
            });
        }
    }
}
