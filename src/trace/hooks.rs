use std::{borrow::Cow, time::Duration};

use tracing::Span;

use crate::{
    answer::Answer,
    call::{CallInfo, ToolCall},
    error::{ErrorKind, ToolError},
    outcome::{ByError, Classify, Outcome},
};

/// Functions that a [`TraceLayer`](super::TraceLayer) calls at the begin and end of a call. They
/// read the answer, or emit events. Each has a default; `()` has all defaults.
///
/// The layer calls [`classify`](Self::classify) at the end of each call, and the others only if a
/// subscriber listens. A hook runs during a poll or a drop, inside the call's span. It must be
/// quick, must not block and must not panic.
///
/// # Example
///
/// The cost of an answer, as a field of an event of your own:
///
/// ```
/// use tower_toolcall::{CallInfo, trace::{End, TraceHooks, TraceLayer}};
/// use tracing::Span;
///
/// #[derive(Clone)]
/// struct Rows;
///
/// impl TraceHooks<Vec<String>> for Rows {
///     fn on_end(&self, call: &CallInfo, end: &End<'_, Vec<String>>, _span: &Span) {
///         if let Some(rows) = end.answer() {
///             tracing::info!(tool = call.tool(), rows = rows.len());
///         }
///     }
/// }
///
/// let layer = TraceLayer::new().with_hooks(Rows);
/// ```
#[expect(unused_variables, reason = "implementations use them")]
pub trait TraceHooks<Res> {
    /// Classifies a result: a reported error, or a rate limit, is not a success. Default: every
    /// `Ok` is a success.
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome {
        ByError.classify(result)
    }

    /// Returns how many bytes the answer has as compact JSON, if that is cheaply known. Default:
    /// not known.
    fn output_bytes(&self, response: &Res) -> Option<u64> {
        None
    }

    /// Returns the answer. The layer shows it redacted if
    /// [configured](super::TraceLayer::with_output) and the span is kept. It takes the size from it
    /// if no layer has reported one. Default: not known.
    fn answer<'a>(&self, response: &'a Res) -> Option<Answer<'a>> {
        None
    }

    /// Returns the span's `error.type`, which should have few values. Default: the
    /// [kind's](ErrorKind::error_type).
    fn error_type(&self, error: &ToolError) -> Option<Cow<'static, str>> {
        None
    }

    /// Runs when a call begins. `span` is the call's span, after it got its parent and the decision
    /// of OpenTelemetry's sampler. Default: nothing.
    fn on_start(&self, call: &ToolCall, span: &Span) {}

    /// Runs when a call has ended: with a result, by a panic or a drop. Default: nothing.
    fn on_end(&self, call: &CallInfo, end: &End<'_, Res>, span: &Span) {}
}

/// No hooks.
impl<Res> TraceHooks<Res> for () {}

/// The default hooks: a classifier, and the answers of [the usual types](Answer::of_usual).
///
/// They distinguish the types of answers at run time, which needs `'static`. For answers that
/// borrow, use other hooks, for example `()`.
#[derive(Clone, Copy, Debug)]
pub struct DefaultHooks<C = ByError> {
    classifier: C,
}

impl Default for DefaultHooks {
    fn default() -> Self {
        Self::new(ByError)
    }
}

impl<C> DefaultHooks<C> {
    pub(super) fn new(classifier: C) -> Self {
        Self { classifier }
    }
}

impl<Res: 'static, C: Classify<Res>> TraceHooks<Res> for DefaultHooks<C> {
    fn classify(&self, result: Result<&Res, &ToolError>) -> Outcome {
        self.classifier.classify(result)
    }

    fn output_bytes(&self, response: &Res) -> Option<u64> {
        Answer::of_usual(response).map(|answer| answer.bytes())
    }

    fn answer<'a>(&self, response: &'a Res) -> Option<Answer<'a>> {
        Answer::of_usual(response)
    }
}

/// The end of a call.
pub struct End<'a, Res> {
    pub(super) result: Option<Result<&'a Res, &'a ToolError>>,
    pub(super) failure: Option<ErrorKind>,
    pub(super) duration: Duration,
    pub(super) attempts: u32,
}

impl<'a, Res> End<'a, Res> {
    /// Returns the answer, even if it is not a success. `None` if the call failed or was dropped.
    pub fn answer(&self) -> Option<&'a Res> {
        self.result?.ok()
    }

    /// Returns the error; none if there was an answer, or if the call was dropped or panicked.
    pub fn error(&self) -> Option<&'a ToolError> {
        self.result?.err()
    }

    /// Returns the kind of the failure; `None` after a success. A call that was dropped unfinished
    /// is [`Cancelled`](ErrorKind::Cancelled), after its deadline [`Timeout`](ErrorKind::Timeout).
    pub fn failure(&self) -> Option<ErrorKind> {
        self.failure
    }

    /// Returns how long it took.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Returns how many attempts were sent; 0 for a call that was only refused.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

crate::text::debug_fields! { {Res} |_| End<'_, Res> { failure, duration, attempts, .. } }
