//! The request that every layer takes: a call of one tool.
//!
//! A [`ToolCall`] has two parts. What the caller wrote (tool, server, ids, arguments, extensions)
//! lies behind one [`Arc`] and is copied on write, so a clone costs one reference count whatever
//! the arguments weigh. What layers change for each attempt (deadline, attempt number, replay
//! safety, claims) lies inline.
//!
//! # Clone
//!
//! `clone()` does not allocate. A copy that a retry makes belongs to the same logical call and
//! shares its [record](ToolCall::observe). A caller who clones a call to send it twice makes two
//! logical calls: each gets its own record when the first layer that observes it sees it.

mod arguments;
mod extension;
mod identity;
mod info;
mod listeners;
mod progress;
mod record;
mod signal;
mod wire;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Extensions;
use serde_json::{Map, Value};
use tokio::time::Instant;
#[cfg(feature = "cancel")]
use tokio_util::sync::CancellationToken;

use crate::{
    error::{ErrorKind, ToolError},
    redact::{Redacted, Rules},
    text::Short,
};

#[cfg(test)]
pub(crate) use self::arguments::dismantle;
pub(crate) use self::info::hash_of;
pub(crate) use self::listeners::{ListenerIds, MAX_LISTENERS};
pub(crate) use self::record::{Known, Recorded, nanos};
use self::{arguments::Arguments, info::Data};
pub use self::{
    identity::Identity,
    info::CallInfo,
    listeners::ListenerId,
    progress::Progress,
    record::{IdempotencyKey, Observation, Record},
    signal::{Signal, Signals},
};

/// A tool name longer than this many bytes is refused by [`ToolCall::check`].
///
/// MCP allows 128 characters (specification of 2025-11-25, "Tool Names"); twice that leaves room
/// for the prefix that a gateway puts before the name.
pub const MAX_NAME_BYTES: usize = 256;

/// Arguments nested deeper than this many levels are refused by [`ToolCall::check`].
///
/// `serde_json` parses 128 levels, as other parsers do; what a message has around its arguments needs
/// a few of them. An MCP server drops a message that is deeper without a word.
pub const MAX_DEPTH: usize = 120;

/// May a call run twice?
///
/// After an ambiguous failure (a timeout, a lost connection) nobody knows whether the tool ran.
/// A retry layer repeats such a call only when running it twice is harmless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplaySafety {
    /// Nobody said. Treated as unsafe unless a retry policy assumes otherwise. The default.
    #[default]
    Unknown,
    /// Running it twice does no harm: it only reads, or it is idempotent.
    Safe,
    /// Running it twice would do harm: it pays, sends or deletes.
    Unsafe,
}

/// What a layer takes upon itself for a call, so that no layer below it does the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// The claimant repeats this call. Retriers and rate-limit layers below do not.
    Retry,
    /// The claimant waits out rate limits for this call. Layers below do not.
    RateLimit,
}

impl Claim {
    const fn bit(self) -> u16 {
        match self {
            Self::Retry => 1,
            Self::RateLimit => 2,
        }
    }
}

/// Other bits beside the claims: a call whose recording was begun by the layer that repeats it, so that all attempts share it;
const KEYED: u16 = 8;
/// a call of which an earlier attempt may have run;
const AMBIGUOUS: u16 = 16;
/// a call whose deadline leaves its owner time to finish: the next layer need not keep a reserve.
const RESERVED: u16 = 32;
/// a call that has reached its server;
const DELIVERED: u16 = 64;
/// a call of which a layer above tells a health registry.
const WATCHED: u16 = 128;
/// a call whose deadline was set by a caller who is not trusted;
const UNTRUSTED: u16 = 256;
/// a call whose names are an identity;
const RESOLVED: u16 = 512;
/// whose replay safety a table knew;
const LISTED_REPLAY: u16 = 1024;
/// whose timeout a table knew.
const LISTED_TIMEOUT: u16 = 2048;

/// Whether what a peer says over a wire is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trust {
    /// Any caller. What it says affects its own call alone.
    Untrusted,
    /// A peer under the same control: a proxy in front, another gateway of the same mesh.
    Trusted,
}

