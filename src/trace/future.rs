use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tracing::{Level, Span, field::Empty};

use crate::{
    call::{CallInfo, Observation, ToolCall},
    error::{ErrorKind, ToolError},
    event::{Event, Listener, TARGET, emit, ms},
    in_flight::{Abandoned, InFlight, Report},
    outcome::{Classify, Outcome},
    text::Short,
};

pin_project! {
    /// Response future for [`Trace`](super::Trace).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, C> {
        #[pin]
        fut: F,
        flight: InFlight<Observer>,
        classifier: C,
    }
}

impl<F, C> ResponseFuture<F, C> {
    pub(super) fn new(fut: F, flight: InFlight<Observer>, classifier: C) -> Self {
        Self {
            fut,
            flight,
            classifier,
        }
    }
}

impl<F, C, Res, E> Future for ResponseFuture<F, C>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
    C: Classify<Res>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Converting and classifying run foreign code: inside, so that a panic there is reported too.
        let polled = this.flight.poll(|observer| {
            let _entered = observer.span.enter();
            let result = ready!(this.fut.poll(cx)).map_err(|e| e.into().about(&observer.info));
            let outcome = this.classifier.classify(result.as_ref());
            Poll::Ready((result, outcome))
        });
        let (result, outcome) = ready!(polled);
        // Taken, so that the span is closed with the call and not with the future.
        let observer = this.flight.take();
        match &result {
            Ok(_) if outcome.is_success() => observer.succeeded(),
            Ok(_) => observer.unsuccessful(&outcome),
            Err(error) => observer.failed(error),
        }
        Poll::Ready(result)
    }
}

/// What is known of a call while it runs.
#[derive(Debug)]
pub(super) struct Observer {
    span: Span,
    info: CallInfo,
    listener: Listener,
    /// `None` when nobody listens.
    seen: Option<(Instant, Observation)>,
}

/// What every end has. `None` when nobody listens to spans, and nobody did at the start.
type End = (Option<f64>, Option<u32>);

impl Observer {
    /// Guards the call from here on.
    pub(super) fn start(
        call: &mut ToolCall,
        arguments: bool,
        listener: &Listener,
    ) -> InFlight<Self> {
        let span = make_span(call, arguments);
        // Whoever hears any event hears errors.
        let heard = !span.is_disabled()
            || tracing::event_enabled!(target: TARGET, Level::ERROR, code, error);
        let observer = Self {
            seen: heard.then(|| (Instant::now(), call.observe())),
            span,
            info: call.info(),
            listener: listener.clone(),
        };
        observer
            .span
            .in_scope(|| emit!(DEBUG, "tool.start", &observer.info));
        InFlight::new(observer, call.deadline())
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Records what every end has, and gives it to the event: how long it took, and the attempts.
    fn end(&self, success: bool) -> End {
        self.span.record("tool.success", success);
        let Some((since, seen)) = &self.seen else {
            return (None, None);
        };
        let duration_ms = ms(since.elapsed());
        self.span.record("tool.duration_ms", duration_ms);
        self.span.record("tool.attempts", seen.attempts());
        self.span.record("tool.slow", seen.is_slow());
        if let Some(timeout) = seen.timeout() {
            self.span.record("tool.timeout_ms", ms(timeout));
        }
        (Some(duration_ms), Some(seen.attempts()))
    }

    /// The same for an end that is no success.
    fn end_as(&self, kind: ErrorKind, code: &str, text: &str) -> End {
        self.span.record("error.type", kind.error_type());
        self.span.record("tool.error_code", code);
        self.span.record("otel.status_code", "ERROR");
        self.span.record("otel.status_description", text);
        self.end(false)
    }

    fn succeeded(self) {
        let _entered = self.span.enter();
        let (duration_ms, attempts) = self.end(true);
        emit!(INFO, "tool.success", &self.info, duration_ms, attempts);
    }

    /// An answer that is no success: an error in the tool's own words (E6), or what the classifier
    /// says of it.
    fn unsuccessful(self, outcome: &Outcome) {
        if outcome.is_reported() {
            self.broken(ErrorKind::Reported, "the tool reported an error");
        } else if outcome.is_rate_limited() {
            self.broken(ErrorKind::RateLimited, "the answer is a rate limit");
        } else {
            self.broken(ErrorKind::Failed, "the answer is a failure");
        }
    }

    fn broken(self, kind: ErrorKind, error: &str) {
        let _entered = self.span.enter();
        let code = kind.code();
        let (duration_ms, attempts) = self.end_as(kind, code, error);
        emit!(
            ERROR,
            "tool.failure",
            &self.info,
            code,
            error,
            duration_ms,
            attempts
        );
    }

    fn failed(self, failure: &ToolError) {
        let _entered = self.span.enter();
        let (code, error) = (failure.code(), failure.message());
        let (duration_ms, attempts) = self.end_as(failure.kind(), code, error);
        match failure.kind() {
            ErrorKind::Timeout => emit!(
                WARN,
                "tool.timeout",
                &self.info,
                code,
                error,
                duration_ms,
                attempts,
                timeout_ms = failure.timeout().map(ms),
                configured_timeout_ms = failure.configured_timeout().map(ms)
            ),
            ErrorKind::DeadlineExceeded => {
                emit!(
                    WARN,
                    "tool.skipped",
                    &self.info,
                    code,
                    error,
                    duration_ms,
                    attempts
                )
            }
            ErrorKind::Cancelled => emit!(INFO, "tool.cancelled", &self.info, duration_ms),
            _ => emit!(
                ERROR,
                "tool.failure",
                &self.info,
                code,
                error,
                duration_ms,
                attempts,
                status = failure.status().map(|s| s.as_u16())
            ),
        }
    }
}

impl Report for Observer {
    fn abandoned(self, how: Abandoned) {
        let _entered = self.span.enter();
        let (kind, text) = if how.past_deadline {
            (ErrorKind::Timeout, "dropped after its deadline")
        } else {
            (ErrorKind::Cancelled, "dropped unfinished")
        };
        self.end_as(kind, kind.code(), text);
        self.listener.tell(&Event::Cancelled {
            call: &self.info,
            elapsed: how.pending,
            past_deadline: how.past_deadline,
        });
    }

    fn panicked(self) {
        self.broken(ErrorKind::Panicked, "the tool panicked");
    }
}

fn make_span(call: &ToolCall, arguments: bool) -> Span {
    let name = Short::name(call.tool());
    let shown = |s: Option<&'_ str>| s.map(|s| tracing::field::display(Short::name(s).to_string()));
    let span = tracing::info_span!(
        target: TARGET,
        "execute_tool",
        otel.name = %format_args!("execute_tool {name}"),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = %name,
        gen_ai.tool.call.id = shown(call.id()),
        gen_ai.tool.r#type = "function",
        gen_ai.tool.call.arguments = Empty,
        error.r#type = Empty,
        tool.server = shown(call.server()),
        tool.agent_id = shown(call.agent_id()),
        tool.trace_id = shown(call.trace_id()),
        session.id = shown(call.session_id()),
        tool.attempts = Empty,
        tool.duration_ms = Empty,
        tool.error_code = Empty,
        tool.slow = Empty,
        tool.success = Empty,
        tool.timeout_ms = Empty,
    );
    if arguments && !span.is_disabled() && !call.arguments().is_empty() {
        span.record(
            "gen_ai.tool.call.arguments",
            tracing::field::display(call.sanitized()),
        );
    }
    span
}
