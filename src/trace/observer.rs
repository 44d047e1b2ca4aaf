use std::{marker::PhantomData, time::Duration};

use tokio::time::Instant;
use tracing::{Level, Span, field::display, record_all};

use super::{
    hooks::{End, TraceHooks},
    layer::TraceLayer,
    span::{NewSpan, Scope},
};
use crate::{
    answer::Answer,
    call::{CallInfo, Claim, Observation, ToolCall},
    error::{ErrorKind, MAX_TEXT, ToolError},
    event::{
        CallOutcome, Event, InertReason, details_are_heard, emit, heard::heard, level_of,
        level_of_error, ms, names::span as names, short,
    },
    flow::{Abandoned, Ticket},
    foreign,
    outcome::Outcome,
};

/// How late a call may succeed after its timeout or deadline if a layer enforces that.
const MAX_LATE: Duration = Duration::from_millis(500);

const ENFORCE: &str = "set a `TimeoutLayer`, and for deadlines a `DeadlineLayer`";

/// Observes a call, or an attempt, while it runs.
pub(super) struct Observer<H, Res> {
    info: CallInfo,
    layer: TraceLayer<H>,
    /// `None` when no subscriber listens. Apart: a span and its fields are dear, so one box does
    /// not matter, but the futures of all other calls are smaller.
    seen: Option<Box<Seen>>,
    answer: PhantomData<fn(&Res)>,
}

#[derive(Debug)]
struct Seen {
    span: Span,
    /// Whether its fields are filled in.
    is_filled: bool,
    /// Whether a subscriber keeps what is recorded in it.
    is_kept: bool,
    since: Instant,
    deadline: Option<Instant>,
    below: Observation,
}

impl Seen {
    /// `readers`: how many read the fields of the span; `None` if they are not filled in.
    fn start(call: &mut ToolCall, span: Span, readers: Option<u32>) -> Box<Self> {
        let below = call.observe();
        // A span that OpenTelemetry's sampler drops may be read by others: a log.
        let is_kept = readers.is_some_and(|n| n > 1 || !foreign::is_sampled_out(&span));
        if is_kept || details_are_heard() {
            below.want_output_bytes();
        }
        let since = Instant::now();
        Box::new(Self {
            span,
            is_filled: readers.is_some(),
            is_kept,
            since,
            // Its owner ends the call.
            deadline: call.deadline().filter(|_| !call.is_claimed(Claim::Drain)),
            below,
        })
    }
}

/// Returns whether a subscriber listens to spans of ours at DEBUG: then they have their fields.
fn debug_spans_are_heard() -> bool {
    heard!(SPAN DEBUG)
}

/// A failure as spans and events show it.
struct Failure<'a> {
    kind: ErrorKind,
    outcome: CallOutcome,
    code: &'a str,
    text: &'a str,
    level: Level,
}

impl Failure<'static> {
    fn of_kind(kind: ErrorKind, text: &'static str) -> Self {
        Self {
            kind,
            outcome: CallOutcome::of(kind),
            code: kind.code(),
            text,
            level: level_of(kind),
        }
    }

    fn of_answer(kind: ErrorKind, text: &'static str, outcome: &Outcome) -> Self {
        let failure = Self::of_kind(kind, text);
        match outcome.is_mistake() {
            true => Self {
                level: Level::INFO,
                ..failure
            },
            false => failure,
        }
    }
}

impl<'a> From<&'a ToolError> for Failure<'a> {
    fn from(error: &'a ToolError) -> Self {
        Self {
            kind: error.kind(),
            outcome: CallOutcome::of_error(error),
            code: error.code(),
            text: error.message(),
            level: level_of_error(error),
        }
    }
}

/// Returns whether a subscriber listens to events like ours, on any level. A filter by the name of
/// an event cannot be asked here.
fn some_event_is_heard() -> bool {
    heard!(EVENT ERROR) || heard!(EVENT WARN) || heard!(EVENT INFO) || heard!(EVENT DEBUG)
}

/// The fields of the event at the end of a call.
struct Facts {
    duration_ms: f64,
    attempts: u32,
    max_attempts: Option<u32>,
    output_bytes: Option<u64>,
    is_reused: bool,
}

