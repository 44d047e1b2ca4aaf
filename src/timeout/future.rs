use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::layer::Settings;
use crate::{
    call::{CallInfo, Progress},
    error::{TimeoutLimit, ToolError},
    event::{Event, Listener},
    timer::Timer,
};

pin_project! {
    /// Response future for [`Timeout`](super::Timeout).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
        #[pin]
        timer: Timer,
        info: CallInfo,
        after: Duration,
        deadline: Option<Instant>,
        slow_fraction: f64,
        idle: Option<(Duration, Progress)>,
        listener: Listener,
        // Set at the first `Pending`.
        since: Option<Instant>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = StateProj]
    enum State<F> {
        // Waiting for the response.
        Called { #[pin] fut: F },
        // The inner future is gone.
        Done,
    }
}

impl<F> ResponseFuture<F> {
    pub(super) fn new(
        fut: F,
        info: CallInfo,
        after: Duration,
        deadline: Option<Instant>,
        idle: Option<(Duration, Progress)>,
        settings: &Settings,
    ) -> Self {
        Self {
            state: State::Called { fut },
            timer: Timer::default(),
            info,
            after,
            deadline,
            slow_fraction: settings.slow_fraction,
            idle,
            listener: settings.listener.clone(),
            since: None,
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
        let mut this = self.project();
        let StateProj::Called { fut } = this.state.as_mut().project() else {
            panic!("polled after completion");
        };
        // The response first: a tie is a success.
        if let Poll::Ready(result) = fut.poll(cx) {
            if let Some(since) = *this.since {
                let limits = Limits::new(since, *this.after, *this.deadline);
                limits.tell_if_slow(*this.slow_fraction, this.info, this.listener);
            }
            return Poll::Ready(result.map_err(|e| e.into().about(this.info)));
        }

        let since = *this.since.get_or_insert_with(|| {
            let since = Instant::now();
            let limits = Limits::new(since, *this.after, *this.deadline);
            if limits.in_force < limits.configured {
                this.info
                    .record(|r| r.set_timeout(limits.in_force, limits.configured));
            }
            since
        });
        let limits = Limits::new(since, *this.after, *this.deadline);
        let error = loop {
            // Progress may come while the timer runs: it is looked at when the timer fires, so a
            // report wakes nobody.
            let quiet = this.idle.as_ref().map(|(idle, progress)| {
                let from = progress.last().max(since);
                (from.checked_add(*idle), *idle)
            });
            let idle_at = quiet.and_then(|(at, _)| at);
            let at = match (limits.at, idle_at) {
                (Some(hard), Some(idle)) => Some(hard.min(idle)),
                (hard, idle) => hard.or(idle),
            };
            if this.timer.as_mut().poll_at(cx, at).is_pending() {
                return Poll::Pending;
            }
            if at == limits.at {
                break limits.error(this.info);
            }
            let (idle, progress) = this
                .idle
                .as_ref()
                .expect("only idle mode has another limit");
            if progress.last().max(since).checked_add(*idle) == at {
                break ToolError::timed_out(this.info, *idle, *this.after, TimeoutLimit::Idle);
            }
        };
        // The work is cancelled now, not when somebody drops the finished future (T4).
        this.state.set(State::Done);
        Poll::Ready(Err(error))
    }
}

/// The limits of a call that has begun to wait.
struct Limits {
    since: Instant,
    /// `None`: so far away that no clock reaches it.
    at: Option<Instant>,
    in_force: Duration,
    configured: Duration,
    limit: TimeoutLimit,
}

impl Limits {
    fn new(since: Instant, after: Duration, deadline: Option<Instant>) -> Self {
        let own = since.checked_add(after);
        match deadline {
            Some(deadline) if own.is_none_or(|own| deadline < own) => Self {
                since,
                at: Some(deadline),
                in_force: deadline.saturating_duration_since(since),
                configured: after,
                limit: TimeoutLimit::Deadline,
            },
            _ => Self {
                since,
                at: own,
                in_force: after,
                configured: after,
                limit: TimeoutLimit::Timeout,
            },
        }
    }

    fn error(&self, info: &CallInfo) -> ToolError {
        ToolError::timed_out(info, self.in_force, self.configured, self.limit)
    }

    fn tell_if_slow(&self, fraction: f64, call: &CallInfo, listener: &Listener) {
        let elapsed = self.since.elapsed();
        if elapsed.as_secs_f64() > self.in_force.as_secs_f64() * fraction {
            call.record(|r| r.set_slow());
            listener.tell(&Event::Slow {
                call,
                elapsed,
                timeout: self.in_force,
            });
        }
    }
}
