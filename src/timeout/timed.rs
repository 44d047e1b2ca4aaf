use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;
use tower_service::Service;
use tracing::Level;

use super::layer::{SLOW_FRACTION, Settings, TimeoutLayer};
use crate::{
    call::{CallExt, CallInfo, Claim, Progress, ToolCall},
    error::{ErrorKind, TimeoutLimit, ToolError},
    event::{Event, Listener},
    flow::{Ends, Sent, Ticket},
    kit::{cold::Cold, drain::Drain, timer::Timer},
};

/// Bounds each call's time. See the [module docs](super) for an example.
pub struct Timeout<S> {
    inner: S,
    layer: TimeoutLayer,
    /// The part of a call that is kept here while the inner service is called. The frame of `call`
    /// then owns nothing that a panic has to drop, and the inner future is made in its place. After
    /// a panic the part is dropped with the service, or by the next call.
    part: Option<Part>,
}

impl<S: Clone> Clone for Timeout<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.layer.clone())
    }
}

crate::kit::inner::accessors!({S} Timeout<S>, inner);

crate::text::debug_fields! { {S: std::fmt::Debug} |_| Timeout<S> { inner, .. } }

/// Response future for [`Timeout`].
pub type ResponseFuture<F> = Sent<F, Timed>;

/// A call and its limits.
#[derive(Debug)]
// In this order the part is copied in words.
#[repr(C)]
pub struct Timed {
    // Always there: an `Option`, as the service keeps it while the inner one is called.
    part: Option<Part>,
    timeout: Duration,
    deadline: Option<Instant>,
    /// Set if an outer layer enforces the deadline.
    is_owned: bool,
    is_untrusted: bool,
    /// When the call began to wait.
    since: Option<Instant>,
    timer: Timer,
}

/// The part of a ticket that has to be dropped.
#[derive(Debug)]
struct Part {
    info: CallInfo,
    own: Cold<Own>,
}

/// The settings of a layer that sets more than timeouts.
#[derive(Debug)]
enum Own {
    /// Settings that only affect reports.
    Told(Arc<Settings>),
    Bounds(Box<Rare>),
}

/// The limits that few calls have.
#[derive(Debug)]
struct Rare {
    settings: Arc<Settings>,
    /// Only in idle mode, or inside a layer in idle mode.
    idle: Option<Progress>,
    drain: Drain,
}

impl<S> Timeout<S> {
    pub(super) fn new(inner: S, layer: TimeoutLayer) -> Self {
        Self {
            inner,
            layer,
            part: None,
        }
    }
}

impl<S> Service<ToolCall> for Timeout<S>
where
    S: Service<ToolCall, Error: Into<ToolError>>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let settings = &self.layer.settings;
        let (timeout, own) = match settings.is_plain && !call.asks_for_progress() {
            true => (call.timeout().unwrap_or(settings.default), Cold::default()),
            false => Own::of(settings, &mut call),
        };
        call.limit(timeout);
        call.record(|record| record.set_timeout(timeout, timeout));
        let deadline = call.deadline();
        let is_owned = call.is_claimed(Claim::Drain);
        let is_untrusted = call.is_deadline_untrusted();
        let info = call.info();
        self.part = Some(Part { info, own });
        let fut = self.inner.call(call);
        let ticket = Timed {
            part: self.part.take(),
            timeout,
            deadline,
            is_owned,
            is_untrusted,
            since: None,
            timer: Timer::default(),
        };
        Sent::new(fut, ticket)
    }
}

impl Own {
    #[cold]
    #[inline(never)]
    fn of(settings: &Arc<Settings>, call: &mut ToolCall) -> (Duration, Cold<Self>) {
        let timeout = settings.timeout_of(call);
        // Who is inside an idle timeout may pause this one too.
        let asks = || call.progress().map(|_| Duration::MAX);
        let idle = settings.idle.or_else(asks);
        let own = || Arc::clone(settings);
        let own = match idle.is_none() && settings.drain.is_none() {
            true if settings.is_told_by_default() => return (timeout, Cold::default()),
            true => Self::Told(own()),
            false => Self::Bounds(Box::new(Rare {
                idle: idle.map(|allowed| call.ask_for_progress(allowed)),
                drain: Drain::of(call, settings.drain),
                settings: own(),
            })),
        };
        (timeout, Cold::of(own))
    }
}

