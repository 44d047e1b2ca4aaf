use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use serde_json::Value;
use strsim::normalized_levenshtein;
use tower_service::Service;
use tower_toolcall::{ConfigError, ErrorKind, ToolCall, ToolError, redact::Rules};

use super::{
    MAX_LINES,
    capture::{Asked, End, Line},
    script::lock,
    step::{Step, StepFuture},
};

/// How many places a text names.
const MAX_SHOWN: usize = 5;

/// How much of a member's name is shown, in characters.
const MAX_KEY: usize = 64;

/// A name is near another one if the two have more than this share of the longer one in common.
const NEAR: f64 = 0.65;

/// How many tools are named that may have been meant.
const MAX_NEAR: usize = 3;

/// The number of calls that are compared with a call of an unknown tool.
const MAX_COMPARED: usize = 1_000;

/// A tool that answers calls as a [`Capture`](super::Capture) has recorded them.
///
/// See the [module docs](crate#capture-and-replay) for an example. A call is found by its redacted
/// server, tool and arguments: two calls that differ only in a secret are one call. The rules of
/// the replayed call redact them. If these rules hide other parts than the rules at the capture,
/// the call is not found. The same call is answered as often as it was recorded, in that order. An
/// error comes back with its kind, its status, its delay, and its evidence, as an error of the
/// current call. A call that was dropped unfinished hangs, and a call that panicked panics. The
/// replay does not wait for the time that the tool took.
///
/// Answers are JSON. For a stack with answers of another type, deserialize them with tower's
/// `and_then` around the replay, for example those of an MCP server:
///
/// ```ignore
/// let tools = Replay::from_lines(&lines)?.and_then(|answer| async move {
///     let result = serde_json::from_value::<CallToolResult>(answer);
///     let answer = result.map(McpAnswer::from);
///     answer.map_err(|error| ToolError::from_box(error.into()))
/// });
/// ```
///
/// The [`Record`](tower_toolcall::Record) that a tool service writes on a call, for example that
/// its answer is an error, is not replayed.
///
/// # Errors
///
/// A call that was not recorded, not so often, or without its answer, is
/// [`Internal`](ErrorKind::Internal), which no layer repeats. The message names similar tools, or
/// else the arguments that differ from the nearest call of the tool, by their paths and without
/// their values.
///
/// # Clone
///
/// Clones share the remaining answers.
#[derive(Clone)]
pub struct Replay {
    calls: Arc<Mutex<Calls>>,
}

type Calls = HashMap<Asked, Recorded>;

#[derive(Default)]
struct Recorded {
    ends: VecDeque<End>,
    answered: usize,
}

impl Replay {
    /// Reads what [`Capture::lines`](super::Capture::lines) gave. Blank lines are skipped. Sorting,
    /// joining and editing lines by hand is fine.
    ///
    /// # Errors
    ///
    /// The first line that is not of a capture: `line 3`, from 1. And `lines`, if there are more
    /// than [`MAX_LINES`].
    pub fn from_lines(text: &str) -> Result<Self, ConfigError> {
        if text.lines().count() > MAX_LINES {
            let reason = format!("there are more than {MAX_LINES}");
            return Err(ConfigError::new("lines", reason));
        }
        let mut calls = Calls::new();
        for (n, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let Line { call, end } = serde_json::from_str(line).map_err(|error| {
                // The error's own text may quote the line.
                let reason = format!("is not a line of a capture (column {})", error.column());
                ConfigError::new(format!("line {}", n + 1), reason)
            })?;
            calls.entry(call).or_default().ends.push_back(end);
        }
        Ok(Self {
            calls: Arc::new(Mutex::new(calls)),
        })
    }

    /// Returns how many answers are left. 0 at the end of a test: all calls were made again.
    pub fn left(&self) -> usize {
        lock(&self.calls).values().map(|call| call.ends.len()).sum()
    }

    fn next(&self, call: &ToolCall) -> Step {
        let asked = Asked::of(call).reread();
        let mut calls = lock(&self.calls);
        let Some(known) = calls.get_mut(&asked) else {
            return missing(&unknown(&asked, &calls));
        };
        let n = known.answered + 1;
        let no_answer = |why: &str| {
            let tool = asked.name();
            missing(&format!(
                "has no answer for call {n} of `{tool}` with these arguments{why}"
            ))
        };
        let Some(end) = known.ends.pop_front() else {
            return no_answer("");
        };
        known.answered = n;
        match end {
            End::Ok(answer) => Step::ok(answer),
            End::Lost => no_answer(": it was no JSON, or too large"),
            End::Error { error, evidence } => {
                Step::error(End::restored(*error, evidence).for_call(&call.info()))
            }
            End::Unfinished => Step::hang(),
            End::Panicked => Step::panic("the captured call panicked"),
        }
    }
}

