//! The gate of one key as many calls use it at once.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use tokio::{sync::broadcast, time::Instant};

use super::gate::{Admission, Gate, Own, Share};
use crate::{
    call::ToolCall,
    event::Listener,
    kit::{
        backoff::{Jitter, Random, after_hint},
        registry::{Entry, Evict, Keep},
    },
};

/// Shared by all gates of one layer value.
pub(super) struct Settings {
    pub(super) attempts: u32,
    pub(super) default_cooldown: Duration,
    pub(super) max_wait: Duration,
    pub(super) max_cooldown: Duration,
    pub(super) text_limits: bool,
    pub(super) listener: Listener,
    pub(super) random: Random,
    pub(super) jitter: Jitter,
    pub(super) origin: Instant,
    /// How many processes share the limits.
    pub(super) processes: AtomicU32,
    /// Those who hear which keys this process knows something new of, by itself.
    pub(super) subscribers: OnceLock<broadcast::Sender<Arc<Entry<KeyGate>>>>,
}

impl Settings {
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn share(&self) -> Share {
        let processes = self.processes.load(Relaxed).max(1);
        let first = self.random.next() % u64::from(processes);
        Share {
            processes,
            first: first as u32,
        }
    }

    /// What is known by this process itself, not by texts, is for other processes too.
    fn tell(&self, entry: &Arc<Entry<KeyGate>>) {
        if let Some(subscribers) = self.subscribers.get() {
            // Who has no subscriber has nobody to tell.
            let _ = subscribers.send(Arc::clone(entry));
        }
    }

    /// This process knows by itself that the key cools down. `is_met`: a limit was met; else a
    /// success has used up what the server grants.
    pub(super) fn know(
        &self,
        entry: &Arc<Entry<KeyGate>>,
        now: Duration,
        cooldown: Duration,
        is_met: bool,
    ) {
        let gate = entry.value();
        // Of the keys beyond the bound nothing is known.
        if gate.is_overflow {
            return;
        }
        let until = now.saturating_add(cooldown);
        gate.with(|gate| {
            gate.own.until = gate.own.until.max(Some(until));
            gate.own.is_met |= is_met;
        });
        self.tell(entry);
    }

    /// A person of this process ends the cooldown.
    pub(super) fn clear(&self, entry: &Arc<Entry<KeyGate>>) {
        let is_cleared = self.subscribers.get().is_some();
        if entry.value().clear(is_cleared) {
            self.tell(entry);
        }
    }

    /// The cooldown for a hint, or for none: never shorter than the hint, and randomly a little
    /// longer if configured, so that several processes do not come back together. A hint of zero
    /// counts as one second.
    pub(super) fn cooldown(&self, hint: Option<Duration>) -> Duration {
        let hint = match hint {
            Some(Duration::ZERO) => Duration::from_secs(1),
            Some(hint) => hint,
            None => self.default_cooldown,
        };
        self.jitter.after_hint(hint, self.random.next())
    }

    /// The latest turn for a call that waits from now on; nothing is sent at the deadline itself.
    pub(super) fn latest(&self, now: Duration, call: &ToolCall) -> Duration {
        // The largest random addition to a delay does not count.
        let longest = now.saturating_add(after_hint(self.max_wait, u64::MAX));
        let deadline = call.deadline().map(|at| {
            at.saturating_duration_since(self.origin)
                .saturating_sub(Duration::from_nanos(1))
        });
        longest.min(deadline.unwrap_or(Duration::MAX))
    }

    /// The part of a cooldown that other calls share if the limit is known by text alone.
    pub(super) fn of_text(&self, cooldown: Duration) -> Option<Duration> {
        let most = self.default_cooldown.min(self.max_cooldown);
        self.text_limits.then(|| cooldown.min(most))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("attempts", &self.attempts)
            .field("default_cooldown", &self.default_cooldown)
            .field("max_wait", &self.max_wait)
            .field("max_cooldown", &self.max_cooldown)
            .field("text_limits", &self.text_limits)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

/// The value of a key in the registry.
#[derive(Debug)]
pub(super) struct KeyGate {
    /// `round << 1 | whether the gate is open`, as last published: an open gate costs one load.
    word: AtomicU64,
    gate: Mutex<Gate>,
    pub(super) settings: Arc<Settings>,
    /// Shared by all keys beyond the bound: always open.
    pub(super) is_overflow: bool,
}

impl KeyGate {
    pub(super) fn new(settings: &Arc<Settings>) -> Self {
        Self {
            word: AtomicU64::new(1),
            gate: Mutex::default(),
            settings: Arc::clone(settings),
            is_overflow: false,
        }
    }

    /// The gate of the keys beyond the bound: one limit there must not hold back all others.
    pub(super) fn overflow(settings: &Arc<Settings>) -> Self {
        Self {
            is_overflow: true,
            ..Self::new(settings)
        }
    }

    /// The present round, if the gate is open.
    #[inline]
    pub(super) fn open_round(&self) -> Option<u32> {
        let word = self.word.load(Acquire);
        (word & 1 == 1).then_some((word >> 1) as u32)
    }

    /// Gives a call its turn, unless that would come after `latest`; also returns the round.
    pub(super) fn admit(&self, now: Duration, latest: Duration) -> (Admission, u32) {
        self.with(|gate| (gate.admit(now, latest), gate.round()))
    }

    /// Returns whether a turn of `round` still holds.
    pub(super) fn holds(&self, round: u32) -> bool {
        (self.word.load(Acquire) >> 1) as u32 == round
    }

    pub(super) fn give_back(&self, round: u32, turn: Duration) {
        self.with(|gate| gate.give_back(round, turn));
    }

    /// A call of `round` has met the limit.
    pub(super) fn limit(&self, now: Duration, round: u32, cooldown: Duration) {
        if !self.is_overflow {
            self.with(|gate| {
                gate.share = self.settings.share();
                gate.limit(now, round, cooldown);
            });
        }
    }

    /// A success has used up what the server grants.
    pub(super) fn cool(&self, now: Duration, cooldown: Duration) {
        if !self.is_overflow {
            self.with(|gate| {
                gate.share = self.settings.share();
                gate.cool(now, cooldown);
            });
        }
    }

    /// How long the cooldown still lasts, if one is under way.
    pub(super) fn remaining(&self, now: Duration) -> Option<Duration> {
        self.lock().remaining(now)
    }

    /// Ends the cooldown, and the return after it; whether there was one. `is_news`: it is to be
    /// told.
    pub(super) fn clear(&self, is_news: bool) -> bool {
        self.with(|gate| {
            let was_closed = gate.clear();
            gate.own = Own {
                is_cleared: is_news && was_closed || gate.own.is_cleared,
                ..Own::default()
            };
            was_closed
        })
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Gate) -> T) -> T {
        let mut gate = self.lock();
        let result = work(&mut gate);
        let word = u64::from(gate.round()) << 1 | u64::from(gate.is_open());
        self.word.store(word, Release);
        result
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Evict for KeyGate {
    const IS_KNOWN: bool = false;

    fn keep(&self) -> Keep {
        let (gate, now) = (self.lock(), self.settings.now());
        if gate.remaining(now).is_some() {
            Keep::Always
        } else if gate.closed_until(now).is_some() {
            Keep::IfPossible
        } else {
            Keep::IfUsed
        }
    }
}
