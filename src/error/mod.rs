//! The one error type, and how other errors become it.
//!
//! Every layer of this crate has `Error = ToolError` and takes any inner service whose error converts into it. A tool
//! function returns [`AnyError`], where `?` and `"text".into()` work; [`ToolError`], [`BoxError`] and, with the feature `anyhow`,
//! `anyhow::Error` convert as well.
//!
//! The conversion walks the source chain: our own error first, then errors known by type (tower's, tokio's,
//! [`std::io::Error`], those of the enabled features: hyper's, rmcp's, reqwest's, tonic's), and text only as a last
//! resort. An HTTP status of your own becomes an error by [`ToolError::from_status`]. What nobody can classify is [`ErrorKind::Failed`].
//!
//! # What an error proves
//!
//! What is read from a foreign error, by type or by text, chooses its [kind](ErrorKind), and keeps the status and the
//! delay that it names. It is [inferred](Evidence::Inferred), and whether the tool ran is [unknown](Execution::Unknown):
//! a tool that fails with "connection refused" may have met it after its work. Only these prove that a tool did not run:
//!
//! | error | [evidence](Evidence) |
//! |---|---|
//! | the refusal of a layer on this side: [`ToolError::refusal`]; tower's `Overloaded` through a [`NormalizeLayer`](crate::normalize::NormalizeLayer) | `Refusal` |
//! | of a leaf that is a transport, known by its type: [`transport`](crate::transport), [`ToolError::from_transport`] | `Word` |
//! | made by the tool or its leaf: [`ToolError::new`], [`ToolError::from_status`], [`ToolError::with_execution`] | `Word` |
//!
//! Our own error is taken as it is where the tool returns it directly. Below context that the tool has put above it, it
//! was one step of several: its kind stays, what it proved of its own step does not hold for the tool.
//!
//! That a call may run twice although it may have run is for others to say: with
//! [`ToolCall::with_replay_safety`](crate::ToolCall::with_replay_safety),
//! [`RetryPolicy::with_replay_safety`](crate::retry::RetryPolicy::with_replay_safety),
//! [`RetryPolicy::assume_replay_safe`](crate::retry::RetryPolicy::assume_replay_safe), or the annotations of a trusted MCP
//! server's `Catalog`.
//!
//! # Other systems' codes
//!
//! | ours | elsewhere |
//! |---|---|
//! | `TOOL_TIMEOUT` | `TOOL_EXECUTION_FAILED` (an agent loop's timeouts), `upstream_timeout` (an HTTP tool proxy) |
//! | `MCP_CONNECTION_FAILED` | `MCP_CONNECTION_ERROR` (a TypeScript executor), `upstream_connection_error` |
//! | `TOOL_EXECUTION_FAILED` | `TOOL_FAILED` (a TypeScript executor) |
//! | `TOOL_INVALID_INPUT` | `validation_error` |
//! | `TOKEN_EXCHANGE_FAILED` | `token_exchange_failed` |
//! | `CIRCUIT_OPEN` | `circuit_open` |
//! | `POLL_TIMEOUT` | `poll_timeout` |
//! | `INTERNAL_ERROR` | `internal_error` |
//!
//! [`ToolError::with_code`] sets a code on one error, [`NormalizeLayer::with_codes`] on all that pass.
//!
//! [`NormalizeLayer::with_codes`]: crate::normalize::NormalizeLayer::with_codes
//!
//! # Your own error type
//!
//! ```
//! use tower_toolcall::{ErrorKind, ToolError};
//!
//! enum MyError { QuotaUsedUp, Other(String) }
//!
//! impl From<MyError> for ToolError {
//!     fn from(e: MyError) -> Self {
//!         match e {
//!             MyError::QuotaUsedUp => ToolError::new(ErrorKind::RateLimited, "quota used up"),
//!             MyError::Other(text) => ToolError::new(ErrorKind::Failed, text),
//!         }
//!     }
//! }
//! ```

mod any;
mod kind;
mod message;
pub(crate) mod recognise;
mod response;
mod text;
mod wire;

