//! Events as `tracing` has them.

use std::{borrow::Cow, time::Duration};

use tracing::{
    Level,
    field::{DisplayValue, display},
};

use super::{Event, PolicyOutcome, RetryRefusal, heard::heard};
use crate::{
    call::CallInfo,
    error::{ErrorKind, ToolError},
    event::{availability::Reason, transition::Transition},
    text::Short,
};

/// Emits one of our [events](super::names::event) with some of our [fields](super::names::field): its name is the message.
macro_rules! event {
    // In no span.
    (root $level:ident $name:ident $($rest:tt)*) => {
        $crate::event::event!(@ [parent: None,] $level $name $($rest)*)
    };
    (@ [$($parent:tt)*] $level:ident $name:ident $(, $field:ident = $value:expr)* $(,)?) => {
        tracing::event!(
            name: $crate::event::names::event::$name,
            target: $crate::event::TARGET,
            $($parent)*
            tracing::Level::$level,
            $({ $crate::event::names::field::$field } = $value,)*
            "{}", $crate::event::names::event::$name
        )
    };
    ($level:ident $name:ident $($rest:tt)*) => {
        $crate::event::event!(@ [] $level $name $($rest)*)
    };
}
pub(crate) use event;

/// The same about a call, with its names, and with the code and the text of an error: as much of these as a [`Line`] has
/// room for.
macro_rules! emit {
    ($level:ident $name:ident, $call:expr, code: $code:expr, error: $error:expr $(, $field:ident = $value:expr)*) => {{
        // Made when a subscriber takes the event.
        let line = std::cell::LazyCell::new(|| {
            let name = $crate::event::names::event::$name;
            $crate::event::Line::new(name, $call, Option::from($code), Option::from($error))
        });
        $crate::event::emit!(@ $level $name, line, CODE = line.code, ERROR = line.error() $(, $field = $value)*)
    }};
    ($level:ident $name:ident, $call:expr $(, $field:ident = $value:expr)*) => {{
        let line = std::cell::LazyCell::new(|| {
            let name = $crate::event::names::event::$name;
            $crate::event::Line::new(name, $call, None, None)
        });
        $crate::event::emit!(@ $level $name, line $(, $field = $value)*)
    }};
    (@ $level:ident $name:ident, $line:ident $(, $field:ident = $value:expr)*) => {
        $crate::event::event!(
            $level $name,
            TOOL = $line.tool(),
            SERVER = $line.server(),
            CALL_ID = $line.call_id(),
            TRACE_ID = $line.trace_id(),
            $($field = $value),*
        )
    };
}
pub(crate) use emit;

/// Whether a subscriber listens to DEBUG events of ours: then all events have all their fields.
pub(crate) fn details_are_heard() -> bool {
    heard!(EVENT DEBUG)
}

/// The level of the event of a call that ended with this kind of error: INFO for mistakes of callers.
pub(crate) const fn level_of(kind: ErrorKind) -> Level {
    use ErrorKind as Kind;
    match kind {
        Kind::InvalidInput
        | Kind::NotFound
        | Kind::Denied
        | Kind::Cancelled
        | Kind::CircuitOpen => Level::INFO,
        Kind::Timeout
        | Kind::DeadlineExceeded
        | Kind::PollTimeout
        | Kind::RateLimited
        | Kind::Overloaded
        | Kind::Reported => Level::WARN,
        Kind::ConnectionFailed
        | Kind::Upstream
        | Kind::Failed
        | Kind::TokenExchange
        | Kind::Panicked
        | Kind::Internal => Level::ERROR,
    }
}

/// The longest name that is shown.
const MAX_NAME: usize = 64;

/// The most characters of an event in a text log, where it has not all its fields.
const MAX_LINE: usize = 200;

/// How many of them the rest of the line takes at most: time, level, spans and target, as `tracing_subscriber::fmt` writes
/// them, and the numbers of the event.
const fn beside(name: &str) -> usize {
    const HEAD: usize = "2026-11-27T00:22:11.418034Z  INFO execute_tool: tower_toolcall: ".len();
    const ENDS: usize = " duration_ms=123456.789 attempts=10".len();
    const OTHERS: usize = "tool_attempt: attempt=10 delay_ms=300000.123 hinted=false ".len();
    let ends = matches!(
        name.as_bytes(),
        b"tool.success"
            | b"tool.failure"
            | b"tool.rejected"
            | b"tool.timeout"
            | b"tool.skipped"
            | b"tool.cancelled"
    );
    HEAD + name.len() + if ends { ENDS } else { OTHERS }
}

/// The names and texts of an event: all of them where [details are heard](details_are_heard), else as much of tool, server and
/// error as fits into a line.
pub(crate) struct Line<'a> {
    call: &'a CallInfo,
    pub(crate) code: Option<&'a str>,
    error: Option<Cow<'a, str>>,
    /// How much of the tool's name, and whether the server; `None` for all.
    room: Option<(usize, bool)>,
}

