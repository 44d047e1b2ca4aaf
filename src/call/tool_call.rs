use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Extensions;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    CallInfo, Claim, MAX_DEPTH, MAX_NAME_BYTES, MAX_VALUES, Progress, ReplaySafety, Trust,
    arguments::{self, Arguments},
    info::{self, Data},
};
use crate::{
    error::{ErrorKind, ToolError},
    redact::{Redacted, Rules},
    text::{Short, values},
};

/// A call of one tool: the request type of every layer in this crate.
///
/// Authors of layers and bridges find more methods in [`CallExt`](crate::flow::CallExt).
///
/// 40 bytes; see the [module docs](crate::call) for what a clone shares.
///
/// # Example
///
/// ```
/// use serde_json::json;
/// use std::time::Duration;
/// use tower_toolcall::ToolCall;
///
/// let call = ToolCall::new("search")
///     .with_server("docs")
///     .with_id("call_1")
///     .with_json(json!({ "query": "tower" }))?
///     .with_timeout(Duration::from_secs(5));
///
/// assert_eq!(call.tool(), "search");
/// assert_eq!(call.arguments()["query"], "tower");
/// # Ok::<_, tower_toolcall::ToolError>(())
/// ```
#[must_use]
pub struct ToolCall {
    pub(super) data: Arc<Data>,
    pub(super) deadline: Option<Instant>,
    /// Which recording the call belongs to; 0 without an observer.
    pub(super) recording: u32,
    /// The shortest timeout of the outer layers, in milliseconds; 0 if there is none. See
    /// [`Record::limit_ms`](super::Record).
    pub(super) limit_ms: u32,
    pub(super) attempt: u16,
    pub(super) claims: AtomicU8,
    /// The trust in the peer that has set the deadline.
    pub(super) deadline_trust: Trust,
    /// The deadline leaves its owner time to finish, so the next layer keeps no reserve.
    pub(super) is_reserved: bool,
    pub(super) place: Place,
    pub(super) replay: ReplaySafety,
    /// A table of tools has set the replay safety, not the caller.
    pub(super) is_replay_listed: bool,
}

/// The place of a call on its way to a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The names are the caller's.
    Asked,
    /// The names are an identity.
    Resolved,
    /// The call has reached its server.
    Delivered,
}

