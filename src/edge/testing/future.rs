use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use super::{
    step::{Act, Step},
    tally::Running,
};
use crate::{call::ToolCall, error::ToolError};

pin_project! {
    /// Response future that does what a [`Step`] says: of [`Script`](super::Script) and
    /// [`Replay`](super::Replay).
    #[must_use = "futures do nothing unless polled"]
    pub struct StepFuture<Res> {
        // `None` once it has ended.
        step: Option<Step<Res>>,
        call: ToolCall,
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
    pub(super) fn new(step: Step<Res>, call: ToolCall, mut running: Option<Running>) -> Self {
        if let Act::PanicInCall(text) = &step.act {
            if let Some(running) = &mut running {
                running.end();
            }
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
        if let Some(running) = this.running {
            running.end();
        }
        let step = this.step.take().expect("looked at above");
        Poll::Ready(step.act.perform(this.call))
    }
}

crate::text::debug_fields! {
    {Res} |this| StepFuture<Res> { step: this.step, call: this.call, .. }
}
