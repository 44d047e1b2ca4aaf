use std::sync::{Arc, atomic::Ordering::Relaxed};

use tokio::{sync::broadcast, time::Instant};

use super::{
    breaker::Breaker,
    cell::Kept,
    circuit::{BACKLOG, Circuit, Shared},
    snapshot::BreakerSnapshot,
};
use crate::{
    call::{CallInfo, ToolCall},
    event::transition::{BreakerState, Transition, TransitionReason},
    key::Key,
    kit::{lagged::Lagged, registry::Registry},
    lock::lock,
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
    /// Returns the breaker of a call, for the call to keep until it has ended.
    #[inline]
    pub(crate) fn breaker_for(&self, call: &CallInfo) -> Breaker {
        Breaker(
            self.circuits
                .entry(call, || Circuit::new(&self.shared, false)),
        )
    }

    /// Returns how many calls shared one state because the function of [`Key::by`](crate::Key::by)
    /// picked an empty text for them. The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.circuits.inert().calls()
    }

    /// Returns the breaker of a call's key, made if there is none yet; the key is
    /// [known](crate::Keys) from now on. Of the call only what the key is made of matters. It is
    /// not forgotten as long as it is held.
    ///
    /// When no place is left for another key, returns a breaker that lets every call pass and
    /// cannot be forced.
    pub fn breaker(&self, call: &ToolCall) -> Breaker {
        let make = || Circuit::new(&self.shared, false);
        Breaker(self.circuits.get_known(&call.info(), make))
    }

    /// Returns the breaker of a call's key, if there is one.
    pub fn find(&self, call: &ToolCall) -> Option<Breaker> {
        self.circuits.peek(&call.info()).map(Breaker)
    }

    /// Returns whether the breaker of a call's key is open, and its period is not over, or forced
    /// open: every call is refused. For lists of tools that leave such a tool out. What is refused
    /// to [single principals](Breaker::principals) does not matter.
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
        // An open breaker may start a probe once its period is over.
        let look =
            |Kept { machine, .. }: &mut Kept| machine.state.is_open() && machine.look().is_err();
        let is_refusing = |breaker: Breaker| breaker.circuit().peek(look);
        self.find(call).and_then(is_refusing) == Some(true)
    }

    /// Returns the end of the first open period that ends after `since`, of all breakers. Tools may
    /// be called again then. No transition reports that until a call comes. `None` if no breaker is
    /// open. The moment may be past.
    pub fn next_period_end(&self, since: Instant) -> Option<Instant> {
        let since = since.saturating_duration_since(self.shared.origin);
        let entries = self.circuits.entries();
        let end = |kept: &mut Kept| kept.machine.period_end(since);
        let ends = entries.iter().filter_map(|entry| entry.value().peek(end)?);
        self.shared.origin.checked_add(ends.min()?)
    }

    /// Returns every breaker, in the order of server and tool.
    pub fn breakers(&self) -> Vec<Breaker> {
        self.circuits.entries().into_iter().map(Breaker).collect()
    }

    /// Returns every breaker's state and counters, in the order of server and tool.
    pub fn snapshot(&self) -> Vec<BreakerSnapshot> {
        let refused = self.shared.refused();
        let snapshot = |breaker: Breaker| breaker.snapshot_with(&refused);
        self.breakers().into_iter().map(snapshot).collect()
    }

    /// Returns the number of breakers; never more than the layer's bound.
    pub fn len(&self) -> usize {
        self.circuits.len()
    }

    /// Returns whether there is none yet.
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
        let forcing = lock(&self.shared.forcing);
        // First: a breaker that is made meanwhile sees it, or is among the entries.
        let disabled = state == BreakerState::Disabled;
        self.shared.disabled.store(disabled, Relaxed);
        let turn = |breaker: Breaker| {
            let transition = breaker.turn(state, TransitionReason::Forced)?;
            Some((breaker, transition))
        };
        let turned: Vec<_> = self.breakers().into_iter().filter_map(turn).collect();
        // A listener may force all breakers itself.
        drop(forcing);
        for (breaker, transition) in turned {
            breaker.emit(transition, None);
        }
    }

    /// Returns a stream of the transitions from now on.
    ///
    /// A subscriber that falls behind by more than 256 transitions gets the number of those it
    /// missed; no call ever waits for it.
    pub fn subscribe(&self) -> Transitions {
        let make = || broadcast::Sender::new(BACKLOG);
        let receiver = self.shared.subscribers.get_or_init(make).subscribe();
        let key = self.circuits.key().clone();
        Transitions { receiver, key }
    }
}

