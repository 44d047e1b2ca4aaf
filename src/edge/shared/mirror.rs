//! The future that tells a store what happens here, and takes over what happens elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
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
    key::{Parts, decode, encode},
    store::{Entry, Exchange, MAX_ENTRIES, Store},
};
use crate::{
    circuit_breaker::{Breaker, CircuitBreakerHandle},
    error::{ErrorKind, ToolError},
    event::{
        event,
        transition::{BreakerState, Transition, TransitionReason},
    },
    key::Key,
    kit::backoff::{Random, part},
    rate_limit::{OwnCooldown, RateLimitHandle},
};

/// How long an exchange may take.
const EXCHANGE: Duration = Duration::from_secs(1);

/// How many follow each other at once; the rest waits for the next time.
const MAX_EXCHANGES: usize = 2 * MAX_KEYS / MAX_ENTRIES;

/// How long after an exchange the next one may begin, however often a store calls.
const GAP: Duration = Duration::from_millis(5);

/// The state of a layer, under the name that it has in all processes.
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) state: State,
}

pub(super) enum State {
    Breakers(CircuitBreakerHandle),
    Gates(RateLimitHandle),
}

impl State {
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Breakers(handle) => handle.key(),
            Self::Gates(handle) => handle.key(),
        }
    }
}

/// What a layer of this process tells.
enum Heard {
    Turned(u64, Transition),
    Cooled(OwnCooldown),
    /// There was more than could be kept.
    Missed,
}

