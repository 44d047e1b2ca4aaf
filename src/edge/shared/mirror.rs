//! The future that tells a store what happens here, and takes over what happens elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{Either, pending, select},
};
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    fleet::{Act, Fleet, MAX_KEYS, Word, forced, unmarked},
    handle::Status,
    layers::{All, Heard, Layer, Layers, State},
    store::{Entry, Exchange, MAX_ENTRIES, News, Record, Store},
    words::Words,
};
use crate::{
    circuit_breaker::Breaker,
    error::{ErrorKind, ToolError},
    event::{
        event,
        transition::{BreakerState, Transition, TransitionReason},
    },
    kit::backoff::{Random, part},
    rate_limit::OwnCooldown,
};

/// How long an exchange may take.
const EXCHANGE: Duration = Duration::from_secs(1);

/// How many follow each other at once; the rest waits for the next time.
const MAX_EXCHANGES: usize = 2 * MAX_KEYS / MAX_ENTRIES;

/// How long after an exchange the next one may begin, however often a store calls.
const GAP: Duration = Duration::from_millis(5);

pub(super) struct Mirror<S> {
    store: S,
    layers: Layers,
    fleet: Fleet,
    grace: Duration,
    resync: Duration,
    status: Arc<Status>,
    random: Random,
    origin: Instant,
    words: Words,
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
        let random = Random::default();
        let turn = part(Duration::from_secs(1), random.next()).as_secs_f64();
        Self {
            store,
            layers: Layers(layers),
            fleet,
            grace,
            resync,
            status,
            random,
            origin: Instant::now(),
            words: Words::new(turn),
            is_read: false,
            forced: BTreeMap::new(),
            unplaced: BTreeSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut heard = self.layers.subscribe();
        for layer in 0..self.layers.0.len() {
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
                    if !self.words.has_news() || !self.status.is_up_or_unknown() {
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

    /// This process has met a limit, or a person has ended a cooldown.
    fn cooled(&mut self, layer: usize, own: &OwnCooldown) {
        let Some(key) = self.layers.key(layer, own.hash(), own.parts()) else {
            return;
        };
        let now = self.now();
        if own.is_cleared {
            if own.remaining.is_none() {
                // What was taken over in that moment is over, too.
                self.layers.with_gate(&key, None);
            }
            self.force(key.clone(), BreakerState::Closed, now);
        }
        if let Some(remaining) = own.remaining {
            let word = Word::Cooling {
                remaining,
                is_met: own.is_met,
                after: self.fleet.number(&key),
            };
            self.say(key, word, now);
        }
    }

    /// A breaker of this process has changed its state.
    fn turned(&mut self, layer: usize, hash: u64, t: &Transition) {
        let parts = (t.server.as_deref(), t.tool.as_deref());
        let Some(key) = self.layers.key(layer, hash, parts) else {
            return;
        };
        let now = self.now();
        let agreed = self.fleet.has_agreed(&key, now);
        let remaining = t.open_for.unwrap_or_default();
        let word = match (t.reason, t.to) {
            (TransitionReason::Shared, _) => {
                // What this process said before is no longer so.
                self.words.take_back(&key);
                // A person was faster than what was taken over, and is heard of only now.
                let forced = self.forced_state(&key);
                self.layers.with_breaker(&key, false, |breaker| {
                    if forced_part(breaker.state()) != forced {
                        breaker.adopt_forced(forced);
                    }
                });
                return;
            }
            (TransitionReason::Forced, state) => return self.force(key, state, now),
            (TransitionReason::ProbeFailed, BreakerState::Open) => {
                // Whoever spoke for the fleet probes last the next time: it may be the only one
                // that is sick.
                if agreed && self.fleet.size() > 1 {
                    let (grace, again) = (self.grace, self.random_grace());
                    let more = grace + again;
                    self.layers
                        .with_breaker(&key, false, |b| b.postpone_with_grace(remaining, more));
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
                remaining: match &self.layers.0[layer].state {
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
        match &self.layers.0[layer].state {
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
            let Some(key) = self.layers.key(layer, breaker.hash(), parts) else {
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
            let before = self.words.get(&key);
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
        self.words.take_back(&key);
        self.unplaced.remove(&key);
        if !self.is_read {
            match self.forced.len() < MAX_KEYS || self.forced.contains_key(&key) {
                true => _ = self.forced.insert(key, state),
                false => self.status.drop_some(1),
            }
            return;
        }
        match self.fleet.force(&key, state, now) {
            Some(word) => self.say(forced(&key), word, now),
            None => self.status.drop_some(1),
        }
    }

    /// A person had forced a state while the store was away, and what this process has said since
    /// comes after it.
    fn force_at_last(&mut self, key: String, state: BreakerState, now: Duration) {
        let since = self.words.take_back(&key);
        self.force(key.clone(), state, now);
        if let Some(own) = since {
            let number = self.fleet.number(&key);
            self.words.say_after(key, own, number);
        }
    }

    /// What a person has made of a key, here or elsewhere.
    fn forced_state(&self, key: &str) -> BreakerState {
        let here = self.forced.get(key);
        here.copied().unwrap_or_else(|| self.fleet.forced(key))
    }

    fn say(&mut self, key: String, word: Word, now: Duration) {
        if !self.words.say(key, word, now) {
            self.status.drop_some(1);
        }
    }

    /// Tells what is to be told, and takes over what is new.
    async fn sync(&mut self, heard: &mut All) {
        let begun = Instant::now();
        for key in std::mem::take(&mut self.unplaced) {
            self.place(&key, self.fleet.forced(&key));
        }
        let mut refused = Vec::new();
        for _ in 0..MAX_EXCHANGES {
            self.hear_all(heard);
            let now = self.now();
            let (keys, entries) = self.words.next(now);
            let news = match self.exchange(&entries).await {
                Ok(news) => news,
                Err(error) => {
                    self.words.repeat(keys);
                    self.failed(&error);
                    break;
                }
            };
            if self.status.set_up(true) {
                event!(INFO STORE, TO = "up");
            }
            keys.iter().for_each(|key| self.words.is_told(key, now));
            self.status.tell(keys.len().saturating_sub(news.refused));
            self.status.drop_some(news.refused as u64);
            // What a person did meanwhile comes after what the store tells.
            self.hear_all(heard);
            let has_all = !news.more;
            let is_full = news.refused > 0;
            self.read(news, &keys);
            if is_full {
                refused.extend(keys);
            }
            // The rest has time until the next exchange.
            if has_all && !self.words.has_news() || begun.elapsed() > 2 * EXCHANGE {
                break;
            }
        }
        // A store that is full may have room then.
        self.words.repeat(refused);
    }

    async fn exchange(&mut self, entries: &[Entry]) -> Result<News, ToolError> {
        let (store, since) = self.fleet.cursor();
        let exchange = Exchange {
            peer: self.fleet.me(),
            present_for: self.resync * 3 + EXCHANGE,
            entries,
            store,
            since,
        };
        match timeout(EXCHANGE, self.store.exchange(exchange)).await {
            Ok(news) => Ok(news?),
            Err(_) => {
                let text = "the store gave no answer in time";
                Err(ToolError::new(ErrorKind::Timeout, text))
            }
        }
    }

    /// Takes over what a store tells. `told`: what this process has told it just now.
    fn read(&mut self, mut news: News, told: &[String]) {
        let (has_all, now) = (!news.more, self.now());
        let records = news.records.len();
        let is_here = |record: &Record| self.layers.find(unmarked(&record.key)).is_some();
        news.records.retain(is_here);
        self.status.drop_some((records - news.records.len()) as u64);
        let (acts, is_new) = self.fleet.read(news, now);
        if is_new {
            self.words.repeat_all_but(told, now);
        }
        for (key, act) in acts {
            // What was forced here is told below, and ends all this.
            if !self.forced.contains_key(&key) {
                self.act(&key, act);
            }
        }
        for key in self.fleet.take_forgotten() {
            self.words.take_back(&forced(&key));
        }
        if has_all {
            self.is_read = true;
            for (key, state) in std::mem::take(&mut self.forced) {
                self.force_at_last(key, state, now);
            }
        }
        self.status.see(&self.fleet);
        self.layers.share_limits(self.fleet.size());
    }

    fn failed(&mut self, error: &ToolError) {
        self.is_read = false;
        if self.status.set_up(false) {
            event!(WARN STORE, TO = "down", ERROR = error.message());
        }
    }

    fn act(&mut self, key: &str, act: Act) {
        let (grace, now) = (self.random_grace(), self.now());
        let layers = &self.layers;
        let done = match act {
            Act::Open(left) => layers.with_breaker(key, true, |b| b.adopt_with_grace(left, grace)),
            Act::Postpone(left) => {
                layers.with_breaker(key, false, |b| b.postpone_with_grace(left, grace))
            }
            Act::Release => layers.with_breaker(key, false, Breaker::release),
            Act::Cool(left, is_met) => layers.with_gate(key, Some((left, is_met))),
            Act::Force(state, number) => {
                // Told again if it turns out that it is not known to all.
                let word = Word::Forced { state, number };
                self.words.copy(forced(key), word, now);
                self.place(key, state)
            }
            Act::Known => return self.words.is_told(&forced(key), now),
        };
        match done {
            true => self.status.adopt(),
            false => self.status.drop_some(1),
        }
    }

    /// Forces a state as another process has; again later, if there is no place for it now.
    fn place(&mut self, key: &str, state: BreakerState) -> bool {
        let is_new = state != BreakerState::Closed;
        let is_placed = match self.layers.find(key) {
            None => return false,
            Some((State::Gates(_), ..)) if is_new => return false,
            Some((State::Gates(_), ..)) => {
                // What this process said before is over, too.
                self.words.take_back(key);
                self.layers.with_gate(key, None)
            }
            Some((State::Breakers(_), ..)) => self
                .layers
                .with_breaker(key, is_new, |b| b.adopt_forced(state)),
        };
        match is_placed {
            true => _ = self.unplaced.remove(key),
            false => _ = self.unplaced.insert(key.to_owned()),
        }
        is_placed
    }

    /// Beyond an opening of another process, so that this one probes first; at random, so that the
    /// others do not probe together.
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
