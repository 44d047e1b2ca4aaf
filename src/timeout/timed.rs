use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;
use tracing::Level;

use super::layer::{SLOW_FRACTION, Settings, TimeoutLayer};
use crate::{
    call::{CallInfo, Claim, Progress, ToolCall},
    error::{ErrorKind, TimeoutLimit, ToolError},
    event::{Event, Listener},
    flow::{Ends, Gate, Readiness, Sent, Ticket, Watched},
    kit::{cold::Cold, drain::Drain, timer::Timer},
};

/// Bounds each call's time. See the [module docs](super) for an example.
pub type Timeout<S> = Watched<S, TimeoutLayer>;

/// Response future for [`Timeout`].
pub type ResponseFuture<F> = Sent<F, Timed>;

/// A call and its limits.
#[derive(Debug)]
pub struct Timed {
    info: CallInfo,
    timeout: Duration,
    deadline: Option<Deadline>,
    /// When the call began to wait.
    since: Option<Instant>,
    timer: Timer,
    /// Only of a layer that sets more than timeouts.
    settings: Cold<Arc<Settings>>,
    rare: Cold<Box<Rare>>,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Instant,
    /// Whether an outer layer enforces it.
    is_owned: bool,
    is_untrusted: bool,
}

/// The limits that few calls have.
#[derive(Debug)]
struct Rare {
    /// Only in idle mode, or inside a layer in idle mode.
    idle: Option<Progress>,
    drain: Drain,
}

impl<Res> Gate<Res> for TimeoutLayer {
    type Ticket = Timed;

    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Timed, ToolError> {
        let settings = &self.settings;
        let timeout = settings.timeout_of(call);
        call.limit(timeout);
        call.record(|record| record.set_timeout(timeout, timeout));
        let (mut own, mut rare) = (Cold::default(), Cold::default());
        if !settings.is_plain || call.progress().is_some() {
            own = Cold(Some(Arc::clone(settings)));
            rare = Rare::of(settings, call);
        }
        let deadline = call.deadline().map(|at| Deadline {
            at,
            is_owned: call.is_claimed(Claim::Drain),
            is_untrusted: call.is_deadline_untrusted(),
        });
        Ok(Timed {
            info: call.info(),
            timeout,
            deadline,
            since: None,
            timer: Timer::default(),
            settings: own,
            rare,
        })
    }
}

impl Rare {
    #[cold]
    #[inline(never)]
    fn of(settings: &Settings, call: &mut ToolCall) -> Cold<Box<Self>> {
        // Who is inside an idle timeout may pause this one too.
        let asks = || call.progress().map(|_| Duration::MAX);
        let idle = settings.idle.or_else(asks);
        if idle.is_none() && settings.drain.is_none() {
            return Cold::default();
        }
        Cold::new(Self {
            idle: idle.map(|allowed| call.ask_for_progress(allowed)),
            drain: Drain::of(call, settings.drain),
        })
    }
}

impl Ticket for Timed {
    const REPORTS: bool = false;

    #[inline]
    fn info(&self) -> &CallInfo {
        &self.info
    }
}

impl<Res> Ends<Res> for Timed {
    type Class = ();

    #[inline]
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<ToolError> {
        self.wait(cx)
    }

    #[inline]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        if let Some(since) = self.since {
            match &mut self.rare.0 {
                Some(rare) if rare.drain.has_begun() => rare.drain.settle(result),
                _ => self.answered(since, result.as_ref().err()),
            }
        }
    }
}

impl Timed {
    fn idle(&self) -> Option<&Progress> {
        self.rare.0.as_ref()?.idle.as_ref()
    }

    /// Ready with the error once the call has to end. Outlined, so that a call that does not wait
    /// does not pay for it.
    #[inline(never)]
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<ToolError> {
        if let Some(rare) = &mut self.rare.0
            && rare.drain.has_begun()
        {
            return rare.drain.poll(&mut self.timer, cx);
        }
        let since = match self.since {
            Some(since) => {
                let mut timer = std::mem::take(&mut self.timer);
                let over = timer.poll(cx, || self.limit(since));
                self.timer = timer;
                ready!(over);
                since
            }
            None => {
                let (since, at) = self.begin();
                ready!(self.timer.poll(cx, || at));
                since
            }
        };
        self.end(since, cx)
    }

