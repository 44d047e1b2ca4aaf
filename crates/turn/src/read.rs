use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use serde_json::{Map, Value, json};
use tower_service::Service;
use tower_toolcall::{
    Classify, ErrorKind, Event, Identity, MAX_VALUES, ModelText, ToolCall, ToolError, ToolResult,
    batch::Parallel, call::ValueCounter, event::Listener, flow::CallExt, router::Names,
};

use crate::{
    MAX_CALLS,
    format::{End, Fields, Format},
    reply::{Reply, TurnError},
};

/// A model's response: its calls, and the message that goes back with their results.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone)]
#[must_use]
pub struct Turn {
    format: Format,
    said: Vec<Value>,
    slots: Vec<Slot>,
    end: End,
}

/// A call of the turn.
#[derive(Clone)]
struct Slot {
    /// As the provider knows it.
    id: Option<String>,
    /// The name as the provider sent it.
    name: String,
    is_custom: bool,
    call: ToolCall,
    /// The reason why it cannot run.
    error: Option<ToolError>,
}

impl Turn {
    /// Reads a whole response, or the message in it. A turn may have no calls: the model has ended.
    ///
    /// # Errors
    ///
    /// If it is not a response of this format, has more than [`MAX_CALLS`] calls, or is nested too
    /// deeply. Bad arguments are not an error: see [`invalid`](Self::invalid).
    pub fn read(format: Format, response: &Value) -> Result<Self, TurnError> {
        let (said, end) = format.said(response)?;
        Self::of(format, said, end)
    }

    /// Replaces the model's names by names of tools. Names that are not in the map stay.
    pub fn with_names(mut self, names: &Names) -> Self {
        for slot in &mut self.slots {
            let tool = names.to_tool(&slot.name);
            if tool != slot.name && tool != slot.call.tool() {
                slot.call = slot.call.clone().renamed(&Identity::new(tool));
            }
        }
        self
    }

    /// Sets the session of all calls: the conversation of which this turn is a part.
    ///
    /// Layers that compare the calls of one principal need it, or an agent: `once`, `cache`,
    /// `repeat_guard`, a quota for each agent.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use tower_toolcall_turn::{Format, Turn, TurnError};
    /// # fn main() -> Result<(), TurnError> {
    /// # let response = json!({ "content": [
    /// #     { "type": "tool_use", "id": "toolu_1", "name": "weather",
    /// #       "input": { "city": "Oslo" } },
    /// # ] });
    /// let turn = Turn::read(Format::Anthropic, &response)?
    ///     .with_session_id("chat 17")
    ///     .with_agent_id("concierge");
    /// let call = turn.calls().next().unwrap();
    /// assert_eq!((call.session_id(), call.agent_id()), (Some("chat 17"), Some("concierge")));
    /// # Ok(()) }
    /// ```
    pub fn with_session_id(self, id: impl Into<Arc<str>>) -> Self {
        let id = id.into();
        self.map_calls(|call| call.with_session_id(Arc::clone(&id)))
    }

    /// Sets the agent that makes all calls.
    pub fn with_agent_id(self, id: impl Into<Arc<str>>) -> Self {
        let id = id.into();
        self.map_calls(|call| call.with_agent_id(Arc::clone(&id)))
    }

    /// Sets the trace id of all calls, which is copied into events.
    pub fn with_trace_id(self, id: impl Into<Arc<str>>) -> Self {
        let id = id.into();
        self.map_calls(|call| call.with_trace_id(Arc::clone(&id)))
    }

    /// Changes each call: for a subject's token, a deadline, or a [key](ToolCall::with_once_key) of
    /// its own.
    ///
    /// The id of a call stays, because its result is found by it.
    pub fn map_calls(mut self, mut map: impl FnMut(ToolCall) -> ToolCall) -> Self {
        for Slot { call, .. } in &mut self.slots {
            let id = call.id().unwrap_or_default().to_owned();
            *call = map(call.clone()).with_id(id);
        }
        self
    }

