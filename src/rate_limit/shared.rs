//! What a mirror between processes asks of rate limits, beyond what everybody may.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::sync::broadcast;

use super::{gate::Own, handle::RateLimitHandle, keyed::KeyGate};
use crate::{key::Key, kit::registry::Entry};

/// How many keys a subscriber may fall behind.
const BACKLOG: usize = 256;

/// Of which keys a process knows something new, by itself.
pub(crate) struct Subscription(broadcast::Receiver<Arc<Entry<KeyGate>>>);

/// What a process knows of a key by itself.
pub(crate) struct OwnCooldown {
    entry: Arc<Entry<KeyGate>>,
    /// Whether a person has ended the cooldown before.
    pub(crate) is_cleared: bool,
    /// How much is left of the present one.
    pub(crate) remaining: Option<Duration>,
    /// Whether a limit was met; else a success has used up what the server grants.
    pub(crate) is_met: bool,
}

impl OwnCooldown {
    fn of(entry: Arc<Entry<KeyGate>>) -> Option<Self> {
        let gate = entry.value();
        let Own {
            until,
            is_met,
            is_cleared,
        } = gate.with(|gate| {
            let own = gate.own;
            // A clearing is reported once.
            gate.own.is_cleared = false;
            own
        });
        let remaining = until.and_then(|until| until.checked_sub(gate.shared.now()));
        (is_cleared || remaining.is_some()).then_some(Self {
            entry,
            is_cleared,
            remaining,
            is_met,
        })
    }

    /// What tells its key from others, in this process.
    pub(crate) fn hash(&self) -> u64 {
        self.entry.hash()
    }

    pub(crate) fn parts(&self) -> (Option<&str>, Option<&str>) {
        (self.entry.server(), self.entry.name())
    }
}

impl Subscription {
    /// The next key of which something is known. `Err`: some were missed. `None`: there will be no
    /// more.
    pub(crate) async fn next(&mut self) -> Option<Result<OwnCooldown, ()>> {
        loop {
            match self.0.recv().await {
                Ok(entry) => {
                    if let Some(own) = OwnCooldown::of(entry) {
                        return Some(Ok(own));
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(Err(())),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl RateLimitHandle {
    pub(crate) fn subscribe(&self) -> Subscription {
        let make = || broadcast::Sender::new(BACKLOG);
        Subscription(self.shared.subscribers.get_or_init(make).subscribe())
    }

    /// What is known of all keys.
    pub(crate) fn own_cooldowns(&self) -> Vec<OwnCooldown> {
        let entries = self.registry.entries().into_iter();
        entries.filter_map(OwnCooldown::of).collect()
    }

    /// What its gates are kept by.
    pub(crate) fn key(&self) -> &Key {
        self.registry.key()
    }

    /// How many processes share the limits: their returns are made together.
    pub(crate) fn share_with(&self, processes: usize) {
        let processes = u32::try_from(processes).unwrap_or(u32::MAX);
        self.shared.processes.store(processes, Relaxed);
    }

    /// Another process has met a limit, or used up what the server grants, which holds for what
    /// remains; or a person has ended the cooldown there. False: there is no place for the key.
    pub(crate) fn adopt(
        &self,
        hash: u64,
        parts: (Option<&str>, Option<&str>),
        cooldown: Option<(Duration, bool)>,
    ) -> bool {
        let Some((remaining, is_met)) = cooldown else {
            if let Some(entry) = self.registry.find(hash) {
                entry.value().clear(false);
            }
            return true;
        };
        let remaining = remaining.min(self.shared.settings.max_cooldown());
        let make = || KeyGate::new(&self.shared);
        if remaining.is_zero() {
            return true;
        }
        let entry = self.registry.of_parts(hash, parts, make);
        // The calls of another process are of the same return.
        let round = || entry.value().with(|gate| gate.round());
        let met = is_met.then(round);
        self.shared.begin(&entry, met, remaining, false);
        !entry.value().is_overflow
    }
}
