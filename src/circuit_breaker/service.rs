use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::{
    circuit::{Admitted, End},
    handle::{CircuitBreakerHandle, Permit},
    probe::Pinging,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::{Abandoned, Ends, Flow, Gate, Gated, Readiness, Step, Ticket},
    kit::cold::Cold,
    outcome::{ByError, Classify},
};

/// Stops calling a tool that is broken. See the [module docs](super) for an example.
pub type CircuitBreaker<S, C = ByError> = Gated<S, Breakers<C>>;

/// Response future for [`CircuitBreaker`].
pub type ResponseFuture<S, F, C> = Flow<S, F, Entrant<C>>;

/// The breakers of one layer value.
#[derive(Clone)]
pub struct Breakers<C> {
    pub(super) handle: CircuitBreakerHandle,
    pub(super) classifier: C,
}

crate::text::opaque_debug!({C} Breakers<C>);

impl<S, C> CircuitBreaker<S, C> {
    /// A handle on its breakers, which are its layer's.
    pub fn handle(&self) -> CircuitBreakerHandle {
        self.gate.handle.clone()
    }
}

/// A call at its breaker.
pub struct Entrant<C> {
    admitted: Admitted,
    /// The call would be a probe, and waits for the ping that is sent in its place.
    pinging: Cold<Box<Pinging>>,
    classifier: C,
}

crate::text::opaque_debug!({C} Entrant<C>);

impl<Res, C: Classify<Res> + Clone> Gate<Res> for Breakers<C> {
    type Ticket = Entrant<C>;

    /// Takes no permit: a permit is taken when the call is about to run.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Entrant<C>, ToolError> {
        let info = call.info();
        let breaker = self.handle.keep(&info);
        if let Readiness::No = ready
            && let Some(refusal) = breaker.refusal(&info)
        {
            return Err(refusal);
        }
        Ok(Entrant {
            admitted: Admitted::later(breaker, info),
            pinging: Cold::default(),
            classifier: self.classifier.clone(),
        })
    }
}

impl<C> Ticket for Entrant<C> {
    #[inline]
    fn info(&self) -> &CallInfo {
        &self.admitted.info
    }

    fn dropped(&mut self, how: Abandoned) {
        self.admitted.dropped(how);
    }

    fn panicked(&mut self) {
        self.admitted.panicked();
    }
}

impl<Res, C: Classify<Res>> Ends<Res> for Entrant<C> {
    type Class = End;

    /// Only now it is decided whether the call may run: calls that were queued before the breaker opened do not run after it.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn admit(&mut self, call: &mut ToolCall) -> Result<Step, ToolError> {
        call.share_limit();
        let breaker = &self.admitted.breaker;
        let passes = match breaker.admit_call(call) {
            Ok(passes) => passes,
            Err(refused) => return Err(breaker.refused(Some(&self.admitted.info), refused)),
        };
        if let Some(ping) = breaker.ping_for(passes.pass.is_probe()) {
            let permit = Permit::new(breaker, Some(passes.pass));
            self.pinging = Cold::new(Pinging::new(ping, permit, call));
            return Ok(Step::Wait);
        }
        self.admitted.admit(passes);
        Ok(Step::Go)
    }

    fn poll_turn(
        &mut self,
        _: &mut ToolCall,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Res>, ToolError>> {
        let Admitted { breaker, info, .. } = &self.admitted;
        if let Some(pinging) = &mut self.pinging.0 {
            ready!(pinging.poll(cx, info));
            self.pinging = Cold::default();
        }
        Poll::Ready(breaker.refusal(info).map_or(Ok(None), Err))
    }

    fn not_ready(&mut self, call: &ToolCall, error: ToolError) -> ToolError {
        self.admitted
            .breaker
            .not_ready(call, error, &self.classifier)
    }

    #[inline]
    fn judge(&self, result: &Result<Res, ToolError>) -> End {
        let outcome = self.classifier.classify(result.as_ref());
        End::of(&outcome, result.as_ref().err())
    }

    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, end: End, since: Option<Instant>) {
        self.admitted.ended(end, result.as_ref().err(), since);
    }
}
