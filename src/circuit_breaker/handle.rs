use std::{
    fmt,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::Instant,
};

use super::{
    circuit::{BACKLOG, Circuit, Shared},
    snapshot::BreakerSnapshot,
    state::Pass,
    weak::PrincipalRefused,
    window::Verdict,
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    event::transition::{BreakerState, Transition, TransitionReason},
    kit::registry::{Entry, Registry},
    text::Short,
};

/// Reads the breakers of a layer, forces them, and subscribes to them.
///
/// Cheap to clone. Keeps working when the layer and its services are gone.
///
/// ```
/// use tower_toolcall::{ToolCall, circuit_breaker::CircuitBreakerLayer};
///
/// let layer = CircuitBreakerLayer::new();
/// let handle = layer.handle();
///
/// let search = handle.breaker(&ToolCall::new("search").with_server("docs"));
/// search.force_open();
/// assert!(search.is_open());
/// search.reset();
/// println!("{}", serde_json::to_string_pretty(&handle.snapshot()).unwrap());
/// ```
#[derive(Clone)]
pub struct CircuitBreakerHandle {
    pub(super) circuits: Registry<Circuit>,
    pub(super) shared: Arc<Shared>,
}

impl CircuitBreakerHandle {
    /// The breaker of a call, for the call to keep until it has ended.
    #[inline]
    pub(crate) fn keep(&self, call: &CallInfo) -> Breaker {
        Breaker(self.circuits.keep(call, || Circuit::new(&self.shared)))
    }

    /// Returns the breaker that lets every call pass and records nothing.
    pub(crate) fn overflow(&self) -> Breaker {
        Breaker(Arc::clone(self.circuits.overflow()))
    }

    /// Returns how many calls shared one state because the function of [`Key::by`](crate::Key::by) picked an empty text for them.
    /// The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.circuits.inert().calls()
    }

    /// The breaker of a call's key, made if there is none yet; the key is
    /// [known](crate::Keys) from now on. Of the call only what the key is made
    /// of matters. It is not forgotten as long as it is held.
    ///
    /// If there is no place for another key, it is one that lets every call pass and cannot be forced.
    pub fn breaker(&self, call: &ToolCall) -> Breaker {
        let make = || Circuit::new(&self.shared);
        Breaker(self.circuits.get_known(&call.info(), make))
    }

    /// The breaker of a call's key, if there is one.
    pub fn find(&self, call: &ToolCall) -> Option<Breaker> {
        self.circuits.peek(&call.info()).map(Breaker)
    }

    /// Whether the breaker of a call's key is open, and its period is not over, or forced open: every call is refused. For lists
    /// of tools that leave such a tool out. What is refused to [single principals](Breaker::principals) does not matter.
    ///
    /// Asking makes no breaker, takes no probe's place and counts no refusal.
    ///
    /// ```
    /// use tower_toolcall::{ToolCall, circuit_breaker::CircuitBreakerLayer};
    ///
    /// let handle = CircuitBreakerLayer::new().handle();
    /// let search = ToolCall::new("search").with_server("docs");
    /// assert!(!handle.is_refusing(&search) && handle.is_empty());
    /// handle.breaker(&search).force_open();
    /// assert!(handle.is_refusing(&search));
    /// ```
    pub fn is_refusing(&self, call: &ToolCall) -> bool {
        let seen = self.find(call).map(|breaker| breaker.look());
        seen.is_some_and(|seen| {
            // In an open breaker whose period is over a probe may run.
            seen.state.is_open() && seen.retry_after.is_some()
        })
    }

    /// When the first open period ends after `since`, of all breakers: tools may be called again then, which no transition tells until a call
    /// comes. `None` if none is open. The moment may be past.
    pub fn next_period_end(&self, since: Instant) -> Option<Instant> {
        let since = since.saturating_duration_since(self.shared.origin);
        let entries = self.circuits.entries();
        let rests = entries
            .iter()
            .filter_map(|e| e.value().cell.rest(since, &self.shared.rules));
        Some(self.shared.origin + since + rests.min()?)
    }

    /// Every breaker, in the order of server and tool.
    pub fn breakers(&self) -> Vec<Breaker> {
        let mut entries = self.circuits.entries();
        entries.sort_by(|a, b| (a.server(), a.name()).cmp(&(b.server(), b.name())));
        entries.into_iter().map(Breaker).collect()
    }

    /// Every breaker's state and counters, in the order of server and tool.
    pub fn snapshot(&self) -> Vec<BreakerSnapshot> {
        self.breakers().iter().map(Breaker::snapshot).collect()
    }

    /// The number of breakers; never more than the layer's bound.
    pub fn len(&self) -> usize {
        self.circuits.len()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes every breaker and forgets what it has counted in its window. Takes back
    /// [`disable_all`](Self::disable_all).
    pub fn reset_all(&self) {
        self.force_all(BreakerState::Closed);
    }

    /// Lets every call pass from now on, including those of tools that were never called before.
    pub fn disable_all(&self) {
        self.force_all(BreakerState::Disabled);
    }

    fn force_all(&self, state: BreakerState) {
        let forcing = self.shared.forcing.lock();
        let _one_after_the_other = forcing.unwrap_or_else(PoisonError::into_inner);
        // First: a breaker that is made meanwhile sees it, or is among the entries.
        let disabled = state == BreakerState::Disabled;
        self.shared.disabled.store(disabled, Relaxed);
        for breaker in self.breakers() {
            breaker.force(state);
        }
    }

    /// A stream of the transitions from now on.
    ///
    /// A subscriber that falls behind by more than 256 transitions gets the number of those it missed; no call
    /// ever waits for it.
    pub fn subscribe(&self) -> Transitions {
        let make = || broadcast::Sender::new(BACKLOG);
        Transitions(self.shared.subscribers.get_or_init(make).subscribe())
    }
}

