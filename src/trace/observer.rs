use std::{borrow::Cow, fmt, marker::PhantomData, time::Duration};

use tokio::time::Instant;
use tracing::{Level, Span, field::display, record_all};

use super::{
    hooks::{End, TraceHooks},
    layer::TraceLayer,
    span::{NewSpan, Scope},
};
use crate::{
    answer::Answer,
    call::{CallExt, CallInfo, Claim, Observation, ToolCall},
    error::{ErrorKind, MAX_TEXT, ToolError},
    event::{
        CallOutcome, Event, InertReason, details_are_heard, emit, heard::heard, level_of_error, ms,
        names::span as names, short,
    },
    flow::{Abandoned, Ticket, Times},
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

struct Seen {
    span: Span,
    /// Its fields are filled in.
    is_filled: bool,
    /// A subscriber keeps its records.
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

/// Returns whether a subscriber listens to events like ours, on any level. A filter by the name of
/// an event cannot be asked here.
fn some_event_is_heard() -> bool {
    heard!(EVENT ERROR) || heard!(EVENT WARN) || heard!(EVENT INFO) || heard!(EVENT DEBUG)
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
            && (layer.show.fields || heard!(SPAN DEBUG) || foreign::is_exported(&span));
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
                let Some(timeout) = &self.layer.settings.timeout else {
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
        let Some(seen) = &self.seen else { return };
        let _entered = seen.span.enter();
        let failure = match result {
            Ok(_) => {
                let word = || Outcome::reported().failure_of_answer();
                let reported = seen.below.is_reported().then(word).flatten();
                let failure = outcome.failure_of_answer().or(reported);
                failure.map(|(kind, text)| Cow::Owned(ToolError::new(kind, text)))
            }
            Err(error) => Some(Cow::Borrowed(error)),
        };
        let is_mistake = result.is_ok() && outcome.is_mistake();
        let level = |error| match is_mistake {
            true => Level::INFO,
            false => level_of_error(error),
        };
        let failure = failure.as_deref().map(|error| (error, level(error)));
        self.report(seen, Some(result.as_ref()), failure);
    }

    /// Records the end in the span, and emits the event of a call.
    fn report(
        &self,
        seen: &Seen,
        result: Option<Result<&Res, &ToolError>>,
        failure: Option<(&ToolError, Level)>,
    ) {
        let (end, output_bytes) = self.record(seen, result, failure.map(|(error, _)| error));
        if self.layer.show.scope == Scope::Call {
            self.check_limits(seen, &end);
            self.tell(&seen.below, &end, output_bytes, failure);
        }
    }

    /// Counts a call that was sent, and that succeeded after a limit that no layer enforces.
    fn check_limits(&self, seen: &Seen, end: &End<'_, Res>) {
        let (info, settings) = (&self.info, &self.layer.settings);
        if info.limit_ms() > 0 || end.attempts == 0 || end.failure.is_some() {
            return;
        }
        let timeout = info.timeout().and_then(|t| seen.since.checked_add(t));
        let mut limits = [timeout, seen.deadline].into_iter().flatten();
        if limits.any(|at| at.elapsed() > MAX_LATE) {
            let (reason, help) = (InertReason::NotEnforced, ENFORCE);
            let listener = &settings.listener;
            settings.inert.pass(listener, info, reason, help);
        }
    }

    /// Records the end in the span, and calls the hooks. Returns the end, and the answer's size.
    fn record<'a>(
        &self,
        seen: &Seen,
        result: Option<Result<&'a Res, &'a ToolError>>,
        failure: Option<&ToolError>,
    ) -> (End<'a, Res>, Option<u64>) {
        let end = End {
            result,
            failure: failure.map(ToolError::kind),
            duration: seen.since.elapsed(),
            attempts: seen.below.sent(result.and_then(Result::err)),
        };
        let (output_bytes, answer) = match end.answer() {
            Some(response) => self.answer(seen, response),
            None => (None, None),
        };
        self.fill(seen, &end, failure, output_bytes, answer);
        self.layer.hooks.on_end(&self.info, &end, &seen.span);
        (end, output_bytes)
    }

    /// Fills the fields of the span that are known at the end.
    fn fill(
        &self,
        seen: &Seen,
        end: &End<'_, Res>,
        failure: Option<&ToolError>,
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
        let outcome = failure.map_or(CallOutcome::Success, CallOutcome::of_error);
        let error_type = end.error().and_then(|e| self.layer.hooks.error_type(e));
        let error_type = failure.map(|f| error_type.as_deref().unwrap_or(f.kind().error_type()));
        // A call that its caller has cancelled has not failed.
        let status = failure.filter(|_| outcome != CallOutcome::Cancelled);
        let sent = answer.as_ref().and_then(|_| below.rules_below());
        let rules = sent.as_ref().unwrap_or(self.info.rules());
        let result = answer.as_ref().map(|answer| -> Box<dyn fmt::Display> {
            match answer {
                Answer::Text(text) => Box::new(rules.text(text, MAX_TEXT)),
                Answer::Json(json) => Box::new(rules.json(json)),
            }
        });
        let result = || result.as_ref().map(display);
        // One record for all: a subscriber that writes text writes the whole span anew each time.
        // The status comes before its description, because OpenTelemetry's layer drops a
        // description that comes first.
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
            { names::ERROR_CODE } = failure.map(ToolError::code),
            { names::OTEL_STATUS_CODE } = status.map(|_| "ERROR"),
            { names::OTEL_STATUS_DESCRIPTION } = status.map(ToolError::message),
            { names::OUTPUT_BYTES } = output_bytes,
            { names::RESULT } = result(),
            { names::ATTEMPT_RESULT } = result(),
        );
    }

    /// Returns the answer's size, and the answer if it is to be recorded.
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

    /// Emits the event of a call.
    fn tell(
        &self,
        below: &Observation,
        end: &End<'_, Res>,
        output_bytes: Option<u64>,
        failure: Option<(&ToolError, Level)>,
    ) {
        let (call, duration_ms) = (&self.info, ms(end.duration));
        let all = details_are_heard();
        // A short line has room for one of the two.
        let reused = below.is_reused().then_some(true);
        let attempts = Some(end.attempts).filter(|_| all || reused.is_none());
        let max_attempts = below.max_attempts().filter(|_| all);
        let output_bytes = output_bytes.filter(|_| all);
        let Some((error, level)) = failure else {
            return emit!(INFO SUCCESS, call, DURATION_MS = duration_ms, ATTEMPTS = attempts, REUSED = reused,
                MAX_ATTEMPTS = max_attempts, OUTPUT_BYTES = output_bytes);
        };
        let (code, text) = (error.code(), error.message());
        let detail = |of: fn(&ToolError) -> Option<Duration>| of(error).filter(|_| all).map(ms);
        macro_rules! failed {
            ($level:ident) => {
                emit!($level FAILURE, call, code: code, error: text, DURATION_MS = duration_ms,
                    ATTEMPTS = attempts, REUSED = reused, MAX_ATTEMPTS = max_attempts, OUTPUT_BYTES = output_bytes,
                    STATUS = error.status().filter(|_| all).map(|s| s.as_u16()))
            };
        }
        match CallOutcome::of_error(error) {
            CallOutcome::Timeout => emit!(WARN TIMEOUT, call, code: code, error: text,
                DURATION_MS = duration_ms, ATTEMPTS = attempts, MAX_ATTEMPTS = max_attempts,
                TIMEOUT_MS = detail(ToolError::timeout),
                CONFIGURED_TIMEOUT_MS = detail(ToolError::configured_timeout)),
            CallOutcome::Skipped => emit!(WARN SKIPPED, call, code: code, error: text,
                DURATION_MS = duration_ms),
            CallOutcome::Cancelled => emit!(INFO CANCELLED, call, DURATION_MS = duration_ms,
                ATTEMPTS = attempts, MAX_ATTEMPTS = max_attempts),
            CallOutcome::Rejected => emit!(INFO REJECTED, call, code: code, error: text,
                DURATION_MS = duration_ms, ATTEMPTS = attempts, MAX_ATTEMPTS = max_attempts,
                RETRY_AFTER_MS = detail(ToolError::retry_after)),
            _ => match level {
                Level::INFO => failed!(INFO),
                Level::WARN => failed!(WARN),
                _ => failed!(ERROR),
            },
        }
    }
}

impl<H: TraceHooks<Res>, Res> Ticket for Observer<H, Res> {
    type Times = Times;

    fn info(&self) -> &CallInfo {
        &self.info
    }

    fn deadline(&self, call: &ToolCall) -> Option<Instant> {
        call.deadline()
    }

    fn dropped(&mut self, how: Abandoned) {
        let _entered = self.span().map(Span::enter);
        if let Some(seen) = &self.seen {
            let failure = match how.past_deadline {
                true => ToolError::new(ErrorKind::Timeout, "dropped after its deadline"),
                false => ToolError::new(ErrorKind::Cancelled, "dropped unfinished"),
            };
            self.record(seen, None, Some(&failure));
        }
        if self.layer.show.scope == Scope::Call {
            self.layer.settings.listener.tell(&Event::Cancelled {
                call: &self.info,
                elapsed: how.pending,
                past_deadline: how.past_deadline,
            });
        }
    }

    fn panicked(&mut self) {
        let Some(seen) = &self.seen else { return };
        let _entered = seen.span.enter();
        let failure = ToolError::new(ErrorKind::Panicked, "the tool panicked");
        self.report(seen, None, Some((&failure, Level::ERROR)));
    }
}
