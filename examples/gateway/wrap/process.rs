//! One process of the server.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    io,
    process::{ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin, Command},
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower_toolcall::call::Progress;

use super::message::{Id, Line};

/// How many messages wait for a server that reads slowly; then its client waits.
const QUEUE: usize = 1000;

/// How many requests may be open, in each direction.
pub(crate) const MAX_OPEN: usize = 10_000;

/// How long a process has to end by itself, and again to end when it is told to. Clients' SDKs give a server 2 s for each.
pub(crate) const GRACE: Duration = Duration::from_millis(1500);

/// A process that runs, or has ended.
pub(crate) struct Process {
    /// `None` closes its stdin.
    to: mpsc::Sender<Option<Line>>,
    open: Mutex<Open>,
    /// Tells it to end.
    pub(crate) stop: CancellationToken,
    /// It has ended.
    pub(crate) ended: CancellationToken,
    status: OnceLock<ExitStatus>,
    /// Whether it is asked for a sign of life.
    pinged: AtomicBool,
}

/// The requests that are open.
#[derive(Default)]
struct Open {
    /// The server has to answer them.
    asked: HashMap<Id, Wait>,
    /// The client has to answer them.
    asks: HashSet<Id>,
    /// The client's requests may be sent.
    is_ready: bool,
    /// Nothing is answered any more.
    is_over: bool,
}

/// Who waits for an answer of the server.
pub(crate) enum Wait {
    /// The client, for a request that was passed on; whether it was one for the list of tools.
    Client { list: bool },
    /// This program.
    Us {
        reply: oneshot::Sender<Line>,
        progress: Option<Reports>,
    },
}

/// Where it is of use that the server is at work.
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) to: Progress,
    /// The token by which the server reports progress of this request.
    pub(crate) token: Option<Id>,
}

/// What is open in a process that has ended.
pub(crate) struct Left {
    /// The client's requests.
    pub(crate) asked: Vec<Id>,
    /// The server's.
    pub(crate) asks: Vec<Id>,
}

/// Why a request has no answer.
pub(crate) enum Unanswered {
    /// The process had ended before.
    NotSent,
    Lost,
}