/// A call of one tool: the request type of every layer in this crate.
///
/// 40 bytes; see the [module docs](self) for what a clone shares.
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
pub struct ToolCall {
    data: Arc<Data>,
    deadline: Option<Instant>,
    /// Which recording the call belongs to; 0 while nobody observes it.
    recording: u32,
    /// The shortest timeout of the layers above, in milliseconds; 0 if there is none.
    limit_ms: u32,
    attempt: u16,
    claims: AtomicU16,
    /// The most that is kept back from the deadline, in milliseconds; the maximum if it did not come over a wire.
    max_reserve_ms: u16,
    replay: ReplaySafety,
}

impl ToolCall {
    /// A call of the tool `name`, without arguments.
    ///
    /// Any name is taken; [`check`](Self::check) tells whether it is a usable one.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            data: Arc::new(Data::new(name.into())),
            deadline: None,
            recording: 0,
            limit_ms: 0,
            attempt: 1,
            replay: ReplaySafety::Unknown,
            claims: AtomicU16::new(0),
            max_reserve_ms: u16::MAX,
        }
    }

    /// Sets the arguments.
    #[must_use]
    pub fn with_arguments(mut self, arguments: Map<String, Value>) -> Self {
        self.data_mut().arguments = Arguments::new(arguments);
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
                let error = ToolError::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "tool arguments must be a JSON object, not {}",
                        json_type(&other)
                    ),
                )
                .about(&self.info());
                arguments::dismantle(other);
                Err(error)
            }
        }
    }

    /// Sets the arguments from JSON text, as models write them; blank text means none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the text is not JSON, is nested deeper than `serde_json` parses
    /// (128 levels), or is neither an object nor `null`. The error never quotes the text.
    pub fn with_json_str(self, arguments: &str) -> Result<Self, ToolError> {
        if arguments.trim().is_empty() {
            return Ok(self.with_arguments(Map::new()));
        }
        match serde_json::from_str(arguments) {
            Ok(value) => self.with_json(value),
            Err(error) => Err(ToolError::new(
                ErrorKind::InvalidInput,
                format!(
                    "tool arguments are not valid JSON (line {}, column {})",
                    error.line(),
                    error.column()
                ),
            )
            .about(&self.info())),
        }
    }

    /// Sets the call's id, as the model or the caller gave it.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.set_id(id.into());
        self
    }

    pub(crate) fn set_id(&mut self, id: Arc<str>) {
        self.data_mut().ident_mut().id = Some(id);
    }

    /// Sets the server that has the tool; part of the default [`Key`](crate::key::Key).
    #[must_use]
    pub fn with_server(mut self, server: impl Into<Arc<str>>) -> Self {
        let ident = self.data_mut().ident_mut();
        ident.server = Some(server.into());
        ident.separator = None;
        ident.is_listed = true;
        ident.hashes = Default::default();
        *self.claims.get_mut() &= !(WATCHED | DELIVERED | RESOLVED);
        self
    }

    /// Sets the id of the agent that makes the call.
    #[must_use]
    pub fn with_agent_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.data_mut().ident_mut().agent_id = Some(id.into());
        self
    }

    /// Sets the trace id, copied into events.
    #[must_use]
    pub fn with_trace_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.data_mut().ident_mut().trace_id = Some(id.into());
        self
    }

    /// Sets the session id, copied into spans.
    #[must_use]
    pub fn with_session_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.data_mut().ident_mut().session_id = Some(id.into());
        self
    }

    /// Sets a timeout for this call alone; it beats a tool's timeout and the default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.data_mut().ident_mut().timeout = Some(timeout);
        *self.claims.get_mut() &= !LISTED_TIMEOUT;
        self
    }

    /// Sets the moment by which the call must have ended, retries and waits included.
    ///
    /// It replaces an earlier deadline. Layers use [`tighten`](Self::tighten), which cannot extend.
    #[must_use]
    pub fn with_deadline(mut self, at: Instant) -> Self {
        self.set_deadline(at);
        self
    }

    /// Says whether the call may run twice. Default: [`ReplaySafety::Unknown`].
    #[must_use]
    pub fn with_replay_safety(mut self, replay: ReplaySafety) -> Self {
        self.replay = replay;
        *self.claims.get_mut() &= !LISTED_REPLAY;
        self
    }

    /// Sets what is redacted of the arguments, the answer and the error of this call, wherever they are
    /// shown, by the layers below and by a [`ToolResult`](crate::ToolResult) above. Default: the built-in rules. See
    /// [`SanitizeLayer`](crate::sanitize::SanitizeLayer).
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        // What is so already is not written, which might be a copy.
        if *self.rules() != rules {
            self.record(|record| record.set_rules(rules.clone()));
            self.data_mut().ident_mut().rules = rules;
        }
        self
    }

    /// Gives the call a token by which the caller can cancel it.
    ///
    /// [`DeadlineLayer`](crate::deadline::DeadlineLayer) watches it: when it fires, the inner
    /// future is dropped and the answer is [`ErrorKind::Cancelled`]. Without that layer the token
    /// does nothing: drop the response future instead.
    #[cfg(feature = "cancel")]
    #[must_use]
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.data_mut().cancellation = Some(token);
        self
    }

    /// The tool's name.
    #[inline]
    pub fn tool(&self) -> &str {
        &self.data.ident.name
    }

    /// The arguments; empty if there are none.
    pub fn arguments(&self) -> &Map<String, Value> {
        self.data.arguments.map()
    }

    /// Takes the arguments out: without a copy if no other clone of the call has them.
    pub fn take_arguments(&mut self) -> Map<String, Value> {
        match Arc::get_mut(&mut self.data) {
            Some(data) => std::mem::take(&mut data.arguments).into_map(),
            None => self.data.arguments.clone().into_map(),
        }
    }

    /// The call's id, if it has one.
    pub fn id(&self) -> Option<&str> {
        self.data.ident.id.as_deref()
    }

    /// The server that has the tool, if known.
    #[inline]
    pub fn server(&self) -> Option<&str> {
        self.data.ident.server.as_deref()
    }

    /// The id of the agent that makes the call.
    pub fn agent_id(&self) -> Option<&str> {
        self.data.ident.agent_id.as_deref()
    }

    /// The trace id.
    pub fn trace_id(&self) -> Option<&str> {
        self.data.ident.trace_id.as_deref()
    }

    /// The session id.
    pub fn session_id(&self) -> Option<&str> {
        self.data.ident.session_id.as_deref()
    }

    /// The timeout set on the call itself.
    #[inline]
    pub fn timeout(&self) -> Option<Duration> {
        self.data.ident.timeout
    }

    /// What is redacted of what the call says and is answered.
    #[inline]
    pub fn rules(&self) -> &Rules {
        &self.data.ident.rules
    }

    /// The moment by which the call must have ended.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the call may run twice.
    #[inline]
    pub fn replay_safety(&self) -> ReplaySafety {
        self.replay
    }

    /// The caller's cancellation token.
    #[cfg(feature = "cancel")]
    #[inline]
    pub fn cancellation(&self) -> Option<&CancellationToken> {
        self.data.cancellation.as_ref()
    }

    /// Which attempt this is, from 1. The 65,535th and all later ones have that number.
    #[inline]
    pub fn attempt(&self) -> u32 {
        self.attempt.into()
    }

    /// What else the caller put on the call.
    pub fn extensions(&self) -> &Extensions {
        &self.data.extensions
    }

    /// The extensions, to change them. Copies what the caller wrote if a clone shares it.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.data_mut().extensions
    }

    /// A redacted view of the arguments: made when it is printed or serialised, not before.
    pub fn sanitized(&self) -> Redacted<'_> {
        self.rules().object(self.arguments())
    }

    /// A cheap handle on the call's names, for those who outlive the call.
    #[inline]
    pub fn info(&self) -> CallInfo {
        CallInfo::new(Arc::clone(&self.data.ident), self.recording)
    }

    /// Moves the deadline to `at` unless it is earlier already: an outer deadline always wins.
    ///
    /// For deadlines that are set in this process. For those of a peer: [`tighten_from_wire`](Self::tighten_from_wire).
    #[inline]
    pub fn tighten(&mut self, at: Instant) {
        if self.deadline.is_none_or(|outer| at < outer) {
            self.set_deadline(at);
        }
    }

    /// The same for a deadline that came over a wire.
    ///
    /// | `trust` | a call that the deadline ends |
    /// |---|---|
    /// | [`Untrusted`](Trust::Untrusted) | tells nothing of the tool, where the deadline was shorter than the tool's own timeout: circuit breakers and health registries do not count it, and a breaker does not choose such a call as its probe |
    /// | [`Trusted`](Trust::Trusted) | has timed out, and circuit breakers count it |
    ///
    /// Where several deadlines are set, the earliest one decides. The [reserve](crate::deadline::DeadlineLayer::with_reserve) that
    /// is kept back below is at most a tenth of the time that is left now, and 65 s, as a peer may wait for less than the reserve; also of an
    /// earlier deadline that is set in this process later on.
    pub fn tighten_from_wire(&mut self, at: Instant, trust: Trust) {
        if self.deadline.is_none_or(|outer| at < outer) {
            let left = at.saturating_duration_since(Instant::now());
            let tenth = (left.as_millis() / 10).min(u128::from(u16::MAX - 1));
            self.max_reserve_ms = tenth as u16;
            self.set_deadline(at);
            if trust == Trust::Untrusted {
                *self.claims.get_mut() |= UNTRUSTED;
            }
        }
    }

    /// Whether the [deadline](Self::deadline) was set by a caller who is not trusted: see
    /// [`tighten_from_wire`](Self::tighten_from_wire).
    #[inline]
    pub fn is_deadline_untrusted(&self) -> bool {
        self.claims.load(Relaxed) & UNTRUSTED != 0
    }

    #[inline]
    fn set_deadline(&mut self, at: Instant) {
        self.deadline = Some(at);
        // It is another one.
        *self.claims.get_mut() &= !(RESERVED | UNTRUSTED);
    }

    /// The deadline, unless it was set by a caller who is not trusted.
    #[inline]
    pub(crate) fn trusted_deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| !self.is_deadline_untrusted())
    }

    /// Whether it can show that a tool works again: not one whose caller, who is not trusted, leaves it less time than the
    /// tool may take: the shorter one of the timeouts above and of those below, which others have met (`below_ms`, 0 if there
    /// are none).
    pub(crate) fn may_probe(&self, below_ms: u32) -> bool {
        let leaves = |at: Instant| at.saturating_duration_since(Instant::now());
        let limits = [self.limit_ms, below_ms].into_iter().filter(|ms| *ms > 0);
        let limit_ms = limits.min().unwrap_or(0);
        let at = self.deadline.filter(|_| self.is_deadline_untrusted());
        at.is_none_or(|at| leaves(at) >= self.info().patience_within(limit_ms))
    }

    /// Notes that a layer ends the call after this time. Of several the shortest holds. Circuit breakers below judge by it
    /// whether a call that is dropped has timed out.
    #[inline]
    pub fn limit(&mut self, timeout: Duration) {
        let ms = u32::try_from(timeout.as_millis())
            .unwrap_or(u32::MAX)
            .max(1);
        // None is 0, which is not less.
        self.limit_ms = match self.limit_ms {
            0 => ms,
            known => known.min(ms),
        };
        self.share_limit();
    }

    /// Lets those who judge the end of this call know the shortest timeout so far: see [`CallInfo::patience`].
    #[inline]
    pub(crate) fn share_limit(&self) {
        self.data.ident.record.set_limit_ms(self.limit_ms);
    }

    /// Counts another attempt. For layers that repeat calls.
    pub fn next_attempt(&mut self) {
        self.begin_attempt(self.attempt().saturating_add(1));
    }

    /// The same where others have made some of them.
    pub(crate) fn begin_attempt(&mut self, n: u32) {
        self.attempt = u16::try_from(n).unwrap_or(u16::MAX);
        self.record(|r| r.begin_attempt(self.attempt.into()));
    }

    /// Claims the call, and tells whether it had been claimed before.
    ///
    /// Takes `&self`, because tower's `Policy::clone_request` sees the first attempt only so. A
    /// clone carries the claims made before it.
    #[inline]
    pub fn claim(&self, claim: Claim) -> bool {
        // A load and a store: nobody else has this value.
        let before = self.claims.load(Relaxed);
        self.claims.store(before | claim.bit(), Relaxed);
        before & claim.bit() != 0
    }

    /// Observes the call as the layer that repeats it, at most `attempts` times: all attempts share one record, which ends
    /// with the answer of this, and one [idempotency key](Self::idempotency_key). Each further one is a clone of the call
    /// after [`next_attempt`](Self::next_attempt).
    pub fn observe_attempts(&mut self, attempts: u32) -> Observation {
        let is_new = self.begin_repeated(attempts);
        Observation::new(self.info(), is_new, self.attempt)
    }

    /// Begins the recording of a call to which the caller of this may make so many attempts: they share it,
    /// and with it the idempotency key.
    ///
    /// Tells whether it is a new one; then it is the caller's to [end](Self::end_recording).
    #[inline]
    pub(crate) fn begin_repeated(&mut self, attempts: u32) -> bool {
        *self.claims.get_mut() |= KEYED;
        let is_new = !self.is_recorded();
        if is_new {
            self.start_recording();
        }
        self.data.ident.record.set_max_attempts(attempts);
        is_new
    }

    /// Ends a recording that was begun for this call. Like an observation's end, but the call itself keeps the record.
    #[inline]
    pub(crate) fn end_recording(&self) {
        self.data.ident.record.end(self.recording);
    }

    /// Notes that an attempt may have run, so that layers above do not take the refusal of a later one for proof that the
    /// tool did not.
    pub fn set_ambiguous(&self) {
        self.claims.fetch_or(AMBIGUOUS, Relaxed);
    }

    /// Whether an earlier attempt may have run.
    pub fn is_ambiguous(&self) -> bool {
        self.claims.load(Relaxed) & AMBIGUOUS != 0
    }

    /// Notes that a health registry is told of the call and its server.
    #[inline]
    pub(crate) fn set_watched(&mut self) {
        *self.claims.get_mut() |= WATCHED;
    }

    /// Whether one is.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.claims.load(Relaxed) & WATCHED != 0
    }

    /// Keeps a reserve from the deadline for its owner; what is spent of it at `now` is spent.
    pub(crate) fn reserve(&mut self, reserve: Duration, now: Instant) {
        let Some(at) = self.deadline else { return };
        let reserve = match self.max_reserve_ms {
            u16::MAX => reserve,
            ms => reserve.min(Duration::from_millis(ms.into())),
        };
        self.deadline = Some(at.checked_sub(reserve).map_or(now, |at| at.max(now)));
    }

    /// Notes that a reserve has been kept from the deadline, so that the next [`DeadlineLayer`](crate::deadline::DeadlineLayer)
    /// keeps none. For executors that set the deadlines of calls themselves.
    pub fn set_reserved(&mut self) {
        *self.claims.get_mut() |= RESERVED;
    }

    /// Whether somebody has kept the reserve already. Says so once: the next one's deadline is another.
    #[inline]
    pub(crate) fn take_reserved(&mut self) -> bool {
        let claims = self.claims.get_mut();
        let reserved = *claims & RESERVED != 0;
        *claims &= !RESERVED;
        reserved
    }

    /// Whether a layer above has made this claim.
    #[inline]
    pub fn is_claimed(&self, claim: Claim) -> bool {
        self.claims.load(Relaxed) & claim.bit() != 0
    }

    /// A copy without this claim: for retriers such as tower's, which keep a copy of each attempt and claim it when they send
    /// it.
    #[must_use]
    pub fn unclaimed(&self, claim: Claim) -> Self {
        let mut copy = self.clone();
        *copy.claims.get_mut() &= !claim.bit();
        copy
    }

    /// One key for all attempts at this call, and another for each other call.
    ///
    /// For leaves, to send along, so that a server can tell a repetition from a new call. `None` unless
    /// a [`RetryLayer`](crate::retry::RetryLayer) above may repeat it; tower's retry layer cannot give
    /// one.
    pub fn idempotency_key(&self) -> Option<IdempotencyKey> {
        let keyed = self.claims.load(Relaxed) & KEYED != 0;
        keyed.then(|| self.data.ident.record.idempotency_key(self.recording))
    }

    /// Observes the call: the answer lives as long as the observer and tells, whenever asked, what
    /// the layers below have [recorded](CallInfo::record).
    ///
    /// The outermost observer starts the record, the ones below read the same. It allocates only if
    /// the caller sends clones of one call at the same time.
    #[inline]
    pub fn observe(&mut self) -> Observation {
        let is_new = !self.is_recorded();
        if is_new {
            self.start_recording();
        }
        Observation::new(self.info(), is_new, self.attempt)
    }

    /// A recording that is over belongs to an earlier call that this one was cloned from.
    #[inline]
    fn is_recorded(&self) -> bool {
        self.recording != 0 && self.data.ident.record.is_current(self.recording)
    }

    #[inline]
    fn start_recording(&mut self) {
        self.recording = match self.data.ident.record.start() {
            Some(recording) => recording,
            None => self.start_fresh_recording(),
        };
    }

    /// A clone of this call is being observed: this one gets a record of its own.
    #[cold]
    fn start_fresh_recording(&mut self) -> u32 {
        let fresh = Arc::new(Record::default());
        let recording = fresh.start().expect("a fresh record is free");
        self.data_mut().ident_mut().record = fresh;
        recording
    }

    /// Makes it a call of its own: observers of the call that it was cloned from are told nothing of it.
    pub fn detach(&mut self) {
        self.recording = 0;
    }

    /// Writes to the record, if somebody observes the call.
    #[inline]
    pub fn record(&self, write: impl FnOnce(&Record)) {
        self.data.ident.record(self.recording, write);
    }

    /// Where a tool reports progress; `None` unless a timeout layer in idle mode waits for it.
    pub fn progress(&self) -> Option<Progress> {
        self.data.progress.clone()
    }

    /// Asks the tool for progress reports, one within every `allowed`; those who asked before are
    /// told as well.
    pub(crate) fn ask_for_progress(&mut self, allowed: Duration) -> Progress {
        let progress = Progress::new(allowed, self.data.progress.clone());
        self.data_mut().progress = Some(progress.clone());
        progress
    }

    /// Whether the call can be sent: a name of 1 to [`MAX_NAME_BYTES`] bytes without control
    /// characters, arguments nested at most [`MAX_DEPTH`] levels. Leaves call it before they send.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the limit.
    pub fn check(&self) -> Result<(), ToolError> {
        let name = self.tool();
        let message = if name.is_empty() {
            "the tool name is empty".into()
        } else if name.len() > MAX_NAME_BYTES {
            format!(
                "the tool name is {} bytes long, the limit is {MAX_NAME_BYTES}",
                name.len()
            )
        } else if name.chars().any(char::is_control) {
            "the tool name has control characters".into()
        } else if self.data.arguments.is_too_deep() {
            format!("the arguments are nested deeper than {MAX_DEPTH} levels")
        } else {
            return Ok(());
        };
        Err(ToolError::new(ErrorKind::InvalidInput, message).about(&self.info()))
    }

    fn has(&self, bit: u16) -> bool {
        self.claims.load(Relaxed) & bit != 0
    }

    fn data_mut(&mut self) -> &mut Data {
        Arc::make_mut(&mut self.data)
    }
}

impl Clone for ToolCall {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            data: Arc::clone(&self.data),
            deadline: self.deadline,
            recording: self.recording,
            limit_ms: self.limit_ms,
            attempt: self.attempt,
            replay: self.replay,
            claims: AtomicU16::new(self.claims.load(Relaxed)),
            max_reserve_ms: self.max_reserve_ms,
        }
    }
}

/// Shows names and sizes, never a value.
impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall")
            .field("tool", &Short::name(self.tool()))
            .field("server", &self.server().map(Short::name))
            .field("id", &self.id().map(Short::name))
            .field(
                "arguments",
                &format_args!("{} keys", self.arguments().len()),
            )
            .field("attempt", &self.attempt)
            .field("replay_safety", &self.replay)
            .field("timeout", &self.timeout())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
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

#[cfg(test)]
mod tests;
