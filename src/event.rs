//! What observers learn of things that a result does not show.
//!
//! How a call ended is in its result, and a layer above sees that. For the rest: layers do not know
//! each other. A layer that has something to tell gives an [`Event`] to its
//! [`Listen`]er, if it has one, and emits it through [`tracing`] as well. Nothing is told on the
//! path of a call that succeeds in good time.

use std::{fmt, sync::Arc, time::Duration};

pub use crate::transition::{BreakerState, Transition, TransitionReason};
use crate::{
    call::CallInfo,
    error::{ErrorKind, ToolError},
    text::Short,
};

/// The target of every span and event of this crate.
pub const TARGET: &str = "tower_toolcall";

/// Something that happened to a call below its observers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The call used more than its fraction of the timeout; it may have succeeded (T6).
    /// `tool.slow`, WARN.
    #[non_exhaustive]
    Slow {
        /// The call.
        call: &'a CallInfo,
        /// How long it took, from its first wait on.
        elapsed: Duration,
        /// The timeout in force.
        timeout: Duration,
    },
    /// The response future was dropped unfinished, so that there is no result to see.
    /// `tool.cancelled`, INFO.
    #[non_exhaustive]
    Cancelled {
        /// The call.
        call: &'a CallInfo,
        /// How long it had been waiting; zero if it was never polled to wait.
        elapsed: Duration,
        /// Whether its deadline had passed: then somebody outside enforced a timeout, and the event
        /// is `tool.timeout`, WARN.
        past_deadline: bool,
    },
    /// A call failed and will be sent again (R4). `tool.retry`, WARN.
    #[non_exhaustive]
    Retry {
        /// The call.
        call: &'a CallInfo,
        /// The attempt that failed, counted from 1.
        attempt: u32,
        /// How long is waited before the next one.
        delay: Duration,
        /// Whether the server told how long.
        told: bool,
        /// What it failed with; none if its answer was a failure in the classifier's eyes.
        error: Option<&'a ToolError>,
    },
    /// A call failed in a way that a retry might mend, and is not sent again (R4). `tool.exhausted`,
    /// ERROR, if its attempts are used up, else `tool.retry`, WARN, with the reason as `refused`.
    #[non_exhaustive]
    RetryRefused {
        /// The call.
        call: &'a CallInfo,
        /// The attempt that failed, counted from 1.
        attempt: u32,
        /// Why there is no other.
        reason: RetryRefusal,
        /// What it failed with; none if its answer was a failure in the classifier's eyes.
        error: Option<&'a ToolError>,
    },
    /// A rate limit was met, or a server has told that nothing is left of it. `tool.rate_limited`, WARN.
    #[non_exhaustive]
    RateLimited {
        /// The call.
        call: &'a CallInfo,
        /// The attempt that met it, counted from 1.
        attempt: u32,
        /// For how long calls of the same key are held back.
        cooldown: Duration,
        /// Whether the server told how long.
        told: bool,
    },
    /// A circuit breaker changed its state (C6). `tool.breaker`, WARN.
    #[non_exhaustive]
    Transition {
        /// Which one, from where to where, and why.
        transition: &'a Transition,
        /// The call that brought it about; none if somebody used a handle.
        call: Option<&'a CallInfo>,
    },
    /// A keyed layer has forgotten keys that were not in use, to make room for others (C9).
    /// `tool.evicted`, DEBUG.
    #[non_exhaustive]
    Evicted {
        /// How many.
        keys: usize,
        /// How many it keeps.
        kept: usize,
    },
}

/// Why a call was not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryRefusal {
    /// Its attempts are used up (R3).
    Exhausted,
    /// It may have run, and nobody says that it may run twice (R6).
    Unsafe,
    /// The [`RetryBudget`](crate::retry::RetryBudget) is used up (R7).
    Budget,
    /// The delay does not end before its deadline (R5).
    Deadline,
    /// The server asks for a longer delay than the policy grants (L2).
    TooLong,
}

impl RetryRefusal {
    /// The reason's name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Unsafe => "unsafe",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::TooLong => "too_long",
        }
    }
}

