//! The cooldowns that a process knows by itself, and those of others.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::sync::broadcast;

use super::{gate::Own, handle::RateLimitHandle, keyed::KeyGate};
use crate::{
    key::Key,
    kit::{lagged::Lagged, registry::Entry},
};

/// How many keys a subscriber may fall behind.
const BACKLOG: usize = 256;

/// The most processes that share a limit.
const MAX_PROCESSES: usize = 1_000;

/// The cooldowns that this process learns of by itself, from [`RateLimitHandle::subscribe`].
#[derive(Debug)]
pub struct OwnCooldowns {
    receiver: broadcast::Receiver<Arc<Entry<KeyGate>>>,
    key: Key,
}

/// A cooldown that a process knows by itself: a server has asked for it here, or a handle has begun
/// or ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnCooldown {
    /// The text of its key, which is the same in every process: names of servers and tools, and
    /// texts that a function picks, stand in it as they are; of [`Key::hashed`] the hash does.
    /// `None`: a name is longer than 256 bytes or has the character U+001F, or the key is that of a
    /// session or a principal.
    pub key: Option<String>,
    /// Set if a handle has [ended](RateLimitHandle::clear) the cooldown before. Only the first
    /// reader sees it, so a program has one subscriber.
    pub is_cleared: bool,
    /// How much is left of the present one.
    pub remaining: Option<Duration>,
    /// True if a limit was met; else a success has used up what the server grants, or a handle has
    /// [begun](RateLimitHandle::cool) it.
    pub is_met: bool,
}

impl OwnCooldown {
    fn of(key: &Key, entry: &Entry<KeyGate>) -> Option<Self> {
        let gate = entry.value();
        let Own {
            until,
            is_met,
            is_cleared,
        } = gate.with(|gate| {
            let own = gate.own;
            gate.own.is_cleared = false;
            own
        });
        let remaining = until.and_then(|until| until.checked_sub(gate.shared.now()));
        (is_cleared || remaining.is_some()).then(|| Self {
            key: key.text_of(entry.hash(), (entry.server(), entry.name())),
            is_cleared,
            remaining,
            is_met,
        })
    }
}

impl OwnCooldowns {
    /// Waits for the next cooldown that began or ended; `None` when the layer, its services and its
    /// handles are gone.
    ///
    /// # Errors
    ///
    /// [`Lagged`] once, if this subscriber fell behind by more than 256.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<OwnCooldown, Lagged>> {
        loop {
            match Lagged::or_closed(self.receiver.recv().await)? {
                Ok(entry) => {
                    if let Some(own) = OwnCooldown::of(&self.key, &entry) {
                        return Some(Ok(own));
                    }
                }
                Err(lagged) => return Some(Err(lagged)),
            }
        }
    }
}

/// # For programs that share cooldowns
///
/// A process sends others the cooldowns that it knows itself, with the text of their keys, and
/// adopts theirs. `tower-toolcall-redis` does so.
impl RateLimitHandle {
    /// Returns the key that its cooldowns are kept by.
    pub fn key(&self) -> &Key {
        self.registry.key()
    }

    /// Returns a stream of the cooldowns that this process knows by itself, from now on, without
    /// those of limits that are known by text alone.
    pub fn subscribe(&self) -> OwnCooldowns {
        let make = || broadcast::Sender::new(BACKLOG);
        OwnCooldowns {
            receiver: self.shared.subscribers.get_or_init(make).subscribe(),
            key: self.key().clone(),
        }
    }

    /// Returns the cooldowns that this process knows by itself, of all keys.
    pub fn own_cooldowns(&self) -> Vec<OwnCooldown> {
        let entries = self.registry.entries();
        let own = |entry: &Arc<_>| OwnCooldown::of(self.key(), entry);
        entries.iter().filter_map(own).collect()
    }

    /// Sets how many processes share the limits: after a cooldown they return together as slowly as
    /// one would. Counts from 1 to 1,000. Default: 1.
    pub fn share_with(&self, processes: usize) {
        let processes = processes.clamp(1, MAX_PROCESSES);
        self.shared.processes.store(processes as u32, Relaxed);
    }

    /// Adopts a cooldown of another process by the [text](OwnCooldown::key) of its key, for at most
    /// the longest that this layer shares. `is_met`: a limit was met there.
    ///
    /// Returns `false` if the text is not that of a key, or if all places for keys are taken.
    pub fn adopt(&self, key: &str, remaining: Duration, is_met: bool) -> bool {
        let Some((hash, parts)) = self.key().read_text(key) else {
            return false;
        };
        let remaining = remaining.min(self.shared.settings.max_cooldown());
        if remaining.is_zero() {
            return true;
        }
        let make = || KeyGate::new(&self.shared);
        let entry = self.registry.of_parts(hash, parts, make);
        // The calls of another process are of the same return.
        let round = || entry.value().with(|gate| gate.round());
        let met = is_met.then(round);
        self.shared.begin(&entry, met, remaining, false);
        !entry.is_overflow()
    }

    /// Ends the cooldown of a key by its [text](OwnCooldown::key), which another process has
    /// [ended](Self::clear).
    pub fn adopt_end(&self, key: &str) {
        let found = self.key().read_text(key);
        if let Some(entry) = found.and_then(|(hash, _)| self.registry.find(hash)) {
            entry.value().clear(false);
        }
    }
}
