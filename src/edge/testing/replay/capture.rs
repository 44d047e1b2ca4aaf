use std::sync::{Arc, Mutex};

use super::{
    CaptureLayer,
    line::{Asked, End, Line},
};
use crate::edge::testing::tally::lock;

/// The calls that pass a [layer](Self::layer) and how they end, as JSON lines for a
/// [`Replay`](super::Replay).
///
/// See the [module docs](crate::testing#capture-and-replay) for an example. A line has the names of
/// the call, its arguments, and its answer or error, redacted by the call's
/// [rules](crate::ToolCall::with_rules): strings up to 65,536 characters, 64 levels, 100,000 values
/// and 1 MiB each. Longer arguments are cut; of a longer answer, or one that is no JSON, the line
/// says only that it is lost, and so does the replay. Lines come in the order in which the calls
/// end. A call that is dropped before it has an answer has a line too, and so has one that panics.
///
/// # Limits
///
/// 10,000 lines and 16 MiB, which are [settings](Self::with_max_lines). The first line without room
/// and all later ones are [counted](Self::dropped) only. A setting holds for the
/// [layers](Self::layer) that are made after it.
///
/// # Clone
///
/// Clones, and the layers and services made from them, write to one list.
#[derive(Clone)]
#[must_use]
pub struct Capture {
    max_lines: usize,
    max_bytes: usize,
    written: Arc<Mutex<Written>>,
}

#[derive(Default)]
struct Written {
    text: String,
    lines: usize,
    is_full: bool,
    dropped: u64,
}

impl Default for Capture {
    fn default() -> Self {
        Self::new()
    }
}

impl Capture {
    /// An empty list.
    pub fn new() -> Self {
        Self {
            max_lines: 10_000,
            max_bytes: 16 << 20,
            written: Arc::default(),
        }
    }

    /// Sets how many lines are kept. Default: 10,000.
    pub fn with_max_lines(mut self, lines: usize) -> Self {
        self.max_lines = lines;
        self
    }

    /// Sets how many bytes are kept. Default: 16 MiB.
    pub fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// A layer that writes to this list.
    pub fn layer(&self) -> CaptureLayer {
        CaptureLayer::new(self.clone())
    }

    /// What was written so far: JSON lines, each with its line feed.
    pub fn lines(&self) -> String {
        lock(&self.written).text.clone()
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        lock(&self.written).lines
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many answers were not written down: there was no room for their lines, they are no JSON,
    /// or they are too large.
    pub fn dropped(&self) -> u64 {
        lock(&self.written).dropped
    }

    pub(super) fn write(&self, call: &Asked, end: End) {
        let is_lost = matches!(end, End::Lost);
        let text = serde_json::to_string(&Line { call, end });
        let mut written = lock(&self.written);
        let room = self.max_bytes.saturating_sub(written.text.len());
        match text {
            Ok(text) if !written.is_full && written.lines < self.max_lines && text.len() < room => {
                written.text.extend([&text, "\n"]);
                written.lines += 1;
                written.dropped += u64::from(is_lost);
            }
            _ => {
                written.is_full = true;
                written.dropped += 1;
            }
        }
    }
}

crate::text::debug_fields! {
    /// Shows numbers, never a line.
    {} |this| Capture {
        lines: this.len(),
        dropped: this.dropped(),
        max_lines: this.max_lines,
        max_bytes: this.max_bytes,
    }
}
