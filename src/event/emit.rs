//! Events as `tracing` has them.

use std::time::Duration;

use tracing::field::{DisplayValue, display};

use super::{Event, PolicyOutcome, RetryRefusal};
use crate::{
    call::CallInfo,
    error::{ErrorKind, ToolError},
    event::{availability::Reason, transition::Transition},
    text::Short,
};

/// Emits one of our [events](super::names::event) with some of our [fields](super::names::field): its name is the message.
macro_rules! event {
    ($level:ident $name:ident $(, $field:ident = $value:expr)* $(,)?) => {
        tracing::event!(
            name: $crate::event::names::event::$name,
            target: $crate::event::TARGET,
            tracing::Level::$level,
            $({ $crate::event::names::field::$field } = $value,)*
            "{}", $crate::event::names::event::$name
        )
    };
}
pub(crate) use event;

/// The same about a call, with its names.
macro_rules! emit {
    ($level:ident $name:ident, $call:expr $(, $field:ident = $value:expr)*) => {{
        let call: &$crate::call::CallInfo = $call;
        let name = $crate::event::short;
        $crate::event::event!(
            $level $name,
            TOOL = name(call.tool()),
            SERVER = call.server().map(name),
            CALL_ID = call.id().map(name),
            TRACE_ID = call.trace_id().map(name),
            $($field = $value),*
        )
    }};
}
pub(crate) use emit;

/// A name of a caller or a peer, as the fields of events and spans have it.
pub(crate) fn short(name: &str) -> DisplayValue<Short<'_>> {
    display(Short::name(name))
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
            Event::NotStarted { call, kind } => not_started(call, kind),
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
            } => emit!(WARN RETRY, call, ATTEMPT = attempt, DELAY_MS = ms(delay), HINTED = hinted,
                CODE = error.map(ToolError::code), ERROR = error.map(ToolError::message)),
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
            } => emit!(WARN RATE_LIMITED, call, ATTEMPT = attempt,
                CODE = ErrorKind::RateLimited.code(), DELAY_MS = ms(cooldown), HINTED = hinted),
            Event::Transition { transition, call } => breaker(transition, call),
            Event::Breaker { .. } | Event::Token { .. } => {}
            Event::Health { change, call } => emit!(WARN HEALTH, call, FROM = change.from.name(),
                TO = change.to.name(), REASON = change.reason.map(Reason::name),
                FAILURES = change.failures, GENERATION = change.generation),
            Event::Repeated { call, times } => emit!(WARN REPEATED, call, CALLS = times),
            Event::Reused { call, layer } => emit!(DEBUG REUSED, call, LAYER = layer),
            Event::Policy {
                call,
                outcome,
                rule,
                error,
            } => policy(call, outcome, rule, error),
            Event::Evicted { keys, kept } => event!(DEBUG EVICTED, KEYS = keys, KEPT = kept),
        }
    }
}

fn not_started(call: &CallInfo, kind: ErrorKind) {
    match kind {
        ErrorKind::DeadlineExceeded => emit!(WARN SKIPPED, call, CODE = kind.code(),
            ERROR = "the time budget was spent before the call could start", DURATION_MS = 0.0),
        ErrorKind::Cancelled => emit!(INFO CANCELLED, call, DURATION_MS = 0.0),
        _ => emit!(INFO REJECTED, call, CODE = kind.code(),
            ERROR = "the name of the tool was refused", DURATION_MS = 0.0),
    }
}

fn cancelled(call: &CallInfo, elapsed: Duration, past_deadline: bool) {
    match past_deadline {
        true => emit!(WARN TIMEOUT, call, CODE = ErrorKind::Timeout.code(),
            ERROR = "dropped after its deadline", DURATION_MS = ms(elapsed)),
        false => emit!(INFO CANCELLED, call, DURATION_MS = ms(elapsed)),
    }
}

fn retry_refused(call: &CallInfo, attempt: u32, reason: RetryRefusal, error: Option<&ToolError>) {
    match reason {
        RetryRefusal::Exhausted => emit!(ERROR EXHAUSTED, call, ATTEMPT = attempt,
            CODE = error.map(ToolError::code), ERROR = error.map(ToolError::message)),
        _ => emit!(WARN RETRY, call, ATTEMPT = attempt, REFUSED = reason.name(),
            CODE = error.map(ToolError::code), ERROR = error.map(ToolError::message)),
    }
}

fn policy(call: &CallInfo, outcome: PolicyOutcome, rule: Option<&str>, error: Option<&ToolError>) {
    let decision = outcome.name();
    match outcome {
        PolicyOutcome::Allowed => emit!(DEBUG POLICY, call, DECISION = decision, RULE = rule,
            AGENT_ID = call.agent_id().map(short)),
        _ => emit!(INFO POLICY, call, DECISION = decision, RULE = rule,
            AGENT_ID = call.agent_id().map(short), ERROR = error.map(ToolError::message)),
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
