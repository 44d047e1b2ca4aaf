//! The future that writes changes of this process to a store, and takes over those of others.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{Either, pending, select},
};
use tokio::time::{Instant, sleep_until, timeout};
use tower_toolcall::{
    ErrorKind, ToolError,
    circuit_breaker::{Breaker, BreakerState, Transition, TransitionReason},
    event::{TARGET, names},
    rate_limit::OwnCooldown,
};
use tracing::Level;

use super::{
    SharedState,
    handle::Status,
    layers::{All, Layers, Learnt, State as Of},
    random::{part, random},
    register::{Change, Hand, Heard, MAX_KEYS, Registers, SLACK, State},
    store::{Entry, Exchange, MAX_ENTRIES, News, Record, Store},
};

const STORE: &str = names::event::STORE;

/// How long an exchange may take.
const EXCHANGE: Duration = Duration::from_secs(1);

/// How many follow each other immediately; the rest waits for the next time.
const MAX_EXCHANGES: usize = 2 * MAX_KEYS / MAX_ENTRIES;

/// The most processes that share a rate limit.
const MAX_PROCESSES: usize = 1_000;

/// How long after an exchange the next one may begin, however often a store calls.
const GAP: Duration = Duration::from_millis(5);

pub(super) struct Mirror<S> {
    store: S,
    layers: Layers,
    grace: Duration,
    resync: Duration,
    status: Arc<Status>,
    origin: Instant,
    me: String,
    /// The store, and the number up to which it was read.
    read: (String, u64),
    registers: Registers,
    /// The keys of forced states that have found no place.
    homeless: BTreeSet<String>,
}

impl<S: Store> Mirror<S> {
    pub(super) fn new(shared: SharedState<S>) -> Self {
        let SharedState {
            store,
            layers,
            grace,
            resync,
            status,
        } = shared;
        let me = random();
        Self {
            store,
            layers: Layers(layers),
            grace,
            resync,
            status,
            origin: Instant::now(),
            me: format!("{me:016x}"),
            read: (String::new(), 0),
            registers: Registers::new(me),
            homeless: BTreeSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut learnt = self.layers.subscribe();
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
                    if status.lock().is_up == Some(false) {
                        return pending().await;
                    }
                    if let Some(last) = last_sync {
                        sleep_until(last + GAP).await;
                    }
                    store.changed().await;
                };
                let timer = pin!(sleep_until(next_sync));
                match select(learnt.next(), select(pin!(changed), timer)).await {
                    Either::Left((first, _)) => Some(first),
                    Either::Right(_) => None,
                }
            };
            if let Some(first) = woken {
                let Some(first) = first else { return };
                self.learn(first);
                self.learn_all(&mut learnt);
                // A store that is down gets its next exchange on schedule; changes wait for it.
                let is_down = self.status.lock().is_up == Some(false);
                if !self.registers.has_news() || is_down {
                    continue;
                }
            }
            self.sync(&mut learnt).await;
            let now = Instant::now();
            (last_sync, next_sync) = (Some(now), now + self.resync);
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Takes what the layers have told until now.
    fn learn_all(&mut self, learnt: &mut All) {
        while let Some(Some(next)) = learnt.next().now_or_never() {
            self.learn(next);
        }
    }

    fn learn(&mut self, (layer, learnt): (usize, Learnt)) {
        match learnt {
            Learnt::Turned(text, transition) => self.turned(layer, text, &transition),
            Learnt::Cooled(own) => self.cooled(layer, &own),
            Learnt::Missed => self.look_at_all(layer),
        }
    }

    /// This process has met a limit, or a person has ended a cooldown.
    fn cooled(&mut self, layer: usize, own: &OwnCooldown) {
        let Some(key) = self.layers.key(layer, own.key.as_deref()) else {
            return;
        };
        if own.is_cleared {
            self.say(&key, Change::Hand(None));
        }
        if let Some(remaining) = own.remaining {
            let state = match own.is_met {
                true => State::Limited,
                false => State::Cooling,
            };
            self.say(&key, Change::State(state, remaining));
        }
    }

