//! Events: what happens to calls and does not show in their results.
//!
//! The result of a call says how it ended, and outer layers see it. All else is an [`Event`]: a
//! layer gives it to its [`Listen`]er, if it has one, and emits it through
//! [tracing](https://docs.rs/tracing). Of a call that succeeds in good time, only the trace layer
//! emits events (`tool.start`, `tool.success`), and the token layer reports
//! [its own](Event::Token).
//!
//! # Fields
//!
//! Every event has the target [`TARGET`] and the fields `tool`, `server`, `call_id` and `trace_id`,
//! if they are known. All durations are milliseconds with fractions. Names of callers and peers are
//! cut at 64 characters; errors are redacted. The names are constants of [`names`], and a patch
//! release does not change them.
//!
//! If no subscriber listens to the target at DEBUG, an event about a call is short: it fits into [a
//! line of 200 characters](crate::trace#text-logs). It then lacks `call_id`, `trace_id`,
//! `generation`, a `hinted` that is false, and the counts of `tool.breaker.principal`. The end of a
//! call has only `tool`, `server`, `code`, `error`, `duration_ms` and `attempts`.
//!
//! Events are for tracing's subscribers. A logger that gets them through tracing's feature `log`
//! does not get those of the trace layer, nor `tool.slow`.
//!
//! # Example
//!
//! A listener of a program's own:
//!
//! ```
//! use tower_toolcall::{Event, retry::RetryPolicy};
//!
//! let policy = RetryPolicy::new().with_listener(
//!     |event: &Event<'_>| {
//!         if let Event::Retry { attempt, .. } = event {
//!             println!("attempt {attempt} failed");
//!         }
//!     },
//! );
//! ```
//!
#![doc = include_str!("json_logs.md")]

pub(crate) mod availability;
mod emit;
pub(crate) mod heard;
mod listen;
pub mod names;
mod outcome;
mod shown;
pub(crate) mod transition;

use std::time::Duration;

pub use self::{
    emit::details_are_heard,
    listen::{Listen, Listener},
    outcome::{CallOutcome, PolicyOutcome, TokenOutcome},
    shown::{shown_field, shown_name, shown_text},
};
pub(crate) use self::{
    emit::{Line, emit, event, level_of_error, ms, short, width},
    listen::Audience,
};
pub use crate::event::availability::{Availability, AvailabilityChange};
pub use crate::event::transition::{BreakerState, Transition, TransitionReason};
use crate::{
    call::CallInfo,
    error::{ErrorKind, ToolError},
};

/// The target of every event and span of this crate, except the span of an HTTP request: that is
/// `tower_toolcall::http`, which a filter for this target includes.
pub const TARGET: &str = "tower_toolcall";