impl<H: TraceHooks<Res>, Res> Observer<H, Res> {
    /// The call begins: it is to be guarded from here on.
    pub(super) fn start(call: &mut ToolCall, layer: &TraceLayer<H>) -> Self
    where
        H: Clone,
    {
        let scope = layer.show.scope;
        let span = scope.span();
        let is_filled = !span.is_disabled()
            && (layer.show.fields || debug_spans_are_heard() || foreign::is_exported(&span));
        let readers = is_filled.then(|| scope.fill(&span, call));
        let heard = !span.is_disabled() || scope == Scope::Call && some_event_is_heard();
        if heard {
            NewSpan::take(call, scope, &span);
        }
        let observer = Self {
            seen: heard.then(|| Seen::start(call, span, readers)),
            info: call.info(),
            layer: layer.clone(),
            answer: PhantomData,
        };
        if let Some(seen) = &observer.seen {
            observer.started(seen, call);
        }
        observer
    }

    fn started(&self, seen: &Seen, call: &ToolCall) {
        let Seen { span, is_kept, .. } = seen;
        let _entered = span.enter();
        if self.layer.show.arguments && *is_kept && !call.arguments().is_empty() {
            let arguments = display(call.sanitized());
            span.record(self.layer.show.scope.arguments(), arguments);
        }
        if self.layer.show.scope == Scope::Call {
            let left = || Some(call.deadline()?.saturating_duration_since(Instant::now()));
            let in_force = || {
                let Some(timeout) = &self.layer.timeout else {
                    return call.timeout();
                };
                timeout(call).into_iter().chain(left()).min()
            };
            emit!(DEBUG START, &self.info,
                AGENT_ID = call.agent_id().map(short),
                TIMEOUT_MS = in_force().map(ms),
                DEADLINE_MS = left().map(ms));
        }
        self.layer.hooks.on_start(call, span);
    }

    /// The span, if there may be one.
    pub(super) fn span(&self) -> Option<&Span> {
        self.seen.as_ref().map(|seen| &seen.span)
    }

    pub(super) fn call(&self) -> &CallInfo {
        &self.info
    }

    pub(super) fn hooks(&self) -> &H {
        &self.layer.hooks
    }

    /// The call has a result.
    pub(super) fn ended(&self, result: &Result<Res, ToolError>, outcome: &Outcome) {
        if let Some(seen) = &self.seen {
            self.tell_end(seen, result, outcome);
        }
    }

    /// Apart, as all that is for listeners: calls without listeners are not to carry its weight.
    fn tell_end(&self, seen: &Seen, result: &Result<Res, ToolError>, outcome: &Outcome) {
        let _entered = seen.span.enter();
        let failure = match result {
            Ok(_) => {
                let word = || Outcome::reported().failure_of_answer();
                let reported = seen.below.is_reported().then(word).flatten();
                let failure = outcome.failure_of_answer().or(reported);
                failure.map(|(kind, text)| Failure::of_answer(kind, text, outcome))
            }
            Err(error) => Some(error.into()),
        };
        self.report(seen, Some(result.as_ref()), failure.as_ref());
    }

    /// Records the end in the span, and emits the event of a call.
    fn report(
        &self,
        seen: &Seen,
        result: Option<Result<&Res, &ToolError>>,
        failure: Option<&Failure<'_>>,
    ) {
        let facts = self.record(seen, result, failure);
        if self.layer.show.scope == Scope::Call {
            self.check_limits(seen, failure.is_none(), &facts);
            tell(&self.info, failure, result.and_then(Result::err), &facts);
        }
    }

    /// Counts a call that was sent, and that succeeded after a limit that no layer enforces.
    fn check_limits(&self, seen: &Seen, is_success: bool, facts: &Facts) {
        let (info, layer) = (&self.info, &self.layer);
        if info.limit_ms() > 0 || facts.attempts == 0 || !is_success {
            return;
        }
        let timeout = info.timeout().and_then(|t| seen.since.checked_add(t));
        let mut limits = [timeout, seen.deadline].into_iter().flatten();
        if limits.any(|at| at.elapsed() > MAX_LATE) {
            let (reason, help) = (InertReason::NotEnforced, ENFORCE);
            layer.inert.pass(&layer.listener, info, reason, help);
        }
    }

