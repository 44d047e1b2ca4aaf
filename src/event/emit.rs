//! Events as `tracing` has them.

use std::{borrow::Cow, fmt, time::Duration};

use http::StatusCode;
use tracing::{
    Level, Metadata,
    field::{DisplayValue, display},
};

use super::{Event, PolicyOutcome, RetryRefusal, heard::heard, names};
use crate::{
    call::CallInfo,
    error::{ErrorKind, ToolError},
    event::{availability::Reason, transition::Transition},
    text::Short,
};

/// Emits one of our [events](super::names::event) with some of our [fields](super::names::field):
/// its name is the message.
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

/// Emits an event about a call, with its names, and with a code and a text: as much of these as a
/// [`Line`] has room for.
macro_rules! emit {
    ($level:ident $name:ident, $call:expr, code: $code:expr, error: $error:expr $(, $field:ident = $value:expr)*) => {
        $crate::event::emit!(@ $level $name, $call, Option::from($code), ERROR = Option::from($error)
            $(, $field = $value)*)
    };
    ($level:ident $name:ident, $call:expr, text: $text:ident = $shown:expr $(, $field:ident = $value:expr)*) => {
        $crate::event::emit!(@ $level $name, $call, None, $text = Some($shown) $(, $field = $value)*)
    };
    ($level:ident $name:ident, $call:expr $(, $field:ident = $value:expr)*) => {
        $crate::event::emit!(@ $level $name, $call, None, ERROR = None $(, $field = $value)*)
    };
    (@ $level:ident $name:ident, $call:expr, $code:expr, $text:ident = $shown:expr $(, $field:ident = $value:expr)*) => {{
        // Made when a subscriber takes the event.
        let line = std::cell::LazyCell::new(|| {
            let name = $crate::event::names::event::$name;
            let rest = || name.len() $(+ $crate::event::width($crate::event::names::field::$field, &$value))*;
            let text = ($crate::event::names::field::$text, $shown);
            $crate::event::Line::new($call.into(), $code, text, rest)
        });
        $crate::event::event!(
            $level $name,
            TOOL = &line.tool,
            SERVER = &line.server,
            CALL_ID = &line.call_id,
            TRACE_ID = &line.trace_id,
            CODE = line.code,
            $text = line.text.as_deref(),
            $($field = $value),*
        )
    }};
}
pub(crate) use emit;

/// Returns whether a subscriber listens to events of [`TARGET`](super::TARGET) at DEBUG: then they
/// have all their fields and whole texts.
///
/// Unlike `tracing::enabled!` it leaves nothing with the filters of a subscriber's layers, so a
/// layer at INFO beside one at DEBUG misses no event.
pub fn details_are_heard() -> bool {
    heard!(EVENT DEBUG)
}

/// Returns a field that a short line has only if it `matters`.
fn detail_or<T>(matters: bool, value: T) -> Option<T> {
    (matters || details_are_heard()).then_some(value)
}

/// Statuses that a caller's next call can mend: what it asked for does not fit the state of things.
const CALLERS: [u16; 4] = [409, 412, 416, 423];

/// Returns the level of the event of a call that ended with this error: INFO for mistakes of
/// callers.
pub(crate) fn level_of_error(error: &ToolError) -> Level {
    let is_callers = |status: StatusCode| CALLERS.contains(&status.as_u16());
    match error.kind() {
        ErrorKind::Failed if error.status().is_some_and(is_callers) => Level::INFO,
        kind => kind.level(),
    }
}

/// The longest name that is shown.
pub(super) const MAX_NAME: usize = 64;

/// The most characters of an event in a text log, where it has not all its fields.
const MAX_LINE: usize = 200;

/// Returns how many characters time, level, spans and target take, as `tracing_subscriber::fmt`
/// writes them.
fn head() -> usize {
    const HEAD: usize = "2026-11-27T00:22:11.418034Z  INFO tower_toolcall: ".len();
    const CALL: usize = names::span::CALL.len() + ": ".len();
    HEAD + match tracing::Span::current().metadata().map(Metadata::name) {
        None => 0,
        Some(names::span::CALL) => CALL,
        Some(inner) => CALL + inner.len() + ": ".len(),
    }
}