/// Emits one of our events: its name is the message, and who was called is always told.
macro_rules! emit {
    ($level:ident, $name:literal, $call:expr $(, $($fields:tt)*)?) => {{
        let call: &$crate::call::CallInfo = $call;
        tracing::event!(
            name: $name,
            target: $crate::event::TARGET,
            tracing::Level::$level,
            tool = %$crate::text::Short::name(call.tool()),
            server = call.server().map(|s| tracing::field::display($crate::text::Short::name(s))),
            call_id = call.id().map(|s| tracing::field::display($crate::text::Short::name(s))),
            trace_id = call.trace_id().map(|s| tracing::field::display($crate::text::Short::name(s))),
            $($($fields)*,)?
            $name
        )
    }};
}
pub(crate) use emit;

/// Milliseconds, with fractions, as the fields of events have them.
pub(crate) fn ms(d: Duration) -> f64 {
    // Whole microseconds: more digits are noise.
    (d.as_secs_f64() * 1e6).round() / 1e3
}

impl Event<'_> {
    fn trace(&self) {
        match *self {
            Event::Slow {
                call,
                elapsed,
                timeout,
            } => emit!(
                WARN,
                "tool.slow",
                call,
                duration_ms = ms(elapsed),
                timeout_ms = ms(timeout)
            ),
            Event::Cancelled {
                call,
                elapsed,
                past_deadline,
            } => {
                let duration_ms = ms(elapsed);
                if past_deadline {
                    let code = ErrorKind::Timeout.code();
                    let error = "dropped after its deadline";
                    emit!(WARN, "tool.timeout", call, code, error, duration_ms);
                } else {
                    emit!(INFO, "tool.cancelled", call, duration_ms);
                }
            }
            Event::Retry {
                call,
                attempt,
                delay,
                told,
                error,
            } => emit!(
                WARN,
                "tool.retry",
                call,
                attempt,
                delay_ms = ms(delay),
                told,
                code = error.map(ToolError::code),
                error = error.map(ToolError::message)
            ),
            Event::RetryRefused {
                call,
                attempt,
                reason,
                error,
            } => {
                let (code, error) = (error.map(ToolError::code), error.map(ToolError::message));
                if reason == RetryRefusal::Exhausted {
                    emit!(ERROR, "tool.exhausted", call, attempt, code, error);
                } else {
                    let refused = reason.name();
                    emit!(WARN, "tool.retry", call, attempt, refused, code, error);
                }
            }
            Event::RateLimited {
                call,
                attempt,
                cooldown,
                told,
            } => {
                let code = ErrorKind::RateLimited.code();
                let delay_ms = ms(cooldown);
                emit!(
                    WARN,
                    "tool.rate_limited",
                    call,
                    attempt,
                    code,
                    delay_ms,
                    told
                );
            }
            Event::Transition {
                transition: t,
                call,
            } => tracing::event!(
                name: "tool.breaker",
                target: TARGET,
                tracing::Level::WARN,
                tool = t.tool.as_deref().map(|s| display(Short::name(s))),
                server = t.server.as_deref().map(|s| display(Short::name(s))),
                call_id = call.and_then(CallInfo::id).map(|s| display(Short::name(s))),
                trace_id = call.and_then(CallInfo::trace_id).map(|s| display(Short::name(s))),
                from = t.from.name(),
                to = t.to.name(),
                reason = t.reason.name(),
                generation = t.generation,
                calls = t.calls,
                failures = t.failures,
                slow_calls = t.slow_calls,
                open_ms = t.open_for.map(ms),
                "tool.breaker"
            ),
            Event::Evicted { keys, kept } => tracing::event!(
                name: "tool.evicted",
                target: TARGET,
                tracing::Level::DEBUG,
                keys,
                kept,
                "tool.evicted"
            ),
        }
    }
}

/// Hears of [`Event`]s. Called in the middle of a poll or a drop: must be quick, must not block and must
/// not panic.
pub trait Listen: Send + Sync {
    /// Something happened.
    fn on(&self, event: &Event<'_>);
}

impl<F> Listen for F
where
    F: Fn(&Event<'_>) + Send + Sync,
{
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}

/// One listener for several layers.
impl<T: Listen + ?Sized> Listen for Arc<T> {
    fn on(&self, event: &Event<'_>) {
        (**self).on(event);
    }
}

/// A layer's listener: none by default, which costs a branch.
#[derive(Clone, Default)]
pub(crate) struct Listener(Option<Arc<dyn Listen>>);

impl Listener {
    pub(crate) fn new(listen: impl Listen + 'static) -> Self {
        Self(Some(Arc::new(listen)))
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        event.trace();
        if let Some(listen) = &self.0 {
            listen.on(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}