    /// Records the end in the span, and tells the hooks.
    fn record(
        &self,
        seen: &Seen,
        result: Option<Result<&Res, &ToolError>>,
        failure: Option<&Failure<'_>>,
    ) -> Facts {
        let end = End {
            result,
            failure: failure.map(|f| f.kind),
            duration: seen.since.elapsed(),
            attempts: seen.below.sent(result.and_then(Result::err)),
        };
        let (output_bytes, answer) = match end.answer() {
            Some(response) => self.answer(seen, response),
            None => (None, None),
        };
        self.fill(seen, &end, failure, output_bytes, answer);
        self.layer.hooks.on_end(&self.info, &end, &seen.span);
        Facts {
            duration_ms: ms(end.duration),
            attempts: end.attempts,
            max_attempts: seen.below.max_attempts(),
            output_bytes,
            is_reused: seen.below.is_reused(),
        }
    }

    /// Fills the fields of the span that are known at the end.
    fn fill(
        &self,
        seen: &Seen,
        end: &End<'_, Res>,
        failure: Option<&Failure<'_>>,
        output_bytes: Option<u64>,
        answer: Option<Answer<'_>>,
    ) {
        let Seen { span, below, .. } = seen;
        if !seen.is_filled {
            return;
        }
        let is_unnamed = self.info.server().is_none();
        let server = is_unnamed.then(|| below.server()).flatten();
        let waited = Some(below.waited()).filter(|waited| !waited.is_zero());
        let outcome = failure.map_or(CallOutcome::Success, |f| f.outcome);
        let error_type = end.error().and_then(|e| self.layer.hooks.error_type(e));
        let error_type = failure.map(|f| error_type.as_deref().unwrap_or(f.kind.error_type()));
        // A call that its caller has cancelled has not failed.
        let status = failure.filter(|f| f.outcome != CallOutcome::Cancelled);
        let rules = self.info.rules();
        let (text, json) = match &answer {
            Some(Answer::Text(text)) => (Some(display(rules.text(text, MAX_TEXT))), None),
            Some(Answer::Json(json)) => (None, Some(display(rules.json(json)))),
            None => (None, None),
        };
        // All at once: a subscriber that writes text writes the whole span anew each time. The
        // status comes before its description: OpenTelemetry's layer drops a description that comes
        // first.
        record_all!(
            span,
            { names::SUCCESS } = failure.is_none(),
            { names::SERVER } = server.as_deref().map(short),
            { names::DURATION_MS } = ms(end.duration),
            { names::OUTCOME } = outcome.name(),
            { names::ATTEMPTS } = end.attempts,
            { names::SLOW } = below.is_slow(),
            { names::MAX_ATTEMPTS } = below.max_attempts(),
            { names::TIMEOUT_MS } = below.timeout().map(ms),
            { names::CONFIGURED_TIMEOUT_MS } = below.configured_timeout().map(ms),
            { names::WAITED_MS } = waited.map(ms),
            { names::ERROR_TYPE } = error_type,
            { names::ERROR_CODE } = failure.map(|f| f.code),
            { names::OTEL_STATUS_CODE } = status.map(|_| "ERROR"),
            { names::OTEL_STATUS_DESCRIPTION } = status.map(|f| f.text),
            { names::OUTPUT_BYTES } = output_bytes,
            { names::RESULT } = text.as_ref(),
            { names::RESULT } = json.as_ref(),
            { names::ATTEMPT_RESULT } = text,
            { names::ATTEMPT_RESULT } = json,
        );
    }

    /// The answer's size, and the answer if it is to be recorded.
    fn answer<'a>(&self, seen: &Seen, response: &'a Res) -> (Option<u64>, Option<Answer<'a>>) {
        let spans = seen.is_kept;
        if !spans && !details_are_heard() {
            return (None, None);
        }
        // What is known of this very answer, rather than of what a layer may have made it from.
        let hooks = &self.layer.hooks;
        let bytes = hooks.output_bytes(response);
        let bytes = bytes.or_else(|| seen.below.output_bytes());
        let show = spans && self.layer.show.output;
        let answer = match bytes {
            Some(_) if !show => None,
            _ => hooks.answer(response),
        };
        let bytes = bytes.or_else(|| answer.as_ref().map(Answer::bytes));
        (bytes, answer.filter(|_| show))
    }
}

