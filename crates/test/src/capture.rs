use std::{
    fmt,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_toolcall::{
    CallInfo, Evidence, Execution, MAX_NAME_BYTES, ToolCall, ToolError,
    flow::{Abandoned, Ends, Flow, Gate, Gated, Readiness, Ticket, Times},
    redact::{Rules, TRUNCATED},
};

use super::script::lock;

/// The calls that pass a [layer](Self::layer) and how they end, as JSON lines for a
/// [`Replay`](super::Replay).
///
/// See the [module docs](crate#capture-and-replay) for an example. A line has the names of the
/// call, its arguments, and its answer or error, redacted by the call's
/// [rules](tower_toolcall::ToolCall::with_rules): strings up to 65,536 characters, 64 levels,
/// 100,000 values and 1 MiB each. Longer arguments are cut. A longer answer, or an answer that is
/// not JSON, is marked as lost, in the line and in the replay. Lines come in the order in which the
/// calls end. A call that is dropped before its answer has a line too, and so has a call that
/// panics.
///
/// # Limits
///
/// By [default](Self::with_max_lines) 10,000 lines and 16 MiB. The first line without room and all
/// later ones are only [counted](Self::dropped). A setting holds for the [layers](Self::layer) that
/// are made after it.
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
    /// Makes an empty list.
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

    /// Returns a layer that writes to this list.
    pub fn layer(&self) -> CaptureLayer {
        CaptureLayer(self.clone())
    }

    /// Returns the lines so far: JSON lines, each with its line feed.
    pub fn lines(&self) -> String {
        lock(&self.written).text.clone()
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        lock(&self.written).lines
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many answers were not written down: there was no room for their lines, they are
    /// no JSON, or they are too large.
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

/// Shows numbers, never a line.
impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("lines", &self.len())
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}

/// Layer that writes down calls and how they end: [`Capture::layer`].
///
/// # Order
///
/// Directly around the tool that a [`Replay`](super::Replay) should replace, and inside a
/// [`SanitizeLayer`](tower_toolcall::sanitize::SanitizeLayer), so that its rules redact the lines.
///
/// # Errors
///
/// Those of the inner service, stamped with the call's names.
#[derive(Clone, Debug)]
#[must_use]
pub struct CaptureLayer(Capture);

impl<S> Layer<S> for CaptureLayer {
    type Service = CaptureService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, self.clone())
    }
}

/// Writes down calls and how they end. Always ready. See [`Capture`].
pub type CaptureService<S> = Gated<S, CaptureLayer>;

/// Response future for [`CaptureService`].
pub type CaptureFuture<S, F> = Flow<S, F, Open>;

/// A line without its end.
#[derive(Debug)]
pub struct Open {
    info: CallInfo,
    asked: Asked,
    capture: Capture,
}

impl<Res: Serialize> Gate<Res> for CaptureLayer {
    type Ticket = Open;

    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Open, ToolError> {
        Ok(Open {
            info: call.info(),
            asked: Asked::of(call),
            capture: self.0.clone(),
        })
    }
}

impl Ticket for Open {
    type Times = Times;

    fn info(&self) -> &CallInfo {
        &self.info
    }

    fn dropped(&mut self, _: Abandoned) {
        self.capture.write(&self.asked, End::Unfinished);
    }

    fn panicked(&mut self) {
        self.capture.write(&self.asked, End::Panicked);
    }
}

impl<Res: Serialize> Ends<Res> for Open {
    type Class = End;

    fn judge(&self, result: &Result<Res, ToolError>) -> End {
        End::of(&self.info, result.as_ref())
    }

    fn ended(&mut self, _: &mut Result<Res, ToolError>, end: End, _: Option<Instant>) {
        self.capture.write(&self.asked, end);
    }
}

/// `A`: an [`Asked`], or a reference to one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<A> {
    pub(super) call: A,
    pub(super) end: End,
}

