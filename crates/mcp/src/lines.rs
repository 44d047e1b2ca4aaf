//! Lines of JSON-RPC, bounded before they are parsed.

use std::{
    collections::VecDeque,
    fmt, io,
    mem::{MaybeUninit, take},
    pin::Pin,
    task::{Context, Poll, ready},
};

use rmcp::transport::async_rw::DEFAULT_MAX_LINE_LENGTH as MAX_BYTES;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};
use tower_toolcall::{call::ValueCounter, event::shown_text};

use super::events;

/// The most values of a message, by default.
pub(super) const MAX_VALUES: usize = 200_000;

/// A longer line ends the connection: its end may never come.
const MAX_DROPPED: usize = 4 * MAX_BYTES;

/// The most text that is kept of a message that is dropped: its id is in it.
const MAX_OUTLINE: usize = 4 << 10;

/// How much of an error that is dropped is shown, in characters.
const MAX_SHOWN: usize = 120;

/// Marks what stands for a message that was too large: the method of a request, the data of an
/// error.
pub(super) const TOO_LARGE: &str = "tower-toolcall/too_large";

/// Bounds the messages that a peer writes as lines, before rmcp parses them.
///
/// rmcp's transports over stdio take lines of 16 MiB. Many small values take 100 times as much
/// once they are parsed. This reader counts them as they arrive. It is for rmcp's pair of a reader
/// and a writer, as a client and as a server:
///
/// ```no_run
/// use rmcp::ServiceExt as _;
/// use tower_toolcall_mcp::McpLines;
/// # use tower_toolcall::BoxError;
///
/// # async fn serve(gateway: impl rmcp::ServerHandler) -> Result<(), BoxError> {
/// let stdin = McpLines::new(tokio::io::stdin());
/// gateway.serve((stdin, tokio::io::stdout())).await?.waiting().await?;
/// # Ok(()) }
/// ```
///
/// [`McpServer::command`](super::McpServer::command) reads its process through one.
///
/// A message has at most 16 MiB and, by default, 200,000 values. Names of members count as values.
/// A larger one is dropped while it arrives, and the connection stays:
///
/// - **an answer**: an error of its call: [`Reported`](tower_toolcall::ErrorKind::Reported),
///   completed
/// - **a request**: an error for its sender: -32600 from a `GatewayHandler`, else -32601
/// - **a notification, or a message without a readable id**: the event `tool.message_dropped`
/// - **an error of any size with `id: null` or none, because no call waits for it**: the same event
/// - **a line of more than 64 MiB**: the event, and the end of the connection
pub struct McpLines<R> {
    reader: R,
    max_values: usize,
    line: Line,
    /// Bytes that were read, and are not returned yet.
    out: VecDeque<u8>,
}

/// A line up to here.
#[derive(Default)]
struct Line {
    bytes: usize,
    values: ValueCounter,
    outline: Outline,
    /// Why it is dropped, if it is.
    dropped: Option<String>,
}

impl<R> McpLines<R> {
    /// Bounds the lines of `reader`.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            max_values: MAX_VALUES,
            line: Line::default(),
            out: VecDeque::new(),
        }
    }

    /// Sets how many values a message may have. Default: 200,000, which take up to 100 MB.
    #[must_use]
    pub fn with_max_values(mut self, max: usize) -> Self {
        self.max_values = max;
        self
    }

    /// Takes a piece of a line; the last one ends with a line feed.
    fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        let line = &mut self.line;
        line.bytes += piece.len();
        line.outline.add(piece);
        if line.dropped.is_none() {
            let values = line.values.add(piece);
            line.dropped = if values > self.max_values {
                Some(too_many(self.max_values))
            } else {
                (line.bytes > MAX_BYTES).then(|| too_long(MAX_BYTES))
            };
            match line.dropped {
                None => self.out.extend(piece),
                // Not JSON, whatever has arrived, so rmcp ignores it.
                Some(_) => self.out.extend(b"\0\n"),
            }
        }
        if line.bytes > MAX_DROPPED {
            let why = too_long(MAX_DROPPED);
            events::message_dropped(&why);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if piece.ends_with(b"\n") {
            let line = take(line);
            if let Some(why) = line.dropped {
                let message = line.outline.stand_in(&why, false).unwrap_or_default();
                self.out.extend(message.as_bytes());
            } else {
                line.outline.report_unaddressed(piece);
            }
        }
        Ok(())
    }
}

