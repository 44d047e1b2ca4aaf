//! The meaning of a result for breakers, retriers and rate-limit layers.
//!
//! A [`Classify`] looks at a result and never decides anything. A classification has three
//! independent parts: whether the result [counts](Count) for a breaker, whether the call may be
//! [repeated](Outcome::is_retryable), and whether it is a [rate limit](Outcome::is_rate_limited).
//!
//! # Example
//!
//! A tool that answers `{"status": "busy"}` instead of failing:
//!
//! ```
//! use serde_json::Value;
//! use tower_toolcall::outcome::{ByError, Classify, Outcome, classify_fn};
//! use tower_toolcall::ToolError;
//!
//! let classifier = classify_fn(|result: Result<&Value, &ToolError>| match result {
//!     Ok(value) if value["status"] == "busy" => Outcome::rate_limited(None),
//!     other => ByError.classify(other),
//! });
//!
//! assert!(classifier.classify(Ok(&serde_json::json!({ "status": "busy" }))).is_rate_limited());
//! ```
//!
//! An error of your own is the source of the [`ToolError`] if its conversion [kept
//! it](ToolError::with_source). What is not yours (a layer's timeout, a refusal) is for
//! [`ByError`]. Retry, rate limit and breaker each take the classifier:
//!
//! ```
//! use std::{error::Error, fmt};
//! use tower::{ServiceBuilder, service_fn};
//! use tower_toolcall::{
//!     AnyError, ToolCall, ToolError,
//!     circuit_breaker::CircuitBreakerLayer,
//!     outcome::{ByError, Classify, Outcome, classify_fn},
//!     rate_limit::RateLimitBackoffLayer,
//!     retry::{RetryLayer, RetryPolicy},
//! };
//!
//! #[derive(Debug)]
//! struct Maintenance;
//!
//! impl fmt::Display for Maintenance {
//!     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
//!         f.write_str("maintenance")
//!     }
//! }
//!
//! impl Error for Maintenance {}
//!
//! # fn main() -> Result<(), tower_toolcall::ConfigError> {
//! let classifier = classify_fn(|result: Result<&String, &ToolError>| match result {
//!     Err(error) if error.source().is_some_and(|source| source.is::<Maintenance>()) => {
//!         Outcome::failure().with_retryable(false)
//!     }
//!     other => ByError.classify(other),
//! });
//! let tool = service_fn(|_: ToolCall| async { Ok::<String, AnyError>("sunny".into()) });
//! let stack = ServiceBuilder::new()
//!     .layer(RetryLayer::new(RetryPolicy::new().with_classifier(classifier.clone())))
//!     .layer(RateLimitBackoffLayer::builder().with_classifier(classifier.clone()).build()?)
//!     .layer(CircuitBreakerLayer::builder().with_classifier(classifier).build()?)
//!     .service(tool);
//! # let _ = stack; Ok(()) }
//! ```

use std::{error::Error as _, fmt, time::Duration};

use http::StatusCode;

use crate::error::{ErrorKind, Evidence, TimeoutLimit, ToolError, recognise::is_of_a_value};

/// The meaning of a result for a circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Count {
    /// The tool works.
    Success,
    /// The tool, or the way to it, is broken.
    Failure,
    /// A failure of the tool alone and not of its server: it counts where the key names the tool,
    /// and is neutral for a breaker of a whole server.
    ToolFailure,
    /// Says nothing of the tool: the caller's mistake, a rate limit, a cancellation, our own
    /// refusal.
    #[default]
    Neutral,
}

/// The classification of one result. Opaque: made by its constructors, read by its getters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    count: Count,
    retryable: bool,
    rate_limited: bool,
    reported: bool,
    /// The reported error is the caller's mistake.
    mistake: bool,
    weak: bool,
    retry_after: Option<Duration>,
    cooldown: Option<Duration>,
}

impl Outcome {
    const fn new(count: Count, retryable: bool) -> Self {
        Self {
            count,
            retryable,
            rate_limited: false,
            reported: false,
            mistake: false,
            weak: false,
            retry_after: None,
            cooldown: None,
        }
    }

    /// Classifies a result of a working tool.
    pub const fn success() -> Self {
        Self::new(Count::Success, false)
    }