impl Ticket for Timed {
    type Times = ();

    #[inline]
    fn info(&self) -> &CallInfo {
        &self.part.as_ref().expect("always there").info
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
            match rare(&mut self.part) {
                Some(rare) if rare.drain.has_begun() => rare.drain.settle(result),
                _ => self.answered(since, result.as_ref().err()),
            }
        }
    }
}

impl Timed {
    fn own(&self) -> Option<&Own> {
        self.part.as_ref()?.own.0.as_ref()
    }

    fn idle(&self) -> Option<&Progress> {
        match self.own()? {
            Own::Bounds(rare) => rare.idle.as_ref(),
            Own::Told(_) => None,
        }
    }

    /// Ready with the error once the call has to end. Outlined, so that a call that does not wait
    /// does not pay for it.
    #[inline(never)]
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<ToolError> {
        if let Some(rare) = rare(&mut self.part)
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
        let mut at = earlier(end, self.deadline);
        if at != end
            && let Some(share) = self.share(since)
        {
            self.info().record(|r| r.set_timeout(share, self.timeout));
        }
        if self.own().is_some() || self.is_owned {
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
                let Some(Rare { drain, .. }) = rare(&mut self.part) else {
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

    /// Returns when the call currently has to end; `None`: so late that no clock reaches it.
    #[inline(never)]
    fn limit(&self, since: Instant) -> Option<Instant> {
        let idle = self.idle().and_then(|idle| idle.limit(since));
        earlier(self.hard(since), idle)
    }

    /// Returns when the call has to end whatever its progress.
    fn hard(&self, since: Instant) -> Option<Instant> {
        let deadline = self.deadline.filter(|_| !self.is_owned);
        earlier(since.checked_add(self.timeout()), deadline)
    }

    /// Returns the timeout, with the time that does not count.
    fn timeout(&self) -> Duration {
        let paused = self.idle().map(Progress::paused);
        self.timeout.saturating_add(paused.unwrap_or_default())
    }

    /// Returns the time that the deadline leaves, if it is less than the timeout.
    fn share(&self, since: Instant) -> Option<Duration> {
        let share = self.deadline?.saturating_duration_since(since);
        (share < self.timeout()).then_some(share)
    }

    #[cold]
    fn error(&self, since: Instant, at: Option<Instant>) -> ToolError {
        let (time, limit) = match (self.idle(), self.share(since)) {
            (Some(idle), _) if at != self.hard(since) => (idle.allowed(), TimeoutLimit::Idle),
            (_, Some(share)) if self.is_untrusted => (share, TimeoutLimit::Caller),
            (_, Some(share)) => (share, TimeoutLimit::Deadline),
            (_, None) => (self.timeout, TimeoutLimit::Timeout),
        };
        ToolError::timed_out(self.info(), time, self.timeout, limit)
    }

    /// Reports a call that was slow.
    #[inline(never)]
    fn answered(&self, since: Instant, error: Option<&ToolError>) {
        let own = self.own().map(|own| match own {
            Own::Told(settings) => settings,
            Own::Bounds(rare) => &rare.settings,
        });
        let own = own.map(|own| (own.slow_fraction, &own.listener));
        let (slow_fraction, listener) = own.unwrap_or((SLOW_FRACTION, &Listener::NONE));
        // The clock is not read if no listener, subscriber or observation takes the event.
        let mut heard = listener.hears(Level::WARN);
        self.info().record(|r| heard |= r.is_observed());
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
            self.info().record(|r| r.set_slow());
            listener.tell(&Event::Slow {
                call: self.info(),
                elapsed,
                timeout,
            });
        }
    }
}

#[inline]
fn rare(part: &mut Option<Part>) -> Option<&mut Rare> {
    match part.as_mut()?.own.0.as_mut()? {
        Own::Bounds(rare) => Some(rare),
        Own::Told(_) => None,
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
