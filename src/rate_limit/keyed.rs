//! The gate of one key, shared by many calls.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use tokio::{sync::broadcast, time::Instant};

use super::gate::{Admission, Gate, MAX_COOLDOWN, Own, Share};
use crate::{
    call::ToolCall,
    config::{ConfigError, refuse_if},
    event::Listener,
    kit::{
        attempts,
        backoff::{Jitter, Random, after_hint},
        registry::{Entry, Evict, Eviction},
    },
    lock::lock,
};

/// The settings of a layer.
#[derive(Clone)]
pub struct Settings {
    pub(super) attempts: u32,
    pub(super) waits: bool,
    /// `None` if it was not set.
    pub(super) default_cooldown: Option<Duration>,
    pub(super) max_wait: Duration,
    pub(super) max_cooldown: Option<Duration>,
    pub(super) text_limits: bool,
    pub(super) seed: Option<u64>,
    pub(super) jitter: Jitter,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            attempts: 3,
            waits: true,
            default_cooldown: None,
            max_wait: Duration::from_secs(300),
            max_cooldown: None,
            text_limits: false,
            seed: None,
            jitter: Jitter::default(),
        }
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        attempts::check(self.attempts)?;
        // Only explicit settings are checked: a default adapts to them.
        for (field, set) in [
            ("default_cooldown", self.default_cooldown),
            ("max_cooldown", self.max_cooldown),
        ] {
            let Some(cooldown) = set else { continue };
            let reason = format!("{cooldown:?} is longer than a day");
            refuse_if(cooldown > MAX_COOLDOWN, field, reason)?;
            let reason = "it is zero: the limit would be met again immediately";
            refuse_if(cooldown.is_zero(), field, reason)?;
        }
        let (cooldown, most) = (self.default_cooldown(), self.max_cooldown());
        let reason = format!("{cooldown:?} is longer than `max_cooldown`, {most:?}");
        refuse_if(cooldown > most, "default_cooldown", reason)
    }

    /// A default adapts to the other, explicit setting.
    fn default_cooldown(&self) -> Duration {
        const DEFAULT: Duration = Duration::from_secs(30);
        let most = self.max_cooldown.unwrap_or(DEFAULT);
        self.default_cooldown.unwrap_or(DEFAULT.min(most))
    }

    pub(super) fn max_cooldown(&self) -> Duration {
        const DEFAULT: Duration = Duration::from_secs(300);
        let least = self.default_cooldown.unwrap_or_default();
        self.max_cooldown.unwrap_or(DEFAULT.max(least))
    }

    /// Returns the part of a cooldown that other calls share if the limit is known by text alone.
    pub(super) fn of_text(&self, cooldown: Duration) -> Option<Duration> {
        let most = self.default_cooldown().min(self.max_cooldown());
        self.text_limits.then(|| cooldown.min(most))
    }
}

crate::text::debug_fields! {
    {} |this| Settings {
        attempts,
        default_cooldown: this.default_cooldown(),
        max_wait,
        max_cooldown: this.max_cooldown(),
        text_limits, jitter, ..
    }
}

/// Shared by all gates of one layer value.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) listener: Listener,
    random: Random,
    pub(super) origin: Instant,
    /// How many processes share the limits.
    pub(super) processes: AtomicU32,
    /// Those who hear which keys this process knows something new of, by itself.
    pub(super) subscribers: OnceLock<broadcast::Sender<Arc<Entry<KeyGate>>>>,
}

impl Shared {
    pub(super) fn new(settings: Settings, listener: Listener) -> Self {
        Self {
            random: settings.seed.map_or_else(Random::default, Random::seeded),
            settings,
            listener,
            origin: Instant::now(),
            processes: AtomicU32::new(1),
            subscribers: OnceLock::new(),
        }
    }

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

    /// Sends other processes a cooldown that this process knows itself, not by texts.
    fn tell(&self, entry: &Arc<Entry<KeyGate>>) {
        if let Some(subscribers) = self.subscribers.get() {
            // Sending fails only without a subscriber.
            let _ = subscribers.send(Arc::clone(entry));
        }
    }

    /// Begins a cooldown, because a call that was admitted in the round `met` has met the limit, or
    /// because a success has used up what the server grants. `is_own`: this process knows it by
    /// itself.
    pub(super) fn begin(
        &self,
        entry: &Arc<Entry<KeyGate>>,
        met: Option<u32>,
        cooldown: Duration,
        is_own: bool,
    ) {
        let key = entry.value();
        // One limit there must not hold back all others.
        if entry.is_overflow() {
            return;
        }
        let now = self.now();
        key.with(|gate| {
            gate.share = self.share();
            match met {
                Some(round) => gate.limit(now, round, cooldown),
                None => gate.cool(now, cooldown),
            }
            if is_own {
                gate.own.until = gate.own.until.max(Some(now.saturating_add(cooldown)));
                gate.own.is_met |= met.is_some();
            }
        });
        if is_own {
            self.tell(entry);
        }
    }

    /// Ends the cooldown for an operator of this process.
    pub(super) fn clear(&self, entry: &Arc<Entry<KeyGate>>) {
        let is_cleared = self.subscribers.get().is_some();
        if entry.value().clear(is_cleared) {
            self.tell(entry);
        }
    }

    /// Returns the cooldown for a hint, or for none: never shorter than the hint, and randomly a
    /// little longer if configured, so that several processes do not come back together. A hint of
    /// zero counts as one second.
    pub(super) fn cooldown(&self, hint: Option<Duration>) -> Duration {
        let hint = match hint {
            Some(Duration::ZERO) => Duration::from_secs(1),
            Some(hint) => hint,
            None => self.settings.default_cooldown(),
        };
        self.settings.jitter.after_hint(hint, self.random.next())
    }

    /// Returns the latest turn for a call that waits from now on; nothing is sent at the deadline
    /// itself.
    pub(super) fn latest(&self, now: Duration, call: &ToolCall) -> Duration {
        // The largest random addition to a delay does not count.
        let longest = now.saturating_add(after_hint(self.settings.max_wait, u64::MAX));
        let deadline = call.deadline().map(|at| {
            at.saturating_duration_since(self.origin)
                .saturating_sub(Duration::from_nanos(1))
        });
        longest.min(deadline.unwrap_or(Duration::MAX))
    }
}

/// The value of a key in the registry.
pub(super) struct KeyGate {
    /// `round << 1 | whether the gate is open`, as last published: an open gate costs one load.
    word: AtomicU64,
    gate: Mutex<Gate>,
    pub(super) shared: Arc<Shared>,
}

impl KeyGate {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            word: AtomicU64::new(1),
            gate: Mutex::default(),
            shared: Arc::clone(shared),
        }
    }

    /// Returns the present round, if the gate is open.
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

    /// Returns how long the cooldown still lasts, if one is under way.
    pub(super) fn remaining(&self, now: Duration) -> Option<Duration> {
        lock(&self.gate).remaining(now)
    }

    /// Ends the cooldown, and the return after it. Returns whether there was one. `is_news`:
    /// subscribers get it.
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
        let mut gate = lock(&self.gate);
        let result = work(&mut gate);
        let word = u64::from(gate.round()) << 1 | u64::from(gate.is_open());
        self.word.store(word, Release);
        result
    }
}

impl Evict for KeyGate {
    const IS_KNOWN: bool = false;

    fn eviction(&self) -> Eviction {
        let (gate, now) = (lock(&self.gate), self.shared.now());
        if gate.remaining(now).is_some() {
            Eviction::Forbidden
        } else if gate.closed_until(now).is_some() {
            Eviction::Costly
        } else {
            Eviction::Free
        }
    }
}