/// The redacted names and arguments of a call, which identify it in a replay.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// How a call ended.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum End {
    Ok(Value),
    /// Its answer is not JSON, or larger than a line may be.
    Lost,
    Error {
        #[serde(deserialize_with = "of_any_call")]
        error: Box<ToolError>,
        evidence: Evidence,
    },
    /// Its future was dropped before it had an answer.
    #[default]
    Unfinished,
    Panicked,
}

impl Asked {
    pub(super) fn of(call: &ToolCall) -> Self {
        let rules = Rules::default();
        let name = |name: &str| rules.text(name, MAX_NAME_BYTES).to_string();
        Self {
            server: call.server().map(name),
            tool: name(call.tool()),
            // An object of names and values can be written.
            arguments: serde_json::to_value(wide(call.rules()).object(call.arguments()))
                .unwrap_or_default(),
        }
    }

    /// As a replay has it: a number with a fraction may be another one when it was written and
    /// read.
    pub(super) fn reread(self) -> Self {
        let text = serde_json::to_string(&self).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(self)
    }

    /// As a flat name.
    pub(super) fn name(&self) -> String {
        match &self.server {
            Some(server) => format!("{server}__{}", self.tool),
            None => self.tool.clone(),
        }
    }
}

impl End {
    pub(super) fn of<T: Serialize>(call: &CallInfo, result: Result<&T, &ToolError>) -> Self {
        match result {
            Ok(answer) => match whole(&wide(call.rules()), answer) {
                Some(answer) => Self::Ok(answer),
                None => Self::Lost,
            },
            Err(error) => Self::Error {
                error: Box::new(error.clone()),
                evidence: error.evidence(),
            },
        }
    }

    /// The error as it was: of an error that was read, nothing is believed at first.
    pub(super) fn restored(error: ToolError, evidence: Evidence) -> ToolError {
        let execution = error.execution();
        match evidence {
            // What is said not to have started is its author's word.
            Evidence::Reported => error
                .with_execution(Execution::NotStarted)
                .with_execution(execution),
            Evidence::Refusal => {
                let refusal = ToolError::refusal(error.kind(), error.message().to_owned())
                    .with_code(error.code().to_owned())
                    .with_retryable(error.is_retryable())
                    .with_user_message(error.user_message())
                    .with_model_message(error.model_message());
                let delay = error.retry_after();
                delay.map_or(refusal.clone(), |delay| refusal.with_retry_after(delay))
            }
            // An error that was read is inferred.
            _ => error,
        }
    }
}

/// The error without the names and the id of the captured call: it will be that of another one.
fn of_any_call<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<ToolError>, D::Error> {
    let mut error = Map::deserialize(deserializer)?;
    for name in ["tool", "server", "call_id"] {
        error.remove(name);
    }
    let error = ToolError::deserialize(Value::Object(error));
    error.map(Box::new).map_err(D::Error::custom)
}

/// Returns the redacted answer, or `None` if it is not JSON, or a limit cuts a part off.
fn whole<T: Serialize>(rules: &Rules, answer: &T) -> Option<Value> {
    /// How many places look as if something was cut there.
    fn cuts(json: &Value) -> usize {
        let text = json.to_string();
        text.matches(TRUNCATED).count() + text.matches("\"[...]\"").count()
    }
    let answer = serde_json::to_value(answer).ok()?;
    let shown = serde_json::to_value(rules.json(&answer)).ok()?;
    (cuts(&shown) <= cuts(&answer)).then_some(shown)
}

/// Returns the rules with the widest limits.
fn wide(rules: &Rules) -> Rules {
    let wide = rules.clone().with_max_string(1 << 16);
    wide.and_then(|rules| rules.with_max_depth(64))
        .and_then(|rules| rules.with_max_nodes(100_000))
        .and_then(|rules| rules.with_max_bytes(1 << 20))
        .unwrap_or_else(|_| rules.clone())
}