impl fmt::Debug for CircuitBreakerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreakerHandle")
            .field("rules", &self.shared.rules)
            .finish_non_exhaustive()
    }
}

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

    /// Returns what tells its key from others, in this process.
    pub(crate) fn hash(&self) -> u64 {
        self.0.hash()
    }

    /// The server part of its key, the first 256 bytes.
    pub fn server(&self) -> Option<&str> {
        self.0.server()
    }

    /// The tool part of its key, or the result of a key function, the first 256 bytes.
    pub fn tool(&self) -> Option<&str> {
        self.0.name()
    }

    /// Its state. An open breaker stays open until a call comes after its period.
    pub fn state(&self) -> BreakerState {
        self.look().state
    }

    /// Whether a call would be refused now. Reserves nothing: in a half-open breaker every caller sees that
    /// a probe may run, and [`admit`](Self::admit) takes its place.
    pub fn is_open(&self) -> bool {
        self.look().retry_after.is_some()
    }

    /// State and counters.
    pub fn snapshot(&self) -> BreakerSnapshot {
        BreakerSnapshot {
            server: self.server().map(str::to_owned),
            tool: self.tool().map(str::to_owned),
            principals_refused: self.principals().len(),
            ..self.look()
        }
    }

    /// State and counters, without the key.
    pub(super) fn look(&self) -> BreakerSnapshot {
        let Circuit { cell, shared, .. } = self.circuit();
        let mut seen = cell.snapshot(shared.now(), &shared.rules);
        let of_principals = self.circuit().rejected_for_principals.load(Relaxed);
        seen.principals_rejected_total = of_principals;
        seen.rejected_total += of_principals;
        seen
    }

    /// The principals for whom alone it refuses calls now, after [weak failures](super::WeakFailures) of theirs, in the order of
    /// their names.
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
        let Shared {
            principals, rules, ..
        } = &*self.circuit().shared;
        principals.refused(self.0.hash(), self.circuit().shared.now(), rules)
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

    /// Closes it, whatever its state is, and forgets what it has counted in its window. Results of calls
    /// that are in flight do not count.
    pub fn reset(&self) {
        self.force(BreakerState::Closed);
    }

    fn force(&self, state: BreakerState) {
        self.forget_principals();
        self.take_over(|Circuit { cell, shared, .. }| {
            cell.force(state, TransitionReason::Forced, shared.now(), &shared.rules)
        });
    }

    /// Takes over an opening of another process, for `remaining` from now on: calls are refused without a failure here. An open
    /// period never gets shorter by it, and a forced state stays. At most the longest period of this layer's settings.
    pub fn adopt(&self, remaining: Duration) {
        self.adopt_with_grace(remaining, Duration::ZERO);
    }

    /// The same, and for so long beyond the longest period too.
    pub(crate) fn adopt_with_grace(&self, remaining: Duration, grace: Duration) {
        self.take_over(|Circuit { cell, shared, .. }| {
            let period = shared.rules.bounded(remaining).saturating_add(grace);
            cell.adopt(period, shared.now(), &shared.rules)
        });
    }

    /// Another process sends a probe: if this breaker is open, it stays so for at least `remaining`, so that one process probes for
    /// all. At most the longest period of this layer's settings.
    pub fn postpone(&self, remaining: Duration) {
        self.postpone_with_grace(remaining, Duration::ZERO);
    }

    /// The same, and for so long beyond the longest period too.
    pub(crate) fn postpone_with_grace(&self, remaining: Duration, grace: Duration) {
        let Circuit { cell, shared, .. } = self.circuit();
        let period = shared.rules.bounded(remaining).saturating_add(grace);
        cell.postpone(period, shared.now(), &shared.rules);
    }

    /// Takes over a closing of another process: an [adopted](Self::adopt) opening ends; one that results of this process led
    /// to may begin its probes at once.
    pub fn release(&self) {
        self.take_over(|Circuit { cell, shared, .. }| cell.release(shared.now(), &shared.rules));
    }

    pub(super) fn take_over(&self, work: impl FnOnce(&Circuit) -> Option<Transition>) {
        // It belongs to many keys, and only one of them is meant.
        if self.circuit().is_overflow {
            return;
        }
        if let Some(transition) = work(self.circuit()) {
            self.emit(transition, None);
        }
    }

    /// Asks to make a call. The permit takes the result; if it is dropped, the call does not count, and a probe's
    /// place is free again.
    ///
    /// # Errors
    ///
    /// [`CircuitOpen`](crate::ErrorKind::CircuitOpen), with a `retry_after`.
    pub fn admit(&self) -> Result<Permit, ToolError> {
        match self.admit_any(None) {
            Ok(pass) => Ok(Permit::new(self, Some(pass))),
            Err(retry_after) => {
                let mut error = self.refused(None, retry_after.into());
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

    /// Counts a failure as of now, without a permit: in a half-open breaker as that of a probe. Returns whether
    /// it has just opened the breaker.
    pub fn record_failure(&self) -> bool {
        self.record(Verdict::FAILURE)
    }

    fn record(&self, verdict: Verdict) -> bool {
        let Circuit { cell, shared, .. } = self.circuit();
        let (pass, transition) = cell.present(shared.now(), &shared.rules);
        if let Some(transition) = transition {
            self.emit(transition, None);
        }
        self.end(pass, Some(verdict), None, || None, None)
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("server", &self.server().map(Short::name))
            .field("tool", &self.tool().map(Short::name))
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// An admission by [`Breaker::admit`].
#[must_use = "a permit that is dropped says nothing about the call"]
pub struct Permit {
    breaker: Breaker,
    /// Given back by the drop.
    pub(super) pass: Option<Pass>,
}

impl Permit {
    pub(super) fn new(breaker: &Breaker, pass: Option<Pass>) -> Self {
        let breaker = breaker.clone();
        Self { breaker, pass }
    }

    /// The call succeeded.
    pub fn success(mut self) {
        self.end(Some(Verdict::SUCCESS), None, None);
    }

    /// The call failed. Returns whether that has just opened the breaker.
    pub fn failure(mut self) -> bool {
        self.end(Some(Verdict::FAILURE), None, None)
    }

    /// Counts the end of a ping, whose failure is part of the outage that goes on.
    pub(super) fn end_ping(&mut self, verdict: Verdict, call: &CallInfo) {
        if let Some(pass) = self.pass.take() {
            let outage = self.breaker.circuit().cell.outage();
            let outage = outage.as_ref();
            self.breaker
                .end(pass, Some(verdict), outage, || None, Some(call));
        }
    }

    pub(super) fn end(
        &mut self,
        verdict: Option<Verdict>,
        latency: Option<Duration>,
        call: Option<&CallInfo>,
    ) -> bool {
        let pass = self.pass.take();
        pass.is_some_and(|pass| self.breaker.end(pass, verdict, None, || latency, call))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(None, None, None);
    }
}

crate::text::opaque_debug!({} Permit);

/// The transitions of a layer's breakers, from [`CircuitBreakerHandle::subscribe`].
#[derive(Debug)]
pub struct Transitions(broadcast::Receiver<(u64, Transition)>);

impl Transitions {
    /// The next transition; `None` when the layer, its services and its handles are gone.
    ///
    /// # Errors
    ///
    /// [`Lagged`] once, if this subscriber was too slow; then the oldest transition that is still kept
    /// follows.
    ///
    /// # Cancel safety
    ///
    /// A transition is not lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Transition, Lagged>> {
        let next = self.next_of_key().await?;
        Some(next.map(|(_, transition)| transition))
    }

    /// The next one, with what tells its breaker's key from others in this process.
    pub(crate) async fn next_of_key(&mut self) -> Option<Result<(u64, Transition), Lagged>> {
        match self.0.recv().await {
            Ok(transition) => Some(Ok(transition)),
            Err(RecvError::Lagged(missed)) => Some(Err(Lagged { missed })),
            Err(RecvError::Closed) => None,
        }
    }
}

/// A subscriber was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lagged {
    /// How many transitions it missed.
    pub missed: u64,
}

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missed {} transitions", self.missed)
    }
}

impl std::error::Error for Lagged {}
