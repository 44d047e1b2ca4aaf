//! The future that tells a store what happens here, and takes over what happens elsewhere.

use std::{
    collections::{BTreeSet, HashMap},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{Either, pending, select},
    stream::{self, BoxStream, SelectAll},
};
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    fleet::{Act, FORCED, Fleet, MAX_KEYS, Word, forced},
    handle::Status,
    key::{decode, encode},
    store::{Entry, Exchange, MAX_ENTRIES, Store},
};
use crate::{
    circuit_breaker::{Breaker, CircuitBreakerHandle, Lagged},
    error::{ErrorKind, ToolError},
    event::{
        event,
        transition::{BreakerState, Transition, TransitionReason},
    },
    kit::backoff::{Random, part},
};

/// How long an exchange may take.
const EXCHANGE: Duration = Duration::from_secs(1);

/// How many follow each other at once; the rest waits for the next time.
const MAX_EXCHANGES: usize = 2 * MAX_KEYS / MAX_ENTRIES;

/// How long after an exchange the next one may begin, however often a store calls.
const GAP: Duration = Duration::from_millis(5);

/// The breakers of a layer, under the name that they have in all processes.
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) handle: CircuitBreakerHandle,
    /// Whether its keys are hashes of the user's.
    pub(super) is_hashed: bool,
}

type Heard = (usize, Result<(u64, Transition), Lagged>);

/// A word of this process that holds.
struct Own {
    word: Word,
    /// Until when it is of use to anybody.
    until: Duration,
    told_at: Option<Duration>,
}

pub(super) struct Mirror<S> {
    pub(super) store: S,
    pub(super) layers: Vec<Layer>,
    pub(super) fleet: Fleet,
    pub(super) grace: Duration,
    pub(super) resync: Duration,
    pub(super) status: Arc<Status>,
    pub(super) random: Random,
    pub(super) origin: Instant,
    words: HashMap<String, Own>,
    /// The keys whose words are to be told.
    due: BTreeSet<String>,
}