    /// A breaker of this process has changed its state.
    fn turned(&mut self, layer: usize, text: Option<String>, t: &Transition) {
        let Some(text) = text else { return };
        let Some(key) = self.layers.key(layer, Some(&text)) else {
            return;
        };
        let change = match (t.reason, t.to) {
            (TransitionReason::Shared, _) | (_, BreakerState::HalfOpen) => return,
            (TransitionReason::Forced, state) => {
                // Of two changes in the same moment the later one may be told first.
                let breaker = self.layers.breaker(layer, &text);
                let seen = breaker.map(|breaker| breaker.snapshot());
                let seen = seen.filter(|seen| seen.reason == Some(TransitionReason::Forced));
                Change::Hand(by_hand(seen.map_or(state, |seen| seen.state)))
            }
            (_, BreakerState::Open) => Change::State(State::Open, t.open_for.unwrap_or_default()),
            _ => Change::State(State::Closed, Duration::ZERO),
        };
        self.say(&key, change);
    }

    /// Looks at all keys of a layer: some news was missed, or nothing has listened yet.
    fn look_at_all(&mut self, layer: usize) {
        match &self.layers.0[layer].state {
            Of::Breakers(handle) => {
                let handle = handle.clone();
                for breaker in handle.breakers() {
                    let text = handle.key_text(&breaker);
                    self.look_at(layer, text.as_deref(), &breaker);
                }
            }
            Of::Gates(handle) => {
                let all = handle.own_cooldowns();
                all.iter().for_each(|own| self.cooled(layer, own));
            }
        }
    }

    fn look_at(&mut self, layer: usize, text: Option<&str>, breaker: &Breaker) {
        let seen = breaker.snapshot();
        let Some(key) = self.layers.key(layer, text) else {
            return;
        };
        let (mut hand, mut known) = self.registers.see(&key, self.now());
        let by_itself = seen.reason.filter(|reason| {
            !matches!(reason, TransitionReason::Forced | TransitionReason::Shared)
        });
        // A reset was missed, before the breaker changed by itself.
        if hand.is_some() && by_itself.is_some() && !self.homeless.contains(&key) {
            self.say(&key, Change::Hand(None));
            (hand, known) = (None, None);
        }
        let is_open = matches!(known, Some((State::Open, _)));
        // As long as others may have made it.
        let known = known.map_or(Duration::ZERO, |(_, left)| left + self.grace + SLACK);
        let left = seen.retry_after.unwrap_or_default();
        let change = match (seen.state, seen.reason) {
            // A reset of what holds nowhere ends nothing.
            (state, Some(TransitionReason::Forced))
                if state != BreakerState::Closed || hand.is_some() || is_open =>
            {
                Change::Hand(by_hand(state))
            }
            (BreakerState::Open, _) if !seen.adopted && (!is_open || left > known) => {
                Change::State(State::Open, left)
            }
            (BreakerState::Closed, Some(TransitionReason::ProbesSucceeded)) => {
                Change::State(State::Closed, Duration::ZERO)
            }
            _ => return,
        };
        self.say(&key, change);
    }

    fn say(&mut self, key: &str, change: Change) {
        if !self.registers.say(key, change, self.now()) {
            self.status.lock().dropped_total += 1;
        }
    }

    /// Writes pending changes, and takes over new ones.
    async fn sync(&mut self, learnt: &mut All) {
        let begun = Instant::now();
        let mut has_all = false;
        for _ in 0..MAX_EXCHANGES {
            self.learn_all(learnt);
            let entries = self.registers.next(self.now());
            let news = match self.exchange(&entries).await {
                Ok(news) => news,
                Err(error) => {
                    has_all = false;
                    self.failed(&error);
                    break;
                }
            };
            if self.status.lock().is_up.replace(true) != Some(true) {
                tracing::event!(
                    name: STORE, target: TARGET, Level::INFO, { names::field::TO } = "up", "{}", STORE
                );
            }
            // Changes by a person during the exchange come after those of the store.
            self.learn_all(learnt);
            has_all = !news.more;
            self.hear(news);
            // The rest has time until the next exchange.
            if has_all && !self.registers.has_news() || begun.elapsed() > 2 * EXCHANGE {
                break;
            }
        }
        let unanswered = self.registers.end();
        if has_all {
            self.registers.tend(self.now());
            // One that had no place may have one now. A person's change here is not undone.
            let (now, registers, layers) = (self.now(), &self.registers, &self.layers);
            self.homeless.retain(|key| {
                let (Some(state), _) = registers.see(key, now) else {
                    return false;
                };
                !layers.with_breaker(key, true, |breaker| {
                    if breaker.snapshot().reason != Some(TransitionReason::Forced) {
                        breaker.adopt_state(state);
                    }
                })
            });
            // The store is full. It may have room the next time.
            self.status.lock().dropped_total += unanswered as u64;
        }
    }

