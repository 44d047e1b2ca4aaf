use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{
    admission::Admitted, breaker::Breaker, circuit::End, handle::CircuitBreakerHandle,
    layer::CircuitBreakerLayer, snapshot::Refused, state::Pass,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::{Abandoned, Ends, Flow, Gate, Gated, PollTurn, Readiness, Step, Ticket, Times},
    kit::cold::Cold,
    outcome::{ByError, Classify},
};

/// Stops calling a tool that is broken. See the [module docs](super) for an example.
pub type CircuitBreaker<S, C = ByError> = Gated<S, CircuitBreakerLayer<C>>;

/// Response future for [`CircuitBreaker`].
pub type ResponseFuture<S, F, C> = Flow<S, F, Entrant<C>>;

impl<S, C> CircuitBreaker<S, C> {
    /// Returns a handle on its breakers, which are its layer's.
    pub fn handle(&self) -> CircuitBreakerHandle {
        self.gate.handle()
    }
}

/// A call at its breaker.
pub struct Entrant<C> {
    admitted: Admitted,
    /// The call waits, or has waited.
    turn: Cold<Box<Turn>>,
    classifier: C,
}

crate::text::debug_fields! { {C} |_| Entrant<C> { .. } }

impl<Res, C: Classify<Res> + Clone> Gate<Res> for CircuitBreakerLayer<C> {
    type Ticket = Entrant<C>;

    /// Takes no permit: a permit is taken when the call is about to run.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Entrant<C>, ToolError> {
        let info = call.info();
        let breaker = self.breakers.breaker_for(&info);
        let entrant = Entrant {
            // It is admitted later.
            admitted: Admitted {
                breaker,
                info,
                passes: Pass::FIRST.into(),
            },
            turn: Cold::default(),
            classifier: self.classifier.clone(),
        };
        match ready {
            Readiness::No => entrant.arrives(call),
            _ => Ok(entrant),
        }
    }
}

impl<C> Entrant<C> {
    /// Decides about a call that arrives while the inner service is not ready.
    #[inline(never)]
    fn arrives(mut self, call: &ToolCall) -> Result<Self, ToolError> {
        if let Some(refused) = self.admitted.refuses() {
            self.wait_or_refuse(call, refused)?;
        }
        Ok(self)
    }

    /// Lets a call wait for the result of a probe, if it may, and refuses it otherwise.
    #[cold]
    fn wait_or_refuse(&mut self, call: &ToolCall, refused: Refused) -> Result<Step, ToolError> {
        let Admitted { breaker, info, .. } = &self.admitted;
        let circuit = breaker.circuit();
        let most = circuit.shared.rules().probe_wait;
        if most.is_zero() || !refused.is_half_open {
            return Err(breaker.refused(Some(info), refused));
        }
        let now = Instant::now();
        let latest = self.turn.0.as_ref().map_or(now + most, |it| it.latest);
        if now >= latest {
            return Err(breaker.refused(Some(info), refused));
        }
        let may_probe = circuit.may_probe(call);
        let verdict = Box::pin(verdict(breaker.clone(), info.clone(), may_probe, latest));
        self.turn = Cold::new(Turn { latest, verdict });
        Ok(Step::Wait)
    }
}

impl<C> Ticket for Entrant<C> {
    type Times = Times;

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

    /// A call that was refused while the inner service was not ready waits.
    #[inline]
    fn arrive(&mut self) -> Step {
        match *self.turn.0 {
            Some(_) => Step::Wait,
            None => Step::Go,
        }
    }

    /// Decides only now whether the call may run: calls that were queued before the breaker opened
    /// do not run after it.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn admit(&mut self, call: &mut ToolCall) -> Result<Step, ToolError> {
        call.share_limit();
        let Admitted { breaker, info, .. } = &self.admitted;
        match breaker.admit_call(Some((call, info))) {
            // An equal value is not written: the copy of the ticket that follows would wait for it.
            Ok(passes) if passes != Pass::FIRST.into() => self.admitted.passes = passes,
            Ok(_) => {}
            Err(refused) => return self.wait_or_refuse(call, refused),
        }
        Ok(Step::Go)
    }

    fn poll_turn(&mut self, call: &mut ToolCall, cx: &mut Context<'_>) -> PollTurn<Res> {
        loop {
            if let Some(turn) = &mut *self.turn.0 {
                ready!(turn.verdict.as_mut().poll(cx));
            }
            let Some(refused) = self.admitted.refuses() else {
                return Poll::Ready(Ok(None));
            };
            self.wait_or_refuse(call, refused)?;
        }
    }

    fn waited(&mut self, time: Duration) {
        self.admitted.info.record(|record| record.add_wait(time));
    }

    /// The error counts as a result, if the call is admitted.
    fn not_ready(&mut self, call: &ToolCall, error: ToolError) -> ToolError {
        // Foreign code, and it may panic: before the call is admitted.
        let outcome = self.classifier.classify(Err(&error));
        let Admitted { breaker, info, .. } = &self.admitted;
        // The service has not seen the call, so no caller has caused this.
        let end = End {
            weak: false,
            ..End::of(breaker.circuit(), &outcome, None)
        };
        match breaker.admit_call(Some((call, info))) {
            Ok(passes) => {
                self.admitted.passes = passes;
                self.admitted.ended(end, Some(&error), None);
                error
            }
            Err(refused) => breaker.refused(Some(info), refused),
        }
    }

    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn judge(&self, result: &Result<Res, ToolError>) -> End {
        let outcome = self.classifier.classify(result.as_ref());
        let circuit = self.admitted.breaker.circuit();
        End::of(circuit, &outcome, result.as_ref().err())
    }

    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, end: End, since: Option<Instant>) {
        self.admitted.ended(end, result.as_ref().err(), since);
    }
}

/// The waits of a call for the results of probes.
struct Turn {
    /// The end of all of them.
    latest: Instant,
    /// The present one.
    verdict: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

/// Waits until a half-open breaker may admit the call, or has another state; `latest` at most.
async fn verdict(breaker: Breaker, call: CallInfo, may_probe: bool, latest: Instant) {
    let circuit = breaker.circuit();
    let mut now = Instant::now();
    while now < latest
        && let Some((verdict, rest)) = circuit.next_verdict(&call, may_probe)
    {
        let until = now.checked_add(rest).map_or(latest, |at| at.min(latest));
        _ = timeout_at(until, verdict).await;
        now = Instant::now();
    }
}