impl ToolCall {
    /// Makes a call of the tool `name`, without arguments.
    ///
    /// Accepts any name; [`check`](Self::check) reports an unusable one.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            data: Arc::new(Data::new(name.into())),
            deadline: None,
            recording: 0,
            limit_ms: 0,
            attempt: 1,
            claims: AtomicU8::default(),
            deadline_trust: Trust::Trusted,
            is_reserved: false,
            place: Place::Asked,
            replay: ReplaySafety::Unknown,
            is_replay_listed: false,
        }
    }

    /// Sets the arguments.
    ///
    /// Arguments with the name of a secret (`password`) are hidden wherever they come back, as by
    /// [`with_secrets`](Self::with_secrets).
    pub fn with_arguments(mut self, arguments: Map<String, Value>) -> Self {
        self.data_mut().arguments = Arguments::new(arguments);
        let rules = self.rules().clone().with_secrets_in(self.arguments());
        self.set_rules(rules);
        self
    }

    /// Sets the arguments from a JSON value; `null` means none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the value is neither an object nor `null`.
    pub fn with_json(self, arguments: Value) -> Result<Self, ToolError> {
        match arguments {
            Value::Object(map) => Ok(self.with_arguments(map)),
            Value::Null => Ok(self.with_arguments(Map::new())),
            other => {
                let message = "tool arguments must be a JSON object, not";
                let error = self.invalid(format!("{message} {}", json_type(&other)));
                arguments::dismantle(other);
                Err(error)
            }
        }
    }

    /// Sets the arguments from JSON text, as models write them; blank text means none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the text is not JSON, is nested deeper than `serde_json`
    /// parses (128 levels), has more than [`MAX_VALUES`] values, or is neither an object nor
    /// `null`. The values are counted before they are parsed. The error never quotes the text.
    pub fn with_json_str(self, arguments: &str) -> Result<Self, ToolError> {
        if arguments.trim().is_empty() {
            return Ok(self.with_arguments(Map::new()));
        }
        if values::are_more_than(MAX_VALUES, arguments.as_bytes()) {
            return Err(self.invalid(too_many_values()));
        }
        match serde_json::from_str(arguments) {
            Ok(value) => self.with_json(value),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                let message = "tool arguments are not valid JSON";
                Err(self.invalid(format!("{message} (line {line}, column {column})")))
            }
        }
    }

    /// Sets the call's id, as the model or the caller gave it.
    pub fn with_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.set_id(id.into());
        self
    }

    pub(crate) fn set_id(&mut self, id: Arc<str>) {
        self.data_mut().ident_mut().id = Some(id);
    }

    /// Sets the server that has the tool; part of the default [`Key`](crate::key::Key).
    ///
    /// The values that a table of tools has [listed](crate::flow::CallExt::resolved) for another
    /// tool are gone.
    pub fn with_server(mut self, server: impl Into<Arc<str>>) -> Self {
        if std::mem::take(&mut self.is_replay_listed) {
            self.replay = ReplaySafety::Unknown;
        }
        let ident = self.data_mut().ident_mut();
        if std::mem::take(&mut ident.is_timeout_listed) {
            ident.timeout = None;
        }
        let names = &mut ident.names;
        (names.server, names.separator, names.is_listed) = (Some(server.into()), None, true);
        names.hashes = Default::default();
        self.withdraw(Claim::Health);
        self.place = Place::Asked;
        self
    }

    /// Sets the id of the agent that makes the call.
    pub fn with_agent_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.data_mut().ident_mut().set_agent(id.into());
        self
    }

    /// Sets the trace id, copied into events.
    pub fn with_trace_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.data_mut().ident_mut().trace_id = Some(id.into());
        self
    }

    /// Sets the session id, copied into spans.
    pub fn with_session_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.data_mut().ident_mut().set_session(id.into());
        self
    }

    /// Sets a timeout for this call alone; it takes precedence over a tool's timeout and the
    /// default.
    ///
    /// [`TimeoutLayer`](crate::timeout::TimeoutLayer) enforces it. Without that layer the timeout
    /// does nothing.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        let ident = self.data_mut().ident_mut();
        (ident.timeout, ident.is_timeout_listed) = (Some(timeout), false);
        self
    }

    /// Says whether the call may run twice. Default: [`ReplaySafety::Unknown`].
    pub fn with_replay_safety(mut self, replay: ReplaySafety) -> Self {
        (self.replay, self.is_replay_listed) = (replay, false);
        self
    }

    /// Sets the redaction rules for the arguments, the answer and the error of this call. Inner
    /// layers and an outer [`ToolResult`](crate::ToolResult) apply them. Default: the built-in
    /// rules. See [`SanitizeLayer`](crate::sanitize::SanitizeLayer).
    ///
    /// The [secrets](Self::with_secrets) of the call stay hidden.
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.put_rules(&rules);
        self
    }

    /// Sets the rules of a call in its place: see [`with_rules`](Self::with_rules).
    pub(crate) fn put_rules(&mut self, rules: &Rules) {
        // The arguments were searched by the built-in names.
        let is_built_in = rules.are_built_in();
        if is_built_in && rules == self.rules() {
            return;
        }
        let rules = rules.clone().with_secrets_of(self.rules());
        self.set_rules(match is_built_in {
            true => rules,
            false => rules.with_secrets_in(self.arguments()),
        });
    }

    /// Hides these values in all that is shown of the call from here on, wherever a tool service or
    /// a server repeats them: in errors, events and spans, and in answers that observers record.
    /// See [`Rules::with_secrets`].
    ///
    /// For tool services and layers that send a secret of their own. An error that they make is
    /// redacted by it once it is stamped: `error.for_call(&call.info())`. The answer itself is not
    /// changed: a tool service that sends a secret that its caller must not know takes it out of
    /// the answer by [`Rules::without_secrets`].
    pub fn with_secrets<'v>(mut self, values: impl IntoIterator<Item = &'v str>) -> Self {
        let rules = self.rules().clone().with_secrets(values);
        self.set_rules(rules);
        self
    }

    pub(super) fn set_rules(&mut self, rules: Rules) {
        // What is so already is not written, which might be a copy.
        if *self.rules() != rules {
            self.record(|record| record.set_rules(rules.clone()));
            self.data_mut().ident_mut().rules = rules;
        }
    }

    /// Gives the call a token by which the caller can cancel it: a
    /// [`CancellationToken`] of the crate `tokio-util`.
    ///
    /// [`DeadlineLayer`](crate::deadline::DeadlineLayer) watches it: when it fires, the inner
    /// future is dropped and the answer is [`ErrorKind::Cancelled`]. Without that layer the token
    /// ends only the waits of layers, as for a permit: drop the response future instead.
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.set_cancellation(token);
        self
    }

    pub(crate) fn set_cancellation(&mut self, token: CancellationToken) {
        self.data_mut().cancellation = Some(token);
    }

    /// Returns the arguments; empty if there are none.
    pub fn arguments(&self) -> &Map<String, Value> {
        self.data.arguments.map()
    }

    /// Returns the arguments as a JSON object, without a copy.
    pub fn arguments_value(&self) -> &Value {
        self.data.arguments.value()
    }

    /// Takes the arguments out, without a copy, if no other clone of the call exists. Otherwise
    /// returns a copy.
    ///
    /// Arguments that are nested deeper than [`MAX_DEPTH`] levels are left out, because to copy or
    /// drop them could overflow the stack: [check](Self::check) a call before.
    pub fn take_arguments(&mut self) -> Map<String, Value> {
        match Arc::get_mut(&mut self.data) {
            Some(data) => std::mem::take(&mut data.arguments).into_map(),
            None => self.data.arguments.clone().into_map(),
        }
    }

    /// Returns how far the call may run twice.
    pub fn replay_safety(&self) -> ReplaySafety {
        self.replay
    }

    /// Returns the caller's cancellation token.
    #[inline]
    pub fn cancellation(&self) -> Option<&CancellationToken> {
        self.data.cancellation.as_ref()
    }

    /// Returns whether the caller has cancelled the call.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancellation().is_some_and(|t| t.is_cancelled())
    }

    /// Returns which attempt this is, from 1. The 65,535th and all later ones have that number.
    #[inline]
    pub fn attempt(&self) -> u32 {
        self.attempt.into()
    }

    /// Returns the caller's values of other types.
    pub fn extensions(&self) -> &Extensions {
        &self.data.extensions
    }

    /// Returns the extensions, to change them. Copies what the caller wrote if a clone shares it.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.data_mut().extensions
    }

    /// Returns a redacted view of the arguments: made when it is printed or serialised, not before.
    pub fn sanitized(&self) -> Redacted<'_> {
        self.rules().object(self.arguments())
    }

    /// Returns a cheap handle on the call's names, for code that outlives the call.
    #[inline]
    pub fn info(&self) -> CallInfo {
        CallInfo::new(Arc::clone(&self.data.ident), self.recording, self.replay)
    }

    /// Returns the receiver of a tool's progress reports; `None` unless a timeout layer in idle
    /// mode waits for it.
    pub fn progress(&self) -> Option<Progress> {
        self.data.progress.clone()
    }

    /// Returns whether a timeout layer in idle mode waits for progress reports.
    #[inline]
    pub(crate) fn asks_for_progress(&self) -> bool {
        self.data.progress.is_some()
    }

    /// Asks the tool for progress reports, one within every `allowed`; earlier askers get
    /// the reports as well.
    pub(crate) fn ask_for_progress(&mut self, allowed: Duration) -> Progress {
        let progress = Progress::new(allowed, self.data.progress.clone());
        self.data_mut().progress = Some(progress.clone());
        progress
    }

    /// Returns whether the call can be sent: a name of 1 to [`MAX_NAME_BYTES`] bytes without
    /// control characters, arguments nested at most [`MAX_DEPTH`] levels, with at most
    /// [`MAX_VALUES`] values. Tool services call it before they send.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the limit.
    pub fn check(&self) -> Result<(), ToolError> {
        let name = self.tool();
        let bytes = name.len();
        let message = if bytes == 0 {
            "the tool name is empty".into()
        } else if bytes > MAX_NAME_BYTES {
            format!("the tool name is {bytes} bytes long, the limit is {MAX_NAME_BYTES}")
        } else if name.chars().any(char::is_control) {
            "the tool name has control characters".into()
        } else if self.data.arguments.is_too_deep() {
            format!("the arguments are nested deeper than {MAX_DEPTH} levels")
        } else if self.data.arguments.has_too_many_values() {
            too_many_values()
        } else {
            return Ok(());
        };
        Err(self.invalid(message))
    }

    /// Returns whether the arguments are nested deeper than [`MAX_DEPTH`] levels.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.data.arguments.is_too_deep()
    }

    pub(super) fn invalid(&self, message: impl Into<Cow<'static, str>>) -> ToolError {
        ToolError::new(ErrorKind::InvalidInput, message).for_call(&self.info())
    }

    pub(super) fn data_mut(&mut self) -> &mut Data {
        Arc::make_mut(&mut self.data)
    }
}