/// Returns how many characters a field takes with its value and the space before it; none without a
/// value.
pub(crate) fn width(field: &str, value: &dyn fmt::Debug) -> usize {
    let value = format!("{value:?}");
    let value = match value.strip_prefix("Some(") {
        Some(some) => some.strip_suffix(')').unwrap_or(some),
        None if value == "None" => return 0,
        None => &value,
    };
    field.len() + " =".len() + value.chars().count()
}

/// The names that an event has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Named<'a> {
    tool: &'a str,
    server: Option<&'a str>,
    call: Option<&'a CallInfo>,
}

impl<'a> From<&'a CallInfo> for Named<'a> {
    fn from(call: &'a CallInfo) -> Self {
        Self {
            tool: call.tool(),
            server: call.server(),
            call: Some(call),
        }
    }
}

/// The names and texts of an event: all of them where [details are heard](details_are_heard), else
/// as much of tool, server and text as fits into a line.
pub(crate) struct Line<'a> {
    /// `None` for a request that names no tool.
    pub(crate) tool: Option<DisplayValue<Short<'a>>>,
    pub(crate) server: Option<DisplayValue<Short<'a>>>,
    pub(crate) call_id: Option<DisplayValue<Short<'a>>>,
    pub(crate) trace_id: Option<DisplayValue<Short<'a>>>,
    pub(crate) code: Option<&'a str>,
    pub(crate) text: Option<Cow<'a, str>>,
}

impl<'a> Line<'a> {
    /// `rest`: how many characters the event's name and its other fields take.
    #[inline(never)]
    pub(crate) fn new(
        named: Named<'a>,
        code: Option<&'a str>,
        (field, text): (&str, Option<&'a str>),
        rest: impl FnOnce() -> usize,
    ) -> Self {
        let all = details_are_heard();
        let detail = |of: fn(&'a CallInfo) -> Option<&'a str>| {
            named.call.filter(|_| all).and_then(of).map(short)
        };
        let mut line = Self {
            tool: Some(named.tool).filter(|tool| !tool.is_empty()).map(short),
            server: named.server.map(short),
            call_id: detail(CallInfo::id),
            trace_id: detail(CallInfo::trace_id),
            code,
            text: text.map(Cow::from),
        };
        if !all {
            let left = MAX_LINE.saturating_sub(head() + rest() + width("code", &code));
            line.fit(named.tool, (field, text), left);
        }
        line
    }

    /// Cuts the tool's name and the text to the space left in a line. Omits a server that leaves
    /// too little of the text.
    fn fit(&mut self, tool: &'a str, (field, text): (&str, Option<&'a str>), mut left: usize) {
        let cut = |max| display(Short::field(tool, max));
        let lengths = (0..=MAX_NAME).rev();
        let mut tools = lengths.map(|max| (cut(max), width("tool", &cut(max))));
        let found = tools.find(|(_, taken)| *taken <= left);
        let (tool, taken) = found.unwrap_or((cut(0), left));
        self.tool = self.tool.take().map(|_| tool);
        left -= taken;
        let text_width = width(field, &text);
        // Advice is shown whole.
        let least = match field {
            names::field::HELP => text_width,
            _ => text_width.min(BESIDE_SERVER),
        };
        let server = width("server", &self.server);
        match server + least <= left {
            true => left -= server,
            false => self.server = None,
        }
        self.text = text.and_then(|text| cut_middle(text, left, width(field, &"")));
    }
}

/// The least that is shown of a text beside the server, with its name and its quotes.
const BESIDE_SERVER: usize = 48;

/// The least that is shown of a text, with its name and its quotes.
const LEAST: usize = 20;

/// Cuts a text that is printed between quotes to `room` characters, `frame` of them for its name
/// and quotes, and no word in two. The middle goes: the innermost cause of an error stands at its
/// end.
fn cut_middle(text: &str, room: usize, frame: usize) -> Option<Cow<'_, str>> {
    const DOTS: &str = "...";
    let room = room.checked_sub(frame).filter(|_| room >= LEAST)?;
    let width = |text: &str| format!("{text:?}").chars().count() - "\"\"".len();
    if width(text) <= room {
        return Some(text.into());
    }
    let room = room - DOTS.len();
    let innermost = text.rsplit(": ").next().unwrap_or(text);
    let tail = match width(innermost) <= room {
        true => innermost,
        false => {
            let tails = text.char_indices().rev().map(|(at, _)| &text[at..]);
            let tails = tails.take_while(|tail| width(tail) <= room / 2);
            let tail = tails.last().unwrap_or("");
            let is_whole = text[..text.len() - tail.len()].ends_with(char::is_whitespace);
            let words = tail.split_once(char::is_whitespace);
            words.filter(|_| !is_whole).map_or(tail, |(_, words)| words)
        }
    };
    let room = room - width(tail);
    let ends = text.char_indices().map(|(at, _)| &text[..at]);
    let head = ends.take_while(|head| width(head) <= room).last();
    let head = head.unwrap_or("");
    let head = match text[head.len()..].starts_with(char::is_whitespace) {
        true => head,
        false => &head[..head.rfind(char::is_whitespace).unwrap_or(0)],
    };
    // A short word says nothing.
    let head = Some(head.trim_end()).filter(|head| head.len() > 3);
    Some(format!("{}{DOTS}{tail}", head.unwrap_or("")).into())
}

