//! The way of a call through a layer that decides about it.
//!
//! A layer says what it decides ([`Gate`]), what a call holds ([`Ticket`]), and what the end of a call
//! means to it ([`Ends`]). The [`Flow`] does the rest, the same for every layer:
//!
//! 1. The gate looks at a call when it arrives, and may refuse it although the inner service is not
//!    ready. A refusal returns the reservation of the inner service.
//! 2. A call that has to wait for its turn holds no reservation of the inner service.
//! 3. The call is admitted when the inner service is ready for it, so that nothing is taken for a call
//!    that cannot run yet.
//! 4. Every wait ends at the call's deadline and at its caller's cancellation.
//! 5. The end is reported exactly once: the result, a panic, or a drop after the call was sent. A call
//!    that is dropped before gives back what its ticket holds, and nothing is reported.
//! 6. Errors carry the names of the call.

mod future;
mod service;

use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

pub(crate) use self::{future::Flow, service::service};
pub(crate) use crate::kit::ready::Readiness;
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    kit::in_flight::Abandoned,
};

/// The decisions of a layer about calls that arrive.
pub(crate) trait Gate<Res> {
    /// The part of one call, from its arrival to its end.
    type Ticket: Ends<Res>;

    /// Looks at a call that has just arrived. Changes it, or refuses it. Takes nothing.
    ///
    /// If the inner service is `ready`, [`Ends::admit`] follows immediately.
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Self::Ticket, ToolError>;
}

/// The part of one call in a layer. Its drop gives back what the call has taken.
pub(crate) trait Ticket {
    /// Returns the names of the call.
    fn info(&self) -> &CallInfo;

    /// Records that the future of a call that was sent was dropped.
    fn dropped(&mut self, _how: Abandoned) {}

    /// Records that a call panicked.
    fn panicked(&mut self) {}
}

/// The step that follows for a call.
#[derive(Debug)]
pub(crate) enum Step {
    /// The call is sent, or waits until the inner service is ready for it.
    Go,
    /// The call waits for its turn: [`Ends::poll_turn`].
    Wait,
}

/// The way of a call from its arrival to its end.
pub(crate) trait Ends<Res>: Ticket {
    /// The meaning of a result to the layer.
    type Class;

    /// Decides whether a call waits before the inner service is asked whether it is ready.
    fn arrive(&mut self) -> Step {
        Step::Go
    }

    /// Admits a call whose inner service is ready, refuses it, or lets it wait.
    fn admit(&mut self, _call: &mut ToolCall) -> Result<Step, ToolError> {
        Ok(Step::Go)
    }

    /// Waits for the turn of a call. Ready with `None` if it goes on, or with its answer.
    fn poll_turn(
        &mut self,
        _call: &mut ToolCall,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Res>, ToolError>> {
        Poll::Ready(Ok(None))
    }

    /// Records how long a call has waited for its turn.
    fn waited(&self, _time: Duration) {}

    /// Returns the error of a call that was given up while it waited for its turn.
    fn gave_up(&self, error: ToolError) -> ToolError {
        error
    }

    /// Returns the error of a call whose inner service failed to become ready.
    fn not_ready(&mut self, _call: &ToolCall, error: ToolError) -> ToolError {
        error
    }

    /// Judges a result. The user's code may run here: its panic is reported as the call's.
    fn judge(&self, result: &Result<Res, ToolError>) -> Self::Class;

    /// Records the result, and may change it in its place. Default: nothing. `since`: the call was
    /// pending from then on.
    #[inline]
    fn ended(
        &mut self,
        _result: &mut Result<Res, ToolError>,
        _class: Self::Class,
        _since: Option<Instant>,
    ) {
    }
}

/// The ticket of a layer that does not look at the ends of calls.
impl Ticket for CallInfo {
    #[inline]
    fn info(&self) -> &CallInfo {
        self
    }
}

impl<Res> Ends<Res> for CallInfo {
    type Class = ();

    #[inline]
    fn judge(&self, _: &Result<Res, ToolError>) {}
}