fn too_many_values() -> String {
    format!("the arguments have more than {MAX_VALUES} values")
}

info::getters!(ToolCall, data.ident);

impl ToolCall {
    /// Returns a clone that does not mark an observed call as copied. For code that only reads the
    /// copy, and for layers that report each end of an attempt.
    ///
    /// To send a second call, [clone](Self#impl-Clone-for-ToolCall) it: a clone marks that the drop
    /// of one of them does not prove that nothing was sent.
    // Field by field: the derived clone is stored in narrower pieces than it is loaded in next.
    #[inline]
    pub(crate) fn copy(&self) -> Self {
        Self {
            data: Arc::clone(&self.data),
            deadline: self.deadline,
            recording: self.recording,
            limit_ms: self.limit_ms,
            attempt: self.attempt,
            claims: AtomicU8::new(self.claims.load(Relaxed)),
            deadline_trust: self.deadline_trust,
            is_reserved: self.is_reserved,
            place: self.place,
            replay: self.replay,
            is_replay_listed: self.is_replay_listed,
        }
    }
}

impl Clone for ToolCall {
    /// Marks an observed call as copied: that one of the two was dropped then no longer proves that
    /// nothing was sent.
    #[inline]
    fn clone(&self) -> Self {
        if self.recording != 0 {
            self.data.ident.record.way.set_copied();
        }
        self.copy()
    }
}

crate::text::debug_fields! {
    /// Shows names and sizes, never a value.
    {} |this| ToolCall {
        tool: Short::name(this.tool()),
        server: this.server().map(Short::name),
        id: this.id().map(Short::name),
        arguments: format_args!("{} keys", this.arguments().len()),
        attempt,
        replay_safety: this.replay_safety(),
        timeout: this.timeout(),
        deadline, ..
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