use std::{
    borrow::Cow, convert::Infallible, error::Error as StdError, fmt, io, sync::Arc, time::Duration,
};

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::{
    any::AnyError,
    kind::{ErrorKind, Evidence, Execution},
};
use crate::{
    call::{CallInfo, ReplaySafety},
    redact::{Redacted, Rules},
    text::{Short, is_hidden, plain},
};

/// Any error, as tower and most tool functions have it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The longest developer message and the longest upstream body that an error keeps, in characters; a mark follows
/// where something was cut.
pub const MAX_TEXT: usize = 500;

/// Which limit ended a call that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimeoutLimit {
    /// The timeout of one attempt.
    Timeout,
    /// The deadline of the whole call, or of what it is part of.
    Deadline,
    /// The idle timeout: no progress was reported for so long.
    Idle,
    /// A deadline that came over a wire from a caller who is not trusted, and was shorter than the tool's own timeout.
    /// It tells nothing of the tool: circuit breakers and health registries do not count it.
    Caller,
}

/// What went wrong with a tool call.
///
/// One word wide; cloning it shares everything, the source too.
///
/// `Debug`, `Display` and every text that it gives are redacted and bounded, but for texts for users and models
/// that somebody has set. [`source`](StdError::source)
/// is the original error, for those who look for it by type: what *it* prints is its own affair, so
/// do not print whole source chains where secrets must not go.
#[derive(Clone)]
pub struct ToolError(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    execution: Execution,
    retryable: bool,
    evidence: Evidence,
    health: InHealth,
    /// An earlier attempt may have run, although this one has not started.
    ran_before: bool,
    attempts: u32,
    message: Cow<'static, str>,
    code: Option<Cow<'static, str>>,
    tool: Option<Arc<str>>,
    server: Option<Arc<str>>,
    call_id: Option<Arc<str>>,
    retry_after: Option<Duration>,
    elapsed: Option<Duration>,
    timeout: Option<TimeoutData>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// By which its texts were redacted.
    rules: Rules,
    more: Option<Box<More>>,
}

impl Inner {
    /// Says of which call it is, where it does not yet.
    fn stamp(&mut self, call: &CallInfo) {
        if self.tool.is_none() {
            self.tool = Some(Arc::clone(call.shared_tool()));
        }
        if self.server.is_none() {
            self.server = call.shared_server().cloned();
        }
        if self.call_id.is_none() {
            self.call_id = call.shared_id().cloned();
        }
    }

    /// Takes back what it proves: it was met in the middle of another call.
    fn infer(&mut self) {
        self.evidence = Evidence::Inferred;
        if self.execution == Execution::NotStarted {
            self.execution = Execution::Unknown;
        }
        if self.health == InHealth::Refused {
            self.health = InHealth::Unknown;
        }
    }
}

/// What a health registry has to do with an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InHealth {
    Unknown,
    /// It has counted it: it says nothing to one above.
    Counted,
    /// It refused the call, because its server is unavailable.
    Refused,
}

#[derive(Clone, Copy)]
struct TimeoutData {
    in_force: Duration,
    configured: Duration,
    limit: TimeoutLimit,
}

/// What few errors have.
#[derive(Clone, Default)]
struct More {
    status: Option<StatusCode>,
    body: Option<String>,
    details: Map<String, Value>,
    user_message: Option<String>,
    for_model: Option<ForModel>,
}

/// What a model is told beyond the kind's sentence. The tool's name is put in when it is read: it may be another by
/// then.
#[derive(Clone)]
enum ForModel {
    /// A text of somebody's, as it is.
    Text(String),
    /// The tools that may have been meant.
    Near(Vec<String>),
}

