//! The way of a call through its breaker, from its admission to its end.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    breaker::{Breaker, Permit},
    circuit::{Circuit, End, Shared},
    state::{Pass, Recorded},
    weak::{Place, WeakFailures},
    window::Verdict,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::{ErrorKind, Outage, ToolError},
    event::{
        Event,
        transition::{BreakerState, OpenCause, Opening, Transition},
    },
    flow::Abandoned,
    outcome::{Classify, Count},
};

/// The longest delay of a failing server that makes an open period longer.
const MAX_ANNOUNCED: Duration = Duration::from_secs(300);

impl Breaker {
    /// A result, or a refusal, shows that there is this breaker: the call's listeners get its
    /// state, once.
    #[inline]
    fn introduce(&self, call: &CallInfo) {
        if self.circuit().audience.is_new_to(call) {
            self.introduce_first(call);
        }
    }

    #[cold]
    fn introduce_first(&self, call: &CallInfo) {
        let circuit = self.circuit();
        if circuit.is_overflow {
            return;
        }
        let new = circuit.audience.meet(call);
        if new.is_empty() {
            return;
        }
        let seen = self.look();
        let event = Event::Breaker {
            server: self.server(),
            tool: self.tool(),
            state: seen.state,
            generation: seen.generation,
            call,
        };
        new.iter().for_each(|listen| listen.on(&event));
    }

    /// Admits a call, or returns when to come back.
    #[inline]
    pub(super) fn admit_call(&self, call: &ToolCall) -> Result<Admission, Refused> {
        let circuit = self.circuit();
        match circuit.cell.pass() {
            Some(pass) if !circuit.has_principals.load(Relaxed) => Ok(pass.into()),
            _ => self.admit_with_principal(call),
        }
    }

    /// The same where the breaker is not closed, or principals have circuits of their own.
    #[cold]
    fn admit_with_principal(&self, call: &ToolCall) -> Result<Admission, Refused> {
        let (circuit, info) = (self.circuit(), call.info());
        let Shared {
            principals, rules, ..
        } = &*circuit.shared;
        if !circuit.has_principals.load(Relaxed) {
            return Ok(self.admit_any(Some(call))?.into());
        }
        let now = circuit.shared.now();
        // Asked first: of a refused call no probe's place has to be given back.
        let may_probe = circuit.may_probe(call);
        if let Some((retry_after, cause)) =
            principals.refuses(self.place(), &info, may_probe, now, rules)
        {
            return Err(Refused::of_principal(retry_after, cause));
        }
        let pass = self.admit_any(Some(call))?;
        // The ping goes first, and the call asks again after it.
        if self.ping_for(pass.is_probe()).is_some() {
            return Ok(pass.into());
        }
        match principals.admit(self.place(), &info, may_probe, now, rules) {
            Ok(own) => Ok(Admission { pass, own }),
            Err((retry_after, cause)) => {
                Permit::new(self, Some(pass)).end(None, None, None);
                Err(Refused::of_principal(retry_after, cause))
            }
        }
    }