    async fn exchange(&mut self, entries: &[Entry]) -> Result<News, ToolError> {
        let exchange = Exchange {
            peer: &self.me,
            present_for: self.resync * 3 + EXCHANGE,
            entries,
            store: &self.read.0,
            since: self.read.1,
        };
        match timeout(EXCHANGE, self.store.exchange(exchange)).await {
            Ok(news) => Ok(news?),
            Err(_) => {
                let text = "the store gave no answer in time";
                Err(ToolError::new(ErrorKind::Timeout, text))
            }
        }
    }

    fn failed(&self, error: &ToolError) {
        let mut status = self.status.lock();
        status.failed_total += 1;
        let is_news = status.is_up.replace(false) != Some(false);
        drop(status);
        if is_news {
            tracing::event!(
                name: STORE, target: TARGET, Level::WARN,
                { names::field::TO } = "down", { names::field::ERROR } = error.message(), "{}", STORE
            );
        }
    }

    /// Takes over the news of a store.
    fn hear(&mut self, news: News) {
        let now = self.now();
        if news.store != self.read.0 {
            // Its numbers have begun again, and it may lack changes that another store got.
            self.read = (news.store, 0);
            self.registers.repeat_all(now);
        }
        self.read.1 = self.read.1.max(news.seq);
        for record in news.records.iter().take(2 * MAX_ENTRIES) {
            self.hear_of(record, now);
        }
        let processes = news.processes.clamp(1, MAX_PROCESSES);
        self.status.lock().processes = processes;
        self.layers.share_limits(processes);
    }

    fn hear_of(&mut self, record: &Record, now: Duration) {
        let key = &*record.key;
        let heard = match self.layers.find(key) {
            Some((of, ..)) => {
                let has_gates = matches!(of, Of::Gates(_));
                self.registers.hear(record, has_gates, now)
            }
            None => Heard::Dropped,
        };
        match heard {
            Heard::Nothing => {}
            Heard::Told => self.status.lock().told_total += 1,
            Heard::Adopt(hand, state) => {
                let has_hand = hand.is_none_or(|hand| self.take_hand(key, hand));
                if !has_hand {
                    self.homeless.insert(key.to_owned());
                }
                let has_state = state.is_none_or(|(state, left)| self.take_state(key, state, left));
                match has_hand && has_state {
                    true => self.status.lock().adopted_total += 1,
                    false => self.status.lock().dropped_total += 1,
                }
            }
            Heard::Dropped => self.status.lock().dropped_total += 1,
        }
    }

    /// Takes over a person's change in another process. Returns false without a place for the key.
    fn take_hand(&self, key: &str, hand: Hand) -> bool {
        let state = hand.unwrap_or(BreakerState::Closed);
        match self.layers.find(key) {
            Some((Of::Gates(_), ..)) => self.layers.with_gate(key, None),
            _ => {
                let layers = &self.layers;
                layers.with_breaker(key, hand.is_some(), |breaker| breaker.adopt_state(state))
            }
        }
    }

    /// Takes over a state. Returns false without a place for the key.
    fn take_state(&mut self, key: &str, state: State, left: Duration) -> bool {
        // At random, so that processes do not probe together.
        let jitter = part(self.grace, random());
        let layers = &self.layers;
        match state {
            State::Open => {
                layers.with_breaker(key, true, |breaker| breaker.adopt_later(left, jitter))
            }
            State::Closed => layers.with_breaker(key, false, |breaker| {
                if matches!(breaker.state(), BreakerState::Open | BreakerState::HalfOpen) {
                    breaker.adopt_state(BreakerState::Closed);
                }
            }),
            State::Cooling | State::Limited => {
                layers.with_gate(key, Some((left, state == State::Limited)))
            }
        }
    }
}

/// The state that a person has given a breaker.
fn by_hand(state: BreakerState) -> Hand {
    match state {
        BreakerState::ForcedOpen | BreakerState::ForcedClosed | BreakerState::Disabled => {
            Some(state)
        }
        _ => None,
    }
}