/// Returns a name of a caller or a peer, as the fields of events and spans have it.
pub(crate) fn short(name: &str) -> DisplayValue<Short<'_>> {
    display(Short::field(name, MAX_NAME))
}

/// Milliseconds, with fractions, as the fields of events have them.
pub(crate) fn ms(d: Duration) -> f64 {
    // Whole microseconds: more digits are noise.
    (d.as_secs_f64() * 1e6).round() / 1e3
}

/// Returns an agent's id as a detail.
fn agent(call: &CallInfo) -> Option<DisplayValue<Short<'_>>> {
    call.agent_id().filter(|_| details_are_heard()).map(short)
}

/// A breaker may be of a whole server, and its handle changes it without a call.
fn breaker<'a>(t: &'a Transition, call: Option<&'a CallInfo>) -> Named<'a> {
    Named {
        tool: t.tool.as_deref().unwrap_or(""),
        server: t.server.as_deref(),
        call,
    }
}

/// The table of events: each with its level, its name, and its fields. The first row that fits
/// holds.
macro_rules! events {
    ($(
        $variant:ident { $($of:tt)* } => $level:ident $name:ident ($($fields:tt)*),
    )*) => {
        impl Event<'_> {
            /// Returns the name under which subscribers get the event, one of [`names::event`];
            /// `None` for [`BreakerSeen`](Self::BreakerSeen) and [`Token`](Self::Token), which are
            /// not emitted, and for calls after the first one of [`Inert`](Self::Inert). A refused
            /// retry is `tool.exhausted` if the attempts are used up, else `tool.retry_refused`.
            #[expect(unused_variables, reason = "the rows bind what the fields show")]
            pub const fn name(&self) -> Option<&'static str> {
                match *self {
                    $(Event::$variant { $($of)* } => Some(names::event::$name),)*
                    Event::BreakerSeen { .. } | Event::Token { .. } | Event::Inert { .. } => None,
                }
            }

            pub(super) fn trace(&self) {
                match *self {
                    $(Event::$variant { $($of)* } => emit!($level $name, $($fields)*),)*
                    Event::BreakerSeen { .. } | Event::Token { .. } | Event::Inert { .. } => {}
                }
            }
        }
    };
}