    /// Where the circuits of principals at this breaker's key are.
    fn place(&self) -> Place<'_> {
        Place {
            key: self.0.hash(),
            mark: &self.circuit().has_principals,
        }
    }

    /// Forgets the circuits of principals.
    pub(super) fn forget_principals(&self) {
        self.circuit().shared.principals.forget(self.place());
    }

    /// Admits a call, or one by hand, whoever its principal is.
    pub(super) fn admit_any(&self, call: Option<&ToolCall>) -> Result<Pass, Duration> {
        match self.circuit().cell.pass() {
            Some(pass) => Ok(pass),
            None => self.admit_unless_closed(call),
        }
    }

    #[cold]
    fn admit_unless_closed(&self, call: Option<&ToolCall>) -> Result<Pass, Duration> {
        let circuit = self.circuit();
        let Circuit { cell, shared, .. } = circuit;
        let may_probe = || call.is_none_or(|call| circuit.may_probe(call));
        let (admission, transition) = cell.admit(|| shared.now(), may_probe, &shared.rules);
        if let Some(transition) = transition {
            // A listener that panics must not cost a probe's place.
            let mut permit = Permit::new(self, admission.ok());
            self.emit(transition, call.map(ToolCall::info).as_ref());
            permit.pass = None;
        }
        admission
    }

    /// The error of a call whose inner service failed to become ready. It counts as a result, if
    /// the call is admitted.
    pub(super) fn not_ready<Res>(
        &self,
        call: &ToolCall,
        error: ToolError,
        classifier: &impl Classify<Res>,
    ) -> ToolError {
        // Foreign code, and it may panic: before there is a permit.
        let outcome = classifier.classify(Err(&error));
        let info = call.info();
        match self.admit_call(call) {
            Ok(admission) => {
                let mut admitted = Admitted::later(self.clone(), info);
                admitted.admit(admission);
                admitted.ended(End::not_ready(&outcome), Some(&error), None);
                error
            }
            Err(refused) => self.refused(Some(&info), refused),
        }
    }

    /// Counts a refusal, and returns the error of the call.
    #[cold]
    pub(super) fn refused(&self, call: Option<&CallInfo>, refused: Refused) -> ToolError {
        let circuit = self.circuit();
        match refused.of_principal {
            None => circuit.cell.rejected.fetch_add(1, Relaxed),
            Some(_) => circuit.rejected_for_principals.fetch_add(1, Relaxed),
        };
        if let Some(call) = call {
            self.introduce(call);
        }
        let open = |cause| {
            let (kind, text) = (ErrorKind::CircuitOpen, "Circuit breaker open");
            ToolError::not_admitted(call, kind, text, refused.retry_after, cause)
        };
        match refused.of_principal {
            None => open(circuit.cell.cause()),
            Some(cause) => open(cause).with_detail("refused_for", "principal"),
        }
    }

    /// Takes the end of an admitted call; true if it has just opened the breaker. Only then
    /// `latency` is asked for how long the call took, if that is known.
    #[inline]
    pub(super) fn end(
        &self,
        pass: Pass,
        verdict: Option<Verdict>,
        outage: Option<&Outage>,
        latency: impl FnOnce() -> Option<Duration>,
        call: Option<&CallInfo>,
    ) -> bool {
        let Circuit { cell, shared, .. } = self.circuit();
        let recorded = cell.record(pass, verdict, outage, || shared.now(), &shared.rules);
        if pass.is_probe() {
            cell.wake();
        }
        match recorded {
            Recorded::Counted(Some(transition)) => {
                let opens = transition.to == BreakerState::Open;
                if let (true, Some(latency)) = (opens, latency()) {
                    self.note_latency(transition.generation, latency);
                }
                self.emit(transition, call);
                opens
            }
            Recorded::Counted(None) | Recorded::Stale => false,
        }
    }

    /// A failing server says when it is back: an open period ends no earlier.
    fn announced(&self, delay: Duration) {
        let Circuit { cell, shared, .. } = self.circuit();
        cell.announced(delay.min(MAX_ANNOUNCED), shared.now(), &shared.rules);
    }

    #[cold]
    fn note_latency(&self, generation: u32, latency: Duration) {
        let ms = u32::try_from(latency.as_millis()).unwrap_or(u32::MAX);
        let word = u64::from(generation) << 32 | u64::from(ms.saturating_add(1));
        self.circuit().latency.store(word, Relaxed);
    }

    /// The last time that it opened; `None` if it never has.
    ///
    /// It stays when the breaker closes or is reset, until it opens again.
    pub fn last_opening(&self) -> Option<Opening> {
        let Circuit {
            cell,
            shared,
            latency,
            ..
        } = self.circuit();
        let opened = cell.last_opening()?;
        let latency = latency.load(Relaxed);
        // A result that opens the breaker tells this a moment later.
        let is_its_own = (latency >> 32) as u32 == opened.generation;
        let ms = (latency as u32).checked_sub(1).filter(|_| is_its_own);
        Some(Opening {
            reason: opened.cause.reason,
            at: shared.origin + opened.at,
            calls: opened.cause.calls,
            failures: opened.cause.failures,
            slow_calls: opened.slow_calls,
            latency: ms.map(|ms| Duration::from_millis(ms.into())),
        })
    }

    /// Emits a transition of a principal's own circuit.
    #[cold]
    fn emit_of_principal(&self, transition: Transition, call: &CallInfo) {
        let transition = Transition {
            server: self.server().map(Arc::from),
            tool: self.tool().map(Arc::from),
            ..transition
        };
        let Circuit {
            shared, audience, ..
        } = self.circuit();
        let Some(whose) = call.whose() else { return };
        let event = Event::PrincipalTransition {
            transition: &transition,
            principal: &whose.to_string(),
            call,
        };
        shared.listener.tell_with(Some(audience), true, &event);
    }

    /// Emits a transition of this breaker, which does not name it yet.
    #[cold]
    pub(super) fn emit(&self, transition: Transition, call: Option<&CallInfo>) {
        let transition = Transition {
            server: self.server().map(Arc::from),
            tool: self.tool().map(Arc::from),
            ..transition
        };
        let Circuit {
            cell,
            shared,
            audience,
            ..
        } = self.circuit();
        let event = Event::Transition {
            transition: &transition,
            call,
        };
        cell.wake();
        shared.listener.tell_with(Some(audience), true, &event);
        if let Some(subscribers) = shared.subscribers.get() {
            // The error means that there is no subscriber now.
            let _ = subscribers.send((self.0.hash(), transition));
        }
    }
}

