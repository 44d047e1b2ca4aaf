use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::layer::DeadlineLayer;
use crate::{
    call::{CallExt, CallInfo, Claim, ToolCall, nanos},
    error::{ErrorKind, TimeoutLimit, ToolError},
    flow::{Ends, Flow, Gate, Gated, Readiness, Step, Ticket},
    kit::{
        drain::Drain,
        limit::{self, Caller},
        timer::Timer,
    },
};

/// Ends calls at their deadline. See the [module docs](super) for an example.
pub type Deadline<S> = Gated<S, DeadlineLayer>;

/// Response future for [`Deadline`].
pub type ResponseFuture<S, F> = Flow<S, F, Bounded>;

/// A call and its deadline.
#[derive(Debug)]
pub struct Bounded {
    info: CallInfo,
    limit: Limit,
    timer: Timer,
    caller: Caller,
    drain: Drain,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    since: Instant,
    at: Option<Instant>,
    /// Nanoseconds; `u64::MAX` without a budget.
    budget: u64,
    /// The number that the call had when it came.
    attempt: u32,
    is_untrusted: bool,
}

impl Limit {
    /// The call was started and has not ended in time.
    fn expired(&self, call: &CallInfo) -> ToolError {
        let share = self.at.map_or(Duration::MAX, |at| at - self.since);
        // Without an own budget nothing shortened it.
        let configured = match self.budget {
            u64::MAX => share,
            nanos => Duration::from_nanos(nanos),
        };
        // A deadline that leaves the tool all its time says something of the tool, even if an
        // untrusted caller set it.
        let limit = match self.is_untrusted && share < call.patience() {
            true => TimeoutLimit::Caller,
            false => TimeoutLimit::Deadline,
        };
        ToolError::timed_out(call, share, configured, limit)
    }
}

impl<Res> Gate<Res> for DeadlineLayer {
    type Ticket = Bounded;

    #[inline]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Bounded, ToolError> {
        let now = Instant::now();
        // Also where this layer sets a tighter deadline, the owner of the outer one watches the
        // token.
        let is_drained = call.is_claimed(Claim::Drain);
        let at = self.settings.limit(now, call);
        if call.is_cancelled() || at.is_some_and(|at| at <= now) {
            return Err(refused(call));
        }
        let limit = Limit {
            since: now,
            // The owner of the deadline waits for the call that it ends.
            at: at.filter(|_| !call.is_claimed(Claim::Drain)),
            budget: self.settings.budget.map_or(u64::MAX, nanos),
            attempt: call.attempt(),
            is_untrusted: call.is_deadline_untrusted(),
        };
        let caller = match is_drained {
            true => Caller::default(),
            false => Caller::of(call),
        };
        let drain = Drain::of(call, self.settings.drain);
        if self.settings.drain.is_some() {
            call.take_claim(Claim::Drain);
        }
        Ok(Bounded {
            info: call.info(),
            limit,
            timer: Timer::default(),
            caller,
            drain,
        })
    }
}

/// The call is not started.
#[cold]
fn refused(call: &ToolCall) -> ToolError {
    match call.is_cancelled() {
        true => limit::cancelled(),
        false => limit::too_late().with_elapsed(Duration::ZERO),
    }
}

impl Ticket for Bounded {
    type Times = ();

    #[inline]
    fn info(&self) -> &CallInfo {
        &self.info
    }
}

impl<Res> Ends<Res> for Bounded {
    type Class = ();

    fn gave_up(&mut self, error: ToolError, _: Step) -> ToolError {
        match error.kind() {
            ErrorKind::DeadlineExceeded => error.with_elapsed(self.limit.since.elapsed()),
            _ => error,
        }
    }

    #[inline]
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<ToolError> {
        self.poll_end(cx)
    }

    #[inline]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        if self.drain.has_begun() {
            self.drain.settle(result);
        }
    }
}

impl Bounded {
    /// Ready with the error once the call has to end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<ToolError> {
        if !self.drain.has_begun() {
            let error = if self.caller.poll_cancelled(cx).is_ready() {
                ToolError::new(ErrorKind::Cancelled, "cancelled by the caller")
            } else {
                ready!(self.timer.poll(cx, || self.limit.at));
                self.limit.expired(&self.info)
            };
            let error = match self.info.failed_since(self.limit.attempt) {
                Some(failed) => error.after(failed),
                None => error,
            };
            let error = error.for_call(&self.info);
            if let Err(error) = self.drain.begin(error, &mut self.timer) {
                return Poll::Ready(error);
            }
        }
        self.drain.poll(&mut self.timer, cx)
    }
}