fn tell(call: &CallInfo, failure: Option<&Failure<'_>>, error: Option<&ToolError>, facts: &Facts) {
    let Facts {
        duration_ms,
        attempts,
        is_reused,
        ..
    } = *facts;
    let all = details_are_heard();
    // A short line has room for one of the two.
    let reused = is_reused.then_some(true);
    let attempts = Some(attempts).filter(|_| all || !is_reused);
    let max_attempts = facts.max_attempts.filter(|_| all);
    let output_bytes = facts.output_bytes.filter(|_| all);
    let error = error.filter(|_| all);
    let Some(&Failure {
        code,
        text,
        outcome,
        level,
        ..
    }) = failure
    else {
        return emit!(INFO SUCCESS, call, DURATION_MS = duration_ms, ATTEMPTS = attempts, REUSED = reused,
            MAX_ATTEMPTS = max_attempts, OUTPUT_BYTES = output_bytes);
    };
    macro_rules! failed {
        ($level:ident) => {
            emit!($level FAILURE, call, code: code, error: text, DURATION_MS = duration_ms,
                ATTEMPTS = attempts, REUSED = reused, MAX_ATTEMPTS = max_attempts, OUTPUT_BYTES = output_bytes,
                STATUS = error.and_then(ToolError::status).map(|s| s.as_u16()))
        };
    }
    match outcome {
        CallOutcome::Timeout => emit!(WARN TIMEOUT, call, code: code, error: text,
            DURATION_MS = duration_ms, ATTEMPTS = attempts, MAX_ATTEMPTS = max_attempts,
            TIMEOUT_MS = error.and_then(ToolError::timeout).map(ms),
            CONFIGURED_TIMEOUT_MS = error.and_then(ToolError::configured_timeout).map(ms)),
        CallOutcome::Skipped => emit!(WARN SKIPPED, call, code: code, error: text,
            DURATION_MS = duration_ms),
        CallOutcome::Cancelled => emit!(INFO CANCELLED, call, DURATION_MS = duration_ms,
            ATTEMPTS = attempts, MAX_ATTEMPTS = max_attempts),
        CallOutcome::Rejected => emit!(INFO REJECTED, call, code: code, error: text,
            DURATION_MS = duration_ms, ATTEMPTS = attempts, MAX_ATTEMPTS = max_attempts,
            RETRY_AFTER_MS = error.and_then(ToolError::retry_after).map(ms)),
        _ => match level {
            Level::INFO => failed!(INFO),
            Level::WARN => failed!(WARN),
            _ => failed!(ERROR),
        },
    }
}

impl<H: TraceHooks<Res>, Res> Ticket for Observer<H, Res> {
    fn info(&self) -> &CallInfo {
        &self.info
    }

    fn deadline(&self, call: &ToolCall) -> Option<Instant> {
        call.deadline()
    }

    fn dropped(&mut self, how: Abandoned) {
        let _entered = self.span().map(Span::enter);
        if let Some(seen) = &self.seen {
            let failure = if how.past_deadline {
                Failure::of_kind(ErrorKind::Timeout, "dropped after its deadline")
            } else {
                Failure::of_kind(ErrorKind::Cancelled, "dropped unfinished")
            };
            self.record(seen, None, Some(&failure));
        }
        if self.layer.show.scope == Scope::Call {
            self.layer.listener.tell(&Event::Cancelled {
                call: &self.info,
                elapsed: how.pending,
                past_deadline: how.past_deadline,
            });
        }
    }

    fn panicked(&mut self) {
        let Some(seen) = &self.seen else { return };
        let _entered = seen.span.enter();
        let failure = Failure::of_kind(ErrorKind::Panicked, "the tool panicked");
        self.report(seen, None, Some(&failure));
    }
}

crate::text::debug_fields! {
    {H, Res} |this| Observer<H, Res> { call: this.info, seen: this.seen, .. }
}