fn missing(what: &str) -> Step {
    let message = format!("the replay {what}");
    Step::error(ToolError::new(ErrorKind::Internal, message))
}

/// Returns the message for a call that is not in the replay.
fn unknown(asked: &Asked, calls: &Calls) -> String {
    let name = asked.name();
    let is_of_tool = |known: &&Asked| (&known.server, &known.tool) == (&asked.server, &asked.tool);
    let nearest = calls
        .keys()
        .filter(is_of_tool)
        .map(|known| places(&known.arguments, &asked.arguments))
        // The calls have no order.
        .min_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let Some(differing) = nearest else {
        return unknown_tool(asked, calls);
    };
    let shown = &differing[..differing.len().min(MAX_SHOWN)];
    let more = if shown.len() < differing.len() {
        " and more"
    } else {
        ""
    };
    let shown = shown.join("`, `");
    format!("has no such call of `{name}`: the nearest one has another `{shown}`{more}")
}

fn unknown_tool(asked: &Asked, calls: &Calls) -> String {
    let name = asked.name();
    if calls.keys().any(|known| known.name() == name) {
        return format!("has calls of `{name}`, but with another division into server and tool");
    }
    let names: BTreeSet<_> = calls.keys().map(Asked::name).take(MAX_COMPARED).collect();
    let near = names
        .into_iter()
        .filter(|known| normalized_levenshtein(known, &name) > NEAR);
    match &*near.take(MAX_NEAR).collect::<Vec<_>>() {
        [] => format!("has no call of `{name}`"),
        near => format!("has no call of `{name}`; near it: `{}`", near.join("`, `")),
    }
}

impl Service<ToolCall> for Replay {
    type Response = Value;
    type Error = ToolError;
    type Future = StepFuture<Value>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        StepFuture::new(self.next(&call), Arc::new(call), None)
    }
}

/// Shows how much is left, never an answer.
impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}

/// How many places are looked for; as many differences count as very different.
const MAX_PLACES: usize = 16;

/// The places at which two values differ, as paths: `filter.lang`, `rows[2]`.
fn places(a: &Value, b: &Value) -> Vec<String> {
    let mut found = Vec::new();
    look(Some(a), Some(b), &mut String::new(), &mut found);
    found
}

/// The recursion is as deep as the values are: redacted ones have 64 levels.
fn look(a: Option<&Value>, b: Option<&Value>, at: &mut String, found: &mut Vec<String>) {
    if a == b || found.len() >= MAX_PLACES {
        return;
    }
    let end = at.len();
    match (a, b) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                let dot = if end == 0 { "" } else { "." };
                // Writing to a string does not fail.
                let _ = write!(at, "{dot}{}", Rules::default().text(key, MAX_KEY));
                look(a.get(key), b.get(key), at, found);
                at.truncate(end);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                let _ = write!(at, "[{n}]");
                look(Some(a), Some(b), at, found);
                at.truncate(end);
            }
        }
        _ => found.push(at.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_has_its_path() {
        let a = json!({ "q": "a", "page": 1, "filter": { "lang": "en", "tags": ["x", "y"] } });
        let b = json!({ "q": "a", "size": 1, "filter": { "lang": "de", "tags": ["x", "z"] } });
        let mut found = places(&a, &b);
        found.sort();
        assert_eq!(found, ["filter.lang", "filter.tags[1]", "page", "size"]);
        assert!(places(&a, &a).is_empty());
    }

    #[test]
    fn a_list_of_another_length_differs_as_a_whole() {
        let found = places(&json!({ "ids": [1, 2] }), &json!({ "ids": [1] }));
        assert_eq!(found, ["ids"]);
    }

    #[test]
    fn the_search_is_bounded() {
        let (a, b) = (json!(vec![1; 1000]), json!(vec![2; 1000]));
        assert_eq!(places(&a, &b).len(), MAX_PLACES);
    }
}
