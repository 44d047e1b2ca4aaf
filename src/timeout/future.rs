use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tracing::Level;

use crate::{
    call::{CallInfo, Progress},
    error::{ErrorKind, TimeoutLimit, ToolError},
    event::{Event, Listener},
    kit::{drain::Drain, inner, timer::Timer},
};

pin_project! {
    /// Response future for [`Timeout`](super::Timeout).
    #[project(!Unpin)]
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        pub(super) fut: Option<F>,
        pub(super) timer: Timer,
        pub(super) watch: Watch,
    }
}

/// What bounds the call.
#[derive(Debug)]
pub(super) struct Watch {
    /// There from the beginning: an `Option` for `kit::inner::call_in_place`.
    pub(super) info: Option<CallInfo>,
    pub(super) limits: Limits,
    /// When the call began to wait.
    pub(super) since: Option<Instant>,
    /// The part of its time above which the call is slow.
    pub(super) slow_fraction: f64,
    /// Only in idle mode, or inside a layer in idle mode.
    pub(super) idle: Option<Progress>,
    pub(super) drain: Drain,
    pub(super) listener: Listener,
}

/// The limits of the call.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) timeout: Duration,
    pub(super) deadline: Option<Instant>,
    /// Whether an outer layer enforces the deadline.
    pub(super) is_deadline_owned: bool,
    pub(super) is_deadline_untrusted: bool,
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<ToolError>,
{
    type Output = Result<Res, ToolError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let watch = this.watch;
        // The response first: a tie is a success.
        if let Poll::Ready(result) = inner::poll(this.fut.as_mut(), cx) {
            let result = result.map_err(|e| e.into().for_call(watch.info()));
            if watch.drain.has_begun() {
                return Poll::Ready(watch.drain.settle(result));
            }
            watch.ended(result.as_ref().err());
            return Poll::Ready(result);
        }
        let error = ready!(watch.wait(this.timer, cx));
        // The work is cancelled now, not when the finished future is dropped (T4).
        this.fut.set(None);
        Poll::Ready(Err(error))
    }
}

impl Watch {
    fn info(&self) -> &CallInfo {
        self.info.as_ref().expect("there from the beginning")
    }

    /// Ready with the error once the call has to end. Outlined, so that a call that does not wait does not pay for it.
    #[inline(never)]
    fn wait(&mut self, timer: &mut Timer, cx: &mut Context<'_>) -> Poll<ToolError> {
        if self.drain.has_begun() {
            return self.drain.poll(timer, cx);
        }
        let since = match self.since {
            Some(since) => {
                ready!(timer.poll(cx, || self.limit(since)));
                since
            }
            None => {
                let (since, at) = self.begin();
                ready!(timer.poll(cx, || at));
                since
            }
        };
        self.end(since, timer, cx)
    }

    #[inline]
    fn begin(&mut self) -> (Instant, Option<Instant>) {
        let since = Instant::now();
        let end = since.checked_add(self.limits.timeout);
        let mut at = earlier(end, self.limits.deadline);
        if at != end
            && let Some(share) = self.share(since)
        {
            self.info()
                .record(|r| r.set_timeout(share, self.limits.timeout));
        }
        if self.idle.is_some() || self.limits.is_deadline_owned {
            at = self.limit(since);
        }
        (*self.since.insert(since), at)
    }

    /// The time is over, unless progress has moved its end. Only this looks at the progress, so a report of it wakes no task.
    #[cold]
    fn end(&mut self, since: Instant, timer: &mut Timer, cx: &mut Context<'_>) -> Poll<ToolError> {
        loop {
            let at = self.limit(since);
            if at.is_some_and(|at| at <= Instant::now()) {
                let error = self.error(since, at);
                return match self.drain.begin(error, timer) {
                    Ok(()) => self.drain.poll(timer, cx),
                    Err(error) => Poll::Ready(error),
                };
            }
            timer.reset();
            ready!(timer.poll(cx, || at));
        }
    }

    /// When the call currently has to end; `None`: so late that no clock reaches it.
    #[inline(never)]
    fn limit(&self, since: Instant) -> Option<Instant> {
        let idle = self.idle.as_ref().and_then(|idle| idle.limit(since));
        earlier(self.hard(since), idle)
    }

    /// When the call has to end whatever its progress.
    fn hard(&self, since: Instant) -> Option<Instant> {
        let deadline = self.limits.deadline;
        let deadline = deadline.filter(|_| !self.limits.is_deadline_owned);
        earlier(since.checked_add(self.timeout()), deadline)
    }

    /// The timeout, with the time that does not count.
    fn timeout(&self) -> Duration {
        let paused = self.idle.as_ref().map(Progress::paused);
        self.limits
            .timeout
            .saturating_add(paused.unwrap_or_default())
    }

    /// The time that the deadline leaves, if it is less than the timeout.
    fn share(&self, since: Instant) -> Option<Duration> {
        let share = self.limits.deadline?.saturating_duration_since(since);
        (share < self.timeout()).then_some(share)
    }

    #[cold]
    fn error(&self, since: Instant, at: Option<Instant>) -> ToolError {
        let (time, limit) = match (&self.idle, self.share(since)) {
            (Some(idle), _) if at != self.hard(since) => (idle.allowed(), TimeoutLimit::Idle),
            (_, Some(share)) if self.limits.is_deadline_untrusted => (share, TimeoutLimit::Caller),
            (_, Some(share)) => (share, TimeoutLimit::Deadline),
            (_, None) => (self.limits.timeout, TimeoutLimit::Timeout),
        };
        ToolError::timed_out(self.info(), time, self.limits.timeout, limit)
    }

    /// The call has a result.
    #[inline]
    fn ended(&self, error: Option<&ToolError>) {
        let Some(since) = self.since else { return };
        // The clock is not read if no listener, subscriber or observation takes the event.
        let mut heard = self.listener.hears(Level::WARN);
        self.info().record(|r| heard |= r.is_observed());
        if heard {
            self.tell_if_slow(since, error);
        }
    }

    /// A timeout from below is not reported as a slow call as well.
    #[inline(never)]
    fn tell_if_slow(&self, since: Instant, error: Option<&ToolError>) {
        let elapsed = since.elapsed();
        let timed_out = error.is_some_and(|e| e.kind() == ErrorKind::Timeout);
        let timeout = self.share(since).unwrap_or(self.limits.timeout);
        if elapsed.as_secs_f64() > self.slow_fraction * timeout.as_secs_f64() && !timed_out {
            self.info().record(|r| r.set_slow());
            self.listener.tell(&Event::Slow {
                call: self.info(),
                elapsed,
                timeout,
            });
        }
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