/// Why a call is not admitted, and when to come back.
pub(super) struct Refused {
    pub(super) retry_after: Duration,
    /// It is its principal that is refused, for this reason.
    pub(super) of_principal: Option<Option<OpenCause>>,
}

impl Refused {
    fn of_principal(retry_after: Duration, cause: Option<OpenCause>) -> Self {
        Self {
            retry_after,
            of_principal: Some(cause),
        }
    }
}

impl From<Duration> for Refused {
    fn from(retry_after: Duration) -> Self {
        Self {
            retry_after,
            of_principal: None,
        }
    }
}

/// The passes of an admitted call: that of the breaker, and that of its principal's own circuit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    pub(super) pass: Pass,
    own: Pass,
}

impl From<Pass> for Admission {
    #[inline]
    fn from(pass: Pass) -> Self {
        let own = Pass::FIRST;
        Self { pass, own }
    }
}

/// An admitted call, until its end is known.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) breaker: Breaker,
    pub(super) info: CallInfo,
    passes: Admission,
}

impl Admitted {
    /// A call that is [admitted](Self::admit) later.
    #[inline]
    pub(super) fn later(breaker: Breaker, info: CallInfo) -> Self {
        Self {
            breaker,
            info,
            passes: Pass::FIRST.into(),
        }
    }

    /// Returns why the call would not be admitted now. Reserves nothing.
    #[inline]
    pub(super) fn refuses(&self) -> Option<Refused> {
        let Circuit {
            cell,
            shared,
            has_principals,
            ..
        } = self.breaker.circuit();
        if has_principals.load(Relaxed) {
            let (now, principals) = (shared.now(), &shared.principals);
            if let Some((retry_after, cause)) =
                principals.refuses(self.breaker.place(), &self.info, true, now, &shared.rules)
            {
                return Some(Refused::of_principal(retry_after, cause));
            }
        }
        cell.refuses(|| shared.now(), &shared.rules).map(Into::into)
    }

    #[inline]
    pub(super) fn admit(&mut self, passes: Admission) {
        self.passes = passes;
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
        let circuit = self.breaker.circuit();
        let is_quiet =
            || circuit.cell.is_quiet(self.passes.pass) && !circuit.has_principals.load(Relaxed);
        if !(succeeded && is_quiet()) {
            self.record(end, error.and_then(ToolError::outage), since);
        }
        // A neutral result does not show that there is such a tool. After the verdict: a listener
        // may panic.
        if end.count != Count::Neutral {
            self.breaker.introduce(&self.info);
        }
    }

