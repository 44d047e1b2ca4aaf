//! The known registers, one of each key. Pure: time is an argument, counted from any fixed moment.
//!
//! A register has a version, the state of a breaker or a rate limit, and what a person has done
//! last. A process that learns something by itself writes the next version. The store takes a
//! version only if it is higher than its own, so of two processes that write the same version one
//! is refused, reads what the other has written, and writes on top of that what still holds.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tower_toolcall::circuit_breaker::BreakerState;

use super::{
    random::part,
    store::{Entry, MAX_ENTRIES, MAX_KEY_BYTES, MAX_STEP, MAX_VALUE_BYTES, Record},
};

/// The most keys of each kind that are known here.
pub(super) const MAX_KEYS: usize = 10_000;

/// For how long a closing is kept in the store.
const LINGER: Duration = Duration::from_secs(60);

/// For how long the store keeps what a person has done: a process that is away for longer may miss
/// a reset. Forced states are written again in time, resets are not.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A register that counts so many more changes than are known here is none.
const MAX_CHANGES: u32 = 1 << 20;

/// Openings of two processes that end within this time are one.
pub(super) const SLACK: Duration = Duration::from_secs(1);

/// The state of a breaker, or of a rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// Probes have succeeded; or, without time, nothing holds.
    #[default]
    Closed,
    /// A success has used up what the server grants, or a person has begun a cooldown.
    Cooling,
    /// A limit was met.
    Limited,
}

/// The state that a person has forced; `None`: a reset, or the end of a cooldown.
pub(super) type Hand = Option<BreakerState>;

/// A change that a process learns by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Hand(Hand),
    /// With the time that an opening or a cooldown lasts.
    State(State, Duration),
}

const STATES: [(&str, State); 4] = [
    ("open", State::Open),
    ("closed", State::Closed),
    ("cooling", State::Cooling),
    ("limited", State::Limited),
];

const HANDS: [(&str, Hand); 4] = [
    ("reset", None),
    ("forced_open", Some(BreakerState::ForcedOpen)),
    ("forced_closed", Some(BreakerState::ForcedClosed)),
    ("disabled", Some(BreakerState::Disabled)),
];

fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    let word = words.iter().find(|(_, known)| *known == value);
    word.map_or("", |(word, _)| word)
}