    /// Classifies a result of a broken tool. The call may be repeated if its replay safety allows
    /// it.
    pub const fn failure() -> Self {
        Self::new(Count::Failure, true)
    }

    /// Classifies a result of a broken tool on a server that may work. Not retried.
    pub const fn tool_failure() -> Self {
        Self::new(Count::ToolFailure, false)
    }

    /// Tells nothing about the tool; not to be repeated.
    pub const fn neutral() -> Self {
        Self::new(Count::Neutral, false)
    }

    /// Classifies a rate limit, for as long as the server says. Neutral; the call did not run.
    pub const fn rate_limited(retry_after: Option<Duration>) -> Self {
        let mut outcome = Self::new(Count::Neutral, true);
        outcome.rate_limited = true;
        outcome.retry_after = retry_after;
        outcome
    }

    /// Classifies an answer as the tool's own error, as MCP's `isError` does. Neutral for breakers,
    /// not retried, and reported as a failure to observers.
    pub const fn reported() -> Self {
        Self::neutral().with_reported(true)
    }

    /// Classifies an answer as the caller's mistake, such as arguments of a wrong type. Not
    /// retried, reported as a failure to observers, and neutral for every breaker, even if it
    /// [counts reported
    /// errors](crate::circuit_breaker::CircuitBreakerBuilder::with_reported_failures).
    pub const fn mistake() -> Self {
        let mut outcome = Self::reported();
        outcome.mistake = true;
        outcome
    }

    /// Sets whether the answer is reported as the tool's own error.
    pub const fn with_reported(mut self, reported: bool) -> Self {
        self.reported = reported;
        self
    }

    /// Says whether the call may be repeated.
    pub const fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Says how the result counts for a breaker.
    pub const fn with_count(mut self, count: Count) -> Self {
        self.count = count;
        self
    }

    /// Sets for how long no further call should be sent: the answer used up the server's grant, by
    /// its headers for example, or the server fails and says when it is back. See `hint::exhausted`
    /// (feature `hints`).
    pub const fn with_cooldown(mut self, cooldown: Duration) -> Self {
        self.cooldown = Some(cooldown);
        self
    }

    /// Returns how the result counts for a breaker.
    pub const fn count(&self) -> Count {
        self.count
    }

    /// Returns whether a retry may help. Replay safety and budgets have their say as well.
    pub const fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns whether the server asks for patience.
    pub const fn is_rate_limited(&self) -> bool {
        self.rate_limited
    }

    /// Returns whether the answer is reported as the tool's own error.
    pub const fn is_reported(&self) -> bool {
        self.reported
    }

    /// Returns whether the tool refuses the request: the caller's [mistake](Self::mistake).
    pub(crate) const fn is_mistake(&self) -> bool {
        self.mistake
    }

    /// Returns whether this caller's request may have caused the failure: its kind was
    /// [inferred](crate::Evidence::Inferred), could not be classified, or the tool reported it. A
    /// circuit breaker counts it for [its principal](crate::circuit_breaker::WeakFailures).
    pub const fn is_weak(&self) -> bool {
        self.weak || self.reported
    }

    /// Returns whether it is a reported error that may be the tool's fault.
    pub(crate) const fn is_reported_failure(&self) -> bool {
        self.reported && !self.mistake
    }

    /// Returns whether the answer is a success: not a failure, a rate limit or a reported error. A
    /// neutral answer is a success.
    pub const fn is_success(&self) -> bool {
        matches!(self.count, Count::Success | Count::Neutral)
            && !self.reported
            && !self.rate_limited
    }

    /// Returns the error kind and name under which observers report this answer, or `None` for a
    /// success.
    #[inline]
    pub(crate) const fn failure_of_answer(&self) -> Option<(ErrorKind, &'static str)> {
        Some(if self.is_success() {
            return None;
        } else if self.reported {
            (ErrorKind::Reported, "the tool reported an error")
        } else if self.rate_limited {
            (ErrorKind::RateLimited, "the answer is a rate limit")
        } else {
            (ErrorKind::Failed, "the answer is a failure")
        })
    }

    /// Returns for how long no further call should be sent.
    pub const fn cooldown(&self) -> Option<Duration> {
        self.cooldown
    }

