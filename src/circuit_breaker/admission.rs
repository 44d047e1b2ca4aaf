//! The way of a call through its breaker, from its admission to its end.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    breaker::{Breaker, Permit},
    circuit::{Circuit, End, Report},
    snapshot::Refused,
    state::{Admission, Pass},
    weak::{Own, WeakFailures},
    window::Verdict,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::{ErrorKind, Outage, ToolError},
    event::{
        Event,
        transition::{BreakerState, Transition},
    },
    flow::Abandoned,
    outcome::Count,
};

/// The longest delay of a failing server that makes an open period longer.
const MAX_ANNOUNCED: Duration = Duration::from_secs(300);

impl Breaker {
    /// Sends the breaker's state to those listeners of the call that it does not remember. Called
    /// for results and refusals.
    fn send_state(&self, call: &CallInfo) {
        let circuit = self.circuit();
        if self.0.is_overflow() || !circuit.audience.is_new_to(call) {
            return;
        }
        for listen in circuit.audience.meet(call) {
            let seen = self.look();
            listen.on(&Event::BreakerSeen {
                server: self.server(),
                tool: self.tool(),
                state: seen.state,
                generation: seen.generation,
                call,
            });
        }
    }

    /// Admits a call, or one by hand.
    #[inline]
    pub(super) fn admit_call(
        &self,
        call: Option<(&ToolCall, &CallInfo)>,
    ) -> Result<Admission, Refused> {
        match self.circuit().cell.pass() {
            Some(pass) => Ok(pass.into()),
            None => self.decide(call),
        }
    }

    #[cold]
    fn decide(&self, call: Option<(&ToolCall, &CallInfo)>) -> Result<Admission, Refused> {
        let circuit = self.circuit();
        let may_probe = || call.is_none_or(|(call, _)| circuit.may_probe(call));
        let info = call.map(|(_, info)| info);
        let own = circuit.own(info);
        if let Some(refused) = own.as_ref().and_then(|own| own.refuses(may_probe)) {
            return Err(refused);
        }
        let (pass, transition) = circuit.with(|kept| kept.admit(may_probe))?;
        let mut passes = Admission::from(pass);
        // A listener that panics must not cost a probe's place, nor may the principal's circuit, if
        // it has changed meanwhile.
        let mut permit = Permit::new(self, Some(passes), info);
        if let Some(transition) = transition {
            self.emit(transition, info);
        }
        if let Some(own) = own {
            let admitted = own.with(|kept| kept.admit(may_probe));
            passes.own = admitted.map_err(Refused::by_principal)?.0;
        }
        permit.passes = None;
        Ok(passes)
    }

    /// Counts a refusal, and returns the error of the call.
    #[cold]
    pub(super) fn refused(&self, call: Option<&CallInfo>, refused: Refused) -> ToolError {
        self.circuit().rejected[usize::from(refused.of_principal)].fetch_add(1, Relaxed);
        if let Some(call) = call {
            self.send_state(call);
        }
        let (kind, text) = (ErrorKind::CircuitOpen, "Circuit breaker open");
        let Refused {
            retry_after, cause, ..
        } = refused;
        let error = ToolError::not_admitted(kind, text, retry_after, cause);
        match refused.of_principal {
            true => error.with_detail("refused_for", "principal"),
            false => error,
        }
    }

    /// Takes the end of an admitted call; true if it has just opened the breaker.
    pub(super) fn end(&self, passes: Admission, report: Report<'_>) -> bool {
        let Report {
            verdict, own, call, ..
        } = report;
        let cell = &self.circuit().cell;
        if own != Some(Verdict::FAILURE) && cell.ignores(passes.pass, verdict) {
            return false;
        }
        let Circuit { shared, .. } = self.circuit();
        let (transition, opens, own, epoch) = self.circuit().with(|kept| {
            let is_current = passes.pass.generation == kept.machine.generation;
            let own = own.filter(|_| is_current);
            if own == Some(Verdict::FAILURE) {
                if kept.asks().is_none() {
                    kept.epoch = shared.epochs.fetch_add(1, Relaxed);
                }
                kept.was_weak(None);
            }
            let machine = &mut kept.machine;
            if let Some(delay) = report.delay {
                machine.announced(delay.min(MAX_ANNOUNCED));
            }
            let transition = machine.record(passes.pass, verdict, report.outage);
            let opens = transition.is_some() && machine.state == BreakerState::Open;
            (transition, opens, own, kept.asks())
        });
        if let Some(transition) = transition {
            self.emit(transition, call);
        }
        if let (Some(call), Some(epoch)) = (call, epoch) {
            self.end_own(call, passes.own, own, epoch);
        }
        opens
    }

    /// Takes the end of a call for its principal alone, in an epoch in which calls ask for it.
    fn end_own(&self, call: &CallInfo, pass: Pass, verdict: Option<Verdict>, epoch: u64) {
        let circuit = self.circuit();
        let own = match verdict {
            Some(Verdict::FAILURE) => circuit.make_own(call, self.hash(), epoch),
            _ => circuit.own(Some(call)),
        };
        let record = |own: Own<'_>| own.with(|kept| kept.machine.record(pass, verdict, None));
        let Some(transition) = own.and_then(record) else {
            return;
        };
        if transition.open_for.is_some() {
            circuit.with(|kept| kept.was_weak(transition.open_for));
        }
        self.emit_of_principal(transition, call);
    }

