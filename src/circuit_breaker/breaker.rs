use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use super::{
    cell::Kept,
    circuit::{Circuit, Report},
    snapshot::BreakerSnapshot,
    state::{Admission, Pass},
    weak::{PrincipalRefused, Refusals},
    window::Verdict,
};
use crate::{
    call::CallInfo,
    error::ToolError,
    event::transition::{BreakerState, Transition, TransitionReason},
    kit::registry::Entry,
    text::Short,
};

/// The longest addition to a period that is taken over.
const MAX_JITTER: Duration = Duration::from_secs(3600);

/// One breaker, to be read, forced, or used by hand without the layer.
///
/// ```
/// use tower_toolcall::{ToolCall, circuit_breaker::CircuitBreakerLayer};
///
/// let breaker = CircuitBreakerLayer::new().handle().breaker(&ToolCall::new("search"));
/// for n in 1..=5 {
///     assert!(!breaker.is_open());
///     let just_opened = breaker.record_failure();
///     assert_eq!(just_opened, n == 5);
/// }
/// assert!(breaker.admit().is_err());
/// ```
#[derive(Clone)]
pub struct Breaker(pub(super) Arc<Entry<Circuit>>);

impl Breaker {
    #[inline]
    pub(super) fn circuit(&self) -> &Circuit {
        self.0.value()
    }

    /// Returns the hash that identifies its key in this process.
    pub(super) fn hash(&self) -> u64 {
        self.0.hash()
    }

    /// Returns the server part of its key, the first 256 bytes.
    pub fn server(&self) -> Option<&str> {
        self.0.server()
    }

    /// Returns the tool part of its key, or the result of a key function, the first 256 bytes.
    pub fn tool(&self) -> Option<&str> {
        self.0.name()
    }

    /// Returns its state. An open breaker stays open until a call comes after its period.
    pub fn state(&self) -> BreakerState {
        self.look().state
    }

    /// Returns whether a call would be refused now. Reserves nothing: in a half-open breaker every
    /// caller sees that a probe may run, and [`admit`](Self::admit) takes its place.
    pub fn is_open(&self) -> bool {
        self.look().retry_after.is_some()
    }

    /// Returns state and counters.
    pub fn snapshot(&self) -> BreakerSnapshot {
        self.snapshot_with(&self.refusals())
    }

    pub(super) fn snapshot_with(&self, refused: &Refusals) -> BreakerSnapshot {
        BreakerSnapshot {
            server: self.server().map(str::to_owned),
            tool: self.tool().map(str::to_owned),
            principals_refused: self.own_of(refused).len(),
            ..self.look()
        }
    }

    /// State and counters, without the key.
    pub(super) fn look(&self) -> BreakerSnapshot {
        let circuit = self.circuit();
        // Without a machine it is closed, and as new.
        let seen = circuit.peek(|kept| kept.machine.snapshot());
        let [of_all, of_principals] = circuit.rejected.each_ref().map(|n| n.load(Relaxed));
        BreakerSnapshot {
            principals_rejected_total: of_principals,
            rejected_total: of_all + of_principals,
            ..seen.unwrap_or_default()
        }
    }

    /// Returns the principals for whom alone it refuses calls now, after their [weak
    /// failures](super::WeakFailures), in the order of their names.
    ///
    /// ```
    /// use tower_toolcall::{ToolCall, circuit_breaker::CircuitBreakerLayer};
    ///
    /// let handle = CircuitBreakerLayer::new().handle();
    /// for refused in handle.breaker(&ToolCall::new("search")).principals() {
    ///     println!("{} for {:?}", refused.principal, refused.retry_after);
    /// }
    /// ```
    pub fn principals(&self) -> Vec<PrincipalRefused> {
        let mut own = self.own_of(&self.refusals()).to_vec();
        own.sort_by(|a, b| a.principal.cmp(&b.principal));
        own
    }

    /// Returns all refused principals, if calls of this breaker ask for them.
    fn refusals(&self) -> Refusals {
        let Circuit { cell, shared, .. } = self.circuit();
        let asks = cell.asks(|| shared.now()).map(|_| shared.refused());
        asks.unwrap_or_default()
    }