    /// Returns how long the server asks to wait.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns whether the server asked for that delay: not if a layer has put it on this error.
    pub(crate) fn is_hinted(&self, error: Option<&ToolError>) -> bool {
        let is_own = |e: &ToolError| e.has_own_delay() && e.retry_after() == self.retry_after;
        self.retry_after.is_some() && !error.is_some_and(is_own)
    }
}

/// Classifies a result. Pure: no clock, no state, no decision.
///
/// The attempts at a call share the classifier of a layer that repeats calls. So the services of
/// [`retry`](crate::retry) and [`rate_limit`](crate::rate_limit) are `Send` only if it is `Sync`.
pub trait Classify<Res> {
    /// Returns the classification of `result`.
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome;
}

impl<Res, F> Classify<Res> for F
where
    F: Fn(Result<&Res, &ToolError>) -> Outcome,
{
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome {
        self(result)
    }
}

/// Makes a classifier of a closure, with inferred argument types. See the [module docs](self).
pub fn classify_fn<Res, F>(f: F) -> F
where
    F: Fn(Result<&Res, &ToolError>) -> Outcome,
{
    f
}

/// The default: every `Ok` is a success, an `Err` is what its [kind](ErrorKind) says.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByError;

impl<Res> Classify<Res> for ByError {
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome {
        let Err(error) = result else {
            return Outcome::success();
        };
        let kind = error.kind();
        // Whoever repeats our own refusals hammers what protects the tool or its server; and they
        // tell nothing of it.
        let refused = error.is_own_refusal();
        let retryable = error.is_transient() && !refused && kind != ErrorKind::CircuitOpen;
        let count = match refused || is_the_callers(error) {
            true => Count::Neutral,
            false => kind.count(),
        };
        Outcome {
            count,
            retryable,
            rate_limited: kind == ErrorKind::RateLimited,
            reported: kind == ErrorKind::Reported,
            mistake: false,
            weak: count != Count::Neutral && is_weak(error),
            retry_after: error.retry_after(),
            cooldown: error.announced_delay(),
        }
    }
}

/// Returns whether an argument may have caused it: a foreign error may be about anything that the
/// tool has met, and so may an error without a kind.
fn is_weak(error: &ToolError) -> bool {
    error.evidence() == Evidence::Inferred || error.kind() == ErrorKind::Failed
}

/// Returns whether the caller brought it about: by a request that the server would not have (a 3xx,
/// or a 4xx that is neither a timeout nor a rate limit), by a deadline shorter than the tool's
/// timeout, or by a text that is not a number or an address.
fn is_the_callers(error: &ToolError) -> bool {
    let refused = |status: StatusCode| matches!(status.as_u16(), 300..=407 | 409..=428 | 430..=498);
    error.timeout_limit() == Some(TimeoutLimit::Caller)
        || error.kind() == ErrorKind::Failed
            && (error.status().is_some_and(refused) || error.source().is_some_and(is_of_a_value))
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::ToolFailure => "tool_failure",
            Self::Neutral => "neutral",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_error(error: &ToolError) -> Outcome {
        Classify::<()>::classify(&ByError, Err(error))
    }

    /// Trap 13, whatever the kind.
    #[test]
    fn our_own_refusal_is_neutral_and_not_repeated() {
        for error in [
            ToolError::new(ErrorKind::CircuitOpen, "open"),
            ToolError::refusal(ErrorKind::ConnectionFailed, "unavailable"),
        ] {
            let outcome = by_error(&error);
            assert_eq!(outcome.count(), Count::Neutral);
            assert!(!outcome.is_retryable());
        }
    }

    #[test]
    fn a_rate_limit_carries_its_hint_and_is_neutral() {
        let hint = Duration::from_secs(7);
        let error = ToolError::new(ErrorKind::RateLimited, "slow down").with_retry_after(hint);
        assert_eq!(by_error(&error), Outcome::rate_limited(Some(hint)));
    }

    #[test]
    fn what_nobody_can_classify_counts_for_the_tool_only() {
        let error = ToolError::new(ErrorKind::Failed, "?");
        let expected = Outcome {
            weak: true,
            ..Outcome::tool_failure()
        };
        assert_eq!(by_error(&error), expected);
    }
}