/// Something that happened to a call below its observers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The call used more than its fraction of the timeout; it may have succeeded.
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
    /// A call was not started, and no observer below has seen it: in a batch no time was left, or
    /// it was given up before; an [identity layer](crate::identity) knows no such tool; or a bridge
    /// refused the request. `tool.skipped`, WARN, `tool.cancelled`, INFO, or `tool.rejected`, INFO.
    #[non_exhaustive]
    NotStarted {
        /// The call.
        call: &'a CallInfo,
        /// Why: `DeadlineExceeded`, `Cancelled`, or what the refusal of the name is, `NotFound` as
        /// a rule.
        kind: ErrorKind,
        /// The refusal of the name.
        error: Option<&'a ToolError>,
    },
    /// The response future was dropped before it had a result. `tool.cancelled`, INFO.
    #[non_exhaustive]
    Cancelled {
        /// The call.
        call: &'a CallInfo,
        /// How long it had been waiting; zero if it was never polled to wait.
        elapsed: Duration,
        /// `true` if its deadline had passed: then a caller enforced a timeout, and the event
        /// is `tool.timeout`, WARN.
        past_deadline: bool,
    },
    /// A call failed and will be sent again. `tool.retry`, WARN.
    #[non_exhaustive]
    Retry {
        /// The call.
        call: &'a CallInfo,
        /// The attempt that failed, counted from 1.
        attempt: u32,
        /// How long is waited before the next one.
        delay: Duration,
        /// `true` if the server said how long (a hint).
        hinted: bool,
        /// Its error; `None` if its answer was a failure by the classifier.
        error: Option<&'a ToolError>,
    },
    /// A call failed in a way that a retry might mend, and is not sent again. `tool.exhausted`,
    /// ERROR, if its attempts are used up, else `tool.retry_refused`, WARN, with the reason as
    /// `refused`.
    #[non_exhaustive]
    RetryRefused {
        /// The call.
        call: &'a CallInfo,
        /// The attempt that failed, counted from 1.
        attempt: u32,
        /// Why no other attempt follows.
        reason: RetryRefusal,
        /// Its error; `None` if its answer was a failure by the classifier.
        error: Option<&'a ToolError>,
    },
    /// A rate limit was met, or a server has said that nothing is left of it. `tool.rate_limited`,
    /// WARN.
    #[non_exhaustive]
    RateLimited {
        /// The call.
        call: &'a CallInfo,
        /// The attempt that met it, counted from 1.
        attempt: u32,
        /// How long the call is held back before it may be sent again; other calls of the same key
        /// no longer than that, and not at all after a limit that is known by text alone.
        cooldown: Duration,
        /// `true` if the server said how long (a hint).
        hinted: bool,
    },
    /// A circuit breaker changed its state. `tool.breaker`, WARN.
    #[non_exhaustive]
    Transition {
        /// Which one, from where to where, and why.
        transition: &'a Transition,
        /// The call that caused it; `None` if it came from a handle.
        call: Option<&'a CallInfo>,
    },
    /// A circuit breaker refuses calls of one principal alone, or does so no longer, after
    /// [weak failures](crate::circuit_breaker::WeakFailures) of it. `tool.breaker.principal`, WARN.
    #[non_exhaustive]
    PrincipalTransition {
        /// Which breaker; from where to where, and why, for this principal.
        transition: &'a Transition,
        /// The kind of its id and the id, redacted and cut; of a token only a hash.
        principal: &'a str,
        /// The call that caused it.
        call: &'a CallInfo,
    },
    /// The state of a circuit breaker, for a [listener](crate::Observation::listen) of a call that
    /// the breaker does not remember: it remembers the last four. The breaker sends it when it
    /// records the call's result or refuses the call. Only that listener receives it; no event is
    /// emitted. So metrics have a breaker that has never changed its state.
    #[non_exhaustive]
    BreakerSeen {
        /// The server part of the breaker's key.
        server: Option<&'a str>,
        /// The tool part of the key, or what a key function picked.
        tool: Option<&'a str>,
        /// Its state.
        state: BreakerState,
        /// Counts its states, as [`Transition::generation`] does.
        generation: u32,
        /// The call.
        call: &'a CallInfo,
    },
    /// A token was requested for a call, with or without success. Only the
    /// [listeners](crate::Observation::listen) of the call receive it; no event is emitted. It is
    /// sent for each attempt that needs a token, also if a kept one is used.
    #[non_exhaustive]
    Token {
        /// The call.
        call: &'a CallInfo,
        /// The outcome of that.
        outcome: TokenOutcome,
        /// How long the identity provider took; `None` if this call did not ask it.
        exchange: Option<Duration>,
        /// Why the call got no token.
        error: Option<&'a ToolError>,
    },
    /// A server is available, degraded or unavailable, and was not before. `tool.health`, WARN.
    #[non_exhaustive]
    Health {
        /// Which one, from where to where, and why.
        change: &'a AvailabilityChange,
        /// The call that showed it.
        call: &'a CallInfo,
    },
    /// A caller has made the same call again and again, each time with success and with nothing new
    /// in between: a loop, perhaps. `tool.repeated`, WARN.
    #[non_exhaustive]
    Repeated {
        /// The call.
        call: &'a CallInfo,
        /// How often it has succeeded in a row.
        times: u32,
    },
    /// A call has the answer, or the error, that an earlier call has got, and was not sent.
    /// `tool.reused`, DEBUG.
    #[non_exhaustive]
    Reused {
        /// The call.
        call: &'a CallInfo,
        /// Which layer had it: `once`, `cache`, or one of another author.
        layer: &'a str,
    },
    /// A layer can do nothing for a call, because something is not known of it: the call goes on as
    /// if the layer were not there, or shares its state with others. `tool.inert`, WARN, for the
    /// first call of a layer value and reason; listeners receive it for each call.
    #[non_exhaustive]
    Inert {
        /// The call.
        call: &'a CallInfo,
        /// Which layer: the name of its module.
        layer: &'static str,
        /// The missing fact.
        reason: InertReason,
        /// The advice for the user of the layer.
        help: &'static str,
        /// `true` if it is the first call of the layer value for this reason.
        is_first: bool,
    },
    /// A policy has decided about a call. `tool.policy`: INFO if the call waited for an approval or
    /// was approved, else DEBUG, because the end of a refused call is an event of trace. A call
    /// that is allowed without an approval is reported only if the layer's listener or a subscriber
    /// wants it.
    #[non_exhaustive]
    Policy {
        /// The call.
        call: &'a CallInfo,
        /// The decision.
        outcome: PolicyOutcome,
        /// The pattern of the rule; `None` if no rule is for the call.
        rule: Option<&'a str>,
        /// The error with which the call ends, if it is not sent.
        error: Option<&'a ToolError>,
    },
    /// A keyed layer has forgotten keys that were not in use, to make room for others.
    /// `tool.evicted`, DEBUG.
    #[non_exhaustive]
    Evicted {
        /// How many.
        keys: usize,
        /// How many it keeps.
        kept: usize,
    },
}

