//! One process of the server.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::OsString,
    io,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    process::{Child, Command},
    sync::mpsc::{Receiver, Sender, channel},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower_toolcall::{
    call::{Pause, Progress},
    error::Outage,
};

use super::{
    message::{self, Id, Line},
    queue::{self, Queue, queue},
};

/// How many requests may be open, in each direction.
pub(crate) const MAX_OPEN: usize = 10_000;

/// How many requests that were given up are known, so that no progress of theirs is passed on.
const MAX_GIVEN_UP: usize = 1000;

/// How long a process has to end by itself, and again to end when it is told to. Clients' SDKs give
/// a server 2 s for each.
pub(crate) const GRACE: Duration = Duration::from_millis(1500);

/// A process that runs, or has ended.
pub(crate) struct Process {
    /// Its stdin.
    pub(crate) to: Queue,
    /// The prefix of the ids of its questions at the client, which may still answer questions of an
    /// earlier process. The first process has none.
    pub(crate) prefix: Option<String>,
    open: Mutex<Open>,
    /// Tells it to end.
    pub(crate) stop: CancellationToken,
    /// That of the calls which end with it.
    pub(crate) outage: Outage,
    /// The process has ended.
    pub(crate) ended: CancellationToken,
    status: OnceLock<ExitStatus>,
}

/// The requests that are open.
#[derive(Default)]
struct Open {
    /// The server has to answer them.
    asked: HashMap<Id, Wait>,
    /// The client has to answer them. The ids are the server's own.
    asks: HashSet<Id>,
    /// The progress tokens of requests that were given up: their clients expect nothing more.
    given_up: VecDeque<Id>,
    /// The client's requests may be sent.
    is_ready: bool,
    /// Nothing is answered any more.
    is_over: bool,
}

/// Who waits for an answer of the server.
struct Wait {
    reply: Sender<Line>,
    /// Where it is of use that the server is at work.
    progress: Option<Progress>,
    /// By which it reports that.
    token: Option<Id>,
    /// While the client is asked, a person perhaps, the time is not the server's.
    pause: Option<Pause>,
}

impl Open {
    /// Stops the clocks of all calls while the client is asked something.
    fn pause(&mut self) {
        let is_asked = !self.asks.is_empty();
        for wait in self.asked.values_mut() {
            let progress = wait.progress.as_ref().filter(|_| is_asked);
            wait.pause = progress.map(Progress::pause);
        }
    }

    /// The client has answered, or is not asked any more.
    fn unask(&mut self, own: &Id) -> Option<Id> {
        let asked = self.asks.take(own);
        if self.asks.is_empty() {
            self.pause();
        }
        asked
    }
}