impl Process {
    pub(crate) fn spawn(command: &[OsString]) -> io::Result<(Arc<Self>, Child)> {
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]);
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        process.kill_on_drop(true);
        // What `npx` or `uv run` start, too, is to end.
        #[cfg(unix)]
        process.process_group(0);
        let mut child = process.spawn()?;
        let (to, lines) = mpsc::channel(QUEUE);
        let process = Arc::new(Self {
            to,
            open: Mutex::default(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            status: OnceLock::new(),
            pinged: AtomicBool::new(false),
        });
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(write(stdin, lines, process.stop.clone()));
        }
        Ok((process, child))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it takes the client's requests.
    pub(crate) fn is_ready(&self) -> bool {
        let open = self.open();
        open.is_ready && !open.is_over
    }

    pub(crate) fn set_ready(&self) {
        self.open().is_ready = true;
    }

    /// Whether any request is open.
    pub(crate) fn is_asked(&self) -> bool {
        !self.open().asked.is_empty()
    }

    /// As people read it.
    pub(crate) fn status(&self) -> String {
        match self.status.get() {
            Some(status) => status.to_string(),
            None => "it does not answer".to_owned(),
        }
    }

    /// As a shell has it.
    pub(crate) fn exit_code(&self) -> i32 {
        let status = self.status.get();
        #[cfg(unix)]
        let signal = status.and_then(std::os::unix::process::ExitStatusExt::signal);
        #[cfg(not(unix))]
        let signal: Option<i32> = None;
        let code = status.and_then(|status| status.code());
        code.or(signal.map(|signal| 128 + signal)).unwrap_or(1)
    }

    /// Waits while the process does not read.
    pub(crate) async fn send(&self, line: Line) {
        let _ = self.to.send(Some(line)).await;
    }

    /// Does not wait: if there is no room, the message is lost.
    pub(crate) fn try_send(&self, line: Line) {
        let _ = self.to.try_send(Some(line));
    }

    /// What was sent before is still written.
    pub(crate) async fn close_stdin(&self) {
        let _ = self.to.send(None).await;
    }

    /// Notes that an answer is awaited. Returns false if there will be none.
    pub(crate) fn expect(&self, id: Id, wait: Wait) -> bool {
        let mut open = self.open();
        let is_full = open.asked.len() >= MAX_OPEN;
        if open.is_over || is_full || open.asked.contains_key(&id) {
            return false;
        }
        open.asked.insert(id, wait);
        true
    }

    /// Who waits for this answer, or did until now.
    pub(crate) fn forget(&self, id: &Id) -> Option<Wait> {
        self.open().asked.remove(id)
    }

    /// Notes that the client has to answer. Returns false if it has to answer too much already.
    pub(crate) fn expect_of_client(&self, id: Id) -> bool {
        let mut open = self.open();
        open.asks.len() < MAX_OPEN && open.asks.insert(id)
    }

    /// Whether this process has asked the client that.
    pub(crate) fn forget_of_client(&self, id: &Id) -> bool {
        self.open().asks.remove(id)
    }

    pub(crate) fn progress(&self, token: &Id) {
        for wait in self.open().asked.values() {
            if let Wait::Us {
                progress: Some(reports),
                ..
            } = wait
                && reports.token.as_ref() == Some(token)
            {
                reports.to.report();
            }
        }
    }

    fn asks_client(&self) -> bool {
        !self.open().asks.is_empty()
    }

    /// Sends a request, and waits for its answer. While the server waits for the client, for a person perhaps, it is at work.
    pub(crate) async fn ask(
        &self,
        id: Id,
        line: Line,
        progress: Option<Reports>,
    ) -> Result<Line, Unanswered> {
        let (reply, mut answer) = oneshot::channel();
        let wait = Wait::Us {
            reply,
            progress: progress.clone(),
        };
        if !self.expect(id, wait) {
            return Err(Unanswered::NotSent);
        }
        self.send(line).await;
        loop {
            match timeout(Duration::from_secs(1), &mut answer).await {
                Ok(answer) => return answer.map_err(|_| Unanswered::Lost),
                Err(_) => {
                    if let Some(reports) = progress.as_ref().filter(|_| self.asks_client()) {
                        reports.to.report();
                    }
                }
            }
        }
    }

    /// Waits for the end of a process that has closed its stdout, or is to be stopped. Returns what it leaves open.
    pub(crate) async fn end(&self, child: Child) -> Left {
        self.open().is_over = true;
        let _ = self.to.try_send(None);
        if let Ok(status) = end(child, &self.stop).await {
            let _ = self.status.set(status);
        }
        let mut open = self.open();
        let asked = open.asked.drain();
        let asked = asked.filter(|(_, wait)| matches!(wait, Wait::Client { .. }));
        Left {
            asked: asked.map(|(id, _)| id).collect(),
            asks: open.asks.drain().collect(),
        }
    }

    /// Whether it is not being asked for a sign of life already.
    pub(crate) fn begin_ping(&self) -> bool {
        !self.pinged.swap(true, Relaxed)
    }

    pub(crate) fn end_ping(&self) {
        self.pinged.store(false, Relaxed);
    }
}

async fn write(
    mut stdin: ChildStdin,
    mut lines: mpsc::Receiver<Option<Line>>,
    stop: CancellationToken,
) {
    let write = async {
        while let Some(Some(mut line)) = lines.recv().await {
            line.push(b'\n');
            stdin.write_all(&line).await?;
        }
        io::Result::Ok(())
    };
    // A process that reads no more is of no use.
    if let Some(Err(_)) = stop.run_until_cancelled(write).await {
        stop.cancel();
    }
}

async fn end(mut child: Child, stop: &CancellationToken) -> io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = tokio::time::sleep(GRACE) => {}
        () = stop.cancelled() => {}
    }
    let group = child.id();
    signal(group, false);
    let ended = timeout(GRACE, child.wait()).await;
    // Also what is left of its group.
    signal(group, true);
    match ended {
        Ok(status) => status,
        Err(_) => {
            child.start_kill()?;
            child.wait().await
        }
    }
}

/// Sends SIGTERM or SIGKILL to the process and to those that it has started.
#[cfg(unix)]
fn signal(group: Option<u32>, kills: bool) {
    use nix::{
        sys::signal::{Signal, killpg},
        unistd::Pid,
    };
    let signal = if kills {
        Signal::SIGKILL
    } else {
        Signal::SIGTERM
    };
    if let Some(group) = group.and_then(|id| i32::try_from(id).ok()) {
        let _ = killpg(Pid::from_raw(group), signal);
    }
}

#[cfg(not(unix))]
fn signal(_: Option<u32>, _: bool) {}