impl<'a> Line<'a> {
    #[inline(never)]
    pub(crate) fn new(
        name: &str,
        call: &'a CallInfo,
        code: Option<&'a str>,
        error: Option<&'a str>,
    ) -> Self {
        if details_are_heard() {
            return Self {
                call,
                code,
                error: error.map(Cow::from),
                room: None,
            };
        }
        let (tool, server, left) = room(name, call, code, error.is_some());
        Self {
            call,
            code,
            error: error.and_then(|error| cut(error, left)),
            room: Some((tool, server)),
        }
    }

    /// `None` for a request that names no tool.
    pub(crate) fn tool(&self) -> Option<DisplayValue<Short<'a>>> {
        let tool = Some(self.call.tool()).filter(|tool| !tool.is_empty())?;
        Some(match self.room {
            Some((max, _)) => display(Short::field(tool, max)),
            None => short(tool),
        })
    }

    pub(crate) fn server(&self) -> Option<DisplayValue<Short<'a>>> {
        let fits = self.room.is_none_or(|(_, server)| server);
        self.call.server().filter(|_| fits).map(short)
    }

    pub(crate) fn call_id(&self) -> Option<DisplayValue<Short<'a>>> {
        self.call.id().filter(|_| self.room.is_none()).map(short)
    }

    pub(crate) fn trace_id(&self) -> Option<DisplayValue<Short<'a>>> {
        self.call
            .trace_id()
            .filter(|_| self.room.is_none())
            .map(short)
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

#[cold]
fn room(name: &str, call: &CallInfo, code: Option<&str>, errs: bool) -> (usize, bool, usize) {
    let width = |text: &str| Short::field(text, MAX_NAME).to_string().chars().count();
    let code = code.map_or(0, |code| " code=\"\"".len() + code.chars().count());
    let left = MAX_LINE.saturating_sub(beside(name) + " tool=".len() + code);
    let tool = width(call.tool());
    // Three dots follow a name that is cut.
    let (max, left) = match left.checked_sub(tool) {
        Some(rest) => (MAX_NAME, rest),
        None => (left.saturating_sub(3), 0),
    };
    let server = call
        .server()
        .map_or(0, |server| " server=".len() + width(server));
    // A server that leaves nothing of the error's text is left out.
    let fits = server + if errs { 2 * LEAST } else { 0 } <= left;
    (max, fits, if fits { left - server } else { left })
}

/// The least that is shown of an error's text, with its name and its quotes.
const LEAST: usize = 20;

/// The beginning of an error's text as it is printed between quotes, in so many characters with the field's name.
fn cut(text: &str, room: usize) -> Option<Cow<'_, str>> {
    let mut left = room
        .checked_sub(" error=\"\"".len())
        .filter(|_| room >= LEAST)?;
    let mut whole = left;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let width = c.escape_debug().count();
        match left.checked_sub(width) {
            Some(rest) => left = rest,
            None => return Some(format!("{}...", &text[..end]).into()),
        }
        whole = whole.saturating_sub(width);
        if whole >= "...".len() {
            end = at + c.len_utf8();
        }
    }
    Some(text.into())
}

/// A name of a caller or a peer, as the fields of events and spans have it.
pub(crate) fn short(name: &str) -> DisplayValue<Short<'_>> {
    display(Short::field(name, MAX_NAME))
}

/// Milliseconds, with fractions, as the fields of events have them.
pub(crate) fn ms(d: Duration) -> f64 {
    // Whole microseconds: more digits are noise.
    (d.as_secs_f64() * 1e6).round() / 1e3
}