impl<R> fmt::Debug for McpLines<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpLines").finish_non_exhaustive()
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for McpLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.out.is_empty() {
            let mut chunk = [MaybeUninit::uninit(); 8 << 10];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            ready!(Pin::new(&mut this.reader).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            for piece in chunk.filled().split_inclusive(|byte| *byte == b'\n') {
                this.add(piece)?;
            }
        }
        let taken = io::Read::read(&mut this.out, out.initialize_unfilled())?;
        out.advance(taken);
        Poll::Ready(Ok(()))
    }
}

/// Returns the text that is read of a message: its own, or what stands for one with too many
/// values.
#[cfg(feature = "http")]
pub(super) fn bounded(text: String, max_values: usize) -> Option<String> {
    // A value has at least one byte.
    let most = match text.len() > max_values {
        true => ValueCounter::default().add(text.as_bytes()),
        false => 0,
    };
    if most <= max_values {
        return Some(text);
    }
    let mut outline = Outline::default();
    outline.add(text.as_bytes());
    outline.stand_in(&too_many(max_values), true)
}

pub(super) fn too_many(max: usize) -> String {
    format!("the message has more than {max} values")
}

pub(super) fn too_long(max: usize) -> String {
    format!("the message has more than {} MiB", max >> 20)
}

/// The members of a message, without what their objects and arrays contain.
#[derive(Default)]
struct Outline {
    text: Vec<u8>,
    depth: usize,
    is_text: bool,
    is_escaped: bool,
}

impl Outline {
    fn add(&mut self, piece: &[u8]) {
        for byte in piece {
            let before = self.depth;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_text => self.is_escaped = true,
                b'"' => self.is_text = !self.is_text,
                b'{' | b'[' if !self.is_text => self.depth += 1,
                b'}' | b']' if !self.is_text => self.depth = before.saturating_sub(1),
                _ => {}
            }
            if before.min(self.depth) <= 1 && self.text.len() < MAX_OUTLINE {
                self.text.push(*byte);
            }
        }
    }

    /// Reports an error that names no request: rmcp drops it. `piece`: the end of its line.
    fn report_unaddressed(&self, piece: &[u8]) {
        #[derive(Deserialize)]
        struct Unaddressed {
            id: Option<IgnoredAny>,
            error: Said,
        }
        #[derive(Deserialize)]
        struct Said {
            #[serde(default)]
            message: String,
        }
        let is_error = self.text.windows(7).any(|name| name == b"\"error\"");
        let texts = [piece, &self.text].into_iter().filter(|_| is_error);
        let mut read = texts.filter_map(|text| serde_json::from_slice(text).ok());
        if let Some(Unaddressed { id: None, error }) = read.next() {
            let text = format!("an error without the id of a request: {}", error.message);
            let text = shown_text(text.trim_end_matches([':', ' ']), MAX_SHOWN).to_string();
            events::message_dropped(&text);
        }
    }

    /// Returns the line that is read instead of the message. Reports that it is dropped if it is
    /// not known to need an answer. `null` is an id where its caller replaces it.
    fn stand_in(&self, why: &str, takes_null: bool) -> Option<String> {
        #[derive(Deserialize)]
        struct Message {
            id: Value,
            method: Option<IgnoredAny>,
        }
        let read = serde_json::from_slice(&self.text).ok();
        let read = read.filter(|Message { id, .. }| takes_null || !id.is_null());
        let Some(Message { id, method }) = read else {
            events::message_dropped(why);
            return None;
        };
        let error = json!({ "code": -32603, "message": why, "data": TOO_LARGE });
        let message = match method {
            None => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            Some(_) => json!({ "jsonrpc": "2.0", "id": id, "method": TOO_LARGE, "params": error }),
        };
        Some(format!("{message}\n"))
    }
}