/// # For programs that share states
///
/// One process sends another the state of a breaker with the text of its key, which is equal in
/// every process. `tower-toolcall-redis` does this.
///
/// ```
/// use tower_toolcall::{ToolCall, circuit_breaker::CircuitBreakerLayer};
///
/// let [here, there] = [(); 2].map(|()| CircuitBreakerLayer::new().handle());
/// let search = here.breaker(&ToolCall::new("search").with_server("docs"));
/// let text = here.key_text(&search).unwrap();
/// let same = there.breaker_of_text(&text).unwrap();
/// assert_eq!((same.server(), same.tool()), (Some("docs"), Some("search")));
/// ```
impl CircuitBreakerHandle {
    /// Returns the key that its breakers are kept by.
    pub fn key(&self) -> &Key {
        self.circuits.key()
    }

    /// Returns the text of a breaker's key. `None`: a name in it is longer than 256 bytes or has
    /// the character U+001F, or the key is that of a session or a principal.
    ///
    /// Names of servers and tools, and texts that a function picks, stand in it as they are; of
    /// [`Key::hashed`] the hash does.
    pub fn key_text(&self, breaker: &Breaker) -> Option<String> {
        let parts = (breaker.server(), breaker.tool());
        self.key().text_of(breaker.hash(), parts)
    }

    /// Returns the breaker of a key by its [text](Self::key_text), if there is one.
    pub fn find_text(&self, text: &str) -> Option<Breaker> {
        let (hash, _) = self.key().read_text(text)?;
        self.circuits.find(hash).map(Breaker)
    }

    /// Returns the breaker of a key by its [text](Self::key_text), made if there is none yet. That
    /// does not make the key [known](crate::Keys). `None` if the text is not that of a key, or if
    /// no place is left.
    pub fn breaker_of_text(&self, text: &str) -> Option<Breaker> {
        let (hash, parts) = self.key().read_text(text)?;
        let make = || Circuit::new(&self.shared, false);
        let breaker = Breaker(self.circuits.of_parts(hash, parts, make));
        (!breaker.is_overflow()).then_some(breaker)
    }
}

crate::text::debug_fields! { {} |this| CircuitBreakerHandle { rules: this.shared.rules(), .. } }

/// The transitions of a layer's breakers, from [`CircuitBreakerHandle::subscribe`].
#[derive(Debug)]
pub struct Transitions {
    receiver: broadcast::Receiver<(u64, Transition)>,
    key: Key,
}

impl Transitions {
    /// Waits for the next transition; `None` when the layer, its services and its handles are gone.
    ///
    /// # Errors
    ///
    /// [`Lagged`] once, if this subscriber was too slow; then the oldest transition that is still
    /// kept follows.
    ///
    /// # Cancel safety
    ///
    /// A transition is not lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Transition, Lagged>> {
        let next = self.next_of_key().await?;
        Some(next.map(|(_, transition)| transition))
    }

    /// Waits as [`next`](Self::next), with the [text](CircuitBreakerHandle::key_text) of its key.
    ///
    /// # Errors
    ///
    /// [`Lagged`], as of [`next`](Self::next).
    ///
    /// # Cancel safety
    ///
    /// A transition is not lost when the future is dropped.
    pub async fn next_of_key(&mut self) -> Option<Result<(Option<String>, Transition), Lagged>> {
        let next = Lagged::or_closed(self.receiver.recv().await)?;
        Some(next.map(|(hash, transition)| {
            let parts = (transition.server.as_deref(), transition.tool.as_deref());
            (self.key.text_of(hash, parts), transition)
        }))
    }
}
