use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tracing::{Level, Span, field::Empty};

use super::layer::Settings;
use crate::{
    call::{CallInfo, Observation, ToolCall},
    error::{ErrorKind, ToolError},
    event::{Event, Listener, TARGET, emit, ms},
    in_flight::{Abandoned, InFlight, Report},
    text::Short,
};

pin_project! {
    /// Response future for [`Trace`](super::Trace).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        fut: F,
        flight: InFlight<Observer>,
    }
}

impl<F> ResponseFuture<F> {
    pub(super) fn new(fut: F, observer: Observer) -> Self {
        Self {
            fut,
            flight: InFlight::new(observer, None),
        }
    }
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let span = this.flight.report().map(|o| o.span().clone());
        let _entered = span.as_ref().map(Span::enter);
        let (result, observer) = ready!(this.flight.poll(|| this.fut.poll(cx)));
        Poll::Ready(match result {
            Ok(response) => {
                observer.succeeded();
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
    pub(super) fn start(call: &mut ToolCall, settings: &Settings) -> Self {
        let info = call.info();
        // Whoever hears anything hears errors.
        let seen = tracing::enabled!(target: TARGET, Level::ERROR)
            .then(|| (Instant::now(), call.observe()));
        let span = make_span(&info, call, settings);
        span.in_scope(|| emit!(DEBUG, "tool.start", &info));
        Self {
            span,
            info,
            listener: settings.listener.clone(),
            seen,
        }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    fn elapsed(&self) -> Duration {
        self.seen
            .as_ref()
            .map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }

    fn attempts(&self) -> u32 {
        self.seen.as_ref().map_or(1, |(_, seen)| seen.attempts())
    }

    /// Fields that every end has.
    fn record_end(&self, success: bool) {
        let Some((_, seen)) = &self.seen else { return };
        self.span.record("tool.success", success);
        self.span.record("tool.duration_ms", ms(self.elapsed()));
        self.span.record("tool.attempts", seen.attempts());
        self.span.record("tool.slow", seen.is_slow());
        if let Some(timeout) = seen.timeout() {
            self.span.record("tool.timeout_ms", ms(timeout));
        }
    }

    fn record_error(&self, error_type: &str, text: &str) {
        self.record_end(false);
        self.span.record("error.type", error_type);
        self.span.record("otel.status_code", "ERROR");
        self.span.record("otel.status_description", text);
    }

    fn succeeded(self) {
        self.record_end(true);
        emit!(
            INFO,
            "tool.success",
            &self.info,
            duration_ms = ms(self.elapsed()),
            attempts = self.attempts()
        );
    }

    fn failed(self, error: &ToolError) {
        self.record_error(error.kind().error_type(), error.message());
        self.span.record("tool.error_code", error.code());
        let duration_ms = ms(self.elapsed());
        let attempts = self.attempts();
        match error.kind() {
            ErrorKind::Timeout => emit!(
                WARN,
                "tool.timeout",
                &self.info,
                code = error.code(),
                error = error.message(),
                duration_ms,
                attempts,
                timeout_ms = error.timeout().map(ms),
                configured_timeout_ms = error.configured_timeout().map(ms)
            ),
            ErrorKind::DeadlineExceeded => emit!(
                WARN,
                "tool.skipped",
                &self.info,
                code = error.code(),
                error = error.message(),
                attempts
            ),
            ErrorKind::Cancelled => emit!(INFO, "tool.cancelled", &self.info, duration_ms),
            _ => emit!(
                ERROR,
                "tool.failure",
                &self.info,
                code = error.code(),
                error = error.message(),
                duration_ms,
                attempts,
                status = error.status().map(|s| s.as_u16())
            ),
        }
    }
}

impl Report for Observer {
    fn abandoned(self, how: Abandoned) {
        self.record_error(ErrorKind::Cancelled.error_type(), "dropped unfinished");
        let elapsed = how.pending;
        self.span.in_scope(|| {
            self.listener.tell(&Event::Cancelled {
                call: &self.info,
                elapsed,
            });
        });
    }

    fn panicked(self) {
        let kind = ErrorKind::Panicked;
        self.record_error(kind.error_type(), "the tool panicked");
        self.span.in_scope(|| {
            emit!(
                ERROR,
                "tool.failure",
                &self.info,
                code = kind.code(),
                error = "the tool panicked",
                duration_ms = ms(self.elapsed()),
                attempts = self.attempts()
            );
        });
    }
}

fn make_span(info: &CallInfo, call: &ToolCall, settings: &Settings) -> Span {
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
    if settings.arguments && !span.is_disabled() && !call.arguments().is_empty() {
        span.record(
            "gen_ai.tool.call.arguments",
            tracing::field::display(info.sanitized()),
        );
    }
    span
}