fn value<T: Copy>(words: &[(&str, T)], word: &str) -> Option<T> {
    let value = words.iter().find(|(known, _)| *known == word);
    value.map(|(_, value)| *value)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Register {
    /// 0: there is none.
    version: u64,
    /// The process that has written it.
    origin: u64,
    state: State,
    until: Duration,
    /// How many changes persons have made, the last of them, and until when it is remembered.
    changes: u32,
    hand: Hand,
    hand_until: Duration,
}

impl Register {
    fn kept_until(&self) -> Duration {
        self.until.max(self.hand_until)
    }

    fn encode(&self) -> String {
        let before = |until| (self.kept_until() - until).as_millis();
        format!(
            "2 {} {:016x} {} {} {} {}",
            word(&STATES, self.state),
            self.origin,
            before(self.until),
            self.changes,
            word(&HANDS, self.hand),
            before(self.hand_until),
        )
    }

    fn decode(record: &Record, has_gates: bool, now: Duration) -> Option<Self> {
        if record.value.len() > MAX_VALUE_BYTES {
            return None;
        }
        let mut fields = record.value.strip_prefix("2 ")?.split(' ');
        let left = record.left.min(KEPT);
        let until = |before: &str| {
            let before = Duration::from_millis(before.parse().ok()?);
            Some(now + left.saturating_sub(before))
        };
        let register = Self {
            version: record.version,
            state: value(&STATES, fields.next()?)?,
            origin: u64::from_str_radix(fields.next()?, 16).ok()?,
            until: until(fields.next()?)?,
            changes: fields.next()?.parse().ok()?,
            hand: value(&HANDS, fields.next()?)?,
            hand_until: until(fields.next()?)?,
        };
        let fits = match register.state {
            State::Open => !has_gates,
            State::Closed => true,
            State::Cooling | State::Limited => has_gates,
        };
        let is_fit = fits && !(has_gates && register.hand.is_some()) && fields.next().is_none();
        is_fit.then_some(register)
    }

    /// The state that holds, and for how long.
    fn holds(&self, now: Duration) -> Option<(State, Duration)> {
        let left = self.until.saturating_sub(now);
        (!left.is_zero()).then_some((self.state, left))
    }

    /// Returns whether its state is news beside that of another one.
    fn outlasts(&self, other: &Self, now: Duration) -> bool {
        match (self.state, other.holds(now)) {
            (_, None) => true,
            // A closing ends the openings that it knew.
            (State::Closed, _) => false,
            (_, Some((State::Closed, _))) => true,
            (State::Open, _) => self.until > other.until + SLACK,
            _ => self.until > other.until,
        }
    }

    /// Returns whether both have one state, until about the same moment.
    fn has_state_of(&self, other: &Self, now: Duration) -> bool {
        let apart = self.until.max(now).abs_diff(other.until.max(now));
        self.state == other.state && apart <= 2 * SLACK
    }

    fn has_hand_of(&self, other: &Self) -> bool {
        (self.changes, self.hand) == (other.changes, other.hand)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    register: Register,
    /// The state, and what a person has done, was learnt by this process, and the store was not
    /// heard to have it. The version is the one after that which was read.
    own_state: bool,
    own_hand: bool,
}

impl Known {
    fn kind(&self) -> usize {
        match self.register.state {
            _ if self.register.changes > 0 => 0,
            State::Open | State::Closed => 1,
            State::Cooling | State::Limited => 2,
        }
    }

    /// Returns the known state after another process has written: its register, or a later version
    /// if a part of this process's state still holds.
    fn beside(&self, theirs: Register, me: u64, now: Duration) -> Self {
        let (own, own_hand) = (self.register, self.own_hand);
        // A later change of this process replaces its own earlier one, and a reset by hand replaces
        // every state that it ended.
        let replaces = own_hand && own.hand.is_none() || self.own_state && theirs.origin == me;
        // Only a person ends a cooldown early. A version without the cooldown is from a process
        // that did not know it.
        let is_gate = matches!(own.state, State::Cooling | State::Limited);
        let is_lacking = is_gate && theirs.holds(now).is_none() && theirs.changes <= own.changes;
        let is_own = self.own_state || theirs.version == own.version || is_lacking;
        let holds = is_own && own.holds(now).is_some();
        let own_state = replaces || holds && own.outlasts(&theirs, now);
        let mut register = theirs;
        if own_state {
            (register.state, register.until) = (own.state, own.until);
        }
        let keeps_hand = own_hand || own.changes > theirs.changes;
        if keeps_hand {
            let next = theirs.changes.saturating_add(own_hand.into());
            register.changes = own.changes.max(next);
            (register.hand, register.hand_until) = (own.hand, own.hand_until);
        }
        if own_state || keeps_hand {
            (register.version, register.origin) = (theirs.version + 1, me);
        }
        Self {
            register,
            own_state,
            own_hand,
        }
    }
}

/// The consequence of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The store has no newer version than this process.
    Nothing,
    /// The store has the change of this process.
    Told,
    /// Another process has written it: a person's change, and after that the state, with the
    /// remaining time.
    Adopt(Option<Hand>, Option<(State, Duration)>),
    /// The record is not a register, or its key has no place.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Registers {
    me: u64,
    known: HashMap<String, Known>,
    /// The last time when expired entries were forgotten.
    forgotten: Duration,
    /// The number of known entries of each kind: changes by persons, openings, and cooldowns.
    counts: [usize; 3],
    /// The keys with changes that the store should get.
    due: BTreeSet<String>,
    /// The keys among them that were sent, without an answer yet.
    asked: BTreeSet<String>,
}

impl Registers {
    pub(super) fn new(me: u64) -> Self {
        Self {
            me,
            known: HashMap::new(),
            forgotten: Duration::ZERO,
            counts: [0; 3],
            due: BTreeSet::new(),
            asked: BTreeSet::new(),
        }
    }

    /// Returns the current state of a key, or a register without a version.
    fn get(&self, key: &str, now: Duration) -> Known {
        let known = self.known.get(key).copied();
        let known = known.filter(|known| known.register.kept_until() > now);
        known.unwrap_or_default()
    }

    /// Returns a person's last change, and the state that holds, as known in this process.
    pub(super) fn see(&self, key: &str, now: Duration) -> (Hand, Option<(State, Duration)>) {
        let Known { register, .. } = self.get(key, now);
        (register.hand, register.holds(now))
    }

    /// Records a change of this process. Returns false without a place for another key.
    pub(super) fn say(&mut self, key: &str, change: Change, now: Duration) -> bool {
        let mut known = self.get(key, now);
        let Known {
            register,
            own_state,
            own_hand,
            ..
        } = &mut known;
        let before = *register;
        let is_own = *own_state || *own_hand;
        match change {
            Change::Hand(hand) => {
                register.hand = hand;
                register.hand_until = now + KEPT;
                *own_hand = true;
                if hand.is_none() {
                    (register.state, register.until) = (State::Closed, now);
                    *own_state = false;
                }
                // A reset of nothing is news if no other one is known.
                let ends = before.state != State::Closed || before.changes == 0;
                if before.hand == hand && !(hand.is_none() && ends) {
                    return true;
                }
                register.changes = register.changes.saturating_add(1);
            }
            Change::State(state, lasts) => {
                let lasts = match state {
                    State::Closed => LINGER,
                    _ => lasts.min(KEPT),
                };
                (register.state, register.until) = (state, now.saturating_add(lasts));
                *own_state = true;
                let is_news = match state {
                    State::Closed => before.state == State::Open || before.version == 0,
                    _ => register.outlasts(&before, now),
                };
                if !is_news {
                    return true;
                }
            }
        }
        register.version += u64::from(!is_own);
        register.origin = self.me;
        let has_place = self.keep(key, known, now);
        if has_place {
            self.again(key);
        }
        has_place
    }

    /// Keeps the state of a key. Returns false without a place for another key. Cooldowns and
    /// openings have separate places, so that some remain for changes by persons.
    fn keep(&mut self, key: &str, known: Known, now: Duration) -> bool {
        self.due.remove(key);
        self.asked.remove(key);
        let kind = known.kind();
        let is_full = |this: &Self| match kind {
            0 => this.known.len() >= 3 * MAX_KEYS,
            _ => this.counts[kind] >= MAX_KEYS,
        };
        // This reads all keys, so it is not done for each key.
        if is_full(self) && now > self.forgotten + SLACK {
            self.forget(now);
        }
        if is_full(self) && !self.known.contains_key(key) {
            return false;
        }
        self.counts[kind] += 1;
        if let Some(before) = self.known.insert(key.to_owned(), known) {
            self.counts[before.kind()] -= 1;
        }
        true
    }

    fn forget(&mut self, now: Duration) {
        self.forgotten = now;
        let is_full = self.known.len() >= 3 * MAX_KEYS;
        self.counts = [0; 3];
        self.known.retain(|_, known| {
            let Register {
                until,
                hand,
                hand_until,
                ..
            } = known.register;
            // The store remembers a reset for longer.
            let early = is_full && hand.is_none() && !known.own_hand;
            let hand_until = hand_until.saturating_sub((KEPT - LINGER) * u32::from(early));
            let is_kept = until.max(hand_until) > now;
            self.counts[known.kind()] += usize::from(is_kept);
            is_kept
        });
        self.due.retain(|key| self.known.contains_key(key));
    }

    /// Forgets expired entries, and writes forced states again before the store forgets them.
    /// Called after the whole store was read.
    pub(super) fn tend(&mut self, now: Duration) {
        // The id spreads the moments of the processes.
        let left = KEPT / 2 - part(KEPT / 4, self.me);
        for (key, known) in &mut self.known {
            let is_own = known.own_state || known.own_hand;
            let register = &mut known.register;
            if register.hand.is_some() && now + left >= register.hand_until {
                register.version += u64::from(!is_own);
                register.origin = self.me;
                register.hand_until = now + KEPT;
                self.due.insert(key.clone());
            }
        }
        self.forget(now);
    }

    /// Another store than before is to be told all that holds.
    pub(super) fn repeat_all(&mut self, now: Duration) {
        let all = self.known.iter();
        let all = all.filter(|(_, known)| known.register.kept_until() > now);
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
            let register = self.get(&key, now).register;
            if register.version == 0 {
                self.due.remove(&key);
                continue;
            }
            self.asked.insert(key.clone());
            entries.push(Entry {
                version: register.version,
                value: register.encode(),
                lasts: register.kept_until() - now,
                key,
            });
        }
        entries
    }

    /// Ends the exchanges. Returns how many entries have had no answer; they are told again.
    pub(super) fn end(&mut self) -> usize {
        let count = self.asked.len();
        self.asked.clear();
        count
    }

    /// Takes what the store has of a key, of a layer with gates or of one with breakers.
    pub(super) fn hear(&mut self, record: &Record, has_gates: bool, now: Duration) -> Heard {
        let key = &*record.key;
        let known = self.get(key, now);
        let own = known.register;
        if key.len() > MAX_KEY_BYTES || record.version > own.version.saturating_add(MAX_STEP) {
            return Heard::Dropped;
        }
        let theirs = Register::decode(record, has_gates, now);
        let most = own.changes.saturating_add(MAX_CHANGES);
        let Some(theirs) = theirs.filter(|theirs| theirs.changes <= most) else {
            // What this process knows replaces it.
            if own.version > 0
                && let Some(known) = self.known.get_mut(key)
            {
                if record.version >= own.version {
                    (known.register.version, known.register.origin) = (record.version + 1, self.me);
                }
                self.again(key);
            }
            return Heard::Dropped;
        };
        if theirs.version < own.version {
            self.again(key);
            return Heard::Nothing;
        }
        let (is_same_hand, is_same_state) =
            (theirs.has_hand_of(&own), theirs.has_state_of(&own, now));
        let is_tie = (theirs.version, theirs.origin) == (own.version, own.origin);
        if is_tie && is_same_hand && is_same_state {
            let is_told = known.own_state || known.own_hand;
            if let Some(known) = self.known.get_mut(key) {
                (known.own_state, known.own_hand) = (false, false);
            }
            self.due.remove(key);
            self.asked.remove(key);
            return match is_told {
                true => Heard::Told,
                false => Heard::Nothing,
            };
        }
        let merged = known.beside(theirs, self.me, now);
        let keeps_state = merged.own_state;
        let keeps_hand = !merged.register.has_hand_of(&theirs);
        if !self.keep(key, merged, now) {
            return Heard::Dropped;
        }
        if keeps_state || keeps_hand {
            self.again(key);
        }
        let hand = (!keeps_hand && !is_same_hand).then_some(theirs.hand);
        // A reset ends the state here, and the state that holds comes after it. If another process
        // has written an opening first, this process probes later.
        let is_late = known.own_state && own.state == State::Open;
        let is_news = hand.is_some() || !keeps_state && (is_late || !is_same_state);
        // An opening that a later version lacks has ended.
        let had_opening = own.state == State::Open && own.holds(now).is_some();
        let ended = had_opening.then_some((State::Closed, Duration::ZERO));
        let state = merged.register.holds(now).or(ended).filter(|_| is_news);
        match (hand, state) {
            (None, None) => Heard::Nothing,
            (hand, state) => Heard::Adopt(hand, state),
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
    const RESET: Change = Change::Hand(None);

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn state(state: State) -> Change {
        Change::State(state, secs(30))
    }

    fn record(key: &str, version: u64, value: &str, left: u64) -> Record {
        Record {
            key: key.to_owned(),
            version,
            value: value.to_owned(),
            left: secs(left),
        }
    }

    /// Returns the record in the store after the next exchange.
    fn written(registers: &mut Registers, now: Duration) -> Record {
        let entries = registers.next(now);
        let [entry] = &entries[..] else {
            panic!("{entries:?}");
        };
        Record {
            key: entry.key.clone(),
            version: entry.version,
            value: entry.value.clone(),
            left: entry.lasts,
        }
    }

    /// C8.
    #[test]
    fn a_register_is_read_as_it_was_written() {
        let states = STATES.map(|(_, kind)| state(kind));
        let hands = HANDS.map(|(_, hand)| Change::Hand(hand));
        for change in states.into_iter().chain(hands) {
            let mut one = Registers::new(u64::MAX);
            assert!(one.say("k", change, NOW));
            let written = written(&mut one, NOW);
            assert!(written.value.len() <= MAX_VALUE_BYTES);
            let is_cool = matches!(change, Change::State(State::Cooling | State::Limited, _));
            let heard = Registers::new(8).hear(&written, is_cool, NOW);
            let expected = match change {
                Change::Hand(hand) => Heard::Adopt(Some(hand), None),
                Change::State(State::Closed, _) => {
                    Heard::Adopt(None, Some((State::Closed, LINGER)))
                }
                Change::State(state, lasts) => Heard::Adopt(None, Some((state, lasts))),
            };
            assert_eq!(heard, expected);
            assert_eq!(one.hear(&written, is_cool, NOW), Heard::Told);
            assert!(!one.has_news());
        }
    }

    /// C8: of two processes that have written the same version, the second decides anew.
    #[test]
    fn a_change_that_was_refused_holds_or_gives_way() {
        let forced = Change::Hand(Some(BreakerState::ForcedOpen));
        // Ours lasts for 30 s, what the store has for 60 s, or 10 s.
        for (ours, theirs, left, holds) in [
            (state(State::Open), "open 8 0 0 reset 60000", 60, false),
            (state(State::Open), "open 8 0 0 reset 10000", 10, true),
            (state(State::Open), "closed 8 0 0 reset 60000", 60, true),
            (state(State::Closed), "open 8 0 0 reset 60000", 60, false),
            (
                state(State::Limited),
                "cooling 8 0 0 reset 60000",
                60,
                false,
            ),
            (state(State::Limited), "cooling 8 0 0 reset 10000", 10, true),
            (state(State::Limited), "closed 8 60000 1 reset 0", 60, true),
            (RESET, "limited 8 0 0 reset 60000", 60, true),
            (forced, "closed 8 60000 1 forced_closed 0", 60, true),
        ] {
            let mut registers = Registers::new(7);
            registers.say("k", ours, NOW);
            registers.next(NOW);
            let theirs_is = record("k", 1, &format!("2 {theirs}"), left);
            let has_gates =
                matches!(ours, Change::State(State::Limited, _)) || theirs.starts_with("limited");
            registers.hear(&theirs_is, has_gates, NOW);
            let versions: Vec<_> = registers.next(NOW).iter().map(|e| e.version).collect();
            let expected: &[u64] = if holds { &[2] } else { &[] };
            assert_eq!(versions, expected, "{ours:?} {theirs} {left}");
        }
    }

    /// C8: a reset ends what was open, and an opening after it leaves the reset known.
    #[test]
    fn an_opening_after_a_reset_is_heard_with_it() {
        let mut registers = Registers::new(7);
        registers.say("k", state(State::Open), NOW);
        registers.say("k", RESET, NOW);
        registers.say("k", state(State::Open), NOW);
        let written = written(&mut registers, NOW);
        let mut away = Registers::new(9);
        away.hear(
            &record("k", 1, "2 closed 8 0 1 disabled 0", 3_600),
            false,
            NOW,
        );
        let heard = away.hear(&record("k", 2, &written.value, 604_800), false, NOW);
        // The numbers of changes are the same: the persons did not know of each other.
        assert_eq!(
            heard,
            Heard::Adopt(Some(None), Some((State::Open, secs(30))))
        );
    }

    /// C8: after the store was lost, a process had written an opening that a process with a later
    /// version did not know.
    #[test]
    fn an_opening_that_a_later_version_lacks_ends() {
        let mut registers = Registers::new(7);
        registers.say("k", RESET, NOW);
        registers.say("k", state(State::Open), NOW);
        let told = written(&mut registers, NOW);
        assert_eq!(registers.hear(&told, false, NOW), Heard::Told);
        let later = record("k", 2, "2 closed 8 604800000 1 reset 0", 604_756);
        let heard = registers.hear(&later, false, NOW);
        let closed = (State::Closed, Duration::ZERO);
        assert_eq!(heard, Heard::Adopt(None, Some(closed)));
        assert!(!registers.has_news());
    }

    /// C8: a cooldown is told once more, unless a person has ended it.
    #[test]
    fn a_cooldown_that_a_later_version_lacks_holds() {
        for (changes, is_told) in [(1, true), (2, false)] {
            let mut registers = Registers::new(7);
            registers.say("k", RESET, NOW);
            registers.say("k", state(State::Limited), NOW);
            let told = written(&mut registers, NOW);
            assert_eq!(registers.hear(&told, true, NOW), Heard::Told);
            let later = format!("2 closed 8 604800000 {changes} reset 0");
            let heard = registers.hear(&record("k", 2, &later, 604_756), true, NOW);
            let expected = match is_told {
                true => Heard::Nothing,
                false => Heard::Adopt(Some(None), None),
            };
            assert_eq!((heard, registers.has_news()), (expected, is_told));
        }
    }

    /// C8: input is bounded, and dropped if it is not a register.
    #[test]
    fn what_a_hostile_process_writes_is_dropped() {
        let mut registers = Registers::new(7);
        let long = "k".repeat(MAX_KEY_BYTES + 1);
        let padded = format!("2 open {:064} 0 0 reset 0", 8);
        let good = "2 open 8 0 0 reset 30000";
        for (key, version, value) in [
            (&*long, 1, good),
            ("k", 1, ""),
            ("k", 1, "1 open 8 0 0 reset 0"),
            ("k", 1, "2 ajar 8 0 0 reset 0"),
            ("k", 1, "2 open x 0 0 reset 0"),
            ("k", 1, "2 open 8 0 0 reset 0 0"),
            ("k", 1, &padded),
            ("k", 1, "2 closed 8 0 4294967295 reset 0"),
            ("k", MAX_STEP + 1, good),
            ("k", 1, "2 limited 8 0 0 reset 0"),
        ] {
            let heard = registers.hear(&record(key, version, value, 30), false, NOW);
            assert_eq!(heard, Heard::Dropped, "{value:?}");
        }
        // No gate can be forced, and no process keeps such a register alive.
        let forced = record("k", 1, "2 closed 8 0 1 forced_open 0", 30);
        assert_eq!(registers.hear(&forced, true, NOW), Heard::Dropped);
        for n in 0..MAX_KEYS + 100 {
            registers.hear(&record(&n.to_string(), 1, good, 30), false, NOW);
        }
        assert_eq!(registers.known.len(), MAX_KEYS);
        // A person is heard all the same.
        assert!(registers.say("k", RESET, NOW));
        registers.tend(NOW + secs(100));
        assert_eq!(registers.known.len(), 1);
    }
}