    #[inline]
    fn begin(&mut self) -> (Instant, Option<Instant>) {
        let since = Instant::now();
        let end = since.checked_add(self.timeout);
        let mut at = earlier(end, self.deadline.map(|deadline| deadline.at));
        if at != end
            && let Some(share) = self.share(since)
        {
            self.info.record(|r| r.set_timeout(share, self.timeout));
        }
        if self.rare.0.is_some() || self.deadline.is_some_and(|deadline| deadline.is_owned) {
            at = self.limit(since);
        }
        (*self.since.insert(since), at)
    }

    /// The time is over, unless progress has moved its end. Only this looks at the progress, so a
    /// report of it wakes no task.
    #[cold]
    fn end(&mut self, since: Instant, cx: &mut Context<'_>) -> Poll<ToolError> {
        loop {
            let at = self.limit(since);
            if at.is_some_and(|at| at <= Instant::now()) {
                let error = self.error(since, at);
                let Some(Rare { drain, .. }) = self.rare.0.as_deref_mut() else {
                    return Poll::Ready(error);
                };
                return match drain.begin(error, &mut self.timer) {
                    Ok(()) => drain.poll(&mut self.timer, cx),
                    Err(error) => Poll::Ready(error),
                };
            }
            self.timer.reset();
            ready!(self.timer.poll(cx, || at));
        }
    }

    /// When the call currently has to end; `None`: so late that no clock reaches it.
    #[inline(never)]
    fn limit(&self, since: Instant) -> Option<Instant> {
        let idle = self.idle().and_then(|idle| idle.limit(since));
        earlier(self.hard(since), idle)
    }

    /// When the call has to end whatever its progress.
    fn hard(&self, since: Instant) -> Option<Instant> {
        let own = self.deadline.filter(|deadline| !deadline.is_owned);
        let deadline = own.map(|deadline| deadline.at);
        earlier(since.checked_add(self.timeout()), deadline)
    }

    /// The timeout, with the time that does not count.
    fn timeout(&self) -> Duration {
        let paused = self.idle().map(Progress::paused);
        self.timeout.saturating_add(paused.unwrap_or_default())
    }

    /// The time that the deadline leaves, if it is less than the timeout.
    fn share(&self, since: Instant) -> Option<Duration> {
        let share = self.deadline?.at.saturating_duration_since(since);
        (share < self.timeout()).then_some(share)
    }

    #[cold]
    fn error(&self, since: Instant, at: Option<Instant>) -> ToolError {
        let (time, limit) = match (self.idle(), self.share(since)) {
            (Some(idle), _) if at != self.hard(since) => (idle.allowed(), TimeoutLimit::Idle),
            (_, Some(share)) if self.deadline.is_some_and(|deadline| deadline.is_untrusted) => {
                (share, TimeoutLimit::Caller)
            }
            (_, Some(share)) => (share, TimeoutLimit::Deadline),
            (_, None) => (self.timeout, TimeoutLimit::Timeout),
        };
        ToolError::timed_out(&self.info, time, self.timeout, limit)
    }

    /// Reports a call that was slow.
    #[inline(never)]
    fn answered(&self, since: Instant, error: Option<&ToolError>) {
        let own = self
            .settings
            .0
            .as_ref()
            .map(|own| (own.slow_fraction, &own.listener));
        let (slow_fraction, listener) = own.unwrap_or((SLOW_FRACTION, &Listener::NONE));
        // The clock is not read if no listener, subscriber or observation takes the event.
        let mut heard = listener.hears(Level::WARN);
        self.info.record(|r| heard |= r.is_observed());
        if heard {
            self.tell_if_slow(since, error, slow_fraction, listener);
        }
    }

    /// A timeout from below is not reported as a slow call as well.
    #[inline(never)]
    fn tell_if_slow(
        &self,
        since: Instant,
        error: Option<&ToolError>,
        slow_fraction: f64,
        listener: &Listener,
    ) {
        let elapsed = since.elapsed();
        let timed_out = error.is_some_and(|e| e.kind() == ErrorKind::Timeout);
        let timeout = self.share(since).unwrap_or(self.timeout);
        if elapsed.as_secs_f64() > slow_fraction * timeout.as_secs_f64() && !timed_out {
            self.info.record(|r| r.set_slow());
            listener.tell(&Event::Slow {
                call: &self.info,
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
