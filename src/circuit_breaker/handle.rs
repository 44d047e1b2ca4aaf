use std::{
    fmt,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, error::RecvError};

use super::{
    cell::Look,
    circuit::{BACKLOG, Circuit, CircuitEntry, Circuits, Shared, refusal},
    state::{Demand, Pass, Verdict},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    event::transition::{BreakerState, Transition, millis},
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
    circuits: Circuits,
    shared: Arc<Shared>,
}

impl CircuitBreakerHandle {
    pub(super) fn new(circuits: Circuits, shared: Arc<Shared>) -> Self {
        Self { circuits, shared }
    }

    /// The breaker of a call's key, made if there is none yet; the key is
    /// [known](super::CircuitBreakerBuilder::with_known_keys) from now on. Of the call only what the key is made
    /// of matters. As long as somebody holds it, it is not forgotten.
    ///
    /// If there is no place for another key, it is one that lets every call pass, and whatever is
    /// demanded of it does nothing.
    pub fn breaker(&self, call: &ToolCall) -> Breaker {
        let make = || Circuit::new(&self.shared);
        Breaker(self.circuits.get_known(&call.info(), make))
    }

    /// The breaker of a call's key, if there is one.
    pub fn find(&self, call: &ToolCall) -> Option<Breaker> {
        self.circuits.peek(&call.info()).map(Breaker)
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
        self.demand_all(Demand::Reset, false);
    }

    /// Lets every call pass from now on, also those of tools that were never called before.
    pub fn disable_all(&self) {
        self.demand_all(Demand::Disabled, true);
    }

    fn demand_all(&self, demand: Demand, disabled: bool) {
        let demanding = self.shared.demanding.lock();
        let _one_after_the_other = demanding.unwrap_or_else(PoisonError::into_inner);
        // First: a breaker that is made meanwhile sees it, or is among the entries.
        self.shared.disabled.store(disabled, Relaxed);
        for breaker in self.breakers() {
            breaker.demand(demand);
        }
    }

    /// A stream of the transitions from now on.
    ///
    /// A subscriber that falls behind by more than 256 transitions is told how many it missed; no call
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

/// One breaker: reads it, forces it, or drives it by hand without the layer.
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
pub struct Breaker(Arc<CircuitEntry>);

impl Breaker {
    fn now(&self) -> Duration {
        self.0.value().shared.now()
    }

    /// The server part of its key.
    pub fn server(&self) -> Option<&str> {
        self.0.server()
    }

    /// The tool part of its key, or what a key function picked.
    pub fn tool(&self) -> Option<&str> {
        self.0.name()
    }

    /// Its state. An open breaker stays open until a call comes after its period.
    pub fn state(&self) -> BreakerState {
        self.look().state
    }

    /// Whether a call would be refused now. A look: in a half-open breaker everybody who looks sees that
    /// a probe may run; [`admit`](Self::admit) takes its place.
    pub fn is_open(&self) -> bool {
        self.look().retry_after.is_some()
    }

    /// State and counters.
    pub fn snapshot(&self) -> BreakerSnapshot {
        let look = self.look();
        BreakerSnapshot {
            server: self.server().map(str::to_owned),
            tool: self.tool().map(str::to_owned),
            state: look.state,
            generation: look.generation,
            calls: look.tally.calls,
            failures: look.tally.failures,
            slow_calls: look.tally.slow,
            probes: look.probes,
            retry_after: look.retry_after,
            failed_total: look.failures,
            opened_total: look.opened,
            rejected_total: look.rejected,
            stale_total: look.stale,
        }
    }

    fn look(&self) -> Look {
        let circuit = self.0.value();
        circuit.cell.look(self.now(), &circuit.shared.rules)
    }

    /// Refuses every call until it is reset.
    pub fn force_open(&self) {
        self.demand(Demand::Open);
    }

    /// Lets every call pass until it is reset; results are counted, but do not open it.
    pub fn force_closed(&self) {
        self.demand(Demand::Closed);
    }

    /// Lets every call pass until it is reset, and counts nothing.
    pub fn disable(&self) {
        self.demand(Demand::Disabled);
    }

    /// Closes it, whatever its state is, and forgets what it has counted in its window. Results of calls
    /// that are in flight do not count.
    pub fn reset(&self) {
        self.demand(Demand::Reset);
    }

