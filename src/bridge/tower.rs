//! tower's own errors, and [`RetryPolicy`] in tower's own retry layer.

use std::{error::Error as StdError, mem};

use tokio::time::{Instant, Sleep, sleep_until};
use tower::{
    buffer::error::{Closed, ServiceError},
    load_shed::error::Overloaded,
    retry::Policy,
    timeout::error::Elapsed,
};

use crate::{
    call::{CallExt, Claim, ToolCall},
    error::{
        ErrorKind, Execution, KnownErrors, ToolError,
        recognise::{LATE, LOST, judged},
    },
    kit::attempts,
    outcome::Classify,
    retry::RetryPolicy,
};

pub(crate) struct Errors;

impl KnownErrors for Errors {
    fn cause(&self, error: &(dyn StdError + 'static)) -> Option<ToolError> {
        if error.is::<Elapsed>() {
            return Some(judged(LATE));
        }
        // Which limiter it was, only the layer directly above it knows: see `is_refusal`.
        if error.is::<Overloaded>() {
            return Some(judged((ErrorKind::Overloaded, Execution::Unknown)));
        }
        // The worker is gone for good: whether it had taken this call is unknown.
        error.is::<Closed>().then(|| judged(LOST))
    }

    /// `Buffer`, which shares its service's error.
    fn is_transparent(&self, error: &(dyn StdError + 'static)) -> bool {
        error.is::<ServiceError>()
    }

    /// Returns whether the load shedder refused the call, directly or behind a `Buffer`.
    fn is_refusal(&self, error: &(dyn StdError + 'static)) -> bool {
        let behind = error.downcast_ref::<ServiceError>();
        let below = behind.and_then(StdError::source);
        error.is::<Overloaded>() || below.is_some_and(|e| e.is::<Overloaded>())
    }
}

/// On a call that a policy in tower's layer sends again: its further attempts are that call's.
#[derive(Clone)]
struct Repeated;

impl<C> RetryPolicy<C> {
    /// The copy that is sent again, if need be. tower asks at each attempt, and `&ToolCall` is all
    /// it shows.
    fn keep(&self, call: &ToolCall) -> Option<ToolCall> {
        // The first attempt of a call with the extensions of another is none.
        let is_ours = call.attempt() > 1 && call.extensions().get::<Repeated>().is_some();
        let kept = (is_ours || self.grants(call).is_some()) && !call.claim(Claim::Retry);
        if kept && !is_ours {
            self.deposit(call);
        }
        kept.then(|| call.unclaimed(Claim::Retry))
    }

    /// An error, stamped, and what follows from it.
    fn met<Res>(&self, call: &ToolCall, error: ToolError) -> (ToolError, Option<Instant>)
    where
        C: Classify<Res>,
    {
        let mut error = error.for_call(&call.info());
        match self.decide(call, Err(&mut error)) {
            Some(at) => (error, Some(at)),
            None => {
                // Our own refusal does not count as an attempt.
                let unsent = u32::from(error.is_own_refusal());
                let sent = call.attempt().saturating_sub(unsent);
                (attempts::last(call, Claim::Retry, sent, error), None)
            }
        }
    }
}

/// Inside tower's own `RetryLayer`, around services with a [`ToolError`], an
/// [`AnyError`](crate::AnyError) or a [`BoxError`](crate::BoxError). What the error was stays in
/// it, as a [`ToolError`].
impl<C, Res, E> Policy<ToolCall, Res, E> for RetryPolicy<C>
where
    C: Classify<Res>,
    E: Into<ToolError> + From<ToolError>,
{
    type Future = Sleep;

    fn retry(&mut self, call: &mut ToolCall, result: &mut Result<Res, E>) -> Option<Sleep> {
        let at = match result {
            Ok(response) => self.decide(call, Ok(&*response)),
            Err(error) => {
                let nothing = ToolError::new(ErrorKind::Internal, "the error is looked at");
                let met = mem::replace(error, nothing.into());
                let (stamped, at) = self.met(call, met.into());
                call.keep_job(Some(&stamped));
                *error = stamped.into();
                at
            }
        }?;
        call.next_attempt();
        call.extensions_mut().insert(Repeated);
        Some(sleep_until(at))
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        self.keep(call)
    }
}
