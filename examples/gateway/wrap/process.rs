//! One process of the server.

use std::{
    collections::HashMap,
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
    process::{Child, Command},
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower_toolcall::call::Progress;

use super::{
    message::{self, Id, Line},
    queue::{Queue, queue},
};

/// How many requests may be open, in each direction.
pub(crate) const MAX_OPEN: usize = 10_000;

/// How long a process has to end by itself, and again to end when it is told to. Clients' SDKs give a server 2 s for each.
pub(crate) const GRACE: Duration = Duration::from_millis(1500);

/// A process that runs, or has ended.
pub(crate) struct Process {
    /// Its stdin.
    pub(crate) to: Queue,
    /// Whether the client gets its questions under ids of ours: it may still answer those of another process.
    renames: bool,
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
    /// The client has to answer them: the ids that it knows, and the server's own.
    asks: HashMap<Id, Id>,
    /// The client's requests may be sent.
    is_ready: bool,
    /// Nothing is answered any more.
    is_over: bool,
}

/// Who waits for an answer of the server.
struct Wait {
    reply: oneshot::Sender<Line>,
    reports: Option<Reports>,
}

/// Where it is of use that the server is at work.
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) to: Progress,
    /// The token by which the server reports progress of this request.
    pub(crate) token: Option<Id>,
}

/// An answer that will come, unless the process ends before.
pub(crate) struct Answer {
    line: oneshot::Receiver<Line>,
    reports: Option<Reports>,
}

/// The process has ended before it answered.
pub(crate) struct Lost;

impl Process {
    pub(crate) fn spawn(command: &[OsString], is_first: bool) -> io::Result<(Arc<Self>, Child)> {
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]);
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        process.kill_on_drop(true);
        // What `npx` or `uv run` start, too, is to end.
        #[cfg(unix)]
        process.process_group(0);
        let mut child = process.spawn()?;
        let (to, waiting) = queue();
        let process = Arc::new(Self {
            to,
            renames: !is_first,
            open: Mutex::default(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            status: OnceLock::new(),
            pinged: AtomicBool::new(false),
        });
        if let Some(stdin) = child.stdin.take() {
            let stop = process.stop.clone();
            tokio::spawn(async move {
                // A process that reads no more is of no use; it may be about to end.
                if let Some(Err(_)) = stop.run_until_cancelled(waiting.write(stdin)).await {
                    sleep(GRACE).await;
                    stop.cancel();
                }
            });
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

    /// Notes that an answer is awaited. `None` if there will be none, as the process has ended.
    pub(crate) fn expect(&self, id: Id, reports: Option<Reports>) -> Option<Answer> {
        let (reply, line) = oneshot::channel();
        let wait = Wait {
            reply,
            reports: reports.clone(),
        };
        let mut open = self.open();
        if open.is_over {
            return None;
        }
        open.asked.insert(id, wait);
        Some(Answer { line, reports })
    }

    /// Whether an answer was still awaited.
    pub(crate) fn forget(&self, id: &Id) -> bool {
        self.open().asked.remove(id).is_some()
    }

    /// Hands over an answer. One that nobody waits for is lost: its client was told that there would be none, or does not want it.
    pub(crate) fn answer(&self, id: &Id, line: Line) {
        let mut open = self.open();
        let wait = open.asked.remove(id);
        let wait = wait.or_else(|| open.asked.remove(&message::other_form(id)));
        drop(open);
        if let Some(wait) = wait {
            let _ = wait.reply.send(line);
        }
    }

    /// Notes that the client has to answer. Returns the id under which it does.
    ///
    /// # Errors
    ///
    /// The reason why it will not.
    pub(crate) fn ask_client(
        &self,
        id: Id,
        new_id: impl FnOnce() -> Id,
    ) -> Result<Id, &'static str> {
        let mut open = self.open();
        if open.asks.len() >= MAX_OPEN {
            return Err("the client has too many requests to answer");
        }
        if open.asks.values().any(|open| *open == id) {
            return Err("the id is that of another request");
        }
        let asked = if self.renames { new_id() } else { id.clone() };
        open.asks.insert(asked.clone(), id);
        Ok(asked)
    }

    /// The server's own id of what the client answers; `None` if this process has not asked that.
    pub(crate) fn answered_by_client(&self, id: &Id) -> Option<Id> {
        self.open().asks.remove(id)
    }

    /// The id by which the client knows what this process does not ask any more.
    pub(crate) fn not_asked(&self, id: &Id) -> Option<Id> {
        let mut open = self.open();
        let (asked, _) = open.asks.iter().find(|(_, own)| *own == id)?;
        let asked = asked.clone();
        open.asks.remove(&asked);
        Some(asked)
    }

    pub(crate) fn progress(&self, token: &Id) {
        for wait in self.open().asked.values() {
            if let Some(reports) = &wait.reports
                && reports.token.as_ref() == Some(token)
            {
                reports.to.report();
            }
        }
    }

    fn asks(&self) -> bool {
        !self.open().asks.is_empty()
    }

    /// Waits for an answer. While the server waits for the client, for a person perhaps, it is at work.
    pub(crate) async fn wait(&self, mut answer: Answer) -> Result<Line, Lost> {
        loop {
            match timeout(Duration::from_secs(1), &mut answer.line).await {
                Ok(line) => return line.map_err(|_| Lost),
                Err(_) => {
                    if let Some(reports) = answer.reports.as_ref().filter(|_| self.asks()) {
                        reports.to.report();
                    }
                }
            }
        }
    }

    /// A request of this program's own.
    pub(crate) async fn ask(&self, id: Id, line: Line) -> Result<Line, Lost> {
        let answer = self.expect(id, None).ok_or(Lost)?;
        self.to.send(line).await;
        self.wait(answer).await
    }

    /// Waits for the end of a process that has closed its stdout, or is to be stopped. Returns what the client has to answer no more.
    pub(crate) async fn end(&self, child: Child) -> Vec<Id> {
        self.open().is_over = true;
        let ends = async {
            if let Ok(status) = end(child, &self.stop).await {
                let _ = self.status.set(status);
            }
            // Nothing more is written, even if a child of its own keeps its stdin open.
            self.stop.cancel();
        };
        tokio::join!(ends, self.to.close());
        let mut open = self.open();
        open.asked.clear();
        open.asks.drain().map(|(asked, _)| asked).collect()
    }

    /// Whether it is not being asked for a sign of life already.
    pub(crate) fn begin_ping(&self) -> bool {
        !self.pinged.swap(true, Relaxed)
    }

    pub(crate) fn end_ping(&self) {
        self.pinged.store(false, Relaxed);
    }
}

async fn end(mut child: Child, stop: &CancellationToken) -> io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = sleep(GRACE) => {}
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
