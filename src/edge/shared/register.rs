//! What is known of each key. Pure: time is an argument, counted from any fixed moment.
//!
//! Each key has one register, with a version. A process that learns something by itself writes the
//! next version. The store takes a version only if it is higher than its own, so of two processes
//! that write the same version one is refused, reads what the other has written, and decides anew.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::store::{Entry, MAX_ENTRIES, MAX_KEY_BYTES, MAX_STEP, MAX_VALUE_BYTES, Record};
use crate::event::transition::BreakerState;

/// The most keys of each kind of state that are known here.
pub(super) const MAX_KEYS: usize = 10_000;

/// For how long a closing is kept in the store.
const LINGER: Duration = Duration::from_secs(60);

/// For how long the store keeps what a person has done: a process that is away for longer may miss
/// a reset. Forced states are written again in time, resets are not.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Openings of two processes that end within this time are one.
const SLACK: Duration = Duration::from_secs(1);

/// The state of a breaker, or of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// Probes have succeeded.
    Closed,
    /// A success has used up what the server grants, or a person has begun a cooldown.
    Cooling,
    /// A limit was met.
    Limited,
    /// A person has reset a breaker, or ended a cooldown.
    Reset,
    /// A person has forced a breaker.
    Forced(BreakerState),
}

const WORDS: [(&str, State); 8] = [
    ("open", State::Open),
    ("closed", State::Closed),
    ("cooling", State::Cooling),
    ("limited", State::Limited),
    ("reset", State::Reset),
    ("forced_open", State::Forced(BreakerState::ForcedOpen)),
    ("forced_closed", State::Forced(BreakerState::ForcedClosed)),
    ("disabled", State::Forced(BreakerState::Disabled)),
];