    fn named(&self, transition: Transition) -> Transition {
        Transition {
            server: self.server().map(Arc::from),
            tool: self.tool().map(Arc::from),
            ..transition
        }
    }

    /// Emits a transition of a principal's own circuit.
    #[cold]
    fn emit_of_principal(&self, transition: Transition, call: &CallInfo) {
        let Some(whose) = call.whose() else { return };
        self.tell(&Event::PrincipalTransition {
            transition: &self.named(transition),
            principal: &whose.to_string(),
            call,
        });
    }

    fn tell(&self, event: &Event<'_>) {
        let Circuit {
            shared, audience, ..
        } = self.circuit();
        shared.listener.tell_with(Some(audience), true, event);
    }

    /// Emits a transition of this breaker, which does not name it yet. Those of servers are changes
    /// of their health.
    #[cold]
    pub(super) fn emit(&self, transition: Transition, call: Option<&CallInfo>) {
        let shared = &self.circuit().shared;
        if shared.rules().of_servers {
            return;
        }
        let transition = self.named(transition);
        self.tell(&Event::Transition {
            transition: &transition,
            call,
        });
        if let Some(subscribers) = shared.subscribers.get() {
            // Sending fails only without a subscriber.
            let _ = subscribers.send((self.0.hash(), transition));
        }
    }
}

/// An admitted call, until its end is known.
pub(super) struct Admitted {
    pub(super) breaker: Breaker,
    pub(super) info: CallInfo,
    pub(super) passes: Admission,
}

impl Admitted {
    /// Returns why the call would not be admitted now. Reserves nothing.
    #[inline]
    pub(super) fn refuses(&self) -> Option<Refused> {
        self.breaker.circuit().refuses(Some(&self.info), || true)
    }

    /// The call has a result. Forced inline: a call of it takes 39 of the 333 instructions of a
    /// success.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(super) fn ended(&self, end: End, error: Option<&ToolError>, since: Option<Instant>) {
        let succeeded = end.count == Count::Success;
        if succeeded {
            self.breaker.0.prove(&self.info);
        }
        let cell = &self.breaker.circuit().cell;
        if !(succeeded && cell.ignores(self.passes.pass, Some(Verdict::SUCCESS))) {
            self.record(end, error.and_then(ToolError::outage), since);
        }
        // A neutral result does not show that the tool exists. Comes last because a listener may
        // panic.
        if end.count != Count::Neutral {
            self.breaker.send_state(&self.info);
        }
    }

    #[inline(never)]
    fn record(&self, end: End, outage: Option<&Outage>, since: Option<Instant>) {
        let circuit = self.breaker.circuit();
        // Kept for later probes: they are chosen before inner layers have set their timeouts. A
        // call that an inner layer refused has no timeout.
        if let ms @ 1.. = self.info.limit_ms() {
            circuit.limit_ms.store(ms, Relaxed);
        }
        let settings = &circuit.shared.settings;
        let elapsed = || since.map_or(Duration::ZERO, |it| it.elapsed());
        let slow_call = settings.rules.slow_call();
        let slow = slow_call.is_some_and(|limit| elapsed() >= limit);
        let verdict = end.verdict.filter(|verdict| !(slow && verdict.answers));
        let verdict = verdict.map(|verdict| Verdict { slow, ..verdict });
        let is_failure = verdict.is_some_and(|verdict| verdict.failure);
        let lets_all_pass = || {
            let state = circuit.peek(|kept| kept.machine.state);
            matches!(
                state,
                Some(BreakerState::ForcedClosed | BreakerState::Disabled)
            )
        };
        let is_weak = is_failure && end.weak;
        let count = settings.weak_failures;
        let is_spared = match count {
            WeakFailures::Shared => false,
            // Where calls have no principals, or all of them pass, none is refused.
            WeakFailures::PerPrincipal => {
                is_weak && self.info.whose().is_some() && !lets_all_pass()
            }
            WeakFailures::Ignored => is_weak,
        };
        let own = match verdict {
            Some(_) if is_spared && count == WeakFailures::PerPrincipal => Some(Verdict::FAILURE),
            Some(verdict) if !is_failure => Some(Verdict {
                slow: false,
                ..verdict
            }),
            _ => None,
        };
        // That it was slow is known by our own clock: it counts for all, as that of a success.
        let verdict = match is_spared {
            true => slow.then_some(Verdict {
                slow,
                ..Verdict::SUCCESS
            }),
            false => verdict,
        };
        let report = Report {
            verdict,
            own,
            delay: end.delay.filter(|_| verdict.is_some_and(|v| v.failure)),
            outage,
            call: Some(&self.info),
        };
        self.breaker.end(self.passes, report);
    }

    pub(super) fn dropped(&self, how: Abandoned) {
        let circuit = self.breaker.circuit();
        let count = match self.info.is_unsent() {
            true => Count::Neutral,
            false => circuit.shared.settings.abandoned(&how, &self.info),
        };
        let since = Instant::now().checked_sub(how.pending);
        self.record(End::seen(circuit, count), None, since);
    }

    pub(super) fn panicked(&self) {
        let end = End::seen(self.breaker.circuit(), Count::Failure);
        self.record(end, None, None);
    }
}
