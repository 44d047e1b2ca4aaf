//! Waits for a cancelled call to finish, up to a limit.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use super::timer::Timer;
use crate::{call::ToolCall, error::ToolError};

/// Tells a call to stop, and waits for it. Most layers do not: then it is one word.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    set: super::cold::Cold<Box<Set>>,
}

#[derive(Debug)]
struct Set {
    time: Duration,
    /// Tells the tool.
    token: tokio_util::sync::CancellationToken,
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    /// That of the call.
    error: ToolError,
    until: Option<tokio::time::Instant>,
}

impl Drain {
    /// Puts a token of its own on the call, a child of the caller's. Nothing without a time.
    #[inline]
    pub(crate) fn of(call: &mut ToolCall, time: Option<Duration>) -> Self {
        Self {
            set: time.map_or_else(Default::default, |time| Set::on(call, time)),
        }
    }

    /// Ends the call with this error, which comes back without a configured wait. Otherwise cancels
    /// the tool's token, and [`poll`](Self::poll) waits.
    #[cold]
    pub(crate) fn begin(&mut self, error: ToolError, timer: &mut Timer) -> Result<(), ToolError> {
        let Some(set) = &mut *self.set.0 else {
            return Err(error);
        };
        timer.reset();
        let until = tokio::time::Instant::now().checked_add(set.time);
        set.begun = Some(Begun { error, until });
        set.token.cancel();
        Ok(())
    }

    /// Returns whether the tool's token was cancelled.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.set.0.as_ref().is_some_and(|set| set.begun.is_some())
    }

    /// Polls for the end of the wait: ready with the error; never before it has begun.
    #[cold]
    pub(crate) fn poll(&mut self, timer: &mut Timer, cx: &mut Context<'_>) -> Poll<ToolError> {
        let Some(set) = &mut *self.set.0 else {
            return Poll::Pending;
        };
        let Some(begun) = &set.begun else {
            return Poll::Pending;
        };
        std::task::ready!(timer.poll(cx, || begun.until));
        let begun = set.begun.take();
        Poll::Ready(begun.expect("looked at above").error)
    }

    /// Changes the result of a call that ended during the wait. A tool that has run to its end must
    /// not run again. So the error says that the tool has run, but not that its work is done,
    /// because the tool may only have stopped.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle<Res>(&mut self, result: &mut Result<Res, ToolError>) {
        use crate::error::Execution::Completed;

        let Some(begun) = self.set.0.as_mut().and_then(|set| set.begun.take()) else {
            return;
        };
        let has_run = match result {
            Ok(_) => true,
            Err(error) => error.execution() == Completed,
        };
        *result = Err(match has_run {
            true => begun.error.with_execution(Completed).with_retryable(false),
            false => begun.error,
        });
    }
}

impl Set {
    #[cold]
    fn on(call: &mut ToolCall, time: Duration) -> super::cold::Cold<Box<Self>> {
        let callers = call.cancellation();
        let token = callers.map_or_else(Default::default, |callers| callers.child_token());
        call.set_cancellation(token.clone());
        super::cold::Cold::new(Self {
            time,
            token,
            begun: None,
        })
    }
}

/// Refuses a wait that is none, or that has no end.
pub(crate) fn check(time: Duration) -> Result<Duration, crate::ConfigError> {
    use crate::config::refuse_if;

    const HOUR: Duration = Duration::from_secs(3600);
    refuse_if(time.is_zero(), "drain", "it is zero: nothing is waited for")?;
    let reason = format!("{time:?} is longer than an hour");
    refuse_if(time > HOUR, "drain", reason)?;
    Ok(time)
}