/// What all layers tell, with their numbers.
type All = SelectAll<BoxStream<'static, (usize, Heard)>>;

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
    /// Whether all was read of the store, and it is still there.
    is_read: bool,
    /// What was forced here while it was not. It comes after whatever the store knows.
    forced: BTreeMap<String, BreakerState>,
    /// Keys that were forced elsewhere, and had no place here.
    unplaced: BTreeSet<String>,
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
            is_read: false,
            forced: BTreeMap::new(),
            unplaced: BTreeSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut heard = self.news();
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
                    self.hear_all(&mut heard);
                    // A store that is down is asked again in its time; what is to be told waits.
                    if self.due.is_empty() || !self.status.is_up_or_unknown() {
                        continue;
                    }
                }
                None => {}
            }
            self.sync(&mut heard).await;
            let now = Instant::now();
            (last_sync, next_sync) = (Some(now), now + self.resync);
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn news(&self) -> All {
        let of_layer = |(n, layer): (usize, &Layer)| match &layer.state {
            State::Breakers(handle) => {
                stream::unfold(handle.subscribe(), move |mut all| async move {
                    let next = all.next_of_key().await?;
                    let heard = next.map_or(Heard::Missed, |(hash, t)| Heard::Turned(hash, t));
                    Some(((n, heard), all))
                })
                .boxed()
            }
            State::Gates(handle) => stream::unfold(handle.subscribe(), move |mut all| async move {
                let next = all.next().await?;
                Some(((n, next.map_or(Heard::Missed, Heard::Cooled)), all))
            })
            .boxed(),
        };
        stream::select_all(self.layers.iter().enumerate().map(of_layer))
    }

    /// What was told until now.
    fn hear_all(&mut self, heard: &mut All) {
        while let Some(Some(next)) = heard.next().now_or_never() {
            self.heard(next);
        }
    }

    fn heard(&mut self, (layer, heard): (usize, Heard)) {
        match heard {
            Heard::Turned(hash, transition) => self.turned(layer, hash, &transition),
            Heard::Cooled(own) => self.cooled(layer, &own),
            Heard::Missed => self.look_at_all(layer),
        }
    }

    fn key(&self, layer: usize, hash: u64, parts: (Option<&str>, Option<&str>)) -> Option<String> {
        let Layer { name, state } = &self.layers[layer];
        encode(name, hash, parts, matches!(state.key(), Key::Hashed(_)))
    }

    /// This process has met a limit, or a person has ended a cooldown.
    fn cooled(&mut self, layer: usize, own: &OwnCooldown) {
        let Some(key) = self.key(layer, own.hash(), own.parts()) else {
            return;
        };
        let now = self.now();
        if own.is_cleared {
            if own.remaining.is_none() {
                // What was taken over in that moment is over, too.
                self.with_gate(&key, None);
            }
            self.force(key.clone(), BreakerState::Closed, now);
        }
        if let Some(remaining) = own.remaining {
            let after = self.fleet.number(&key);
            self.say(key, Word::Cooling { remaining, after }, now);
        }
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
                let forced = self.forced_state(&key);
                self.with_breaker(&key, false, |breaker| {
                    if forced_part(breaker.state()) != forced {
                        breaker.adopt_forced(forced);
                    }
                });
                return;
            }
            (TransitionReason::Forced, state) => return self.force(key, state, now),
            (TransitionReason::ProbeFailed, BreakerState::Open) => {
                // Whoever spoke for the fleet probes last the next time: it may be the only one that is sick.
                if agreed && self.fleet.size() > 1 {
                    let (grace, again) = (self.grace, self.random_grace());
                    let more = grace + again;
                    self.with_breaker(&key, false, |b| b.postpone_with_grace(remaining, more));
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
                remaining: match &self.layers[layer].state {
                    State::Breakers(handle) => handle.probe_time(),
                    State::Gates(_) => return,
                },
            },
            (_, BreakerState::Closed) => Word::Closed {
                seen: self.fleet.cursor().1,
            },
            _ => return,
        };
        self.say(key, word, now);
    }

    /// Looks at all keys of a layer: some news was missed, or nobody has listened yet.
    fn look_at_all(&mut self, layer: usize) {
        match &self.layers[layer].state {
            State::Breakers(handle) => self.look_at_breakers(layer, handle.breakers()),
            State::Gates(handle) => {
                let all = handle.own_cooldowns();
                all.iter().for_each(|own| self.cooled(layer, own));
            }
        }
    }

    fn look_at_breakers(&mut self, layer: usize, breakers: Vec<Breaker>) {
        let now = self.now();
        for breaker in breakers {
            let seen = breaker.snapshot();
            let parts = (breaker.server(), breaker.tool());
            let Some(key) = self.key(layer, breaker.hash(), parts) else {
                continue;
            };
            let is_by_hand = seen.reason == Some(TransitionReason::Forced);
            let (forced, known) = (forced_part(seen.state), self.forced_state(&key));
            if forced != known {
                match is_by_hand {
                    true => self.force(key.clone(), forced, now),
                    // It is a new one, or had no place when it was told.
                    false => breaker.adopt_forced(known),
                }
            }
            let before = self.words.get(&key).map(|own| own.word);
            let was_open = matches!(before, Some(Word::Open { .. } | Word::Probing { .. }));
            let word = match seen.state {
                // Not what other processes have added to it.
                BreakerState::Open => match breaker.own_remaining() {
                    Some(remaining) => Word::Open {
                        remaining,
                        agreed: false,
                        after: self.fleet.number(&key),
                    },
                    None => continue,
                },
                BreakerState::Closed if is_by_hand => {
                    // A reset, unless it was told already.
                    if was_open || self.fleet.has_agreed(&key, now) {
                        self.force(key, BreakerState::Closed, now);
                    }
                    continue;
                }
                BreakerState::Closed if was_open => Word::Closed {
                    seen: self.fleet.cursor().1,
                },
                _ => continue,
            };
            self.say(key, word, now);
        }
    }

    /// A person has forced a state here, or reset it: that ends what was before.
    fn force(&mut self, key: String, state: BreakerState, now: Duration) {
        self.take_back(&key);
        self.unplaced.remove(&key);
        if !self.is_read {
            match self.forced.len() < MAX_KEYS || self.forced.contains_key(&key) {
                true => _ = self.forced.insert(key, state),
                false => self.status.drop_some(1),
            }
            return;
        }
        match self.fleet.force(&key, state) {
            Some(word) => self.say(forced(&key), word, now),
            None => self.status.drop_some(1),
        }
    }

    /// A person had forced a state while the store was away, and what this process has said since comes after it.
    fn force_at_last(&mut self, key: String, state: BreakerState, now: Duration) {
        let since = self.words.remove(&key);
        self.force(key.clone(), state, now);
        if let Some(mut own) = since {
            if let Word::Open { after, .. } | Word::Cooling { after, .. } = &mut own.word {
                *after = self.fleet.number(&key);
            }
            own.told_at = None;
            self.due.insert(key.clone());
            self.words.insert(key, own);
        }
    }

    /// What a person has made of a key, here or elsewhere.
    fn forced_state(&self, key: &str) -> BreakerState {
        let here = self.forced.get(key);
        here.copied().unwrap_or_else(|| self.fleet.forced(key))
    }

    /// Keeps a word, to be told with the next exchange.
    fn say(&mut self, key: String, word: Word, now: Duration) {
        let most = MAX_KEYS + self.fleet.forced_keys();
        if self.words.len() >= most && !self.words.contains_key(&key) {
            self.words.retain(|_, own| own.until > now);
            if self.words.len() >= most {
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
    async fn sync(&mut self, heard: &mut All) {
        let begun = Instant::now();
        for key in std::mem::take(&mut self.unplaced) {
            self.place(&key, self.fleet.forced(&key));
        }
        for _ in 0..MAX_EXCHANGES {
            self.hear_all(heard);
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
            // What a person did meanwhile comes after what the store tells.
            self.hear_all(heard);
            let (acts, is_new) = self.fleet.read(news, self.now());
            if is_new {
                // All but what was told just now.
                let told: BTreeSet<_> = keys.iter().collect();
                let again = self.words.keys().filter(|key| !told.contains(key));
                self.due.extend(again.cloned());
            }
            for (key, act) in acts {
                // What was forced here is told below, and ends all this.
                if !self.forced.contains_key(&key) {
                    self.act(&key, act);
                }
            }
            if !more {
                self.is_read = true;
                for (key, state) in std::mem::take(&mut self.forced) {
                    self.force_at_last(key, state, now);
                }
            }
            self.status.see(&self.fleet);
            share_limits(&self.layers, self.fleet.size());
            // The rest has time until the next exchange.
            if !more && self.due.is_empty() || begun.elapsed() > 2 * EXCHANGE {
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
        self.is_read = false;
        if self.status.set_up(false) {
            event!(WARN STORE, TO = "down", ERROR = error.message());
        }
    }

    fn act(&mut self, key: &str, act: Act) {
        if let Act::Force(state, number) = act {
            self.forced.remove(key);
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
        let done = match act {
            Act::Open(left) => self.with_breaker(key, true, |b| b.adopt_with_grace(left, grace)),
            Act::Postpone(left) => {
                self.with_breaker(key, false, |b| b.postpone_with_grace(left, grace))
            }
            Act::Release => self.with_breaker(key, false, Breaker::release),
            Act::Force(state, _) => self.place(key, state),
            Act::Cool(left) => self.with_gate(key, Some(left)),
        };
        match done {
            true => self.status.adopt(),
            false => self.status.drop_some(1),
        }
    }

    /// Forces a state as another process has; again later, if there is no place for it now.
    fn place(&mut self, key: &str, state: BreakerState) -> bool {
        let is_new = state != BreakerState::Closed;
        let is_placed = match self.find(key) {
            None => return false,
            Some((State::Gates(_), ..)) if is_new => return false,
            Some((State::Gates(_), ..)) => {
                // What this process said before is over, too.
                self.take_back(key);
                self.with_gate(key, None)
            }
            Some((State::Breakers(_), ..)) => {
                self.with_breaker(key, is_new, |b| b.adopt_forced(state))
            }
        };
        match is_placed {
            true => _ = self.unplaced.remove(key),
            false => _ = self.unplaced.insert(key.to_owned()),
        }
        is_placed
    }

    /// `makes`: also if there is no breaker of this key yet. False: no layer with breakers has this name, or the key has no place.
    fn with_breaker(&self, key: &str, makes: bool, work: impl Fn(&Breaker)) -> bool {
        let Some((State::Breakers(handle), hash, parts)) = self.find(key) else {
            return false;
        };
        loop {
            let breaker = match makes {
                true => handle.of_parts(hash, parts),
                false => handle.find_hash(hash),
            };
            match &breaker {
                Some(breaker) => work(breaker),
                None => return !makes,
            }
            // A sweep may have dropped it meanwhile. It drops none that is open or forced.
            if !makes || handle.find_hash(hash).is_some() {
                return true;
            }
        }
    }

    /// The same for gates. `None`: a person has ended the cooldown.
    fn with_gate(&self, key: &str, remaining: Option<Duration>) -> bool {
        match self.find(key) {
            Some((State::Gates(handle), hash, parts)) => handle.adopt(hash, parts, remaining),
            _ => false,
        }
    }

    fn find<'k>(&self, key: &'k str) -> Option<(&State, u64, Parts<'k>)> {
        let (name, hash, parts) = decode(key)?;
        let layer = self.layers.iter().find(|layer| layer.name == name)?;
        Some((&layer.state, hash, parts))
    }

    /// Beyond an opening of another process, so that this one probes first; at random, so that the others do not probe together.
    fn random_grace(&self) -> Duration {
        self.grace
            .saturating_add(part(self.grace, self.random.next()))
    }
}

/// The process goes on alone.
impl<S> Drop for Mirror<S> {
    fn drop(&mut self) {
        share_limits(&self.layers, 1);
    }
}

/// The rate limits are those of so many processes.
fn share_limits(layers: &[Layer], processes: usize) {
    for layer in layers {
        if let State::Gates(handle) = &layer.state {
            handle.share_with(processes);
        }
    }
}

/// What a person has made of a breaker in this state: closed, if it works by itself.
fn forced_part(state: BreakerState) -> BreakerState {
    match state {
        BreakerState::ForcedOpen | BreakerState::ForcedClosed | BreakerState::Disabled => state,
        _ => BreakerState::Closed,
    }
}
