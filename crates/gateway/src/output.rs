//! A log on stdout or stderr that costs its lines, never the program, when its reader is slow,
//! stuck or gone.

use std::{
    collections::VecDeque,
    fmt::Display,
    io::{self, ErrorKind, Write},
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use serde_json::json;

/// How many texts wait to be written. Later ones are lost.
const MAX_TEXTS: usize = 1000;

/// How many bytes the waiting texts have together.
const MAX_BYTES: usize = 1 << 20;

/// How long the thread waits when a non-blocking descriptor takes nothing.
const PAUSE: Duration = Duration::from_millis(10);

/// A bounded queue of lines, and a thread that writes them. Clones share both.
///
/// Each write is one text of whole lines. A text that finds no room, or that cannot be written, is
/// lost; where it would be, the output has a line with the number of lost lines.
#[derive(Clone)]
pub(crate) struct Output(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_json: AtomicBool,
    state: Mutex<State>,
    /// A text was queued.
    queued: Condvar,
    /// All texts are written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    texts: VecDeque<Text>,
    bytes: usize,
    is_writing: bool,
    /// How many lines were lost since the last text that was queued.
    lost: usize,
}

#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// How many lines were lost before it.
    lost: usize,
}

impl Output {
    pub(crate) fn new(mut to: impl Write + Send + 'static) -> Self {
        let output = Self(Arc::default());
        let shared = Arc::clone(&output.0);
        thread::spawn(move || {
            let mut is_cut = false;
            loop {
                let text = shared.next();
                let lost = format!("{} lines of this log are lost", text.lost);
                let lost = (text.lost > 0).then(|| shared.line(lost));
                let whole = text.whole(is_cut, lost);
                let (taken, result) = write(&mut to, &whole);
                if result.is_err() {
                    shared.state().lost += text.lost + lines(&text.bytes);
                }
                if taken > 0 {
                    is_cut = taken < whole.len();
                }
            }
        });
        output
    }

    /// Makes each line that this program says a JSON object.
    pub(crate) fn with_json(self) -> Self {
        self.0.is_json.store(true, Relaxed);
        self
    }

    pub(crate) fn is_json(&self) -> bool {
        self.0.is_json.load(Relaxed)
    }

    /// Queues a line.
    pub(crate) fn say(&self, line: impl Display) {
        self.0.queue(self.0.line(line));
    }

    /// Waits until all lines are written, at most this long.
    pub(crate) fn finish(&self, limit: Duration) {
        let mut state = self.0.state();
        if state.lost > 0 {
            state.push(Vec::new());
            self.0.queued.notify_one();
        }
        let is_busy = |state: &mut State| state.is_writing || !state.texts.is_empty();
        let _ = self.0.written.wait_timeout_while(state, limit, is_busy);
    }
}

impl Write for Output {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.queue(text.to_vec());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn line(&self, text: impl Display) -> Vec<u8> {
        let line = match self.is_json.load(Relaxed) {
            true => json!({ "level": "INFO", "message": text.to_string() }).to_string(),
            false => text.to_string(),
        };
        (line + "\n").into_bytes()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, text: Vec<u8>) {
        let mut state = self.state();
        if state.texts.len() >= MAX_TEXTS || state.bytes + text.len() > MAX_BYTES {
            state.lost += lines(&text);
            return;
        }
        state.push(text);
        self.queued.notify_one();
    }

    /// Waits for the next text.
    fn next(&self) -> Text {
        let mut state = self.state();
        state.is_writing = false;
        if state.texts.is_empty() {
            self.written.notify_all();
        }
        let is_idle = |state: &mut State| state.texts.is_empty();
        let state = self.queued.wait_while(state, is_idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let text = state.texts.pop_front().unwrap_or_default();
        state.bytes -= text.bytes.len();
        state.is_writing = true;
        text
    }
}

impl State {
    fn push(&mut self, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        let lost = mem::take(&mut self.lost);
        self.texts.push_back(Text { bytes, lost });
    }
}

impl Text {
    /// The bytes that are written for it. `is_cut`: the output ends in the middle of a line.
    fn whole(&self, is_cut: bool, lost: Option<Vec<u8>>) -> Vec<u8> {
        let mut whole = Vec::new();
        if is_cut {
            whole.push(b'\n');
        }
        whole.extend(lost.unwrap_or_default());
        whole.extend(&self.bytes);
        whole
    }
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'\n').count()
}

/// Writes a text. Returns how many of its bytes were taken.
///
/// Unlike `write_all` it goes on when the descriptor is non-blocking: any program that shares it
/// can set that.
#[expect(clippy::disallowed_methods, reason = "it blocks its own thread")]
fn write(to: &mut impl Write, text: &[u8]) -> (usize, io::Result<()>) {
    let mut taken = 0;
    loop {
        let step = match &text[taken..] {
            [] => to.flush().map(|()| 0),
            rest => to.write(rest),
        };
        match step {
            Ok(0) if taken == text.len() => return (taken, Ok(())),
            Ok(0) => return (taken, Err(ErrorKind::WriteZero.into())),
            Ok(bytes) => taken += bytes,
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock => thread::sleep(PAUSE),
                _ => return (taken, Err(error)),
            },
        }
    }
}