impl<S: Store> Mirror<S> {
    pub(super) fn new(
        store: S,
        layers: Vec<Layer>,
        fleet: Fleet,
        grace: Duration,
        resync: Duration,
        status: Arc<Status>,
    ) -> Self {
        Self {
            store,
            layers,
            fleet,
            grace,
            resync,
            status,
            random: Random::default(),
            origin: Instant::now(),
            words: HashMap::new(),
            due: BTreeSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut heard = self.transitions();
        for layer in 0..self.layers.len() {
            self.look_at_all(layer);
        }
        let mut next_sync = Instant::now();
        let mut last_sync = None::<Instant>;
        loop {
            let woken = {
                let Self { store, status, .. } = &mut self;
                let changed = async {
                    // Whatever a store that is down calls, it is asked in its time.
                    if !status.is_up_or_unknown() {
                        return pending().await;
                    }
                    if let Some(last) = last_sync {
                        sleep_until(last + GAP).await;
                    }
                    store.changed().await;
                };
                let timer = pin!(sleep_until(next_sync));
                match select(heard.next(), select(pin!(changed), timer)).await {
                    Either::Left((first, _)) => Some(first),
                    Either::Right(_) => None,
                }
            };
            match woken {
                Some(None) => return,
                Some(Some(first)) => {
                    self.heard(first);
                    while let Some(Some(next)) = heard.next().now_or_never() {
                        self.heard(next);
                    }
                    // A store that is down is asked again in its time; what is to be told waits.
                    if self.due.is_empty() || !self.status.is_up_or_unknown() {
                        continue;
                    }
                }
                None => {}
            }
            self.sync().await;
            let now = Instant::now();
            (last_sync, next_sync) = (Some(now), now + self.resync);
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn transitions(&self) -> SelectAll<BoxStream<'static, Heard>> {
        let of_layer = |(n, layer): (usize, &Layer)| {
            let transitions = layer.handle.subscribe();
            stream::unfold(transitions, move |mut transitions| async move {
                let next = transitions.next_of_key().await?;
                Some(((n, next), transitions))
            })
            .boxed()
        };
        stream::select_all(self.layers.iter().enumerate().map(of_layer))
    }

    fn heard(&mut self, (layer, heard): Heard) {
        match heard {
            Ok((hash, transition)) => self.turned(layer, hash, &transition),
            Err(_) => self.look_at_all(layer),
        }
    }

    fn key(&self, layer: usize, hash: u64, parts: (Option<&str>, Option<&str>)) -> Option<String> {
        let layer = &self.layers[layer];
        encode(&layer.name, hash, parts, layer.is_hashed)
    }

    /// A breaker of this process has changed its state.
    fn turned(&mut self, layer: usize, hash: u64, t: &Transition) {
        let Some(key) = self.key(layer, hash, (t.server.as_deref(), t.tool.as_deref())) else {
            return;
        };
        let now = self.now();
        let agreed = self.fleet.has_agreed(&key, now);
        let remaining = t.open_for.unwrap_or_default();
        let word = match (t.reason, t.to) {
            (TransitionReason::Shared, _) => {
                // What this process said before is no longer so.
                self.take_back(&key);
                // A person was faster than what was taken over, and is heard of only now.
                let forced = self.fleet.forced(&key);
                if forced_part(t.to) != forced {
                    self.with_breaker(&key, |breaker| breaker.adopt_forced(forced));
                }
                return;
            }
            (TransitionReason::Forced, state) => return self.force(key, state, now),
            (TransitionReason::ProbeFailed, BreakerState::Open) => {
                // Whoever spoke for the fleet probes last the next time: it may be the only one that is sick.
                if agreed && self.fleet.size() > 1 {
                    let (grace, again) = (self.grace, self.random_grace());
                    self.with_breaker(&key, |b| b.postpone_with_grace(remaining, grace + again));
                }
                Word::Open {
                    remaining,
                    agreed,
                    after: self.fleet.number(&key),
                }
            }
            (_, BreakerState::Open) => Word::Open {
                remaining,
                agreed: false,
                after: self.fleet.number(&key),
            },
            (_, BreakerState::HalfOpen) if agreed => Word::Probing {
                remaining: self.layers[layer].handle.probe_time(),
            },
            (_, BreakerState::Closed) => Word::Closed {
                seen: self.fleet.cursor().1,
            },
            _ => return,
        };
        self.say(key, word, now);
    }

    /// Looks at all breakers of a layer: some transitions were missed, or nobody has listened yet.
    fn look_at_all(&mut self, layer: usize) {
        let now = self.now();
        for breaker in self.layers[layer].handle.breakers() {
            let seen = breaker.snapshot();
            let parts = (breaker.server(), breaker.tool());
            let Some(key) = self.key(layer, breaker.hash(), parts) else {
                continue;
            };
            let forced = forced_part(seen.state);
            if self.fleet.forced(&key) != forced {
                self.force(key.clone(), forced, now);
            }
            let before = self.words.get(&key).map(|own| own.word);
            let word = match (seen.state, before) {
                (BreakerState::Open, _) if !seen.adopted => Word::Open {
                    remaining: seen.retry_after.unwrap_or_default(),
                    agreed: false,
                    after: self.fleet.number(&key),
                },
                (BreakerState::Closed, Some(Word::Open { .. } | Word::Probing { .. })) => {
                    Word::Closed {
                        seen: self.fleet.cursor().1,
                    }
                }
                _ => continue,
            };
            self.say(key, word, now);
        }
    }

    /// A person has forced a state here, or reset it: that ends what was before.
    fn force(&mut self, key: String, state: BreakerState, now: Duration) {
        self.take_back(&key);
        match self.fleet.force(&key, state) {
            Some(word) => self.say(forced(&key), word, now),
            None => self.status.drop_some(1),
        }
    }

    /// Keeps a word, to be told with the next exchange.
    fn say(&mut self, key: String, word: Word, now: Duration) {
        if self.words.len() >= MAX_KEYS && !self.words.contains_key(&key) {
            self.words.retain(|_, own| own.until > now);
            if self.words.len() >= MAX_KEYS {
                self.status.drop_some(1);
                return;
            }
        }
        let until = match word {
            // It holds until it is taken back.
            Word::Forced { .. } => Duration::MAX,
            word => now.saturating_add(word.lasts()),
        };
        let own = Own {
            word,
            until,
            told_at: None,
        };
        self.due.insert(key.clone());
        self.words.insert(key, own);
    }

    fn take_back(&mut self, key: &str) {
        self.words.remove(key);
        self.due.remove(key);
    }

    /// Tells what is to be told, and takes over what is new.
    async fn sync(&mut self) {
        for _ in 0..MAX_EXCHANGES {
            let now = self.now();
            self.say_again(now);
            let (keys, entries) = self.batch(now);
            let (store, since) = self.fleet.cursor();
            let exchange = Exchange {
                peer: self.fleet.me(),
                present_for: self.resync * 3 + EXCHANGE,
                entries: &entries,
                store,
                since,
            };
            let done = timeout(EXCHANGE, self.store.exchange(exchange)).await;
            let news = match done {
                Ok(Ok(news)) => news,
                Ok(Err(error)) => return self.failed(keys, &ToolError::from(error)),
                Err(_) => {
                    let error =
                        ToolError::new(ErrorKind::Timeout, "the store gave no answer in time");
                    return self.failed(keys, &error);
                }
            };
            if self.status.set_up(true) {
                event!(INFO STORE, TO = "up");
            }
            let told = keys.len();
            for key in &keys {
                if let Some(own) = self.words.get_mut(key) {
                    own.told_at = Some(now);
                }
            }
            self.status.tell(told - news.refused.min(told));
            self.status.drop_some(news.refused as u64);
            let more = news.more;
            let (acts, is_new) = self.fleet.read(news, self.now());
            if is_new {
                // All but what was told just now.
                let told: BTreeSet<_> = keys.iter().collect();
                let again = self.words.keys().filter(|key| !told.contains(key));
                self.due.extend(again.cloned());
            }
            for (key, act) in acts {
                self.act(&key, act);
            }
            self.status.see(&self.fleet);
            if !more && self.due.is_empty() {
                return;
            }
        }
    }

    /// Forced states are told again before the store forgets them; what is over is not.
    fn say_again(&mut self, now: Duration) {
        self.words.retain(|_, own| own.until > now);
        let (words, due) = (&self.words, &mut self.due);
        due.retain(|key| words.contains_key(key));
        let is_old = |own: &Own| {
            let at = own.told_at.unwrap_or(now);
            matches!(own.word, Word::Forced { .. }) && now >= at.saturating_add(FORCED / 2)
        };
        let old = words.iter().filter(|(_, own)| is_old(own));
        due.extend(old.map(|(key, _)| key.clone()));
    }

    /// Takes the words of the next exchange.
    fn batch(&mut self, now: Duration) -> (Vec<String>, Vec<Entry>) {
        let (mut keys, mut entries) = (Vec::new(), Vec::new());
        while entries.len() < MAX_ENTRIES
            && let Some(key) = self.due.pop_first()
        {
            let Some(own) = self.words.get(&key) else {
                continue;
            };
            entries.push(Entry {
                key: key.clone(),
                value: own.word.encode(),
                // What has passed since it was said is over.
                lasts: own.word.lasts().min(own.until.saturating_sub(now)),
            });
            keys.push(key);
        }
        (keys, entries)
    }

    fn failed(&mut self, keys: Vec<String>, error: &ToolError) {
        self.due.extend(keys);
        if self.status.set_up(false) {
            event!(WARN STORE, TO = "down", ERROR = error.message());
        }
    }

    fn act(&mut self, key: &str, act: Act) {
        if let Act::Force(state, number) = act {
            // Known to all, as far as this process can see; told again if it turns out that it is not.
            let own = Own {
                word: Word::Forced { state, number },
                until: Duration::MAX,
                told_at: Some(self.now()),
            };
            self.due.remove(&forced(key));
            self.words.insert(forced(key), own);
        }
        let grace = self.random_grace();
        let done = self.with_breaker(key, |breaker| match act {
            Act::Open(remaining) => breaker.adopt_with_grace(remaining, grace),
            Act::Postpone(remaining) => breaker.postpone_with_grace(remaining, grace),
            Act::Release => breaker.release(),
            Act::Force(state, _) => breaker.adopt_forced(state),
        });
        match done {
            true => self.status.adopt(),
            false => self.status.drop_some(1),
        }
    }

    /// False: no layer has this name, or the key has no place.
    fn with_breaker(&self, key: &str, work: impl FnOnce(&Breaker)) -> bool {
        let Some((name, hash, parts)) = decode(key) else {
            return false;
        };
        let mut layers = self.layers.iter();
        let layer = layers.find(|layer| layer.name == name);
        let breaker = layer.and_then(|layer| layer.handle.of_parts(hash, parts));
        breaker.map(|breaker| work(&breaker)).is_some()
    }

    /// Beyond an opening of another process, so that this one probes first; at random, so that the others do not probe together.
    fn random_grace(&self) -> Duration {
        self.grace
            .saturating_add(part(self.grace, self.random.next()))
    }
}

/// What a person has made of a breaker in this state: closed, if it works by itself.
fn forced_part(state: BreakerState) -> BreakerState {
    match state {
        BreakerState::ForcedOpen | BreakerState::ForcedClosed | BreakerState::Disabled => state,
        _ => BreakerState::Closed,
    }
}