impl ToolError {
    /// An error of a kind, with a message for developers.
    ///
    /// A message that was put together at run time is redacted and cut at [`MAX_TEXT`] characters;
    /// a literal is taken as it is.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = match message.into() {
            Cow::Borrowed(literal) => Cow::Borrowed(literal),
            Cow::Owned(text) => Cow::Owned(safe(&Rules::default(), &text)),
        };
        Self::made(kind, message, |_| {})
    }

    /// The same of a message that is safe as it is, with all else at once: each [edit](Self::edit) of a shared error is two atomic
    /// writes.
    #[inline]
    fn made(kind: ErrorKind, message: Cow<'static, str>, fill: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Inner {
            kind,
            execution: kind.execution(),
            retryable: kind.is_retryable(),
            evidence: Evidence::Word,
            health: InHealth::Unknown,
            ran_before: false,
            attempts: 0,
            message,
            code: None,
            tool: None,
            server: None,
            call_id: None,
            retry_after: None,
            elapsed: None,
            timeout: None,
            source: None,
            rules: Rules::default(),
            more: None,
        };
        fill(&mut inner);
        Self(Arc::new(inner))
    }

    /// The refusal of a call by a layer, before anything was sent: a limit, a quota, a policy.
    ///
    /// It is [`Execution::NotStarted`]. No layer of this crate repeats it, counts it as an attempt, or counts it against
    /// the tool or its server.
    ///
    /// ```
    /// use tower_toolcall::{ErrorKind, Execution, ToolError};
    ///
    /// let error = ToolError::refusal(ErrorKind::Overloaded, "the quota of this agent is used up");
    /// assert!(error.is_own_refusal());
    /// assert_eq!(error.execution(), Execution::NotStarted);
    /// ```
    pub fn refusal(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind, message).into_own_refusal()
    }

    /// The error that a peer's HTTP status means. For a status that is no error the kind is
    /// [`ErrorKind::Failed`]: the caller came here with one.
    ///
    /// A 503 or 429 *with* a delay ([`with_retry_after`](Self::with_retry_after)) says that the
    /// request was turned away, so it counts as not started.
    pub fn from_status(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        let kind = ErrorKind::from_http_status(status.as_u16()).unwrap_or(ErrorKind::Failed);
        Self::new(kind, message).with_status(status)
    }

    /// Any error as a `ToolError`: the function for `map_err`. See the [module docs](self).
    ///
    /// What is read from a foreign error is [inferred](Evidence::Inferred): it has a kind, and whether the tool ran is
    /// [unknown](Execution::Unknown).
    pub fn from_box(error: BoxError) -> Self {
        recognise::from_box(error)
    }

    /// The error of a leaf that is a transport, as the leaf met it on its own wire: the leaf's
    /// [word](Evidence::Word), if its type is known. A connection that was refused has
    /// [not started](Execution::NotStarted) the tool. [`transport`](crate::transport) has the table, and does this for
    /// all errors of a leaf.
    ///
    /// ```
    /// use std::io;
    /// use tower_toolcall::{Evidence, Execution, ToolError};
    ///
    /// let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    ///
    /// let error = ToolError::from_transport(refused().into());
    /// assert_eq!((error.evidence(), error.execution()), (Evidence::Word, Execution::NotStarted));
    ///
    /// // Out of a tool it proves nothing: the tool may have met it after its work.
    /// let error = ToolError::from_box(refused().into());
    /// assert_eq!((error.evidence(), error.execution()), (Evidence::Inferred, Execution::Unknown));
    /// ```
    pub fn from_transport(error: BoxError) -> Self {
        recognise::from_transport(error)
    }

    /// The error of a call that a layer has ended after the time `in_force`, which a deadline may have made shorter than the
    /// `configured` one.
    pub fn timed_out(
        call: &CallInfo,
        in_force: Duration,
        configured: Duration,
        limit: TimeoutLimit,
    ) -> Self {
        let ms = in_force.as_millis();
        let message = match limit {
            TimeoutLimit::Timeout => format!("Tool invocation timed out after {ms}ms"),
            TimeoutLimit::Deadline | TimeoutLimit::Caller => {
                format!("Tool invocation timed out after {ms}ms (limited by the deadline)")
            }
            TimeoutLimit::Idle => {
                format!("Tool invocation timed out after {ms}ms without progress")
            }
        };
        Self::made(ErrorKind::Timeout, message.into(), |e| {
            e.timeout = Some(TimeoutData {
                in_force,
                configured,
                limit,
            });
            e.stamp(call);
        })
        .redacted_by(call.rules())
    }

    /// The refusal of a call that a layer does not let pass yet.
    pub(crate) fn not_admitted(
        call: Option<&CallInfo>,
        kind: ErrorKind,
        message: &'static str,
        retry_after: Duration,
    ) -> Self {
        let error = Self::made(kind, message.into(), |e| {
            e.execution = Execution::NotStarted;
            e.evidence = Evidence::Refusal;
            e.retry_after = Some(retry_after);
            if let Some(call) = call {
                e.stamp(call);
            }
        });
        match call {
            Some(call) => error.redacted_by(call.rules()),
            None => error,
        }
    }

    /// Sets an own code in the place of the kind's. One that was put together at run time is redacted and cut
    /// at 64 characters.
    #[must_use]
    pub fn with_code(self, code: impl Into<Cow<'static, str>>) -> Self {
        let code = match code.into() {
            Cow::Owned(text) => Cow::Owned(Short::name(&text).to_string()),
            literal => literal,
        };
        self.edit(|e| e.code = Some(code))
    }

    /// Sets the cause. An error's own messages are not changed by it. A
    /// [`TokenExchange`](ErrorKind::TokenExchange) is as retryable as the [`ToolError`] that caused it.
    #[must_use]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        let source: Arc<dyn StdError + Send + Sync> = source.into().into();
        let cause = source
            .downcast_ref::<Self>()
            .map(|cause| cause.is_retryable());
        self.edit(|e| {
            e.source = Some(source);
            if let (ErrorKind::TokenExchange, Some(retryable)) = (e.kind, cause) {
                e.retryable = retryable;
            }
        })
    }

    /// Sets the tool's name.
    #[must_use]
    pub fn with_tool(self, tool: impl Into<Arc<str>>) -> Self {
        let tool = tool.into();
        self.edit(|e| e.tool = Some(tool))
    }

    /// Sets the server's name.
    #[must_use]
    pub fn with_server(self, server: impl Into<Arc<str>>) -> Self {
        let server = server.into();
        self.edit(|e| e.server = Some(server))
    }

    /// Sets how long to wait before another attempt has a chance.
    ///
    /// An [`Upstream`](ErrorKind::Upstream) error with status 503 becomes [`Execution::NotStarted`]: the server turned
    /// the request away and said when to come back. One that was [inferred](Evidence::Inferred) does not.
    #[must_use]
    pub fn with_retry_after(self, delay: Duration) -> Self {
        let unavailable = self.status() == Some(StatusCode::SERVICE_UNAVAILABLE);
        self.edit(|e| {
            e.retry_after = Some(delay);
            if unavailable && e.kind == ErrorKind::Upstream && e.evidence != Evidence::Inferred {
                e.execution = Execution::NotStarted;
            }
        })
    }

    /// Says whether the tool ran, where more is known than the kind tells. With [`Execution::NotStarted`], an error that was
    /// [inferred](Evidence::Inferred) becomes a leaf's word ([`Evidence::Word`]): retry layers then may repeat any call.
    #[must_use]
    pub fn with_execution(self, execution: Execution) -> Self {
        self.edit(|e| {
            e.execution = execution;
            if execution == Execution::NotStarted && e.evidence == Evidence::Inferred {
                e.evidence = Evidence::Word;
            }
        })
    }

    /// The same where only the execution is known better: what the error is known by stays.
    pub(crate) fn unsent(self) -> Self {
        self.edit(|e| e.execution = Execution::NotStarted)
    }

    /// Says whether the same call may succeed later, where more is known than the kind tells.
    #[must_use]
    pub fn with_retryable(self, retryable: bool) -> Self {
        self.edit(|e| e.retryable = retryable)
    }

    /// Sets the upstream's HTTP status.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        self.edit_more(|m| m.status = Some(status))
    }

    /// Keeps the upstream's body, redacted and cut at [`MAX_TEXT`] characters. Control characters, and those that turn
    /// or hide text (bidirectional controls, zero-width characters), become spaces, here as in all texts of an error.
    #[must_use]
    pub fn with_body(self, body: &str) -> Self {
        let body = safe(&self.0.rules, body);
        self.edit_more(|m| m.body = Some(body))
    }

    /// Adds a detail. Details are redacted when they are read.
    #[must_use]
    pub fn with_detail(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.edit_more(|m| {
            m.details.insert(key.into(), value.into());
        })
    }

    /// Sets how many attempts were made.
    #[must_use]
    pub fn with_attempts(self, attempts: u32) -> Self {
        self.edit(|e| e.attempts = attempts)
    }

    /// Sets how long the call took.
    #[must_use]
    pub fn with_elapsed(self, elapsed: Duration) -> Self {
        self.edit(|e| e.elapsed = Some(elapsed))
    }

    /// Replaces the text for users. Taken as it is; redacted and cut where the error is serialised.
    #[must_use]
    pub fn with_user_message(self, text: impl Into<String>) -> Self {
        self.edit_more(|m| m.user_message = Some(text.into()))
    }

    /// Replaces the text for models. Taken as it is; redacted and cut where the error is serialised.
    #[must_use]
    pub fn with_model_message(self, text: impl Into<String>) -> Self {
        self.edit_more(|m| m.for_model = Some(ForModel::Text(text.into())))
    }

    /// Makes it the error of a tool that does not exist, and names others that may have been meant: the message for
    /// developers has all of them, the one for models as many as fit. Names that would be redacted are left out.
    #[must_use]
    pub fn with_near(self, mut names: Vec<String>) -> Self {
        let rules = self.0.rules.clone();
        names.retain(|name| rules.redact_text(name) == name.as_str());
        let message = match &names[..] {
            [] => Cow::Borrowed(message::NO_SUCH_TOOL),
            names => {
                let near = names.join("`, `");
                let text = format!("{}; near it: `{near}`", message::NO_SUCH_TOOL);
                Cow::Owned(safe(&rules, &text))
            }
        };
        self.edit(|e| e.message = message)
            .edit_more(|m| m.for_model = Some(ForModel::Near(names)))
    }

    /// The same error as a refusal of this side: the call was not sent, and nothing is known of the tool.
    pub(crate) fn into_own_refusal(self) -> Self {
        self.edit(|e| {
            e.evidence = Evidence::Refusal;
            e.execution = Execution::NotStarted;
        })
    }

    /// The same error as one that was read from a foreign error: whether the tool ran is not known.
    pub(crate) fn into_inferred(self) -> Self {
        self.edit(|e| {
            e.infer();
            e.execution = Execution::Unknown;
        })
    }

    /// The refusal of a call whose server is unavailable.
    #[cold]
    pub(crate) fn unavailable(wait: Duration) -> Self {
        Self::refusal(ErrorKind::ConnectionFailed, "the server is unavailable")
            .with_retry_after(wait)
            .edit(|e| e.health = InHealth::Refused)
    }

    /// Whether it is that.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.0.health == InHealth::Refused
    }

    /// Marks a failure that a health registry has counted.
    pub(crate) fn into_counted(self) -> Self {
        self.edit(|e| e.health = InHealth::Counted)
    }

    /// Whether one has.
    pub(crate) fn is_counted(&self) -> bool {
        self.0.health == InHealth::Counted
    }

    /// Whether the tool surely did not run. An overloaded server's word (503, with a delay) is not enough for a call that
    /// must not run twice.
    pub(crate) fn is_surely_not_started(&self, replay: ReplaySafety) -> bool {
        let overloaded = self.status() == Some(StatusCode::SERVICE_UNAVAILABLE);
        self.execution() == Execution::NotStarted
            && self.evidence() != Evidence::Inferred
            && !(overloaded && replay == ReplaySafety::Unsafe)
    }

    /// The error of a call whose next attempt this side refused: what the tool said last, with the refusal beside it.
    pub(crate) fn before(self, refusal: &Self) -> Self {
        let error = self.with_detail("refused", refusal.code());
        match (error.retry_after(), refusal.retry_after()) {
            (None, Some(delay)) => error.edit(|e| e.retry_after = Some(delay)),
            _ => error,
        }
    }

    /// Says that an earlier attempt may have run, to a gate above that repeats this one.
    pub(crate) fn after_ambiguous(self) -> Self {
        self.edit(|e| e.ran_before = true)
    }

    /// Whether somebody said so.
    pub(crate) fn is_after_ambiguous(&self) -> bool {
        self.0.ran_before
    }

    /// Stamps what the error does not say yet: tool, server, call id. The first writer wins. Its texts are
    /// redacted by the call's [rules](crate::ToolCall::with_rules), if it has any of its own.
    ///
    /// The error of a call with another id, or without ids of a tool of another name, was met while this one ran: of this one it is
    /// merely [inferred](Evidence::Inferred), and that the other one had not started becomes [`Execution::Unknown`].
    #[must_use]
    pub fn about(self, call: &CallInfo) -> Self {
        if self.0.tool.is_some()
            && (self.0.server.is_some() || call.server().is_none())
            && (self.0.call_id.is_some() || call.id().is_none())
            && !self.is_of_another(call)
            && self.is_redacted_by(call.rules())
        {
            return self;
        }
        let of_another = self.is_of_another(call);
        self.edit(|e| {
            if of_another {
                e.infer();
            }
            e.stamp(call);
        })
        .redacted_by(call.rules())
    }

    /// The error of a call that was passed on under other names (`inner`), as its caller knows it (`outer`).
    ///
    /// What it says of the inner call it then says of the outer one, that it has not started for one. An error
    /// of yet another call stays one.
    pub(crate) fn readdressed(self, inner: &CallInfo, outer: &CallInfo) -> Self {
        let error = self.about(inner);
        let elsewhere = inner.server().is_some() && error.server() != inner.server();
        if elsewhere || error.tool() != Some(inner.tool()) {
            return error.about(outer);
        }
        error
            .edit(|e| {
                e.tool = Some(Arc::clone(outer.shared_tool()));
                if let Some(server) = outer.shared_server() {
                    e.server = Some(Arc::clone(server));
                }
            })
            .about(outer)
    }

    fn is_redacted_by(&self, rules: &Rules) -> bool {
        *rules == Rules::default() || self.0.rules == *rules
    }

    /// By rules of a caller's own, which add to those by which it is redacted already.
    fn redacted_by(self, rules: &Rules) -> Self {
        if self.is_redacted_by(rules) {
            return self;
        }
        let again = |text: &str| safe(rules, &rules.without_cut_secret(text));
        self.edit(|e| {
            if let Cow::Owned(text) = &mut e.message {
                *text = again(text);
            }
            if let Some(more) = &mut e.more {
                more.body = more.body.as_deref().map(again);
                match &mut more.for_model {
                    Some(ForModel::Near(names)) => {
                        names.retain(|name| rules.redact_text(name) == name.as_str());
                    }
                    // Set as it is, and redacted where it is written.
                    Some(ForModel::Text(_)) | None => {}
                }
                // They are redacted when they are read, by the last rules alone.
                more.details = e.rules.redacted(&more.details);
            }
            e.rules = rules.clone();
        })
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The code: the kind's, unless [`with_code`](Self::with_code) set another.
    pub fn code(&self) -> &str {
        self.0.code.as_deref().unwrap_or(self.0.kind.code())
    }

    /// The message for developers: redacted, at most [`MAX_TEXT`] characters.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// One sentence that may be shown to a user: names the tool, nothing internal, at most 200
    /// characters unless [replaced](Self::with_user_message).
    pub fn user_message(&self) -> String {
        match self.more().and_then(|m| m.user_message.as_ref()) {
            Some(text) => text.clone(),
            None => message::for_user(self),
        }
    }

    /// One sentence for the model: names the tool and what to do next, at most 200 characters
    /// unless [replaced](Self::with_model_message).
    pub fn model_message(&self) -> String {
        match self.more().and_then(|m| m.for_model.as_ref()) {
            Some(ForModel::Text(text)) => text.clone(),
            Some(ForModel::Near(names)) if !names.is_empty() => message::near(self, names),
            _ => message::for_model(self),
        }
    }

    /// Whether the same call may succeed later. Advice to the caller, not what a retry layer does.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether the agent can go on without this tool's answer: as the [kind](ErrorKind::is_recoverable) says, and where
    /// the tool is there, but not what it looked for (an upstream's 404).
    pub fn is_recoverable(&self) -> bool {
        self.0.kind.is_recoverable()
            || self.kind() == ErrorKind::NotFound && self.status().is_some()
    }

    /// How long to wait before another attempt has a chance.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// [`retry_after`](Self::retry_after) for a header: whole seconds, rounded up, at least 1.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.0.retry_after.map(message::seconds)
    }

    /// Did the tool run?
    pub fn execution(&self) -> Execution {
        self.0.execution
    }

    /// Who says what the error says.
    pub fn evidence(&self) -> Evidence {
        self.0.evidence
    }

    /// Whether a layer on this side refused the call, so that it was never sent: see [`refusal`](Self::refusal).
    pub fn is_own_refusal(&self) -> bool {
        self.0.evidence == Evidence::Refusal
    }

    /// The tool's name, if known.
    pub fn tool(&self) -> Option<&str> {
        self.0.tool.as_deref()
    }

    /// The server's name, if known.
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    /// The call's id, if known.
    pub fn call_id(&self) -> Option<&str> {
        self.0.call_id.as_deref()
    }

    /// The upstream's HTTP status.
    pub fn status(&self) -> Option<StatusCode> {
        self.more()?.status
    }

    /// The upstream's body: redacted, at most [`MAX_TEXT`] characters.
    pub fn body(&self) -> Option<&str> {
        self.more()?.body.as_deref()
    }

    /// How many attempts were made, if a retry layer counted them.
    pub fn attempts(&self) -> Option<u32> {
        Some(self.0.attempts).filter(|n| *n > 0)
    }

    /// How long the call took, if somebody measured it.
    pub fn elapsed(&self) -> Option<Duration> {
        self.0.elapsed
    }

    /// The timeout that was in force when the call timed out.
    pub fn timeout(&self) -> Option<Duration> {
        self.0.timeout.map(|t| t.in_force)
    }

    /// The timeout as configured, before a deadline shortened it.
    pub fn configured_timeout(&self) -> Option<Duration> {
        self.0.timeout.map(|t| t.configured)
    }

    /// Which limit ended the call that timed out.
    pub fn timeout_limit(&self) -> Option<TimeoutLimit> {
        self.0.timeout.map(|t| t.limit)
    }

    /// The details, redacted.
    pub fn details(&self) -> Option<Redacted<'_>> {
        let details = &self.more()?.details;
        (!details.is_empty()).then(|| self.0.rules.object(details))
    }

    /// The JSON-RPC error object for a JSON-RPC gateway (not for an MCP peer; see [`ErrorKind`]).
    ///
    /// Beside the two fixed texts of timeouts and open breakers the message is the
    /// [user's](Self::user_message). `data` always has `code` and `tool_id`, and where they are known `server`, `timeout_ms`,
    /// `configured_timeout_ms`, `retry_after_seconds` and `attempts`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_toolcall::{ErrorKind, ToolError};
    ///
    /// let error = ToolError::new(ErrorKind::CircuitOpen, "5 failures in a row")
    ///     .with_tool("search")
    ///     .with_retry_after(Duration::from_millis(1500));
    ///
    /// assert_eq!(error.to_json_rpc(), serde_json::json!({
    ///     "code": -32001,
    ///     "message": "Circuit breaker open",
    ///     "data": { "code": "CIRCUIT_OPEN", "tool_id": "search", "retry_after_seconds": 2 },
    /// }));
    /// ```
    pub fn to_json_rpc(&self) -> Value {
        let message = match self.kind() {
            ErrorKind::Timeout | ErrorKind::DeadlineExceeded => "Tool invocation timed out",
            ErrorKind::CircuitOpen => "Circuit breaker open",
            _ => &self.public_message(),
        };
        json!({
            "code": self.kind().json_rpc_code(),
            "message": message,
            "data": self.public_facts("tool_id"),
        })
    }

    /// What callers outside may know, but for texts; `tool` is what the member with the tool's name is called.
    fn public_facts(&self, tool: &'static str) -> Map<String, Value> {
        let ms = |d: Duration| json!(u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        let name = |s: &str| json!(Short::name(s).to_string());
        let members = [
            ("code", Some(json!(self.code()))),
            (tool, Some(self.tool().map_or(Value::Null, name))),
            ("server", self.server().map(name)),
            ("timeout_ms", self.timeout().map(ms)),
            (
                "configured_timeout_ms",
                self.configured_timeout()
                    .filter(|d| Some(*d) != self.timeout())
                    .map(ms),
            ),
            (
                "retry_after_seconds",
                self.retry_after_seconds().map(Value::from),
            ),
            ("attempts", self.attempts().map(Value::from)),
        ];
        members
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }

    fn is_of_another(&self, call: &CallInfo) -> bool {
        let another = match (self.call_id(), call.id()) {
            (Some(theirs), Some(own)) => theirs != own,
            _ => {
                let elsewhere =
                    matches!((self.server(), call.server()), (Some(a), Some(b)) if a != b);
                elsewhere || self.tool().is_some_and(|theirs| !call.is_named(theirs))
            }
        };
        another
            && (self.evidence() != Evidence::Inferred || self.execution() == Execution::NotStarted)
    }

    fn more(&self) -> Option<&More> {
        self.0.more.as_deref()
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    fn edit_more(self, change: impl FnOnce(&mut More)) -> Self {
        self.edit(|e| change(e.more.get_or_insert_default()))
    }
}

/// Foreign text as an error may show it.
fn safe(rules: &Rules, text: &str) -> String {
    let shown = rules.text(text, MAX_TEXT).to_string();
    // Most texts need no second copy.
    match shown.contains(is_hidden) {
        true => shown.chars().map(plain).collect(),
        false => shown,
    }
}

/// Code and message: `TOOL_TIMEOUT: Tool invocation timed out after 5000ms`.
impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

/// Redacted; shows that there is a source, not what it says.
impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_struct("ToolError");
        d.field("kind", &self.kind())
            .field("code", &self.code())
            .field("message", &self.message())
            .field("execution", &self.execution())
            .field("retryable", &self.is_retryable());
        let mut known = |name, value: Option<&dyn fmt::Debug>| {
            if let Some(value) = value {
                d.field(name, value);
            }
        };
        let (tool, server) = (self.tool().map(Short::name), self.server().map(Short::name));
        known("tool", tool.as_ref().map(|v| v as _));
        known("server", server.as_ref().map(|v| v as _));
        known("retry_after", self.0.retry_after.as_ref().map(|v| v as _));
        known("timeout", self.timeout().as_ref().map(|v| v as _));
        known("status", self.status().as_ref().map(|v| v as _));
        known("body", self.body().as_ref().map(|v| v as _));
        known("attempts", self.attempts().as_ref().map(|v| v as _));
        known("source", self.0.source.as_ref().map(|_| &"[error]" as _));
        d.finish()
    }
}

impl StdError for ToolError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

impl From<BoxError> for ToolError {
    fn from(error: BoxError) -> Self {
        Self::from_box(error)
    }
}

impl From<Infallible> for ToolError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<io::Error> for ToolError {
    fn from(error: io::Error) -> Self {
        Self::from_box(error.into())
    }
}

#[cfg(test)]
mod tests;
