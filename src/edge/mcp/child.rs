use std::{future::Future, io};

#[cfg(unix)]
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use rmcp::{
    RoleClient,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{TokioChildProcess, Transport},
};
use tokio::process::Command;

/// A server's process, and those that it has started itself: often the program only runs the server.
pub(super) struct Child {
    process: TokioChildProcess,
    /// `None` once it was told to end.
    #[cfg(unix)]
    group: Option<Pid>,
}

impl Child {
    pub(super) fn start(command: Command) -> io::Result<Self> {
        #[cfg(unix)]
        let command = {
            let mut command = command;
            command.process_group(0);
            command
        };
        let process = TokioChildProcess::new(command)?;
        Ok(Self {
            #[cfg(unix)]
            group: process
                .id()
                .and_then(|id| i32::try_from(id).ok())
                .map(Pid::from_raw),
            process,
        })
    }

    /// Tells what is left of the group to end. While it does, its pipes have to be open: Node.js prints a stack when it
    /// writes to a closed one.
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
        self.process.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.process.receive()
    }

    async fn close(&mut self) -> io::Result<()> {
        let closed = self.process.graceful_shutdown().await;
        self.terminate();
        closed
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.terminate();
    }
}
