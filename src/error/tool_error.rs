use std::{
    borrow::Cow,
    convert::Infallible,
    error::Error as StdError,
    fmt, io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::StatusCode;

use super::{
    AnyError, BoxError, ErrorKind, Evidence, Execution, MAX_TEXT, TimeoutLimit, code,
    inner::{ForModel, Inner, Message, More, Source},
    message, recognise,
};
#[cfg(feature = "validate")]
use crate::text::{TRUNCATED, prefix};
use crate::{
    call::{JobRef, ReplaySafety},
    event::transition::OpenCause,
    redact::{Redacted, Rules},
    text::{Short, is_hidden, plain, redacted_head},
};

/// How many reasons for refused arguments a model reads.
#[cfg(feature = "validate")]
const MAX_REASONS: usize = 3;

/// The longest time that a caller is told to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(31 * 24 * 3600);

/// The error of a tool call.
///
/// One word wide; cloning it shares everything, the source too.
///
/// `Debug`, `Display` and every text that it gives are redacted and bounded, except the texts for
/// users and models that were [set](Self::with_user_message). [`source`](StdError::source) returns
/// the original error. Its text is not redacted: do not print whole source chains where secrets
/// must not appear.
#[derive(Clone)]
pub struct ToolError(pub(super) Arc<Inner>);

impl ToolError {
    /// Creates an error of a kind, with a message for developers.
    ///
    /// A message made at run time is redacted and cut at [`MAX_TEXT`] characters; a literal is not
    /// changed.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::made(kind, literal_or_safe(message.into()), |_| {})
    }

    /// Creates an error with a message that needs no redaction. `fill` sets all other fields
    /// together, because each [edit](Self::edit) of a shared error costs two atomic writes.
    #[inline]
    pub(super) fn made(
        kind: ErrorKind,
        message: Cow<'static, str>,
        fill: impl FnOnce(&mut Inner),
    ) -> Self {
        let mut inner = Inner {
            kind,
            execution: kind.execution(),
            retryable: kind.is_retryable(),
            evidence: Evidence::Reported,
            counted: false,
            ran_before: false,
            must_not_repeat: false,
            attempts: 0,
            message: Message::Text(message),
            code: None,
            tool: None,
            server: None,
            call_id: None,
            retry_after: None,
            own_delay: false,
            elapsed: None,
            status: None,
            timeout: None,
            source: Source::None,
            rules: Rules::default(),
            cause: None,
            retry_refused: None,
            more: None,
            all_details: OnceLock::new(),
        };
        fill(&mut inner);
        Self(Arc::new(inner))
    }

    /// Returns the refusal of a call by a layer, before anything was sent: a limit, a quota, a
    /// policy.
    ///
    /// It is [`Execution::NotStarted`]. No layer of this crate repeats it, counts it as an attempt,
    /// or counts it against the tool or its server.
    ///
    /// ```
    /// use tower_toolcall::{ErrorKind, Execution, ToolError};
    ///
    /// let error = ToolError::refusal(ErrorKind::Overloaded, "the quota of this agent is used up");
    /// assert!(error.is_own_refusal());
    /// assert_eq!(error.execution(), Execution::NotStarted);
    /// ```
    pub fn refusal(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::made(kind, literal_or_safe(message.into()), Inner::refuse)
    }

    /// Creates the error of a peer's HTTP status. The kind is [`ErrorKind::Failed`] if the status
    /// does not signal an error.
    ///
    /// A 503 or 429 *with* a delay ([`with_retry_after`](Self::with_retry_after)) says that the
    /// request was turned away, so it counts as not started. A 403 with a delay is a rate limit. A
    /// redirect counts as an answer that cannot be used. Headers and body are read by `from_http`
    /// (feature `hints`).
    pub fn from_status(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        let kind = ErrorKind::from_http_status(status.as_u16()).unwrap_or(ErrorKind::Failed);
        let error = Self::new(kind, message).with_status(status);
        match status.is_redirection() {
            // Often the answer to a form that was taken: no other arguments change that.
            true => error.with_unusable_answer(),
            false => error,
        }
    }

    /// Converts any error into a `ToolError`: the function for `map_err`. See the [module
    /// docs](crate::error).
    ///
    /// What is read from a foreign error is [inferred](Evidence::Inferred): it has a kind, and
    /// whether the tool ran is [unknown](Execution::Unknown).
    pub fn from_box(error: BoxError) -> Self {
        // The tool may have met it in the middle of its work: it proves nothing.
        recognise::read(error, false)
    }

    /// Creates the error that a transport met on its own connection. It is
    /// [reported](Evidence::Reported) if its type is known. A refused connection has [not
    /// started](Execution::NotStarted) the tool. [`transport`](crate::transport) has the table, and
    /// does this for all errors of a tool service.
    ///
    /// Lost connections of reqwest are known by type only with the feature `reqwest`, those of
    /// hyper and hyper-util only with `hyper`. Without the feature they are
    /// [inferred](Evidence::Inferred), and a breaker counts them against one principal only.
    ///
    /// ```
    /// use std::io;
    /// use tower_toolcall::{Evidence, Execution, ToolError};
    ///
    /// let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    ///
    /// let error = ToolError::from_transport(refused());
    /// assert_eq!(error.evidence(), Evidence::Reported);
    /// assert_eq!(error.execution(), Execution::NotStarted);
    ///
    /// // Out of a tool it proves nothing: the tool may have met it after its work.
    /// let error = ToolError::from_box(refused().into());
    /// assert_eq!((error.evidence(), error.execution()), (Evidence::Inferred, Execution::Unknown));
    /// ```
    pub fn from_transport(error: impl Into<AnyError>) -> Self {
        recognise::read(error.into().into_inner(), true)
    }

    /// Returns the error of an answer that this side cannot use: [`Reported`](ErrorKind::Reported),
    /// with a text that does not ask the model to repeat the call, because the tool ran.
    ///
    /// For tool services that read answers: the answer is too large, or not of the promised form.
    pub fn unusable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Reported, message).with_unusable_answer()
    }

    /// Creates the refusal of arguments. In its reasons every foreign word was redacted and cut.
    #[cfg(feature = "validate")]
    pub(crate) fn bad_arguments(heading: &str, reasons: &[String]) -> Self {
        let all = format!("{heading}{}", reasons.join("; "));
        let message = match prefix(&all, MAX_TEXT) {
            (head, true) => format!("{head}{TRUNCATED}"),
            _ => all,
        };
        let told = &reasons[..reasons.len().min(MAX_REASONS)];
        Self::made(ErrorKind::InvalidInput, message.into(), Inner::refuse)
            .edit_more(|m| m.for_model = Some(ForModel::Why(told.join("; "))))
    }

    /// The refusal of a call that a layer does not let pass yet. The details say why a circuit
    /// breaker has `opened`.
    pub(crate) fn not_admitted(
        kind: ErrorKind,
        message: &'static str,
        retry_after: Duration,
        opened: Option<OpenCause>,
    ) -> Self {
        Self::made(kind, message.into(), |e| {
            e.refuse();
            e.retry_after = Some(retry_after);
            e.cause = opened;
        })
    }

    pub(crate) fn set_counted(&mut self) {
        self.change(|e| e.counted = true);
    }

    /// Returns whether the tool surely did not run. The report of an overloaded server (503, with a
    /// delay) is not enough for a call that must not run twice.
    pub(crate) fn is_surely_not_started(&self, replay: ReplaySafety) -> bool {
        let overloaded = self.status() == Some(StatusCode::SERVICE_UNAVAILABLE);
        self.execution() == Execution::NotStarted
            && self.evidence() != Evidence::Inferred
            && !(overloaded && replay == ReplaySafety::Unsafe)
    }

    /// Adds the refusal of the next attempt, its code and delay, to the last error of the tool.
    pub(crate) fn before(self, refusal: &Self) -> Self {
        let error = self.with_detail("refused", refusal.code());
        match (error.retry_after(), refusal.retry_after()) {
            (None, Some(delay)) => error.with_own_delay(delay),
            _ => error,
        }
    }

    /// Adds the error of the attempt before to that of a call which was ended during an attempt.
    /// An inner layer may have added the error of a later attempt, which is kept.
    pub(crate) fn after(self, failed: Self) -> Self {
        const LAST: &str = "last_attempt";
        let has_last = |e: &Self| e.more().is_some_and(|more| more.details.contains_key(LAST));
        if has_last(&self) {
            return self;
        }
        let last = serde_json::json!({ "code": failed.code(), "message": failed.message() });
        // Without its own predecessor: errors of many attempts would form a chain.
        let failed = match has_last(&failed) {
            true => failed.without_source(),
            false => failed,
        };
        self.with_detail(LAST, last).with_source(failed)
    }

    /// Returns whether the deadline of the call has ended it.
    pub(crate) fn is_of_deadline(&self) -> bool {
        use TimeoutLimit::{Caller, Deadline};
        matches!(self.timeout_limit(), Some(Deadline | Caller))
    }

    /// Says that an earlier attempt may have run, to a gate above that repeats this one.
    pub(crate) fn after_ambiguous(self) -> Self {
        self.edit(|e| e.ran_before = true)
    }

    /// Returns whether an earlier attempt may have run.
    pub(crate) fn is_after_ambiguous(&self) -> bool {
        self.0.ran_before
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the code: the kind's, unless [`with_code`](Self::with_code) set another.
    pub fn code(&self) -> &str {
        self.0.code.as_deref().unwrap_or(self.0.kind.code())
    }

    /// Returns the message for developers: redacted, at most [`MAX_TEXT`] characters. That of a
    /// foreign error is printed when it is first asked for, by the thread that asks: not while it
    /// holds a lock that the error's own `Display` takes.
    pub fn message(&self) -> &str {
        let printed = match &self.0.message {
            Message::Text(text) => return text,
            Message::OfSource(printed) => printed,
        };
        printed.get().unwrap_or_else(|| {
            // A copy has the words of the error that it was copied from, should the source say
            // something else each time.
            if let Source::Of(owner) = &self.0.source
                && let Message::OfSource(_) = &owner.message
            {
                let text = Self(Arc::clone(owner)).message().into();
                return printed.get_or_init(|| text);
            }
            // Foreign code runs outside the lock.
            let text = self.0.source().map(recognise::message_of);
            printed.get_or_init(|| text.unwrap_or_default().into())
        })
    }

    /// Returns one sentence that may be shown to a user: names the tool, nothing internal, at most
    /// 200 characters unless [replaced](Self::with_user_message).
    pub fn user_message(&self) -> String {
        match self.more().and_then(|m| m.user_message.as_ref()) {
            Some(text) => text.clone(),
            None => message::for_user(self),
        }
    }

    /// Returns one sentence for the model: names the tool and what to do next, at most 200
    /// characters unless [replaced](Self::with_model_message).
    pub fn model_message(&self) -> String {
        match self.more().and_then(|m| m.for_model.as_ref()) {
            Some(ForModel::Text(text)) => text.clone(),
            Some(ForModel::Near(names)) if !names.is_empty() => message::near(self, names),
            #[cfg(feature = "validate")]
            Some(ForModel::Why(why)) => message::because_of(self, why),
            _ => message::for_model(self),
        }
    }

    /// The reason in the text for models, if it names one: redacted, at most 100 characters,
    /// without a full stop.
    pub(crate) fn reason(&self) -> Option<Box<str>> {
        message::reason(self, message::MAX_REASON)
    }

    /// Returns whether the same call may succeed later. Advice to the caller, not what a retry
    /// layer does.
    ///
    /// False for a call marked [`Unsafe`](ReplaySafety::Unsafe) that may have run, whatever its
    /// kind. If the safety of the call is not known, the kind decides. Every form of the error
    /// shows its [`execution`](Self::execution) too.
    pub fn is_retryable(&self) -> bool {
        self.is_transient()
            && !(self.0.must_not_repeat && self.execution() != Execution::NotStarted)
    }

    /// Returns whether the [job](Self::job) of the call still runs and the call's time is over.
    /// Another call may ask for the job, and must not start it again.
    pub fn is_pending(&self) -> bool {
        let limit = self.0.details().and_then(|all| all.get(code::POLL_LIMIT));
        self.kind() == ErrorKind::PollTimeout
            && self.job().is_some()
            && limit.is_some_and(|limit| limit == code::LIMIT_TIME)
    }

    /// Returns whether what went wrong may pass, without regard to whether the call may run twice.
    pub(crate) fn is_transient(&self) -> bool {
        self.0.retryable
    }

    /// Returns whether the agent can continue without this tool's answer. The
    /// [kind](ErrorKind::is_recoverable) decides, with two exceptions that are recoverable: the
    /// tool exists and did not find something (an upstream's 404), or a layer on this side
    /// [refused](Self::is_own_refusal) the call because it is not set up for it.
    pub fn is_recoverable(&self) -> bool {
        self.0.kind.is_recoverable()
            || self.kind() == ErrorKind::NotFound && self.status().is_some()
            || self.kind() == ErrorKind::Internal && self.is_own_refusal()
    }

    /// Returns how long to wait before another attempt has a chance.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns [`retry_after`](Self::retry_after) for a header: whole seconds, rounded up, at least
    /// 1 and at most 31 days, the longest period of a quota. Texts for users and models say no more
    /// either.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let delay = self.0.retry_after?.min(MAX_RETRY_AFTER);
        Some(message::seconds(delay))
    }

    /// Returns how far it is known that the tool ran.
    pub fn execution(&self) -> Execution {
        self.0.execution
    }

    /// Returns how far other layers may act on what the error says.
    pub fn evidence(&self) -> Evidence {
        self.0.evidence
    }

    /// Returns whether a layer on this side refused the call, so that it was never sent: see
    /// [`refusal`](Self::refusal).
    pub fn is_own_refusal(&self) -> bool {
        self.0.evidence == Evidence::Refusal
    }

    /// Returns the delay that a failing server announces, as the tool service saw it on its own
    /// connection: a 503 with `Retry-After`, for example. A delay read from a text or chosen by
    /// this side does not count.
    pub(crate) fn announced_delay(&self) -> Option<Duration> {
        use ErrorKind::{ConnectionFailed, Overloaded, Upstream};
        let fails = matches!(self.kind(), Upstream | Overloaded | ConnectionFailed);
        let is_seen = self.evidence() == Evidence::Reported && !self.has_own_delay();
        self.retry_after().filter(|_| fails && is_seen)
    }

    /// Returns whether the tool is alive and has rejected this request, as input that is not valid.
    /// A denial does not count, because credentials are checked in front of the tool. Neither does
    /// a guess from a text.
    pub(crate) fn is_an_answer(&self) -> bool {
        use ErrorKind::{InvalidInput, NotFound, Reported};
        let refused = || self.status().is_some_and(|status| status.is_client_error());
        self.evidence() == Evidence::Reported
            && match self.kind() {
                InvalidInput | NotFound | Reported => true,
                ErrorKind::Failed => refused(),
                _ => false,
            }
    }

    /// Returns the tool's name, if known.
    pub fn tool(&self) -> Option<&str> {
        self.0.tool.as_deref()
    }

    /// Returns the server's name, if known.
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    /// Returns the call's id, if known.
    pub fn call_id(&self) -> Option<&str> {
        self.0.call_id.as_deref()
    }

    /// Returns the upstream's HTTP status.
    pub fn status(&self) -> Option<StatusCode> {
        self.0.status
    }

    /// Returns the upstream's body: redacted, at most [`MAX_TEXT`] characters.
    pub fn body(&self) -> Option<&str> {
        self.more()?.body.as_deref()
    }

    /// Returns how many attempts were made, if a retry layer counted them.
    pub fn attempts(&self) -> Option<u32> {
        Some(self.0.attempts).filter(|n| *n > 0)
    }

    /// Returns how long the call took, if a layer measured it.
    pub fn elapsed(&self) -> Option<Duration> {
        self.0.elapsed
    }

    /// Returns the timeout that was in force when the call timed out.
    pub fn timeout(&self) -> Option<Duration> {
        self.0.timeout.map(|t| t.in_force)
    }

    /// Returns the timeout as configured, before a deadline shortened it.
    pub fn configured_timeout(&self) -> Option<Duration> {
        self.0.timeout.map(|t| t.configured)
    }

    /// Returns which limit ended the call that timed out.
    pub fn timeout_limit(&self) -> Option<TimeoutLimit> {
        self.0.timeout.map(|t| t.limit)
    }

    /// Returns the details, redacted.
    pub fn details(&self) -> Option<Redacted<'_>> {
        let details = self.0.details()?;
        (!details.is_empty()).then(|| self.0.rules.object(details))
    }

    /// Returns the job that the call has started and that may still run. A call [with
    /// it](crate::ToolCall::with_job) goes on waiting.
    ///
    /// A [retry layer](crate::retry) repeats a retryable error that has one, whatever the call's
    /// replay safety: the next attempt starts nothing.
    pub fn job(&self) -> Option<&JobRef> {
        self.more()?.job.as_ref()
    }

    pub(super) fn more(&self) -> Option<&More> {
        self.0.more.as_deref()
    }

    pub(super) fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        self.change(change);
        self
    }

    /// Changes the error in place, or a copy if it is shared.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Inner)) {
        match Arc::get_mut(&mut self.0) {
            Some(inner) => change(inner),
            None => {
                let mut inner = Inner::copy(&self.0);
                change(&mut inner);
                self.0 = Arc::new(inner);
            }
        }
    }

    pub(super) fn edit_more(self, change: impl FnOnce(&mut More)) -> Self {
        self.edit(|e| {
            e.all_details = OnceLock::new();
            change(e.more.get_or_insert_default());
        })
    }
}

/// The message of an error by its author: what was put together at run time may have anything in
/// it.
fn literal_or_safe(message: Cow<'static, str>) -> Cow<'static, str> {
    match message {
        Cow::Borrowed(literal) => Cow::Borrowed(literal),
        Cow::Owned(text) => Cow::Owned(safe(&Rules::default(), &text)),
    }
}

/// Text from outside as an error shows it: redacted, cut, hidden characters as spaces.
pub(super) fn safe(rules: &Rules, text: &str) -> String {
    let shown = redacted_head(rules, text, MAX_TEXT);
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

/// Redacted; shows that there is a source, but not its text.
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
        known("source", self.0.source().map(|_| &"[error]" as _));
        d.finish()
    }
}

impl StdError for ToolError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source().map(|e| e as _)
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
