//! The known registers, one of each key. Pure: time is an argument, counted from any fixed moment.
//!
//! Each key has one register, with a version. A process that learns something by itself writes the
//! next version. The store takes a version only if it is higher than its own, so of two processes
//! that write the same version one is refused, reads what the other has written, and decides anew.
//! However often a process changes its mind before the store has answered, it writes the version
//! after the one that it has read.

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

    /// Returns whether a layer with gates, or one with breakers, may have it.
    fn fits(self, has_gates: bool) -> bool {
        match self {
            Self::Cooling | Self::Limited => has_gates,
            Self::Reset => true,
            _ => !has_gates,
        }
    }

    /// Each kind of state has its own places.
    fn kind(self) -> usize {
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
        Some(Self {
            state: WORDS.iter().find(|(word, _)| *word == name)?.1,
            version: record.version,
            origin: u64::from_str_radix(origin, 16).ok()?,
            until: now + left.saturating_sub(after),
            kept_until: now + left,
        })
    }

    /// When it is over, a reset before it holds again: a process may not have heard of that yet.
    fn at(mut self, now: Duration) -> Self {
        if self.until <= now && now < self.kept_until {
            (self.state, self.until) = (State::Reset, self.kept_until);
        }
        self
    }

    /// What follows for another process: of what is over no more than the end.
    fn news(&self, now: Duration) -> State {
        match self.at(now).state {
            State::Reset if self.state != State::Reset => State::Closed,
            state => state,
        }
    }

    fn has_reset(&self) -> bool {
        self.state == State::Reset || self.kept_until > self.until
    }

    /// Returns whether the store has this change, of those that one process has made.
    fn is(&self, other: &Self, now: Duration) -> bool {
        let is_timed = !self.state.is_by_hand() && self.state != State::Closed;
        let apart = self.until.max(now).abs_diff(other.until.max(now));
        (self.origin, self.state) == (other.origin, other.state)
            && (!is_timed || apart <= 2 * SLACK)
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
    /// Learnt by this process, and the store was not heard to have it: its version is the one after
    /// that which was read.
    is_own: bool,
    /// A person has done it in this process meanwhile: it replaces whatever the store has.
    by_hand: bool,
    /// The kind among which it was counted.
    kind: usize,
}

