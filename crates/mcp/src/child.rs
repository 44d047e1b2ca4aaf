use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, Weak},
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
use crate::future::lock;

/// How long a process has to end by itself, and again when it was told to.
const GRACE: Duration = Duration::from_secs(3);

/// How long a process that has closed a pipe has to end, so that its status is known.
const ENDING: Duration = Duration::from_millis(500);

/// The process that was started last for a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Started(Arc<Mutex<Last>>);

#[derive(Debug, Default)]
struct Last {
    child: Weak<Mutex<process::Child>>,
    ended: Option<String>,
}

impl Started {
    /// Returns the id of the process, unless it is known to have ended.
    pub(super) fn id(&self) -> Option<u32> {
        let child = lock(&self.0).child.upgrade()?;
        lock(&child).id()
    }

    /// Takes the cause of an error, if that is the end of the process.
    pub(super) fn take_end(&self) -> Option<String> {
        lock(&self.0).ended.take()
    }
}

/// A process that is waited for in more than one place.
#[derive(Clone)]
struct Process {
    child: Arc<Mutex<process::Child>>,
    program: Arc<str>,
    started: Started,
}

impl Process {
    async fn end(&self, within: Duration) -> Option<ExitStatus> {
        let end = poll_fn(|cx| pin!(lock(&self.child).wait()).poll(cx));
        timeout(within, end).await.ok()?.ok()
    }

    /// Notes how the process ends, if it does after it has closed a pipe.
    async fn note_end(&self) {
        if let Some(status) = self.end(ENDING).await {
            let how = format!("`{}` has ended with {status}", self.program);
            // A later process may have been started meanwhile.
            let mut last = lock(&self.started.0);
            if last.child.as_ptr() == Arc::as_ptr(&self.child) {
                last.ended = Some(how);
            }
        }
    }
}

/// A server's process, and those that it has started itself: often the program only runs the
/// server.
pub(super) struct Child {
    process: Process,
    pipes: AsyncRwTransport<RoleClient, McpLines<ChildStdout>, ChildStdin>,
    /// `None` once it was told to end.
    #[cfg(unix)]
    group: Option<Pid>,
}

impl Child {
    pub(super) fn start(
        mut command: Command,
        started: Started,
        max_values: usize,
    ) -> io::Result<Self> {
        let program = Arc::from(command.as_std().get_program().to_string_lossy());
        *lock(&started.0) = Last::default();
        #[cfg(unix)]
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start `{program}`: {e}")))?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        #[cfg(unix)]
        let group = process.id().and_then(|id| id.try_into().ok());
        let child = Arc::new(Mutex::new(process));
        lock(&started.0).child = Arc::downgrade(&child);
        Ok(Self {
            #[cfg(unix)]
            group: group.map(Pid::from_raw),
            process: Process {
                child,
                program,
                started,
            },
            pipes: AsyncRwTransport::new(McpLines::new(stdout).with_max_values(max_values), stdin),
        })
    }

    /// Signals the rest of the process group to end. Its pipes must stay open until then, because
    /// Node.js prints a stack when it writes to a closed pipe.
    fn terminate(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.group.take() {
            // It fails if no process is left.
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
        let (sent, process) = (self.pipes.send(message), self.process.clone());
        async move {
            let sent = sent.await;
            if sent.is_err() {
                process.note_end().await;
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.pipes.receive().await;
        if message.is_none() {
            self.process.note_end().await;
        }
        message
    }

    async fn close(&mut self) -> io::Result<()> {
        // A process that reads nothing keeps a message from being written.
        if let Ok(closed) = timeout(GRACE, self.pipes.close()).await {
            closed?;
        }
        let has_ended = self.process.end(GRACE).await.is_some();
        self.terminate();
        if !has_ended && self.process.end(GRACE).await.is_none() {
            lock(&self.process.child).start_kill()?;
            self.process.end(GRACE).await;
        }
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.terminate();
        // A runtime that is shutting down leaves it at that.
        if let Ok(runtime) = Handle::try_current() {
            let process = self.process.clone();
            runtime.spawn(async move {
                if process.end(GRACE).await.is_none() {
                    let _ = lock(&process.child).start_kill();
                }
            });
        }
    }
}