/// For layers of other authors: their events are seen like those of this crate's layers.
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall::{ToolCall, event::{Event, Listener}};
///
/// let call = ToolCall::new("search").info();
/// let listener = Listener::default(); // or the user's: Listener::new(..)
/// listener.tell(&Event::retry(&call, 1, Duration::from_secs(1)));
/// ```
impl<'a> Event<'a> {
    /// Makes an [`Event::Slow`].
    pub const fn slow(call: &'a CallInfo, elapsed: Duration, timeout: Duration) -> Self {
        Self::Slow {
            call,
            elapsed,
            timeout,
        }
    }

    /// Makes an [`Event::NotStarted`], without an error. See [`with_error`](Self::with_error).
    pub const fn not_started(call: &'a CallInfo, kind: ErrorKind) -> Self {
        Self::NotStarted {
            call,
            kind,
            error: None,
        }
    }

    /// Makes an [`Event::Retry`], without a hint and an error. See [`with_error`](Self::with_error)
    /// and [`hinted`](Self::hinted).
    pub const fn retry(call: &'a CallInfo, attempt: u32, delay: Duration) -> Self {
        Self::Retry {
            call,
            attempt,
            delay,
            hinted: false,
            error: None,
        }
    }

    /// Makes an [`Event::RetryRefused`], without an error. See [`with_error`](Self::with_error).
    pub const fn retry_refused(call: &'a CallInfo, attempt: u32, reason: RetryRefusal) -> Self {
        Self::RetryRefused {
            call,
            attempt,
            reason,
            error: None,
        }
    }

    /// Makes an [`Event::RateLimited`], without a hint. See [`hinted`](Self::hinted).
    pub const fn rate_limited(call: &'a CallInfo, attempt: u32, cooldown: Duration) -> Self {
        Self::RateLimited {
            call,
            attempt,
            cooldown,
            hinted: false,
        }
    }

    /// Makes an [`Event::Repeated`].
    pub const fn repeated(call: &'a CallInfo, times: u32) -> Self {
        Self::Repeated { call, times }
    }