impl Event<'_> {
    pub(super) fn trace(&self) {
        match *self {
            Event::Slow {
                call,
                elapsed,
                timeout,
            } => emit!(WARN SLOW, call, DURATION_MS = ms(elapsed), TIMEOUT_MS = ms(timeout)),
            Event::NotStarted { call, kind, error } => not_started(call, kind, error),
            Event::Cancelled {
                call,
                elapsed,
                past_deadline,
            } => cancelled(call, elapsed, past_deadline),
            Event::Retry {
                call,
                attempt,
                delay,
                hinted,
                error,
            } => {
                emit!(WARN RETRY, call, code: error.map(ToolError::code), error: error.map(ToolError::message),
                ATTEMPT = attempt, DELAY_MS = ms(delay), HINTED = hinted)
            }
            Event::RetryRefused {
                call,
                attempt,
                reason,
                error,
            } => retry_refused(call, attempt, reason, error),
            Event::RateLimited {
                call,
                attempt,
                cooldown,
                hinted,
            } => {
                emit!(WARN RATE_LIMITED, call, code: ErrorKind::RateLimited.code(), error: None::<&str>,
                ATTEMPT = attempt, DELAY_MS = ms(cooldown), HINTED = hinted)
            }
            Event::Transition { transition, call } => breaker(transition, call),
            Event::PrincipalTransition {
                transition: t,
                principal,
                call,
            } => emit!(WARN BREAKER_PRINCIPAL, call, PRINCIPAL = principal, FROM = t.from.name(),
                TO = t.to.name(), REASON = t.reason.name(), GENERATION = t.generation,
                CALLS = t.calls, FAILURES = t.failures, SLOW_CALLS = t.slow_calls,
                OPEN_MS = t.open_for.map(ms)),
            Event::Health { change, call } => emit!(WARN HEALTH, call, FROM = change.from.name(),
                TO = change.to.name(), REASON = change.reason.map(Reason::name),
                FAILURES = change.failures, GENERATION = change.generation),
            Event::Repeated { call, times } => emit!(WARN REPEATED, call, CALLS = times),
            Event::Reused { call, layer } => emit!(DEBUG REUSED, call, LAYER = layer),
            Event::Inert { .. } => inert(self),
            Event::Policy {
                call,
                outcome,
                rule,
                error,
            } => policy(call, outcome, rule, error),
            Event::Evicted { keys, kept } => event!(DEBUG EVICTED, KEYS = keys, KEPT = kept),
            Event::Breaker { .. } | Event::Token { .. } => {}
        }
    }
}

/// Of the calls for which a layer can do nothing only the first is emitted.
fn inert(event: &Event<'_>) {
    if let Event::Inert {
        call,
        layer,
        reason,
        help,
        is_first: true,
    } = *event
    {
        emit!(WARN INERT, call, LAYER = layer, REASON = reason.name(), HELP = help);
    }
}

fn not_started(call: &CallInfo, kind: ErrorKind, error: Option<&ToolError>) {
    match kind {
        ErrorKind::DeadlineExceeded => emit!(WARN SKIPPED, call, code: kind.code(),
            error: "the time budget was spent before the call could start", DURATION_MS = 0.0),
        ErrorKind::Cancelled => emit!(INFO CANCELLED, call, DURATION_MS = 0.0),
        _ => emit!(INFO REJECTED, call, code: error.map_or(kind.code(), ToolError::code),
            error: error.map(ToolError::message), DURATION_MS = 0.0),
    }
}

fn cancelled(call: &CallInfo, elapsed: Duration, past_deadline: bool) {
    match past_deadline {
        true => emit!(WARN TIMEOUT, call, code: ErrorKind::Timeout.code(),
            error: "dropped after its deadline", DURATION_MS = ms(elapsed)),
        false => emit!(INFO CANCELLED, call, DURATION_MS = ms(elapsed)),
    }
}

fn retry_refused(call: &CallInfo, attempt: u32, reason: RetryRefusal, error: Option<&ToolError>) {
    match reason {
        RetryRefusal::Exhausted => emit!(ERROR EXHAUSTED, call, code: error.map(ToolError::code),
            error: error.map(ToolError::message), ATTEMPT = attempt),
        _ => emit!(WARN RETRY_REFUSED, call, code: error.map(ToolError::code),
            error: error.map(ToolError::message), ATTEMPT = attempt, REFUSED = reason.name()),
    }
}

fn policy(call: &CallInfo, outcome: PolicyOutcome, rule: Option<&str>, error: Option<&ToolError>) {
    let decision = outcome.name();
    let agent = call.agent_id().filter(|_| details_are_heard());
    match outcome {
        PolicyOutcome::Asked | PolicyOutcome::Approved => emit!(INFO POLICY, call,
            DECISION = decision, RULE = rule, AGENT_ID = agent.map(short)),
        // The end of a call that is refused is an event of the trace layer, at INFO.
        _ => emit!(DEBUG POLICY, call, code: None::<&str>, error: error.map(ToolError::message),
            DECISION = decision, RULE = rule, AGENT_ID = agent.map(short)),
    }
}

/// A breaker may be of a whole server, and its handle changes it without a call.
fn breaker(t: &Transition, call: Option<&CallInfo>) {
    event!(
        WARN BREAKER,
        TOOL = t.tool.as_deref().map(short),
        SERVER = t.server.as_deref().map(short),
        CALL_ID = call.and_then(CallInfo::id).map(short),
        TRACE_ID = call.and_then(CallInfo::trace_id).map(short),
        FROM = t.from.name(),
        TO = t.to.name(),
        REASON = t.reason.name(),
        GENERATION = t.generation,
        CALLS = t.calls,
        FAILURES = t.failures,
        SLOW_CALLS = t.slow_calls,
        OPEN_MS = t.open_for.map(ms),
    );
}
