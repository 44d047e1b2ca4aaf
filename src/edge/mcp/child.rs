use std::{future::Future, io, process::Stdio, time::Duration};

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

/// A server's process, and those that it has started itself: often the program only runs the
/// server.
pub(super) struct Child {
    /// `None` once it has ended.
    process: Option<process::Child>,
    pipes: AsyncRwTransport<RoleClient, McpLines<ChildStdout>, ChildStdin>,
    /// `None` once it was told to end.
    #[cfg(unix)]
    group: Option<Pid>,
}

impl Child {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        #[cfg(unix)]
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.stderr(Stdio::inherit()).spawn()?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        Ok(Self {
            #[cfg(unix)]
            group: process
                .id()
                .and_then(|id| i32::try_from(id).ok())
                .map(Pid::from_raw),
            process: Some(process),
            pipes: AsyncRwTransport::new(McpLines::new(stdout), stdin),
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

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.pipes.receive()
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