impl Process {
    pub(crate) fn spawn(
        command: &[OsString],
        prefix: Option<String>,
    ) -> io::Result<(Arc<Self>, Child)> {
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]);
        // stderr stays the server's own, unescaped: it has our rights anyway, and may have colours
        // for a terminal.
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        process.kill_on_drop(true);
        // What `npx` or `uv run` start, too, is to end.
        #[cfg(unix)]
        process.process_group(0);
        let mut child = process.spawn()?;
        let (to, waiting) = queue();
        let process = Arc::new(Self {
            to,
            prefix,
            open: Mutex::default(),
            stop: CancellationToken::new(),
            outage: Outage::new(),
            ended: CancellationToken::new(),
            status: OnceLock::new(),
        });
        if let Some(stdin) = child.stdin.take() {
            let stop = process.stop.clone();
            tokio::spawn(async move {
                // A process that reads no more is of no use; it may be about to end.
                if let Some(Err(_)) = stop.run_until_cancelled(queue::write(waiting, stdin)).await {
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

    /// Returns whether the process takes the client's requests.
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

    /// Notes that an answer is awaited. `None` if there will be none, as the process has ended, or
    /// if one is under this id.
    pub(crate) fn expect(
        &self,
        id: &Id,
        progress: Option<Progress>,
        token: Option<Id>,
    ) -> Option<Receiver<Line>> {
        let mut open = self.open();
        if open.is_over || open.asked.contains_key(id) {
            return None;
        }
        let (reply, answer) = channel(1);
        if let Some(token) = &token {
            open.given_up.retain(|known| !is_same(known, token));
        }
        let pause = progress.as_ref().filter(|_| !open.asks.is_empty());
        let wait = Wait {
            pause: pause.map(Progress::pause),
            reply,
            progress,
            token,
        };
        open.asked.insert(id.clone(), wait);
        Some(answer)
    }

    /// A request of this program's own. `None` if the process ends before it answers.
    pub(crate) async fn ask(&self, id: &Id, line: Line) -> Option<Line> {
        let mut answer = self.expect(id, None, None)?;
        self.to.send(line).await;
        answer.recv().await
    }

    /// Forgets a request. Returns whether its answer was still awaited.
    pub(crate) fn forget(&self, id: &Id) -> bool {
        let mut open = self.open();
        let Some(wait) = open.asked.remove(id) else {
            return false;
        };
        open.given_up.extend(wait.token);
        if open.given_up.len() > MAX_GIVEN_UP {
            open.given_up.pop_front();
        }
        true
    }

    /// Hands over an answer, and lets its receiver go first. An answer without a receiver is
    /// dropped: its client was told that there would be none, or has cancelled the request.
    pub(crate) async fn answer(&self, id: &Id, line: Line) {
        let wait = {
            let asked = &mut self.open().asked;
            let wait = asked.remove(id);
            wait.or_else(|| asked.remove(&message::other_form(id)))
        };
        if let Some(Wait { reply, .. }) = wait {
            let _ = reply.send(line).await;
            reply.closed().await;
        }
    }

    /// The server is at work on what has this token. Returns whether the client may still be told
    /// so.
    pub(crate) fn progress(&self, token: &Id) -> bool {
        let open = self.open();
        let is_it = |own: &Id| is_same(own, token);
        for wait in open.asked.values() {
            if let Some(progress) = &wait.progress
                && wait.token.as_ref().is_some_and(is_it)
            {
                progress.report();
            }
        }
        !open.given_up.iter().any(is_it)
    }

    /// Notes that the client has to answer. Returns the id under which it does.
    ///
    /// # Errors
    ///
    /// The reason why it will not.
    pub(crate) fn ask_client(&self, id: &Id) -> Result<Id, &'static str> {
        let mut open = self.open();
        if open.asks.len() >= MAX_OPEN {
            return Err("the client has too many requests to answer");
        }
        if !open.asks.insert(id.clone()) {
            return Err("the id is that of another request");
        }
        if open.asks.len() == 1 {
            open.pause();
        }
        Ok(self.at_client(id))
    }

    fn at_client(&self, own: &Id) -> Id {
        let renamed = |prefix| Value::from(format!("{prefix}{own}")).to_string();
        self.prefix.as_ref().map_or_else(|| own.clone(), renamed)
    }

    /// The server's own id of what the client answers; `None` if this process does not ask that.
    pub(crate) fn answered_by_client(&self, id: &Id) -> Option<Id> {
        let own = match &self.prefix {
            Some(prefix) => serde_json::from_str::<String>(id)
                .ok()?
                .strip_prefix(prefix)?
                .to_owned(),
            None => id.clone(),
        };
        self.open().unask(&own)
    }

    /// The id by which the client knows what this process does not ask any more.
    pub(crate) fn not_asked(&self, id: &Id) -> Option<Id> {
        let asked = self.open().unask(id);
        asked.map(|own| self.at_client(&own))
    }

    /// Waits for the end of a process that has closed its stdout, or is to be stopped. Returns what
    /// the client has to answer no more.
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
        open.asks.drain().map(|own| self.at_client(&own)).collect()
    }
}

/// Returns whether some peers treat two ids or tokens as equal.
fn is_same(a: &Id, b: &Id) -> bool {
    a == b || *a == message::other_form(b)
}

async fn end(mut child: Child, stop: &CancellationToken) -> io::Result<ExitStatus> {
    let group = child.id();
    tokio::select! {
        status = child.wait(), if !stop.is_cancelled() => return status,
        () = sleep(GRACE) => {}
        () = stop.cancelled() => {}
    }
    signal(group, TERMINATE);
    let ends = async {
        let status = child.wait().await;
        while signal(group, 0) {
            sleep(Duration::from_millis(20)).await;
        }
        status
    };
    let ended = timeout(GRACE, ends).await;
    signal(group, KILL);
    if let Ok(status) = ended {
        return status;
    }
    let _ = child.start_kill();
    child.wait().await
}

const TERMINATE: i32 = 15;
const KILL: i32 = 9;

/// Sends a signal to the process and to those that it has started; 0 is none. Returns whether there
/// are any.
#[cfg(unix)]
fn signal(group: Option<u32>, signal: i32) -> bool {
    use nix::{
        sys::signal::{Signal, killpg},
        unistd::Pid,
    };
    let group = group.and_then(|id| i32::try_from(id).ok());
    let signal = Signal::try_from(signal).ok();
    group.is_some_and(|group| killpg(Pid::from_raw(group), signal).is_ok())
}

#[cfg(not(unix))]
fn signal(_: Option<u32>, _: i32) -> bool {
    false
}