    /// Keeps the call's shortest timeout for later probes: they are chosen before the layers below
    /// have set theirs.
    fn learn_limit(&self) {
        // A call that was refused on its way has met none.
        match self.info.limit_ms() {
            0 => {}
            ms => self.breaker.circuit().limit_ms.store(ms, Relaxed),
        }
    }

    #[inline(never)]
    fn record(&self, end: End, outage: Option<&Outage>, since: Option<Instant>) {
        self.learn_limit();
        let elapsed = || since.map_or(Duration::ZERO, |since| since.elapsed());
        let shared = &self.breaker.circuit().shared;
        let verdict = shared.verdict(end, elapsed);
        // That it was slow is known by our own clock: it counts for all, as that of a success.
        let slow = verdict.filter(|verdict| verdict.slow);
        let slow = slow.map(|slow| Verdict {
            failure: false,
            ..slow
        });
        let (verdict, own) = match (verdict, end.weak, shared.weak_failures) {
            (Some(Verdict { failure: true, .. }), true, WeakFailures::Ignored) => (slow, None),
            (Some(Verdict { failure: true, .. }), true, WeakFailures::PerPrincipal)
                if self.counts_for_principal() =>
            {
                (slow, Some(Verdict::FAILURE))
            }
            (Some(Verdict::ANSWERS), ..) => (verdict, verdict),
            (Some(Verdict { failure: false, .. }), ..) => (verdict, Some(Verdict::SUCCESS)),
            (verdict, ..) => (verdict, None),
        };
        if let (Some(delay), Some(Verdict { failure: true, .. })) = (end.delay, verdict) {
            self.breaker.announced(delay);
        }
        let turned = self.end_own(own);
        let latency = || since.map(|since| since.elapsed());
        let (pass, call) = (self.passes.pass, Some(&self.info));
        self.breaker.end(pass, verdict, outage, latency, call);
        if let Some(transition) = turned {
            self.breaker.emit_of_principal(transition, &self.info);
        }
    }

    /// Returns whether a weak failure is its principal's: not where calls have none, or the breaker
    /// lets all of them pass.
    fn counts_for_principal(&self) -> bool {
        let lets_all_pass = [BreakerState::ForcedClosed, BreakerState::Disabled];
        self.info.whose().is_some() && !lets_all_pass.contains(&self.breaker.state())
    }

    /// Ends the call in its principal's circuit, if there is one, or a failure makes one.
    fn end_own(&self, verdict: Option<Verdict>) -> Option<Transition> {
        let circuit = self.breaker.circuit();
        if !circuit.has_principals.load(Relaxed) && verdict != Some(Verdict::FAILURE) {
            return None;
        }
        let Shared {
            principals, rules, ..
        } = &*circuit.shared;
        let (place, end) = (self.breaker.place(), (self.passes.own, verdict));
        principals.record(place, &self.info, end, circuit.shared.now(), rules)
    }
}

impl Admitted {
    pub(super) fn dropped(&self, how: Abandoned) {
        self.learn_limit();
        let shared = &self.breaker.circuit().shared;
        self.end_own(None);
        // A policy that panics must not cost a probe's place.
        let mut permit = Permit::new(&self.breaker, Some(self.passes.pass));
        let count = match self.info.is_unsent() {
            true => Count::Neutral,
            false => shared.abandoned(&how, &self.info),
        };
        let verdict = shared.verdict(End::seen(count), || how.pending);
        permit.end(verdict, Some(how.pending), Some(&self.info));
    }

    pub(super) fn panicked(&self) {
        self.end_own(None);
        let (pass, verdict) = (self.passes.pass, Some(Verdict::FAILURE));
        self.breaker
            .end(pass, verdict, None, || None, Some(&self.info));
    }
}