    /// Makes an [`Event::Reused`].
    pub const fn reused(call: &'a CallInfo, layer: &'a str) -> Self {
        Self::Reused { call, layer }
    }

    /// Adds what the attempt failed with, or the refusal. Only of retries, done or refused,
    /// policies, and calls that were not started.
    #[must_use]
    pub const fn with_error(mut self, failed: &'a ToolError) -> Self {
        if let Self::Retry { error, .. }
        | Self::RetryRefused { error, .. }
        | Self::NotStarted { error, .. }
        | Self::Policy { error, .. } = &mut self
        {
            *error = Some(failed);
        }
        self
    }

    /// Says that the delay is the server's. Only of retries and rate limits.
    #[must_use]
    pub const fn hinted(mut self) -> Self {
        if let Self::Retry { hinted, .. } | Self::RateLimited { hinted, .. } = &mut self {
            *hinted = true;
        }
        self
    }

    /// Returns the call of the event, or the call that caused it.
    pub fn call(&self) -> Option<&'a CallInfo> {
        match *self {
            Self::Slow { call, .. }
            | Self::NotStarted { call, .. }
            | Self::Cancelled { call, .. }
            | Self::Retry { call, .. }
            | Self::RetryRefused { call, .. }
            | Self::RateLimited { call, .. }
            | Self::PrincipalTransition { call, .. }
            | Self::BreakerSeen { call, .. }
            | Self::Token { call, .. }
            | Self::Health { call, .. }
            | Self::Policy { call, .. }
            | Self::Repeated { call, .. }
            | Self::Inert { call, .. }
            | Self::Reused { call, .. } => Some(call),
            Self::Transition { call, .. } => call,
            Self::Evicted { .. } => None,
        }
    }
}

/// The reason for which a layer can do nothing for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum InertReason {
    /// No principal: the call has no subject, agent id or session id.
    NoPrincipal,
    /// Its tool has no schema.
    NoSchema,
    /// Nothing says whether its tool may run twice.
    NotMarkedSafe,
    /// Its tool is marked unsafe to run twice, although the layer is configured to keep its
    /// answers.
    MarkedUnsafe,
    /// The function of the layer's key picks an empty text.
    NoKey,
    /// No agent id, and the layer has rules for agents.
    NoAgent,
    /// A timeout or a deadline that no layer enforces.
    NotEnforced,
    /// An outer timeout ends before the wait for the call's job does.
    OuterTimeout,
}

crate::text::names! {
    /// The reason's name in events and metrics.
    pub(crate) InertReason {
        NoPrincipal = "no_principal",
        NoSchema = "no_schema",
        NotMarkedSafe = "not_marked_safe",
        MarkedUnsafe = "marked_unsafe",
        NoKey = "no_key",
        NoAgent = "no_agent",
        NotEnforced = "not_enforced",
        OuterTimeout = "outer_timeout",
    }
}

/// The reason why a call was not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryRefusal {
    /// Its attempts are used up.
    Exhausted,
    /// The call may have run, and its caller, a rule or a trusted server did not declare it safe to
    /// run twice. See [`ToolCall::with_replay_safety`](crate::ToolCall::with_replay_safety).
    NotMarkedSafe,
    /// The call may have run, and was declared [unsafe](crate::ReplaySafety::Unsafe) to run twice.
    Unsafe,
    /// The [`RetryBudget`](crate::retry::RetryBudget) is used up.
    Budget,
    /// The delay does not end before its deadline.
    Deadline,
    /// The server asks for a longer delay than the policy grants.
    TooLong,
}

crate::text::names! {
    /// The reason's name in events.
    pub(crate) RetryRefusal {
        Exhausted = "exhausted",
        NotMarkedSafe = "not_marked_safe",
        Unsafe = "unsafe",
        Budget = "budget",
        Deadline = "deadline",
        TooLong = "too_long",
    }
}