impl State {
    fn name(self) -> &'static str {
        let word = WORDS.iter().find(|(_, state)| *state == self);
        word.map_or("", |(name, _)| name)
    }

    fn is_by_hand(self) -> bool {
        matches!(self, Self::Reset | Self::Forced(_))
    }

    /// Each kind of state has its own places.
    fn kind(self) -> u8 {
        match self {
            Self::Open | Self::Closed => 0,
            Self::Cooling | Self::Limited => 1,
            Self::Reset | Self::Forced(_) => 2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Register {
    state: State,
    version: u64,
    /// The process that has written it.
    origin: u64,
    until: Duration,
    /// Until when a reset before it is remembered; else as `until`.
    kept_until: Duration,
}

impl Register {
    fn encode(&self) -> String {
        let after = self.kept_until.saturating_sub(self.until).as_millis();
        format!("1 {} {:016x} {after}", self.state.name(), self.origin)
    }

    fn decode(record: &Record, now: Duration) -> Option<Self> {
        let is_long = record.value.len() > MAX_VALUE_BYTES;
        let rest = record.value.strip_prefix("1 ").filter(|_| !is_long)?;
        let (name, rest) = rest.split_once(' ')?;
        let (origin, after) = rest.split_once(' ')?;
        let left = record.left.min(KEPT);
        let after = Duration::from_millis(after.parse().ok()?);
        let mut register = Self {
            state: WORDS.iter().find(|(word, _)| *word == name)?.1,
            version: record.version,
            origin: u64::from_str_radix(origin, 16).ok()?,
            until: now + left.saturating_sub(after),
            kept_until: now + left,
        };
        register.settle(now);
        Some(register)
    }

    /// When it is over, a reset before it holds again: a process may not have heard of that yet.
    fn settle(&mut self, now: Duration) {
        if self.until <= now && now < self.kept_until {
            (self.state, self.until) = (State::Reset, self.kept_until);
        }
    }

    /// Returns whether it holds beside what another process has written at the same time.
    fn outlasts(&self, other: &Self, now: Duration) -> bool {
        if other.until <= now {
            return true;
        }
        match (self.state, other.state) {
            // A closing ends the openings that it knew.
            (State::Closed, _) => false,
            (own, other) if own.is_by_hand() => !other.is_by_hand(),
            (_, State::Forced(_)) => false,
            (State::Open, State::Open) => self.until > other.until + SLACK,
            (State::Cooling | State::Limited, State::Cooling | State::Limited) => {
                self.until > other.until
            }
            _ => true,
        }
    }
}

#[derive(Debug)]
struct Known {
    register: Register,
    /// Learnt by this process, and the store was not heard to have it.
    is_own: bool,
    /// A person has done it in this process meanwhile: it replaces whatever the store has.
    by_hand: bool,
}

/// What follows from a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The store is as far as this process, or less far.
    Nothing,
    /// The store has what this process has told.
    Told(State),
    /// Another process has written it, with the time that is left.
    Adopt {
        state: State,
        left: Duration,
        /// What was known before would have lasted longer.
        shortens: bool,
    },
    /// It is no register, or there is no place for its key.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Registers {
    me: u64,
    known: HashMap<String, Known>,
    /// The keys that the store is to be told of.
    due: BTreeSet<String>,
    /// Those among them that it was told of, and has not answered.
    asked: BTreeSet<String>,
    /// From 0 to 1, different in each process: what all would repeat is repeated by one.
    turn: f64,
}

impl Registers {
    pub(super) fn new(me: u64, turn: f64) -> Self {
        Self {
            me,
            known: HashMap::new(),
            due: BTreeSet::new(),
            asked: BTreeSet::new(),
            turn,
        }
    }

    /// The state that holds, as far as this process knows.
    pub(super) fn state(&self, key: &str, now: Duration) -> Option<State> {
        let known = self.known.get(key);
        let holds = known.filter(|known| known.register.until > now);
        holds.map(|known| known.register.state)
    }

    /// Takes what this process has learnt by itself; `lasts` of an opening and a cooldown. False:
    /// there is no place for another key.
    pub(super) fn say(&mut self, key: &str, state: State, lasts: Duration, now: Duration) -> bool {
        if let Some(known) = self.known.get_mut(key) {
            known.register.settle(now);
        }
        let known = self.known.get(key);
        let by_hand = known.is_some_and(|known| known.is_own && known.by_hand);
        let until = now.saturating_add(match state {
            State::Closed => LINGER,
            State::Reset | State::Forced(_) => KEPT,
            _ => lasts,
        });
        let register = known.map(|known| &known.register);
        let reset = register.filter(|r| r.state == State::Reset || r.kept_until > r.until);
        let own = Register {
            state,
            version: known.map_or(0, |known| known.register.version) + 1,
            origin: self.me,
            until,
            kept_until: reset.map_or(until, |reset| until.max(reset.kept_until)),
        };
        let before = self.state(key, now);
        let is_news = match (state, known) {
            (State::Reset | State::Forced(_), _) => before != Some(state),
            (State::Closed, _) => matches!(before, None | Some(State::Open)),
            (_, Some(known)) => by_hand || own.outlasts(&known.register, now),
            (_, None) => true,
        };
        if !is_news {
            return true;
        }
        let has_place = self.keep(key, own, true, by_hand || state.is_by_hand(), now);
        if has_place {
            self.due.insert(key.to_owned());
        }
        has_place
    }

    /// False: there is no place for another key.
    fn keep(
        &mut self,
        key: &str,
        register: Register,
        is_own: bool,
        by_hand: bool,
        now: Duration,
    ) -> bool {
        self.due.remove(key);
        self.asked.remove(key);
        if self.known.len() >= MAX_KEYS && !self.known.contains_key(key) {
            self.forget(now);
            let kind = register.state.kind();
            let is_alike = |known: &&Known| known.register.state.kind() == kind;
            if self.known.values().filter(is_alike).count() >= MAX_KEYS {
                // The oldest reset is the least that can be forgotten.
                let resets = self.known.iter();
                let resets = resets.filter(|(_, known)| known.register.state == State::Reset);
                let oldest = resets.min_by_key(|(_, known)| known.register.until);
                let Some(oldest) = oldest.filter(|_| kind == State::Reset.kind()) else {
                    return false;
                };
                let oldest = oldest.0.clone();
                self.known.remove(&oldest);
                self.due.remove(&oldest);
            }
        }
        let known = Known {
            register,
            is_own,
            by_hand,
        };
        self.known.insert(key.to_owned(), known);
        true
    }

    fn forget(&mut self, now: Duration) {
        self.known
            .retain(|_, known| known.register.kept_until > now);
        self.due.retain(|key| self.known.contains_key(key));
    }

    /// Forgets what is over, and writes forced states again before the store forgets them.
    pub(super) fn tend(&mut self, now: Duration) {
        let period = KEPT / 2 + (KEPT / 4).mul_f64(self.turn);
        for (key, known) in &mut self.known {
            let register = &mut known.register;
            register.settle(now);
            if matches!(register.state, State::Forced(_)) && now + KEPT >= register.until + period {
                register.version += 1;
                register.until = now + KEPT;
                register.kept_until = register.until;
                self.due.insert(key.clone());
            }
        }
        self.forget(now);
    }

    /// Another store than before is to be told all that holds.
    pub(super) fn repeat_all(&mut self, now: Duration) {
        let all = self.known.iter();
        let all = all.filter(|(_, known)| known.register.kept_until > now);
        self.due.extend(all.map(|(key, _)| key.clone()));
    }

    pub(super) fn has_news(&self) -> bool {
        self.due.len() > self.asked.len()
    }

    /// The entries of the next exchange.
    pub(super) fn next(&mut self, now: Duration) -> Vec<Entry> {
        let keys = self.due.difference(&self.asked).cloned();
        let keys: Vec<_> = keys.take(MAX_ENTRIES).collect();
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            match self.known.get(&key).map(|known| known.register) {
                Some(register) if register.kept_until > now => {
                    self.asked.insert(key.clone());
                    entries.push(Entry {
                        version: register.version,
                        value: register.encode(),
                        lasts: register.kept_until - now,
                        key,
                    });
                }
                _ => _ = self.due.remove(&key),
            }
        }
        entries
    }

    /// Ends the exchanges. Returns how many entries have had no answer; they are told again.
    pub(super) fn end(&mut self) -> usize {
        let count = self.asked.len();
        self.asked.clear();
        count
    }

    /// Takes what the store has of a key.
    pub(super) fn hear(&mut self, record: &Record, now: Duration) -> Heard {
        let key = &*record.key;
        let known = self.known.get_mut(key);
        let version = known.as_ref().map_or(0, |known| known.register.version);
        if key.len() > MAX_KEY_BYTES || record.version > version.saturating_add(MAX_STEP) {
            return Heard::Dropped;
        }
        let Some(new) = Register::decode(record, now) else {
            // What this process knows replaces it.
            if let Some(known) = known {
                known.register.version = version.max(record.version + 1);
                self.again(key);
            }
            return Heard::Dropped;
        };
        let mut shortens = false;
        if let Some(known) = known {
            let own = &mut known.register;
            own.settle(now);
            let holds = own.until > now;
            let is_tie = new.version == version;
            if new.version < version && holds {
                self.again(key);
                return Heard::Nothing;
            }
            if is_tie && new.origin == own.origin {
                let (is_told, state) = (std::mem::take(&mut known.is_own), own.state);
                self.due.remove(key);
                self.asked.remove(key);
                return match is_told {
                    true => Heard::Told(state),
                    false => Heard::Nothing,
                };
            }
            let replaces = known.is_own && known.by_hand;
            let is_own = known.is_own || is_tie;
            if holds && (replaces || is_own && own.outlasts(&new, now)) {
                own.version = new.version + 1;
                self.again(key);
                return Heard::Nothing;
            }
            shortens = holds && own.until > new.until;
        }
        match self.keep(key, new, false, false, now) {
            true => Heard::Adopt {
                state: new.state,
                left: new.until.saturating_sub(now),
                shortens,
            },
            false => Heard::Dropped,
        }
    }

    /// Tells of a key once more.
    fn again(&mut self, key: &str) {
        self.asked.remove(key);
        self.due.insert(key.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn record(key: &str, version: u64, value: &str, left: u64) -> Record {
        Record {
            key: key.to_owned(),
            version,
            value: value.to_owned(),
            left: secs(left),
        }
    }

    /// C8.
    #[test]
    fn a_register_is_read_as_it_was_written() {
        for (_, state) in WORDS {
            let mut one = Registers::new(7, 0.0);
            assert!(one.say("k", state, secs(30), NOW));
            let entries = one.next(NOW);
            let written = record("k", 1, &entries[0].value, 30);
            let mut other = Registers::new(8, 0.0);
            let heard = other.hear(&written, NOW);
            assert!(matches!(heard, Heard::Adopt { state: read, .. } if read == state));
            assert_eq!(one.hear(&written, NOW), Heard::Told(state));
            assert!(!one.has_news());
        }
    }

    /// C8: of two processes that have written the same version, the second decides anew.
    #[test]
    fn a_change_that_was_refused_holds_or_gives_way() {
        let forced = State::Forced(BreakerState::ForcedOpen);
        // Ours lasts for 30 s, what the store has for 60 s, or 10 s.
        for (ours, theirs, left, holds) in [
            (State::Open, "open", 60, false),
            (State::Open, "open", 10, true),
            (State::Open, "closed", 60, true),
            (State::Open, "forced_closed", 60, false),
            (State::Closed, "open", 60, false),
            (State::Limited, "cooling", 60, false),
            (State::Limited, "cooling", 10, true),
            (State::Limited, "reset", 60, true),
            (State::Reset, "limited", 60, true),
            (forced, "forced_closed", 60, true),
        ] {
            let mut registers = Registers::new(7, 0.0);
            registers.say("k", ours, secs(30), NOW);
            registers.next(NOW);
            let heard = registers.hear(&record("k", 1, &format!("1 {theirs} 8 0"), left), NOW);
            assert_eq!(heard == Heard::Nothing, holds, "{ours:?} {theirs} {left}");
            let versions: Vec<_> = registers.next(NOW).iter().map(|e| e.version).collect();
            let expected: &[u64] = if holds { &[2] } else { &[] };
            assert_eq!(versions, expected, "{ours:?} {theirs} {left}");
        }
    }

    /// C8: what comes in is bounded, and dropped where it is no register.
    #[test]
    fn what_a_hostile_process_writes_is_dropped() {
        let mut registers = Registers::new(7, 0.0);
        let long = "k".repeat(MAX_KEY_BYTES + 1);
        let padded = format!("1 open {:064} 0", 8);
        for (key, version, value) in [
            (&*long, 1, "1 open 8 0"),
            ("k", 1, ""),
            ("k", 1, "2 open 8 0"),
            ("k", 1, "1 ajar 8 0"),
            ("k", 1, "1 open x 0"),
            ("k", 1, &padded),
            ("k", MAX_STEP + 1, "1 open 8 0"),
        ] {
            let heard = registers.hear(&record(key, version, value, 30), NOW);
            assert_eq!(heard, Heard::Dropped, "{value:?}");
        }
        for n in 0..MAX_KEYS + 100 {
            registers.hear(&record(&n.to_string(), 1, "1 open 8 0", 30), NOW);
        }
        assert_eq!(registers.known.len(), MAX_KEYS);
        // A person is heard all the same.
        assert!(registers.say("k", State::Reset, secs(0), NOW));
        registers.tend(NOW + secs(100));
        assert_eq!(registers.known.len(), 1);
    }
}
