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
        watch: Watch,
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

/// What bounds the call.
#[derive(Debug)]
struct Watch {
    info: CallInfo,
    timeout: Duration,
    slow_fraction: f64,
    deadline: Option<Instant>,
    /// Only in idle mode.
    idle: Option<Progress>,
    listener: Listener,
    /// `None` until the call has to wait.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    /// When something has to be looked at next.
    next: Option<Instant>,
    slow: bool,
}

impl<F> ResponseFuture<F> {
    #[inline]
    pub(super) fn new(
        fut: F,
        info: CallInfo,
        timeout: Duration,
        deadline: Option<Instant>,
        idle: Option<Progress>,
        settings: &Settings,
    ) -> Self {
        Self {
            state: State::Called { fut },
            timer: Timer::default(),
            watch: Watch {
                info,
                timeout,
                slow_fraction: settings.slow_fraction,
                deadline,
                idle,
                listener: settings.listener.clone(),
                waiting: None,
            },
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
            this.watch.ended();
            return Poll::Ready(result.map_err(|e| e.into().about(&this.watch.info)));
        }
        let error = loop {
            let next = this.watch.waiting().next;
            if this.timer.as_mut().poll_at(cx, next).is_pending() {
                return Poll::Pending;
            }
            if let Some(error) = this.watch.fired() {
                break error;
            }
        };
        // The work is cancelled now, not when somebody drops the finished future (T4).
        this.state.set(State::Done);
        Poll::Ready(Err(error))
    }
}

impl Watch {
    fn waiting(&mut self) -> &mut Waiting {
        if self.waiting.is_none() {
            let since = Instant::now();
            if let Some(share) = self.share(since) {
                self.info.record(|r| r.set_timeout(share, self.timeout));
            }
            let next = self.next(since, self.slow_at(since));
            self.waiting = Some(Waiting {
                since,
                next,
                slow: false,
            });
        }
        self.waiting.as_mut().expect("just set")
    }

    /// The timer has come to `next`: the error, if the call has to end.
    #[cold]
    fn fired(&mut self) -> Option<ToolError> {
        let &mut Waiting { since, next, slow } = self.waiting();
        let hard = self.hard(since);
        let error = |time, limit| ToolError::timed_out(&self.info, time, self.timeout, limit);
        if next == hard {
            return Some(match self.share(since) {
                Some(share) => error(share, TimeoutLimit::Deadline),
                None => error(self.timeout, TimeoutLimit::Timeout),
            });
        }
        // Progress may have come while the timer ran: it is looked at here, so a report wakes nobody.
        if let Some(idle) = &self.idle
            && next == idle.limit(since)
        {
            return Some(error(idle.allowed(), TimeoutLimit::Idle));
        }
        let slow = slow || next == self.slow_at(since);
        let next = match slow {
            true => self.next(since, hard),
            false => self.next(since, self.slow_at(since)),
        };
        let waiting = self.waiting();
        (waiting.slow, waiting.next) = (slow, next);
        None
    }

    /// What comes first: `first`, or the end of the idle time.
    fn next(&self, since: Instant, first: Option<Instant>) -> Option<Instant> {
        match self.idle.as_ref().and_then(|idle| idle.limit(since)) {
            Some(idle) => Some(first.map_or(idle, |first| first.min(idle))),
            None => first,
        }
    }

    /// When the call has to end.
    fn hard(&self, since: Instant) -> Option<Instant> {
        let own = since.checked_add(self.timeout);
        match self.deadline {
            Some(deadline) => Some(own.map_or(deadline, |own| own.min(deadline))),
            None => own,
        }
    }

    /// When the call becomes slow. The timer stops there on its way, so that a call which is not slow
    /// reads no clock at its end.
    fn slow_at(&self, since: Instant) -> Option<Instant> {
        let time = self.share(since).unwrap_or(self.timeout);
        // By hand: `Duration::mul_f64` checks what cannot be here and is several times as dear.
        let nanos = f64::from(time.subsec_nanos()) + time.as_secs() as f64 * 1e9;
        // A cast saturates, at 584 years.
        since.checked_add(Duration::from_nanos((nanos * self.slow_fraction) as u64))
    }

    /// What the deadline leaves of the timeout, if it leaves less.
    fn share(&self, since: Instant) -> Option<Duration> {
        let share = self.deadline?.saturating_duration_since(since);
        (share < self.timeout).then_some(share)
    }

    /// The call has a result.
    #[inline]
    fn ended(&self) {
        if let Some(waiting) = &self.waiting
            && waiting.slow
        {
            self.tell_slow(waiting.since);
        }
    }

    #[cold]
    fn tell_slow(&self, since: Instant) {
        self.info.record(|r| r.set_slow());
        self.listener.tell(&Event::Slow {
            call: &self.info,
            elapsed: since.elapsed(),
            timeout: self.share(since).unwrap_or(self.timeout),
        });
    }
}