    pub(super) fn of(format: Format, mut said: Vec<Value>, end: End) -> Result<Self, TurnError> {
        format.tidy(&mut said, end);
        let mut calls: Vec<&mut Map<String, Value>> = match format.entries(&mut said) {
            Some(entries) => entries.iter_mut().filter_map(|e| format.call(e)).collect(),
            None => Vec::new(),
        };
        if calls.len() > MAX_CALLS {
            return Err(TurnError::TooManyCalls);
        }
        let fields: Vec<_> = calls.iter().map(|call| format.fields(call)).collect();
        let mut ids = Ids::new(fields.iter().filter_map(|f| f.id.as_deref()));
        let last = calls.len().saturating_sub(1);
        let mut slots = Vec::with_capacity(calls.len());
        let mut left = MAX_VALUES;
        for (n, (call, mut fields)) in calls.iter_mut().zip(fields).enumerate() {
            let (own, id) = match ids.take(fields.id.clone()) {
                Some(given) => (given.clone(), Some(given)),
                None => {
                    let made = ids.made();
                    let replaces = format.needs_id() || fields.id.is_some();
                    (made.clone(), replaces.then_some(made))
                }
            };
            if id.is_none() || id != fields.id {
                format.set_id(call, id.as_deref());
            }
            let problem = if fields.name.trim().is_empty() {
                fields.name = "unknown".to_owned();
                format.set_name(call, &fields.name);
                Some("the call names no tool")
            } else if fields.may_lack_arguments(end, n == last) {
                Some("the response was cut off, and they may be incomplete")
            } else {
                None
            };
            let bare = ToolCall::new(fields.name.as_str()).with_id(own);
            if !format.takes_name(&fields.name) {
                fields.name = Names::default().to_model(&fields.name).into_owned();
                format.set_name(call, &fields.name);
            }
            let made = made(format, bare.clone(), &fields, problem, &mut left);
            let arguments = made.as_ref().ok().map(ToolCall::arguments);
            format.set_arguments(call, &fields.arguments, arguments);
            let error = made.as_ref().err().cloned();
            error.iter().for_each(|error| log_refusal(&bare, error));
            slots.push(Slot {
                id,
                name: fields.name,
                is_custom: fields.is_custom,
                call: made.unwrap_or(bare),
                error,
            });
        }
        Ok(Self {
            format,
            said,
            slots,
            end,
        })
    }

    /// Returns the calls that can run, in the model's order, each with an id that no other call of
    /// the turn has.
    pub fn calls(&self) -> impl Iterator<Item = ToolCall> {
        let runs = |slot: &&Slot| slot.error.is_none();
        self.slots.iter().filter(runs).map(|slot| slot.call.clone())
    }

    /// Returns why the other calls cannot run: their arguments are not a JSON object, they have no
    /// name, or the response ended within them. [`answer`](Self::answer) passes the errors to the
    /// model. Each error names its tool and the id of its call.
    pub fn invalid(&self) -> impl Iterator<Item = &ToolError> {
        self.slots.iter().filter_map(|slot| slot.error.as_ref())
    }

    /// Returns how many calls the model made, including those that cannot run.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the model called no tool.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns whether the response lacks its end, which the model may say if it is asked again: it
    /// met its limit of length, is not ready, has failed, was paused or malformed, or its stream
    /// broke off. A turn without calls is then not the model's last word. One that a filter or a
    /// refusal has ended is.
    pub fn is_cut(&self) -> bool {
        matches!(
            self.end,
            End::Cut | End::Paused | End::BrokenOff | End::Holed
        )
    }

    /// Returns whether the provider has paused the turn (`pause_turn` of Anthropic, for its own
    /// tools). It goes on with the next request if the conversation ends with what the model said.
    /// Such a turn [is cut](Self::is_cut) too.
    pub fn is_paused(&self) -> bool {
        self.end == End::Paused
    }

    /// Returns the format in which the turn came, and in which it is answered.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the answer to the model: for each call exactly one result, in the model's order, in
    /// whichever order they are given.
    ///
    /// Each is the [text for the model](ToolResult::model_text), marked as an error unless the call
    /// was a success, where the format has a mark. [Images](ModelText::model_parts) of a success
    /// are the provider's own blocks, see [images](crate#images). A call without a result is
    /// answered as cancelled. A second result of a call and one of an unknown call are
    /// [refused](Reply::refused).
    pub fn answer<T: ModelText>(self, results: impl IntoIterator<Item = ToolResult<T>>) -> Reply {
        let format = self.format;
        let runs = self.slots.iter().enumerate();
        let runs = runs.filter(|(_, slot)| slot.error.is_none());
        let mut open: HashMap<&str, usize> = runs
            .filter_map(|(n, slot)| Some((slot.call.id()?, n)))
            .collect();
        let mut answers: Vec<Option<Value>> = vec![None; self.slots.len()];
        let mut refused = Vec::new();
        for result in results {
            let Some(n) = result.call_id().and_then(|id| open.remove(id)) else {
                refused.push(result.call_id().map(str::to_owned));
                continue;
            };
            // Anthropic takes nothing but text in a failure.
            let parts = || result.data().filter(|_| result.is_success());
            let images = || format.with_images(parts()?.model_parts());
            let text = || (result.model_text().into_owned().into(), Vec::new());
            let (said, beside) = images().unwrap_or_else(text);
            let mut answer = self.slots[n].result(format, said, !result.is_success());
            if !beside.is_empty() {
                answer["functionResponse"]["parts"] = beside.into();
            }
            answers[n] = Some(answer);
        }
        let answered = self.slots.iter().zip(answers);
        let results =
            answered.map(|(slot, answer)| answer.unwrap_or_else(|| slot.unanswered(format)));
        let results = format.wrap(results.collect());
        Reply {
            results,
            said: self.said,
            refused,
        }
    }

