use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use serde_json::Value;
use tower_service::Service;

use super::{
    differ::places,
    line::{Asked, End, Line},
};
use crate::{
    call::ToolCall,
    config::{ConfigError, refuse_if},
    edge::{
        nearest::Nearest,
        testing::{MAX_LINES, future::StepFuture, step::Step, tally::lock},
    },
    error::{ErrorKind, ToolError},
};

/// How many places a text names.
const MAX_SHOWN: usize = 5;

/// A tool that answers calls as they were answered when a [`Capture`](super::Capture) wrote them
/// down.
///
/// See the [module docs](crate::testing#capture-and-replay) for an example. A call is found by its
/// server, its tool and its arguments, all of them redacted: two calls that differ only in a secret
/// are one call. They are redacted by the rules that the call has when it is replayed: with other
/// rules than it had when it was captured, it is not found if these hide something else. The same
/// call is answered as often as it was written down, in that order. An error comes back with its
/// kind, its status, its delay, and what it proves, as one of the call that is made now; a call
/// that was dropped unfinished hangs, and one that panicked panics. Nothing waits for the time that
/// the tool took.
///
/// Answers are JSON. For a stack whose answers are of another type, tower's `and_then` around the
/// replay deserializes them. An MCP server's answers are no JSON themselves; they are written by
/// way of `mcp::McpJson`:
///
/// ```ignore
/// let tools = ServiceBuilder::new()
///     .map_response(|McpJson(answer)| answer)
///     .layer(capture.layer())
///     .map_response(McpJson)
///     .service(server);
///
/// let tools = Replay::from_lines(&lines)?.and_then(|answer| async move {
///     let result = serde_json::from_value::<CallToolResult>(answer);
///     let answer = result.map(CallToolResponse::from);
///     answer.map_err(|error| ToolError::from_box(error.into()))
/// });
/// ```
///
/// A record that a tool service writes on a call ([`Record`](crate::Record)), for example that its
/// answer is an error, is not replayed.
///
/// # Errors
///
/// A call that was not written down, not so often, or without its answer, is
/// [`Internal`](ErrorKind::Internal), which no layer repeats. The message names what is nearest to
/// it: tools whose names are near, or else the arguments that differ from the nearest call of the
/// tool, by their paths and without their values.
///
/// # Clone
///
/// Clones share what is left.
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
        let reason = format!("there are more than {MAX_LINES}");
        refuse_if(text.lines().count() > MAX_LINES, "lines", reason)?;
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

    /// How many answers are left. 0 at the end of a test: all calls were made again.
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

/// What the replay has instead of this call.
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
    let more = match shown.len() < differing.len() {
        true => " and more",
        false => "",
    };
    let shown = shown.join("`, `");
    format!("has no such call of `{name}`: the nearest one has another `{shown}`{more}")
}

fn unknown_tool(asked: &Asked, calls: &Calls) -> String {
    let name = asked.name();
    if calls.keys().any(|known| known.name() == name) {
        return format!("has calls of `{name}`, but with another division into server and tool");
    }
    let mut nearest = Nearest::to(&name, &asked.tool);
    for known in calls.keys() {
        let flow = match known.server {
            Some(_) => nearest.offer(&known.name(), &known.tool),
            None => nearest.offer_local(&known.tool),
        };
        if flow.is_break() {
            break;
        }
    }
    let near = nearest.into_names();
    match near.is_empty() {
        true => format!("has no call of `{name}`"),
        false => format!("has no call of `{name}`; near it: `{}`", near.join("`, `")),
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
        StepFuture::new(self.next(&call), call, None)
    }
}

crate::text::debug_fields! {
    /// Shows how much is left, never an answer.
    {} |this| Replay { left: this.left(), .. }
}
