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
    outcome::Classify,
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
    pub(super) fn new(fut: F, observer: Observer, classifier: C) -> Self {
        Self {
            fut,
            flight: InFlight::new(observer, None),
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
        let polled = this
            .flight
            .poll(|observer| observer.span().in_scope(|| this.fut.poll(cx)));
        let (result, observer) = ready!(polled);
        Poll::Ready(match result {
            Ok(response) => {
                if this.classifier.classify(Ok(&response)).is_reported() {
                    observer.reported();
                } else {
                    observer.succeeded();
                }
                Ok(response)
            }
            Err(error) => {
                let error = error.into().about(&observer.info);
                observer.failed(&error);
                Err(error)
            }
        })
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

impl Observer {
    pub(super) fn start(call: &mut ToolCall, arguments: bool, listener: &Listener) -> Self {
        let info = call.info();
        // Whoever hears anything hears errors.
        let seen = tracing::enabled!(target: TARGET, Level::ERROR)
            .then(|| (Instant::now(), call.observe()));
        let span = make_span(&info, arguments);
        span.in_scope(|| emit!(DEBUG, "tool.start", &info));
        Self {
            span,
            info,
            listener: listener.clone(),
            seen,
        }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Records what every end has, and gives it to the event: how long it took, and the attempts.
    fn end(&self, success: bool) -> (f64, u32) {
        let Some((since, seen)) = &self.seen else {
            return (0.0, 1);
        };
        let duration_ms = ms(since.elapsed());
        self.span.record("tool.success", success);
        self.span.record("tool.duration_ms", duration_ms);
        self.span.record("tool.attempts", seen.attempts());
        self.span.record("tool.slow", seen.is_slow());
        if let Some(timeout) = seen.timeout() {
            self.span.record("tool.timeout_ms", ms(timeout));
        }
        (duration_ms, seen.attempts())
    }

    /// The same for an end that is no success.
    fn end_as(&self, kind: ErrorKind, code: &str, text: &str) -> (f64, u32) {
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

    /// The tool answered with an error in its own words (E6).
    fn reported(self) {
        self.broken(ErrorKind::Reported, "the tool reported an error");
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
                emit!(WARN, "tool.skipped", &self.info, code, error, attempts)
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
        let kind = ErrorKind::Cancelled;
        self.end_as(kind, kind.code(), "dropped unfinished");
        self.listener.tell(&Event::Cancelled {
            call: &self.info,
            elapsed: how.pending,
        });
    }

    fn panicked(self) {
        self.broken(ErrorKind::Panicked, "the tool panicked");
    }
}

fn make_span(info: &CallInfo, arguments: bool) -> Span {
    let name = Short::name(info.tool());
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
        gen_ai.tool.call.id = shown(info.id()),
        gen_ai.tool.r#type = "function",
        gen_ai.tool.call.arguments = Empty,
        error.r#type = Empty,
        tool.server = shown(info.server()),
        tool.agent_id = shown(info.agent_id()),
        tool.trace_id = shown(info.trace_id()),
        session.id = shown(info.session_id()),
        tool.attempts = Empty,
        tool.duration_ms = Empty,
        tool.error_code = Empty,
        tool.slow = Empty,
        tool.success = Empty,
        tool.timeout_ms = Empty,
    );
    if arguments && !span.is_disabled() && info.has_arguments() {
        span.record(
            "gen_ai.tool.call.arguments",
            tracing::field::display(info.sanitized()),
        );
    }
    span
}