impl Known {
    /// This process writes the version after one that it has read.
    fn replaces(&mut self, version: u64, me: u64) {
        self.register.version = version + 1;
        self.register.origin = me;
        self.is_own = true;
    }
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
        /// What was known before, a cooldown or a forced state, would have lasted longer.
        shortens: bool,
    },
    /// It is no register, or there is no place for its key.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Registers {
    me: u64,
    known: HashMap<String, Known>,
    /// How many are known of each kind.
    counts: [usize; 3],
    /// When what is over was forgotten last.
    forgotten: Duration,
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
            counts: [0; 3],
            forgotten: Duration::ZERO,
            due: BTreeSet::new(),
            asked: BTreeSet::new(),
            turn,
        }
    }

    /// The state that holds, as far as this process knows.
    pub(super) fn state(&self, key: &str, now: Duration) -> Option<State> {
        let known = self.known.get(key);
        let register = known.map(|known| known.register.at(now));
        register.filter(|r| r.until > now).map(|r| r.state)
    }

    /// Takes what this process has learnt by itself; `lasts` of an opening and a cooldown. False:
    /// there is no place for another key.
    pub(super) fn say(&mut self, key: &str, state: State, lasts: Duration, now: Duration) -> bool {
        // What is over counts from the beginning, as in a process that has forgotten it.
        let known = self.known.get(key);
        let known = known.filter(|known| known.register.kept_until > now);
        let by_hand = known.is_some_and(|known| known.is_own && known.by_hand);
        let until = now.saturating_add(match state {
            State::Closed => LINGER,
            State::Reset | State::Forced(_) => KEPT,
            _ => lasts,
        });
        let register = known.map(|known| known.register);
        let reset = register.filter(Register::has_reset);
        let own = Register {
            state,
            version: known.map_or(1, |known| known.register.version + u64::from(!known.is_own)),
            origin: self.me,
            until,
            kept_until: reset.map_or(until, |reset| until.max(reset.kept_until)),
        };
        // A reset that an opening came after does not tell of this.
        let before = register.filter(|r| r.until > now).map(|r| r.state);
        let is_news = match (state, register) {
            (State::Reset | State::Forced(_), _) => before != Some(state),
            (State::Closed, _) => matches!(before, None | Some(State::Open)),
            (_, Some(r)) => by_hand || own.outlasts(&r.at(now), now),
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
        let kind = register.at(now).state.kind();
        if self.counts[kind] >= MAX_KEYS && !self.known.contains_key(key) {
            // All keys are looked at, so this is not done for each of many.
            if now > self.forgotten + SLACK {
                self.forget(now);
            }
            if self.counts[kind] >= MAX_KEYS && !self.forgets_reset(kind, now) {
                return false;
            }
        }
        let known = Known {
            register,
            is_own,
            by_hand,
            kind,
        };
        self.counts[kind] += 1;
        if let Some(before) = self.known.insert(key.to_owned(), known) {
            self.counts[before.kind] -= 1;
        }
        true
    }

    /// Makes room among what persons have done: the oldest reset is the least that can be
    /// forgotten. False: there is none.
    fn forgets_reset(&mut self, kind: usize, now: Duration) -> bool {
        if kind != State::Reset.kind() {
            return false;
        }
        let resets = self.known.iter().filter(|(_, known)| {
            known.kind == kind && known.register.at(now).state == State::Reset
        });
        let oldest = resets.min_by_key(|(_, known)| known.register.kept_until);
        let Some((oldest, _)) = oldest else {
            return false;
        };
        let oldest = oldest.clone();
        self.counts[kind] -= 1;
        self.known.remove(&oldest);
        self.due.remove(&oldest);
        true
    }

    fn forget(&mut self, now: Duration) {
        (self.forgotten, self.counts) = (now, [0; 3]);
        self.known.retain(|_, known| {
            known.kind = known.register.at(now).state.kind();
            let is_kept = known.register.kept_until > now;
            self.counts[known.kind] += usize::from(is_kept);
            is_kept
        });
        self.due.retain(|key| self.known.contains_key(key));
    }

    /// Forgets what is over, and writes forced states again before the store forgets them. Called
    /// when all that the store has was read.
    pub(super) fn tend(&mut self, now: Duration) {
        let period = KEPT / 2 + (KEPT / 4).mul_f64(self.turn);
        for (key, known) in &mut self.known {
            let register = known.register.at(now);
            if matches!(register.state, State::Forced(_)) && now + KEPT >= register.until + period {
                let register = &mut known.register;
                register.version += u64::from(!std::mem::replace(&mut known.is_own, true));
                register.origin = self.me;
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

    /// Takes what the store has of a key, of a layer with gates or of one with breakers.
    pub(super) fn hear(&mut self, record: &Record, has_gates: bool, now: Duration) -> Heard {
        let key = &*record.key;
        let known = self.known.get_mut(key);
        let version = known.as_ref().map_or(0, |known| known.register.version);
        if key.len() > MAX_KEY_BYTES || record.version > version.saturating_add(MAX_STEP) {
            return Heard::Dropped;
        }
        let new = Register::decode(record, now).filter(|new| new.state.fits(has_gates));
        let Some(raw) = new else {
            // What this process knows replaces it.
            if let Some(known) = known {
                if record.version >= version {
                    known.replaces(record.version, self.me);
                }
                self.again(key);
            }
            return Heard::Dropped;
        };
        let new = raw.at(now);
        let mut shortens = false;
        if let Some(known) = known {
            let own = known.register.at(now);
            let holds = own.until > now;
            let is_tie = raw.version == version;
            if raw.version < version && holds {
                self.again(key);
                return Heard::Nothing;
            }
            if is_tie && raw.is(&known.register, now) {
                let is_told = std::mem::take(&mut known.is_own);
                self.due.remove(key);
                self.asked.remove(key);
                return match is_told {
                    true => Heard::Told(own.state),
                    false => Heard::Nothing,
                };
            }
            // A later change of this process replaces what it has told itself.
            let replaces = known.is_own && (known.by_hand || raw.origin == self.me);
            let is_own = known.is_own || is_tie;
            if holds && (replaces || is_own && own.outlasts(&new, now)) {
                if raw.has_reset() && !own.state.is_by_hand() {
                    known.register.kept_until = own.kept_until.max(raw.kept_until);
                }
                known.replaces(raw.version, self.me);
                self.again(key);
                return Heard::Nothing;
            }
            let is_plain = matches!(own.state, State::Open | State::Closed | State::Reset);
            shortens = holds && own.until > raw.until && !is_plain;
        }
        match self.keep(key, raw, false, false, now) {
            true => Heard::Adopt {
                state: raw.news(now),
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

    /// What the store has after the next exchange.
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
        for (_, state) in WORDS {
            let mut one = Registers::new(7, 0.0);
            assert!(one.say("k", state, secs(30), NOW));
            let written = written(&mut one, NOW);
            let has_gates = state.fits(true);
            let mut other = Registers::new(8, 0.0);
            let heard = other.hear(&written, has_gates, NOW);
            assert!(matches!(heard, Heard::Adopt { state: read, .. } if read == state));
            assert_eq!(one.hear(&written, has_gates, NOW), Heard::Told(state));
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
            let theirs_is = record("k", 1, &format!("1 {theirs} 8 0"), left);
            let has_gates = matches!(ours, State::Limited) || theirs == "limited";
            let heard = registers.hear(&theirs_is, has_gates, NOW);
            assert_eq!(heard == Heard::Nothing, holds, "{ours:?} {theirs} {left}");
            let versions: Vec<_> = registers.next(NOW).iter().map(|e| e.version).collect();
            let expected: &[u64] = if holds { &[2] } else { &[] };
            assert_eq!(versions, expected, "{ours:?} {theirs} {left}");
        }
    }

    /// C8: a process that was faster to change its mind than the store to answer.
    #[test]
    fn changes_that_were_not_told_yet_overtake_nothing() {
        for (changes, theirs) in [
            (
                &[State::Open, State::Closed, State::Open][..],
                "forced_open",
            ),
            (&[State::Open, State::Closed], "open"),
            (&[State::Limited, State::Cooling, State::Limited], "limited"),
        ] {
            let has_gates = theirs == "limited";
            let mut registers = Registers::new(7, 0.0);
            for (n, state) in changes.iter().enumerate() {
                registers.say("k", *state, secs(10 + n as u64), NOW);
            }
            assert_eq!(written(&mut registers, NOW).version, 1, "{theirs}");
            let theirs_is = record("k", 1, &format!("1 {theirs} 8 0"), 200);
            let heard = registers.hear(&theirs_is, has_gates, NOW);
            let is_whole = |heard| match heard {
                Heard::Adopt { left, shortens, .. } => left == secs(200) && !shortens,
                _ => false,
            };
            assert!(is_whole(heard), "{theirs}: {heard:?}");
        }
    }

    /// C8: the store has the change before the last one, whose answer was late.
    #[test]
    fn a_change_is_told_although_the_one_before_it_has_its_version() {
        for (first, then, lasts) in [
            (State::Open, State::Closed, 0),
            (State::Open, State::Open, 60),
            (State::Reset, State::Open, 60),
        ] {
            let mut registers = Registers::new(7, 0.0);
            registers.say("k", first, secs(30), NOW);
            let late = written(&mut registers, NOW);
            registers.say("k", then, secs(lasts), NOW);
            assert_eq!(registers.hear(&late, false, NOW), Heard::Nothing);
            let last = written(&mut registers, NOW);
            assert_eq!(last.version, 2, "{then:?}");
            assert_eq!(registers.hear(&last, false, NOW), Heard::Told(then));
            assert!(!registers.has_news());
        }
    }

    /// C8: for a process that was away meanwhile.
    #[test]
    fn an_opening_that_outlasts_a_reset_remembers_it() {
        let after_reset = format!("1 open 8 {}", secs(3_600).as_millis());
        for (theirs, left) in [("1 reset 8 0", 3_600), (&after_reset, 3_610)] {
            let mut registers = Registers::new(7, 0.0);
            registers.say("k", State::Open, secs(30), NOW);
            registers.next(NOW);
            let theirs = record("k", 1, theirs, left);
            assert_eq!(registers.hear(&theirs, false, NOW), Heard::Nothing);
            let ours = written(&mut registers, NOW + secs(40));
            let mut away = Registers::new(9, 0.0);
            let forced = record("k", 1, "1 disabled 8 0", 3_600);
            away.hear(&forced, false, NOW);
            let heard = away.hear(&ours, false, NOW + secs(40));
            let is_end = matches!(
                heard,
                Heard::Adopt {
                    state: State::Closed,
                    shortens: true,
                    ..
                }
            );
            assert!(is_end, "{heard:?}");
        }
    }

    /// C8: it is written under the name of the process that writes it.
    #[test]
    fn a_forced_state_that_is_written_again_undoes_no_reset() {
        let mut registers = Registers::new(7, 0.0);
        let forced = record("k", 1, "1 forced_open 8 0", KEPT.as_secs());
        registers.hear(&forced, false, NOW);
        let later = NOW + KEPT.mul_f64(0.6);
        registers.tend(later);
        let again = written(&mut registers, later);
        assert_eq!(again.version, 2);
        let reset = record("k", 2, "1 reset 8 0", KEPT.as_secs());
        let heard = registers.hear(&reset, false, later);
        let is_reset = |heard| matches!(heard, Heard::Adopt { state, .. } if state == State::Reset);
        assert!(is_reset(heard), "{heard:?}");
    }

    /// C8: the reset was before the opening.
    #[test]
    fn the_end_of_an_opening_is_told_although_a_reset_came_before() {
        for (after, end, is_told) in [
            (State::Open, State::Closed, true),
            (State::Open, State::Reset, true),
            (State::Reset, State::Closed, false),
            (State::Reset, State::Reset, false),
        ] {
            let mut registers = Registers::new(7, 0.0);
            for state in [State::Reset, after] {
                registers.say("k", state, secs(30), NOW);
            }
            let told = written(&mut registers, NOW);
            assert_eq!(registers.hear(&told, false, NOW), Heard::Told(after));
            // A look at all keys in between changes nothing.
            registers.tend(NOW + secs(40));
            registers.say("k", end, secs(0), NOW + secs(40));
            assert_eq!(registers.has_news(), is_told, "{after:?} {end:?}");
        }
    }

    /// C8: a process that has forgotten a key counts from the beginning.
    #[test]
    fn another_change_is_heard_under_a_version_that_was_used_before() {
        for theirs in ["1 open 8 0", "1 forced_open 8 0"] {
            let mut registers = Registers::new(7, 0.0);
            registers.hear(&record("k", 1, "1 open 8 0", 30), false, NOW);
            let again = record("k", 1, theirs, 60);
            let heard = registers.hear(&again, false, NOW + secs(30));
            assert!(matches!(heard, Heard::Adopt { .. }), "{theirs}: {heard:?}");
            let heard = registers.hear(&again, false, NOW + secs(30));
            assert_eq!(heard, Heard::Nothing);
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
            ("k", 1, "1 limited 8 0"),
        ] {
            let heard = registers.hear(&record(key, version, value, 30), false, NOW);
            assert_eq!(heard, Heard::Dropped, "{value:?}");
        }
        // No gate can be forced, and no process keeps such a register alive.
        let forced = record("k", 1, "1 forced_open 8 0", 30);
        assert_eq!(registers.hear(&forced, true, NOW), Heard::Dropped);
        for n in 0..MAX_KEYS + 100 {
            registers.hear(&record(&n.to_string(), 1, "1 open 8 0", 30), false, NOW);
        }
        assert_eq!(registers.known.len(), MAX_KEYS);
        // A person is heard all the same.
        assert!(registers.say("k", State::Reset, secs(0), NOW));
        registers.tend(NOW + secs(100));
        assert_eq!(registers.known.len(), 1);
    }
}