    /// Returns those of the refused principals that are this breaker's and in force.
    fn own_of<'a>(&self, refused: &'a Refusals) -> &'a [PrincipalRefused] {
        let Circuit { cell, shared, .. } = self.circuit();
        let epoch = cell.asks(|| shared.now());
        let own = epoch.and_then(|epoch| refused.get(&(self.hash(), epoch)));
        own.map_or(&[], Vec::as_slice)
    }

    /// Refuses every call until it is reset.
    pub fn force_open(&self) {
        self.force(BreakerState::ForcedOpen);
    }

    /// Lets every call pass until it is reset; results are counted, but do not open it.
    pub fn force_closed(&self) {
        self.force(BreakerState::ForcedClosed);
    }

    /// Lets every call pass until it is reset, and counts nothing.
    pub fn disable(&self) {
        self.force(BreakerState::Disabled);
    }

    /// Closes it, whatever its state is, and forgets what it has counted in its window. Results of
    /// calls that are in flight do not count.
    pub fn reset(&self) {
        self.force(BreakerState::Closed);
    }

    fn force(&self, state: BreakerState) {
        self.emit_any(self.turn(state, TransitionReason::Forced));
    }

    /// Forces a state, which lets refused principals in. The transition is not emitted yet.
    pub(super) fn turn(&self, state: BreakerState, reason: TransitionReason) -> Option<Transition> {
        self.change(|kept| {
            kept.forget_principals();
            // A closed breaker keeps what it has counted when another process closes.
            let is_news = reason == TransitionReason::Forced || kept.machine.state != state;
            is_news.then(|| kept.machine.force(state, reason))?
        })
    }

    /// Takes over an opening of another process, for `remaining` from now on: calls are refused
    /// without a failure here. An open period never gets shorter by it, and a forced state stays.
    /// At most the longest period of this layer's settings.
    pub fn adopt(&self, remaining: Duration) {
        self.adopt_later(remaining, Duration::ZERO);
    }

    /// Takes over an opening as [`adopt`](Self::adopt) does; its probe is later by `jitter`, at
    /// most an hour, also beyond the longest period. With a random one, processes do not probe
    /// together.
    pub fn adopt_later(&self, remaining: Duration, jitter: Duration) {
        self.emit_any(self.change(|Kept { machine, .. }| {
            let period = machine.rules.bounded(remaining);
            machine.adopt(period.saturating_add(jitter.min(MAX_JITTER)))
        }));
    }

    /// Takes over a state that another process reports: closed, or what a handle made of it there.
    /// [`Closed`](BreakerState::Closed) ends an open period and a forced state. What is refused to
    /// [single principals](Self::principals) ends with each of them. `Open` and `HalfOpen` change
    /// nothing: an opening is taken over by [`adopt`](Self::adopt).
    pub fn adopt_state(&self, state: BreakerState) {
        if !matches!(state, BreakerState::Open | BreakerState::HalfOpen) {
            self.emit_any(self.turn(state, TransitionReason::Shared));
        }
    }

    fn change(&self, work: impl FnOnce(&mut Kept) -> Option<Transition>) -> Option<Transition> {
        // It belongs to many keys, and only one of them is meant.
        (!self.0.is_overflow()).then(|| self.circuit().with(work))?
    }

    fn emit_any(&self, transition: Option<Transition>) {
        if let Some(transition) = transition {
            self.emit(transition, None);
        }
    }

    /// Asks to make a call. The permit takes the result; if it is dropped, the call does not count,
    /// and a probe's place is free again.
    ///
    /// # Errors
    ///
    /// [`CircuitOpen`](crate::ErrorKind::CircuitOpen), with a `retry_after`.
    pub fn admit(&self) -> Result<Permit, ToolError> {
        match self.admit_call(None) {
            Ok(passes) => Ok(Permit::new(self, Some(passes), None)),
            Err(refused) => {
                let mut error = self.refused(None, refused);
                if let Some(tool) = self.tool() {
                    error = error.with_tool(tool);
                }
                if let Some(server) = self.server() {
                    error = error.with_server(server);
                }
                Err(error)
            }
        }
    }

    /// Counts a success as of now, without a permit: in a half-open breaker as that of a probe.
    pub fn record_success(&self) {
        self.record(Verdict::SUCCESS);
    }

    /// Counts a failure as of now, without a permit: in a half-open breaker as that of a probe.
    /// Returns whether it has just opened the breaker.
    pub fn record_failure(&self) -> bool {
        self.record(Verdict::FAILURE)
    }

    fn record(&self, verdict: Verdict) -> bool {
        let (pass, transition) = self.circuit().with(|kept| {
            let transition = kept.machine.end_period();
            (Pass::of(kept.machine.generation), transition)
        });
        if let Some(transition) = transition {
            self.emit(transition, None);
        }
        self.end(pass.into(), Report::of(verdict))
    }
}

crate::text::debug_fields! {
    {} |this| Breaker {
        server: this.server().map(Short::name),
        tool: this.tool().map(Short::name),
        state: this.state(),
        ..
    }
}

/// An admission by [`Breaker::admit`].
#[must_use = "a permit that is dropped says nothing about the call"]
pub struct Permit {
    pub(super) breaker: Breaker,
    /// Given back by the drop.
    pub(super) passes: Option<Admission>,
    /// Without it only the pass of the breaker is given back.
    call: Option<CallInfo>,
}

impl Permit {
    pub(super) fn new(
        breaker: &Breaker,
        passes: Option<Admission>,
        call: Option<&CallInfo>,
    ) -> Self {
        let (breaker, call) = (breaker.clone(), call.cloned());
        Self {
            breaker,
            passes,
            call,
        }
    }

    /// Records a success of the call.
    pub fn success(mut self) {
        self.end(Report::of(Verdict::SUCCESS));
    }

    /// Records a failure of the call. Returns whether that has just opened the breaker.
    pub fn failure(mut self) -> bool {
        self.end(Report::of(Verdict::FAILURE))
    }

    fn end(&mut self, report: Report<'_>) -> bool {
        let (passes, call) = (self.passes.take(), self.call.take());
        let call = call.as_ref();
        passes.is_some_and(|passes| self.breaker.end(passes, Report { call, ..report }))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(Report::default());
    }
}

crate::text::debug_fields! { {} |_| Permit { .. } }
