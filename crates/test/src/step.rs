use std::{
    borrow::Cow,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::StatusCode;
use pin_project_lite::pin_project;
use serde_json::Value;
use tokio::time::{Sleep, sleep};
use tower_toolcall::{ErrorKind, ToolCall, ToolError};

use super::script::Running;

/// The answer of a scripted tool to one call: see [`Script`](super::Script).
///
/// ```
/// use std::time::Duration;
/// use serde_json::json;
/// use tower_toolcall::{ErrorKind, ToolError};
/// use tower_toolcall_test::Step;
///
/// let steps = [
///     Step::ok(json!({ "rows": 3 })).after(Duration::from_secs(2)),
///     Step::status(429).with_retry_after(Duration::from_secs(5)),
///     Step::error(ToolError::new(ErrorKind::InvalidInput, "no such column")),
///     Step::ok(json!("late")).with_progress(3, Duration::from_secs(10)),
///     Step::hang(),
/// ];
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Step<Res = Value> {
    pub(super) act: Act<Res>,
    /// How long it waits first.
    pub(super) after: Option<Duration>,
    /// How many reports of progress are left, and how long it waits before each.
    pub(super) progress: Option<(u32, Duration)>,
    /// Panics when the service is called, and not in the future.
    pub(super) in_call: bool,
}

/// How a step ends.
#[derive(Clone)]
pub(super) enum Act<Res> {
    Ok(Res),
    Error(ToolError),
    Of(Arc<Answers<Res>>),
    Hang,
    Panic(Cow<'static, str>),
}

type Answers<Res> = dyn Fn(&ToolCall) -> Result<Res, ToolError> + Send + Sync;

impl<Res> Step<Res> {
    fn new(act: Act<Res>) -> Self {
        Self {
            act,
            after: None,
            progress: None,
            in_call: false,
        }
    }

    /// Answers with this value.
    pub fn ok(answer: Res) -> Self {
        Self::new(Act::Ok(answer))
    }

    /// Fails with this error, as it is.
    pub fn error(error: impl Into<ToolError>) -> Self {
        Self::new(Act::Error(error.into()))
    }

    /// Fails with an error of this kind.
    pub fn fail(kind: ErrorKind) -> Self {
        Self::error(ToolError::new(kind, "the script fails this call"))
    }

    /// Fails as a tool service does that got this HTTP status on its own connection:
    /// [`ToolError::from_status`].
    ///
    /// # Panics
    ///
    /// If it is not the status of an error: not 400 to 999.
    #[track_caller]
    pub fn status(status: u16) -> Self {
        let status = StatusCode::from_u16(status).ok();
        let status = status.filter(|status| *status >= StatusCode::BAD_REQUEST);
        let status = status.expect("an error's status is 400 to 999");
        let reason = status.canonical_reason().unwrap_or_default();
        let message = format!("HTTP {} {reason}", status.as_u16());
        Self::error(ToolError::from_status(status, message))
    }

    /// Answers with what the function makes of the call.
    pub fn of(
        answer: impl Fn(&ToolCall) -> Result<Res, ToolError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(Act::Of(Arc::new(answer)))
    }

    /// Makes a step that never answers.
    pub fn hang() -> Self {
        Self::new(Act::Hang)
    }

    /// Panics when its future is polled.
    pub fn panic(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Act::Panic(text.into()))
    }

    /// Panics when the service is called, before there is a future.
    pub fn panic_in_call(text: impl Into<Cow<'static, str>>) -> Self {
        let in_call = true;
        Self {
            in_call,
            ..Self::panic(text)
        }
    }

    /// Sets how long it waits before anything else, on tokio's clock, from the first poll of the
    /// future. Default: not at all.
    pub fn after(mut self, wait: Duration) -> Self {
        self.after = Some(wait);
        self
    }

    /// [Reports progress](ToolCall::progress) `reports` times before it ends, and waits for `every`
    /// before each report. Default: never. This comes after the wait of [`after`](Self::after).
    pub fn with_progress(mut self, reports: u32, every: Duration) -> Self {
        self.progress = Some((reports, every));
        self
    }

    /// Sets the delay that the step's error asks for: [`ToolError::with_retry_after`].
    ///
    /// # Panics
    ///
    /// If the step has no error.
    #[track_caller]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        let Act::Error(error) = self.act else {
            panic!("only an error has a delay, and this is {:?}", self.act);
        };
        self.act = Act::Error(error.with_retry_after(delay));
        self
    }
}

impl<Res> Act<Res> {
    /// Returns the end of the step; a hanging step has none.
    pub(super) fn perform(self, call: &ToolCall) -> Result<Res, ToolError> {
        match self {
            Self::Ok(answer) => Ok(answer),
            Self::Error(error) => Err(error),
            Self::Of(answer) => answer(call),
            Self::Panic(text) => panic!("{text}"),
            Self::Hang => unreachable!("it waits for ever"),
        }
    }
}

/// Shows what it does, never the answer.
impl<Res> fmt::Debug for Act<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok(_) => "ok",
            Self::Error(_) => "error",
            Self::Of(_) => "of",
            Self::Hang => "hang",
            Self::Panic(_) => "panic",
        })
    }
}

pin_project! {
    /// Response future that does what a [`Step`] says: of [`Script`](super::Script) and
    /// [`Replay`](super::Replay).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct StepFuture<Res> {
        // `None` once it has ended.
        step: Option<Step<Res>>,
        call: Arc<ToolCall>,
        #[pin]
        wait: Option<Sleep>,
        // Whether progress is reported at the end of the wait.
        reports: bool,
        running: Option<Running>,
    }
}

impl<Res> StepFuture<Res> {
    /// # Panics
    ///
    /// If the step says so.
    pub(super) fn new(step: Step<Res>, call: Arc<ToolCall>, mut running: Option<Running>) -> Self {
        if let (true, Act::Panic(text)) = (step.in_call, &step.act) {
            running.iter_mut().for_each(Running::end);
            panic!("{text}");
        }
        Self {
            step: Some(step),
            call,
            wait: None,
            reports: false,
            running,
        }
    }
}

impl<Res> Future for StepFuture<Res> {
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let step = this.step.as_mut().expect("polled after completion");
        loop {
            if let Some(wait) = this.wait.as_mut().as_pin_mut() {
                ready!(wait.poll(cx));
                this.wait.set(None);
                if *this.reports
                    && let Some(progress) = this.call.progress()
                {
                    progress.report();
                }
            }
            let wait = match (step.after.take(), &mut step.progress) {
                (Some(wait), _) => wait,
                (None, Some((left @ 1.., every))) => {
                    *left -= 1;
                    *this.reports = true;
                    *every
                }
                (None, _) => break,
            };
            this.wait.set(Some(sleep(wait)));
        }
        if matches!(step.act, Act::Hang) {
            return Poll::Pending;
        }
        this.running.iter_mut().for_each(Running::end);
        let step = this.step.take().expect("looked at above");
        Poll::Ready(step.act.perform(this.call))
    }
}