    fn demand(&self, demand: Demand) {
        let circuit = self.0.value();
        // It belongs to many keys: what is meant for one of them must not reach the others.
        if circuit.is_overflow {
            return;
        }
        let rules = &circuit.shared.rules;
        if let Some(change) = circuit.cell.force(demand, self.now(), rules) {
            self.0.tell(&change, None);
        }
    }

    /// Asks to make a call. The permit takes the result; dropped, it says nothing and gives a probe's
    /// place back.
    ///
    /// # Errors
    ///
    /// [`CircuitOpen`](crate::ErrorKind::CircuitOpen), with the time to come back.
    pub fn admit(&self) -> Result<Permit, ToolError> {
        match self.0.admit(None) {
            Ok(pass) => Ok(Permit {
                entry: Arc::clone(&self.0),
                pass: Some(pass),
            }),
            Err(retry_after) => {
                let mut error = refusal(None, retry_after);
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

    /// Counts a failure as of now, without a permit: in a half-open breaker as that of a probe. True if
    /// it has just opened the breaker.
    pub fn record_failure(&self) -> bool {
        self.record(Verdict::FAILURE)
    }

    fn record(&self, verdict: Verdict) -> bool {
        let circuit = self.0.value();
        let (pass, change) = circuit.cell.present(self.now(), &circuit.shared.rules);
        if let Some(change) = change {
            self.0.tell(&change, None);
        }
        self.0.record(pass, verdict, None)
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
    entry: Arc<CircuitEntry>,
    pass: Option<Pass>,
}

impl Permit {
    /// The call succeeded.
    pub fn success(mut self) {
        self.end(Verdict::SUCCESS);
    }

    /// The call failed; true if that has just opened the breaker.
    pub fn failure(mut self) -> bool {
        self.end(Verdict::FAILURE)
    }

    fn end(&mut self, verdict: Verdict) -> bool {
        let pass = self.pass.take();
        pass.is_some_and(|pass| self.entry.record(pass, verdict, None))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(Verdict::Neutral);
    }
}

crate::text::opaque_debug!({} Permit);

/// A breaker at one moment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BreakerSnapshot {
    /// The server part of its key, the first 256 bytes.
    pub server: Option<String>,
    /// The tool part of its key, or what a key function picked, the first 256 bytes.
    pub tool: Option<String>,
    /// Its state. An open breaker stays open until a call comes after its period.
    pub state: BreakerState,
    /// Counts its states.
    pub generation: u32,
    /// Results in the window, or in it when the breaker opened. With consecutive failures, their
    /// number.
    pub calls: u32,
    /// Failures among them.
    pub failures: u32,
    /// Slow calls among them.
    pub slow_calls: u32,
    /// Probes that are running.
    pub probes: usize,
    /// When a call that would be refused now should come back; `None` if it would not be. In JSON as
    /// whole milliseconds, rounded up.
    #[serde(rename = "retry_after_ms", with = "millis")]
    pub retry_after: Option<Duration>,
    /// Failures that counted, since the breaker exists. Successes are not counted: one that changes
    /// nothing writes nothing.
    pub failed_total: u64,
    /// How often it has opened.
    pub opened_total: u64,
    /// Calls that it has refused.
    pub rejected_total: u64,
    /// Successes and failures that came after a change of state, and did not count.
    pub stale_total: u64,
}

/// Shows the key short and redacted, as events do.
impl fmt::Debug for BreakerSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerSnapshot")
            .field("server", &self.server.as_deref().map(Short::name))
            .field("tool", &self.tool.as_deref().map(Short::name))
            .field("state", &self.state)
            .field("generation", &self.generation)
            .field("calls", &self.calls)
            .field("failures", &self.failures)
            .field("slow_calls", &self.slow_calls)
            .field("probes", &self.probes)
            .field("retry_after", &self.retry_after)
            .field("failed_total", &self.failed_total)
            .field("opened_total", &self.opened_total)
            .field("rejected_total", &self.rejected_total)
            .field("stale_total", &self.stale_total)
            .finish()
    }
}

/// The transitions of a layer's breakers, from [`CircuitBreakerHandle::subscribe`].
#[derive(Debug)]
pub struct Transitions(broadcast::Receiver<Transition>);

impl Transitions {
    /// The next transition; `None` when the layer, its services and its handles are gone.
    ///
    /// # Errors
    ///
    /// [`Lagged`] if this subscriber was too slow, once; then the oldest transition that is kept
    /// follows.
    ///
    /// # Cancel safety
    ///
    /// A transition is not lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Transition, Lagged>> {
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