    /// Runs the calls side by side and answers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the calls, and the turn is lost. To answer with what there is,
    /// run a clone's [calls](Self::calls) and
    /// [cancel](tower_toolcall::batch::Running::cancel) that.
    pub async fn run<S, C>(self, parallel: &Parallel<S, C>) -> Reply
    where
        S: Service<ToolCall, Response: ModelText, Error: Into<ToolError>> + Clone,
        C: Classify<S::Response> + Clone,
    {
        let results = parallel.run(self.calls()).await;
        self.answer(results)
    }
}

impl Slot {
    fn result(&self, format: Format, content: Value, failed: bool) -> Value {
        let id = self.id.as_deref();
        format.result(id, &self.name, self.is_custom, content, failed)
    }

    /// The result of a call that has none.
    fn unanswered(&self, format: Format) -> Value {
        let cancelled = || {
            ToolError::new(ErrorKind::Cancelled, "the call has no result")
                .for_call(&self.call.info())
        };
        let error = self.error.clone().unwrap_or_else(cancelled);
        self.result(format, error.model_message().into(), true)
    }
}

/// Shows names and sizes, never arguments.
impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<_> = self.slots.iter().map(|slot| &slot.call).collect();
        f.debug_struct("Turn")
            .field("format", &self.format)
            .field("said", &self.said.len())
            .field("calls", &calls)
            .finish()
    }
}

/// Emits `tool.rejected` for a call that no layer sees.
fn log_refusal(call: &ToolCall, error: &ToolError) {
    let call = call.info();
    Listener::default().tell(&Event::not_started(&call, error.kind()).with_error(error));
}

/// The call with its arguments, unless there is a problem with it already. `left` are the values
/// that the calls of the turn may still have.
fn made(
    format: Format,
    bare: ToolCall,
    fields: &Fields,
    problem: Option<&'static str>,
    left: &mut usize,
) -> Result<ToolCall, ToolError> {
    let invalid = |why: Cow<'static, str>| {
        Err(ToolError::new(ErrorKind::InvalidInput, why).for_call(&bare.info()))
    };
    if let Some(problem) = problem {
        return invalid(problem.into());
    }
    match &fields.arguments {
        Value::Null if fields.is_custom => bare.with_json(json!({ "input": "" })),
        Value::String(text) if fields.is_custom => bare.with_json(json!({ "input": text })),
        _ if fields.is_custom => invalid("the input of this tool is a text".into()),
        Value::String(text) => {
            let count = ValueCounter::default().add(text.as_bytes());
            let Some(rest) = left.checked_sub(count) else {
                let text = "the arguments of all calls of the turn have more than";
                return invalid(format!("{text} {MAX_VALUES} values").into());
            };
            *left = rest;
            match bare.clone().with_json_str(text) {
                // Some models write the object as a text. Any other text is of the wrong type.
                Err(_) if !format.takes_text() && !text.trim_start().starts_with('{') => {
                    bare.with_json(text.as_str().into())
                }
                made => made,
            }
        }
        other => bare.with_json(other.clone()),
    }
}

impl Fields {
    /// Returns whether arguments may be missing. `end` is that of the response.
    fn may_lack_arguments(&self, end: End, is_last: bool) -> bool {
        let is_blank = match &self.arguments {
            Value::Null => true,
            Value::String(text) => text.trim().is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        match end {
            End::Whole => false,
            // Of calls that are streamed together several may lack arguments.
            _ if is_blank => true,
            // JSON shows its own end, a text does not.
            End::BrokenOff => self.is_custom,
            // Providers close an object at the limit, and its content looks whole.
            End::Cut | End::Paused | End::Filtered => is_last,
            End::Holed => true,
        }
    }
}

/// The ids of a turn.
struct Ids {
    given: HashMap<String, bool>,
    random: RandomState,
    count: u64,
}

impl Ids {
    fn new<'a>(given: impl Iterator<Item = &'a str>) -> Self {
        Self {
            given: given.map(|id| (id.to_owned(), false)).collect(),
            random: RandomState::new(),
            count: 0,
        }
    }

    /// The id itself where it is its first use.
    fn take(&mut self, id: Option<String>) -> Option<String> {
        match self.given.entry(id?) {
            Entry::Occupied(mut used) if !*used.get() => {
                used.insert(true);
                Some(used.key().clone())
            }
            _ => None,
        }
    }

    /// A new one, which every provider takes: nine letters and digits, as Mistral asks.
    fn made(&mut self) -> String {
        const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        loop {
            self.count += 1;
            let mut left = self.random.hash_one(self.count);
            let id: String = (0..9)
                .map(|_| {
                    let digit = char::from(DIGITS[(left % 36) as usize]);
                    left /= 36;
                    digit
                })
                .collect();
            if !self.given.contains_key(&id) {
                self.given.insert(id.clone(), true);
                return id;
            }
        }
    }
}
