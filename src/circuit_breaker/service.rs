use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::{
    admission::{Admitted, Refused},
    breaker::Permit,
    circuit::End,
    handle::CircuitBreakerHandle,
    turn::{Pinging, Turn},
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
    /// The call waits, or has waited.
    turn: Cold<Box<Turn>>,
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
            turn: Cold::default(),
            classifier: self.classifier.clone(),
        })
    }
}

impl<C> Entrant<C> {
    /// Lets a call wait for the verdict of a probe, if it may, and refuses it otherwise.
    #[cold]
    fn wait_or_refuse(&mut self, refused: Refused) -> Result<Step, ToolError> {
        let Admitted { breaker, info, .. } = &self.admitted;
        if refused.of_principal.is_none() && breaker.is_waited_for() {
            let circuit = breaker.circuit();
            let now = Instant::now();
            let latest = match self.turn.0.as_deref() {
                Some(Turn::Verdict { latest, .. }) => *latest,
                _ => now + circuit.shared.rules.probe_wait,
            };
            if now < latest {
                circuit.cell.take_back_refusal();
                self.turn = Cold::new(Turn::verdict(breaker, latest, refused.retry_after));
                return Ok(Step::Wait);
            }
        }
        Err(breaker.refused(Some(info), refused))
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
            Err(refused) => return self.wait_or_refuse(refused),
        };
        if let Some(ping) = breaker.ping_for(passes.pass.is_probe()) {
            let permit = Permit::new(breaker, Some(passes.pass));
            self.turn = Cold::new(Turn::Ping(Pinging::new(ping, permit, call)));
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
        if let Some(turn) = &mut self.turn.0 {
            ready!(turn.poll(cx, breaker, info));
            if let Turn::Ping(_) = **turn {
                self.turn = Cold::default();
            }
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