events! {
    Slow { call, elapsed, timeout } =>
        WARN SLOW (call, DURATION_MS = ms(elapsed), TIMEOUT_MS = ms(timeout)),
    NotStarted { call, kind: kind @ ErrorKind::DeadlineExceeded, .. } =>
        WARN SKIPPED (call, code: kind.code(),
            error: "the time budget was spent before the call could start", DURATION_MS = 0.0),
    NotStarted { call, kind: ErrorKind::Cancelled, .. } =>
        INFO CANCELLED (call, DURATION_MS = 0.0),
    NotStarted { call, kind, error } =>
        INFO REJECTED (call, code: error.map_or(kind.code(), ToolError::code),
            error: error.map(ToolError::message), DURATION_MS = 0.0),
    Cancelled { call, elapsed, past_deadline: true } =>
        WARN TIMEOUT (call, code: ErrorKind::Timeout.code(), error: "dropped after its deadline",
            DURATION_MS = ms(elapsed)),
    Cancelled { call, elapsed, past_deadline: false } =>
        INFO CANCELLED (call, DURATION_MS = ms(elapsed)),
    Retry { call, attempt, delay, hinted, error } =>
        WARN RETRY (call, code: error.map(ToolError::code), error: error.map(ToolError::message),
            ATTEMPT = attempt, DELAY_MS = ms(delay), HINTED = detail_or(hinted, hinted)),
    RetryRefused { call, attempt, reason: RetryRefusal::Exhausted, error } =>
        ERROR EXHAUSTED (call, code: error.map(ToolError::code),
            error: error.map(ToolError::message), ATTEMPT = attempt),
    RetryRefused { call, attempt, reason, error } =>
        WARN RETRY_REFUSED (call, code: error.map(ToolError::code),
            error: error.map(ToolError::message), ATTEMPT = attempt, REFUSED = reason.name()),
    RateLimited { call, attempt, cooldown, hinted } =>
        WARN RATE_LIMITED (call, code: ErrorKind::RateLimited.code(), error: None::<&str>,
            ATTEMPT = attempt, DELAY_MS = ms(cooldown), HINTED = detail_or(hinted, hinted)),
    Transition { transition: t, call } =>
        WARN BREAKER (breaker(t, call), FROM = t.from.name(), TO = t.to.name(),
            REASON = t.reason.name(), GENERATION = detail_or(false, t.generation),
            CALLS = t.calls, FAILURES = t.failures,
            SLOW_CALLS = detail_or(t.slow_calls > 0, t.slow_calls), OPEN_MS = t.open_for.map(ms)),
    // The counts of a breaker for one principal are details.
    PrincipalTransition { transition: t, principal, call } =>
        WARN BREAKER_PRINCIPAL (call, text: PRINCIPAL = principal,
            FROM = detail_or(false, t.from.name()), TO = t.to.name(), REASON = t.reason.name(),
            GENERATION = detail_or(false, t.generation), CALLS = detail_or(false, t.calls),
            FAILURES = detail_or(false, t.failures), SLOW_CALLS = detail_or(false, t.slow_calls),
            OPEN_MS = t.open_for.map(ms)),
    Health { change, call } =>
        WARN HEALTH (call, FROM = change.from.name(), TO = change.to.name(),
            REASON = change.reason.map(Reason::name), FAILURES = change.failures,
            GENERATION = detail_or(false, change.generation)),
    Repeated { call, times } => WARN REPEATED (call, CALLS = times),
    Reused { call, layer } => DEBUG REUSED (call, LAYER = layer),
    Inert { call, layer, reason, help, is_first: true } =>
        WARN INERT (call, text: HELP = help, LAYER = layer, REASON = reason.name()),
    Policy { call, rule, outcome: asked @ (PolicyOutcome::Asked | PolicyOutcome::Approved), .. } =>
        INFO POLICY (call, DECISION = asked.name(), RULE = rule, AGENT_ID = agent(call)),
    // The end of a call that is refused is an event of the trace layer, at INFO.
    Policy { call, outcome, rule, error } =>
        DEBUG POLICY (call, code: None::<&str>, error: error.map(ToolError::message),
            DECISION = outcome.name(), RULE = rule, AGENT_ID = agent(call)),
    Evicted { keys, kept } => DEBUG EVICTED (Named::default(), KEYS = keys, KEPT = kept),
}
