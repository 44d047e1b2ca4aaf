//! What the words of all processes mean for this one. Pure: time is an argument, counted from any
//! fixed moment.
//!
//! Each process tells one word of a key at a time. The store gives every word a number, so all
//! processes read the words in the same order, and what was lost on the way is read later.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use super::store::{MAX_ENTRIES, MAX_KEY_BYTES, MAX_PEERS, MAX_VALUE_BYTES, News, Record};
use crate::event::transition::BreakerState;

/// The most keys of which words are known here.
pub(super) const MAX_KEYS: usize = 10_000;

/// The most processes whose openings of one key are known, and the largest quorum.
pub(super) const MAX_VOTES: usize = 64;

/// For how long a word is kept beyond the moment that it speaks of, and that the fleet had agreed
/// is known.
pub(super) const LINGER: Duration = Duration::from_secs(60);

/// How much higher than what is known the number of a forced state may be: nobody forces so often.
const MAX_STEP: u64 = 1 << 20;

/// For how long the word of a person is kept in the store. A forced state is told again in half of
/// that time by who has forced it.
pub(super) const FORCED: Duration = Duration::from_secs(24 * 3600);

/// What a person can make of a breaker. Of two states with one number the later in this list holds.
const FORCIBLE: [BreakerState; 4] = [
    BreakerState::Closed,
    BreakerState::ForcedClosed,
    BreakerState::Disabled,
    BreakerState::ForcedOpen,
];

/// What a process tells of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Its breaker is open.
    Open {
        remaining: Duration,
        /// Whether the fleet had agreed before, and a probe of this process has failed: that needs
        /// no other vote.
        agreed: bool,
        /// The number of the last [forced state](Self::Forced) that it knew: a later one ends the
        /// opening.
        after: u64,
    },
    /// It sends a probe for the fleet.
    Probing { remaining: Duration },
    /// Its probes have succeeded. It knew all words up to this number.
    Closed { seen: u64 },
    /// A person has forced the state, or reset it. Of two the one with the higher number holds: a
    /// process that forces a state takes one more than all that it knows of, so that the order and
    /// the number of messages do not matter.
    Forced { state: BreakerState, number: u64 },
    /// A server has asked it to wait. A person who ends the wait forces the key to be closed.
    Cooling {
        remaining: Duration,
        /// Whether a limit was met; else a success has used up what the server grants.
        is_met: bool,
        /// The number of the last such end that it knew.
        after: u64,
    },
}

impl Word {
    /// For how long a store keeps it.
    pub(super) fn lasts(self) -> Duration {
        match self {
            Self::Open { remaining, .. } | Self::Probing { remaining } => {
                remaining.saturating_add(LINGER)
            }
            Self::Cooling { remaining, .. } => remaining,
            Self::Closed { .. } => LINGER,
            Self::Forced { .. } => FORCED,
        }
    }

    pub(super) fn encode(self) -> String {
        match self {
            Self::Open { agreed, after, .. } => match agreed {
                true => format!("1 open {after} agreed"),
                false => format!("1 open {after}"),
            },
            Self::Probing { .. } => "1 probing".to_owned(),
            Self::Closed { seen } => format!("1 closed {seen}"),
            Self::Forced { state, number } => format!("1 forced {} {number}", state.name()),
            Self::Cooling { after, is_met, .. } => match is_met {
                true => format!("1 cooling {after} met"),
                false => format!("1 cooling {after}"),
            },
        }
    }

    /// `left`: for how long the store still keeps it.
    fn decode(value: &str, left: Duration) -> Option<Self> {
        let remaining = left.saturating_sub(LINGER);
        let words = value.len() <= MAX_VALUE_BYTES;
        let words: Vec<_> = words.then(|| value.split(' ').collect())?;
        match words[..] {
            ["1", "open", after, ref agreed @ ..] if matches!(agreed, [] | ["agreed"]) => {
                Some(Self::Open {
                    remaining,
                    agreed: !agreed.is_empty(),
                    after: after.parse().ok()?,
                })
            }
            ["1", "probing"] => Some(Self::Probing { remaining }),
            ["1", "cooling", after, ref met @ ..] if matches!(met, [] | ["met"]) => {
                Some(Self::Cooling {
                    remaining: left,
                    is_met: !met.is_empty(),
                    after: after.parse().ok()?,
                })
            }
            ["1", "closed", seen] => seen.parse().ok().map(|seen| Self::Closed { seen }),
            ["1", "forced", state, number] => {
                let state = FORCIBLE.into_iter().find(|known| known.name() == state)?;
                let number = number.parse().ok()?;
                Some(Self::Forced { state, number })
            }
            _ => None,
        }
    }
}

/// The key under which a store has the forced state of a key: it stands beside what the breaker
/// does by itself. No key of a breaker begins so.
pub(super) fn forced(key: &str) -> String {
    format!("{FORCED_MARK}{key}")
}

const FORCED_MARK: char = '\u{1f}';

/// The key of a breaker or a gate that a store's key is about.
pub(super) fn unmarked(key: &str) -> &str {
    key.strip_prefix(FORCED_MARK).unwrap_or(key)
}

/// What a breaker or a gate of this process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Open(Duration),
    Postpone(Duration),
    Release,
    /// With the number of the word that says so.
    Force(BreakerState, u64),
    /// Whether a limit was met.
    Cool(Duration, bool),
    /// The forced state is what is known already: the store has it.
    Known,
}

#[derive(Clone, Copy, Debug)]
struct Opening {
    seq: u64,
    until: Duration,
    after: u64,
}

/// What is known of one key.
#[derive(Debug, Default)]
struct Topic {
    /// The opening of each process.
    openings: BTreeMap<String, Opening>,
    /// Until when it is known that a quorum had it open.
    agreed_until: Duration,
    /// Openings up to this number are over.
    closed: u64,
    /// The last opening that was taken over.
    adopted: u64,
}

/// The cooldown of a key. One word of one process is enough, as the server itself has said so.
#[derive(Clone, Copy, Debug)]
struct Limit {
    until: Duration,
    after: u64,
    is_met: bool,
}

/// What a person has made of a key.
#[derive(Clone, Copy, Debug)]
struct Forced {
    number: u64,
    state: BreakerState,
    heard_at: Duration,
}

impl Topic {
    /// `None`: there is no place for another process.
    fn open(
        &mut self,
        peer: String,
        opening: Opening,
        peers: &BTreeSet<String>,
        now: Duration,
    ) -> Option<()> {
        if self.openings.len() >= MAX_VOTES {
            let is_alive = |peer: &String, o: &Opening| o.until > now && peers.contains(peer);
            self.openings.retain(|peer, o| is_alive(peer, o));
        }
        let has_place = self.openings.len() < MAX_VOTES || self.openings.contains_key(&peer);
        has_place.then(|| _ = self.openings.insert(peer, opening))
    }
}

/// What this process knows of all others.
#[derive(Debug)]
pub(super) struct Fleet {
    me: String,
    quorum: usize,
    store: String,
    seq: u64,
    peers: BTreeSet<String>,
    topics: HashMap<String, Topic>,
    limits: HashMap<String, Limit>,
    /// The last forced state of each key; a reset too.
    forced: HashMap<String, Forced>,
    /// Keys whose resets had to be forgotten.
    forgotten: Vec<String>,
    /// Records that were no words, or too many.
    dropped: u64,
}

impl Fleet {
    pub(super) fn new(me: String, quorum: usize) -> Self {
        Self {
            me,
            quorum,
            store: String::new(),
            seq: 0,
            peers: BTreeSet::new(),
            topics: HashMap::new(),
            limits: HashMap::new(),
            forced: HashMap::new(),
            forgotten: Vec::new(),
            dropped: 0,
        }
    }

    pub(super) fn me(&self) -> &str {
        &self.me
    }

    /// The store, and the number up to which it was read.
    pub(super) fn cursor(&self) -> (&str, u64) {
        (&self.store, self.seq)
    }

    /// How many processes there are; this one, if no store has told.
    pub(super) fn size(&self) -> usize {
        self.peers.len().max(1)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns whether a quorum has, or had until a moment ago, this key open.
    pub(super) fn has_agreed(&self, key: &str, now: Duration) -> bool {
        let topic = self.topics.get(key);
        topic.is_some_and(|topic| topic.agreed_until > now)
    }

    /// The word of a person who has forced a state here. `None`: there is no place for another key.
    pub(super) fn force(&mut self, key: &str, state: BreakerState, now: Duration) -> Option<Word> {
        let number = self.number(key).saturating_add(1);
        self.keep_forced(key, state, number, now)?;
        Some(Word::Forced { state, number })
    }

    /// `None`: there is no place for another key.
    fn keep_forced(
        &mut self,
        key: &str,
        state: BreakerState,
        number: u64,
        now: Duration,
    ) -> Option<()> {
        if !self.forced.contains_key(key) && self.forced.len() >= MAX_KEYS {
            // The oldest reset: it is the least that can be forgotten.
            let resets = self.forced.iter();
            let resets = resets.filter(|(_, forced)| forced.state == BreakerState::Closed);
            let oldest = resets.min_by_key(|(_, forced)| forced.heard_at)?.0.clone();
            self.forced.remove(&oldest);
            self.forgotten.push(oldest);
        }
        let forced = Forced {
            number,
            state,
            heard_at: now,
        };
        self.forced.insert(key.to_owned(), forced);
        if let Some(topic) = self.topics.get_mut(key) {
            topic.agreed_until = Duration::ZERO;
            // Openings that came after it hold, also where they were taken over before.
            topic.adopted = 0;
        }
        Some(())
    }

    /// The keys of which nothing forced is known any more.
    pub(super) fn take_forgotten(&mut self) -> Vec<String> {
        std::mem::take(&mut self.forgotten)
    }

    /// The number of the last forced state of a key; 0 if there was none.
    pub(super) fn number(&self, key: &str) -> u64 {
        self.forced.get(key).map_or(0, |forced| forced.number)
    }

    /// The last forced state of a key, or its reset.
    pub(super) fn forced(&self, key: &str) -> BreakerState {
        let known = self.forced.get(key);
        known.map_or(BreakerState::Closed, |forced| forced.state)
    }

    /// Takes what a store tells: what is to be done, in this order, and whether it is another store
    /// than before.
    pub(super) fn read(&mut self, news: News, now: Duration) -> (Vec<(String, Act)>, bool) {
        let is_new = news.store != self.store;
        if is_new {
            // Its numbers have begun again.
            self.topics.clear();
            self.limits.clear();
            (self.store, self.seq) = (news.store, 0);
        }
        let peers: BTreeSet<_> = news.peers.into_iter().take(MAX_PEERS).collect();
        let all = peers != self.peers;
        self.peers = peers;
        if self.topics.len().max(self.limits.len()) >= MAX_KEYS {
            self.forget(now);
        }
        let (mut acts, mut touched) = (Vec::new(), BTreeSet::new());
        for record in news.records.into_iter().take(MAX_ENTRIES) {
            if record.seq <= self.seq {
                continue;
            }
            let key = unmarked(&record.key).to_owned();
            match self.hear(&key, record, now) {
                Some(all) => acts.extend(all.into_iter().flatten().map(|act| (key.clone(), act))),
                None => self.dropped += 1,
            }
            touched.insert(key);
        }
        self.seq = self.seq.max(news.seq);
        let keys: Vec<_> = match all {
            true => self.topics.keys().cloned().collect(),
            false => touched.into_iter().collect(),
        };
        for key in keys {
            let act = self.votes(&key, now);
            acts.extend(act.map(|act| (key, act)));
        }
        (acts, is_new)
    }

    /// Takes a word; what follows from it. `None`: it is none, or there is no place for its key.
    fn hear(&mut self, key: &str, record: Record, now: Duration) -> Option<[Option<Act>; 2]> {
        let word = Word::decode(&record.value, record.left)?;
        let is_forced = matches!(word, Word::Forced { .. });
        let is_long = record.key.len().max(record.peer.len()) > MAX_KEY_BYTES;
        if is_long || is_forced != record.key.starts_with(FORCED_MARK) {
            return None;
        }
        match word {
            Word::Forced { state, number } => self.hear_forced(key, state, number, now),
            Word::Cooling {
                remaining,
                is_met,
                after,
            } => {
                let is_ours = record.peer == self.me;
                let until = now.saturating_add(remaining);
                let limit = Limit {
                    until,
                    after,
                    is_met,
                };
                let holds = self.hear_limit(key, limit)? && !is_ours;
                Some([holds.then_some(Act::Cool(remaining, is_met)), None])
            }
            word => Some([self.hear_breaker(key, word, record, now)?, None]),
        }
    }

    fn hear_forced(
        &mut self,
        key: &str,
        state: BreakerState,
        number: u64,
        now: Duration,
    ) -> Option<[Option<Act>; 2]> {
        let rank = |state| FORCIBLE.iter().position(|known| *known == state);
        let known = self.forced.get(key);
        let known = known.map_or((0, None), |forced| (forced.number, rank(forced.state)));
        if number > known.0.saturating_add(MAX_STEP) {
            return None;
        }
        match (number, rank(state)) {
            told if told == known => return Some([Some(Act::Known), None]),
            told if told < known => return Some([None, None]),
            _ => self.keep_forced(key, state, number, now)?,
        }
        // A limit that was met after it holds.
        let limit = self.limits.get(key);
        let limit = limit.filter(|limit| limit.after >= number && limit.until > now);
        let cool = limit.map(|limit| Act::Cool(limit.until - now, limit.is_met));
        Some([Some(Act::Force(state, number)), cool])
    }

    /// Returns whether it holds.
    fn hear_limit(&mut self, key: &str, limit: Limit) -> Option<bool> {
        if limit.after < self.number(key) {
            return Some(false);
        }
        let is_full = self.limits.len() >= MAX_KEYS;
        match self.limits.get_mut(key) {
            // Of one time between two persons' clearings the longest.
            Some(known) if known.after == limit.after => {
                known.is_met |= limit.is_met;
                known.until = known.until.max(limit.until);
            }
            Some(known) if known.after < limit.after => *known = limit,
            Some(_) => return Some(false),
            None if is_full => return None,
            None => _ = self.limits.insert(key.to_owned(), limit),
        }
        Some(true)
    }

    fn hear_breaker(
        &mut self,
        key: &str,
        word: Word,
        record: Record,
        now: Duration,
    ) -> Option<Option<Act>> {
        let is_ours = record.peer == self.me;
        if self.topics.len() >= MAX_KEYS && !self.topics.contains_key(key) {
            return None;
        }
        let topic = self.topics.entry(key.to_owned()).or_default();
        let seq = record.seq;
        Some(match word {
            Word::Open {
                remaining,
                agreed,
                after,
            } => {
                let until = now.saturating_add(remaining);
                topic.open(record.peer, Opening { seq, until, after }, &self.peers, now)?;
                if agreed {
                    topic.agreed_until = topic.agreed_until.max(until.saturating_add(LINGER));
                }
                None
            }
            Word::Probing { remaining } => {
                topic.openings.remove(&record.peer);
                let concerns_us = !is_ours && topic.agreed_until > now;
                concerns_us.then_some(Act::Postpone(remaining))
            }
            Word::Closed { seen } => {
                topic.closed = topic.closed.max(seen.min(seq));
                topic.openings.remove(&record.peer);
                let closed = topic.closed;
                topic.openings.retain(|_, opening| opening.seq > closed);
                topic.agreed_until = Duration::ZERO;
                // Openings that came after it hold, also where they were taken over before.
                topic.adopted = 0;
                (!is_ours).then_some(Act::Release)
            }
            Word::Forced { .. } | Word::Cooling { .. } => return None,
        })
    }

    /// Counts the openings of a key.
    fn votes(&mut self, key: &str, now: Duration) -> Option<Act> {
        let forced = self.number(key);
        let topic = self.topics.get_mut(key)?;
        let living = || {
            let openings = topic.openings.iter();
            openings.filter(|(peer, opening)| {
                opening.until > now && opening.after >= forced && self.peers.contains(*peer)
            })
        };
        let votes = living().count();
        let latest = living().map(|(_, opening)| opening.until).max()?;
        // One alone has nobody to agree with: it does not speak for those who come later.
        let needed = self.quorum.min(self.peers.len().max(2));
        if votes >= needed {
            topic.agreed_until = topic.agreed_until.max(latest.saturating_add(LINGER));
        }
        if topic.agreed_until <= now {
            return None;
        }
        // Who was open first goes on by its own clock, and so probes first.
        let ours = living().find(|(peer, _)| **peer == self.me);
        let ours = ours.map_or(u64::MAX, |(_, opening)| opening.seq);
        let others = living().filter(|(peer, opening)| **peer != self.me && opening.seq < ours);
        let newest = others.clone().map(|(_, opening)| opening.seq).max()?;
        let until = others.map(|(_, opening)| opening.until).max()?;
        if newest <= topic.adopted {
            return None;
        }
        topic.adopted = newest;
        Some(Act::Open(until - now))
    }

    /// Forgets the keys of which nothing is known any more.
    fn forget(&mut self, now: Duration) {
        self.topics.retain(|_, topic| {
            topic.openings.retain(|_, opening| opening.until > now);
            !topic.openings.is_empty() || topic.agreed_until > now
        });
        self.limits.retain(|_, limit| limit.until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn open(secs_left: u64) -> Word {
        Word::Open {
            remaining: secs(secs_left),
            agreed: false,
            after: 0,
        }
    }

    fn force(state: BreakerState, number: u64) -> Word {
        Word::Forced { state, number }
    }

    fn agreed(secs_left: u64) -> Word {
        Word::Open {
            remaining: secs(secs_left),
            agreed: true,
            after: 0,
        }
    }

    fn news(peers: &[&str], words: &[(u64, &str, Word)]) -> News {
        let record = |(seq, peer, word): &(u64, &str, Word)| Record {
            seq: *seq,
            peer: (*peer).to_owned(),
            key: match word {
                Word::Forced { .. } => forced("k"),
                _ => "k".to_owned(),
            },
            value: word.encode(),
            left: word.lasts(),
        };
        News {
            store: "s".to_owned(),
            seq: words.last().map_or(0, |word| word.0),
            peers: peers.iter().map(|peer| (*peer).to_owned()).collect(),
            records: words.iter().map(record).collect(),
            ..News::default()
        }
    }

    /// The acts of process "a" in a fleet of three.
    fn acts(fleet: &mut Fleet, words: &[(u64, &str, Word)], now: Duration) -> Vec<Act> {
        let (acts, _) = fleet.read(news(&["a", "b", "c"], words), now);
        acts.into_iter().map(|(_, act)| act).collect()
    }

    fn fleet(quorum: usize) -> Fleet {
        Fleet::new("a".to_owned(), quorum)
    }

    /// C8.
    #[test]
    fn a_word_is_read_as_it_was_written() {
        for word in [
            open(5),
            agreed(5),
            Word::Probing { remaining: secs(7) },
            Word::Closed { seen: u64::MAX },
            force(BreakerState::ForcedOpen, 1),
            force(BreakerState::Closed, u64::MAX),
        ] {
            assert_eq!(Word::decode(&word.encode(), word.lasts()), Some(word));
        }
        for text in [
            "",
            "open",
            "2 open 0",
            "1 closed -1",
            "1 forced open",
            "1 open 0 agreed ",
            "1 open agreed",
        ] {
            assert_eq!(Word::decode(text, secs(1)), None, "{text:?}");
        }
    }

    /// C8: with a quorum of one, an opening stops all.
    #[test]
    fn one_vote_is_enough_for_a_quorum_of_one() {
        let mut fleet = fleet(1);
        assert_eq!(
            acts(&mut fleet, &[(1, "b", open(30))], NOW),
            [Act::Open(secs(30))]
        );
        // It is the same opening.
        assert_eq!(acts(&mut fleet, &[(1, "b", open(30))], NOW), []);
        assert_eq!(acts(&mut fleet, &[], NOW), []);
    }

    /// C8: one sick process stops nobody.
    #[test]
    fn two_votes_are_needed_for_a_quorum_of_two() {
        let mut fleet = fleet(2);
        assert_eq!(acts(&mut fleet, &[(1, "b", open(30))], NOW), []);
        // The same process again is no other vote.
        assert_eq!(acts(&mut fleet, &[(2, "b", open(30))], NOW), []);
        assert_eq!(
            acts(&mut fleet, &[(3, "c", open(20))], NOW),
            [Act::Open(secs(30))]
        );
    }

    /// C8.
    #[test]
    fn a_vote_ends_with_its_opening_and_with_its_process() {
        let mut fleet = fleet(2);
        assert_eq!(acts(&mut fleet, &[(1, "b", open(30))], NOW), []);
        assert_eq!(acts(&mut fleet, &[(2, "c", open(30))], NOW + secs(30)), []);
        let (acts, _) = fleet.read(news(&["a", "c"], &[(3, "b", open(30))]), NOW + secs(31));
        assert_eq!(acts, []);
    }

    /// C8.
    #[test]
    fn a_quorum_is_no_larger_than_the_fleet() {
        let mut fleet = fleet(3);
        let words = [(1, "b", open(30)), (2, "a", open(30))];
        assert_eq!(acts(&mut fleet, &words, NOW), []);
        // One of three has gone.
        let (acts, _) = fleet.read(news(&["a", "b"], &[]), NOW + secs(1));
        assert_eq!(acts, [("k".to_owned(), Act::Open(secs(29)))]);
    }

    /// C8: one probe for the fleet.
    #[test]
    fn who_was_open_first_is_not_held_back_by_those_that_followed() {
        let mut fleet = fleet(2);
        assert_eq!(
            acts(&mut fleet, &[(1, "a", open(30)), (2, "b", open(31))], NOW),
            []
        );
        assert!(fleet.has_agreed("k", NOW));
    }

    /// C8.
    #[test]
    fn a_failed_probe_speaks_for_a_fleet_that_had_agreed() {
        let mut fleet = fleet(2);
        acts(&mut fleet, &[(1, "b", open(30)), (2, "c", open(30))], NOW);
        let later = NOW + secs(40);
        assert_eq!(
            acts(
                &mut fleet,
                &[(3, "b", Word::Probing { remaining: secs(9) })],
                later
            ),
            [Act::Postpone(secs(9))]
        );
        assert_eq!(
            acts(&mut fleet, &[(4, "b", agreed(30))], later),
            [Act::Open(secs(30))]
        );
    }

    /// C8: a probe of a process that is open alone concerns nobody.
    #[test]
    fn a_probe_for_nobody_postpones_nothing() {
        let mut fleet = fleet(2);
        let words = [
            (1, "b", open(30)),
            (2, "b", Word::Probing { remaining: secs(9) }),
        ];
        assert_eq!(acts(&mut fleet, &words, NOW), []);
    }

    /// C8: two closings, and one that did not know of a later opening.
    #[test]
    fn a_closing_ends_the_openings_that_it_knew() {
        let mut fleet = fleet(1);
        acts(&mut fleet, &[(1, "b", open(30))], NOW);
        let closing = Word::Closed { seen: 1 };
        assert_eq!(acts(&mut fleet, &[(2, "c", closing)], NOW), [Act::Release]);
        assert_eq!(acts(&mut fleet, &[(3, "b", closing)], NOW), [Act::Release]);
        let words = [(4, "b", open(30)), (5, "c", Word::Closed { seen: 3 })];
        assert_eq!(
            acts(&mut fleet, &words, NOW),
            [Act::Release, Act::Open(secs(30))]
        );
    }

    /// C8: also if the opening was taken over before.
    #[test]
    fn a_closing_leaves_a_later_opening_whatever_is_read_first() {
        let mut fleet = fleet(1);
        let opening = Act::Open(secs(30));
        assert_eq!(acts(&mut fleet, &[(4, "b", open(30))], NOW), [opening]);
        let closing = [(5, "c", Word::Closed { seen: 3 })];
        assert_eq!(acts(&mut fleet, &closing, NOW), [Act::Release, opening]);
    }

    /// C8.
    #[test]
    fn a_number_that_nobody_can_have_reached_is_no_word() {
        let mut fleet = fleet(1);
        let far = force(BreakerState::ForcedOpen, u64::MAX);
        assert_eq!(acts(&mut fleet, &[(1, "b", far)], NOW), []);
        assert_eq!((fleet.dropped(), fleet.number("k")), (1, 0));
    }

    /// C8.
    #[test]
    fn a_forced_state_is_taken_over_and_ends_what_was_before() {
        let mut fleet = fleet(1);
        let disabled = force(BreakerState::Disabled, 1);
        let words = [(1, "b", open(30)), (2, "c", disabled)];
        let act = Act::Force(BreakerState::Disabled, 1);
        assert_eq!(acts(&mut fleet, &words, NOW), [act]);
    }

    /// C8: it does not matter who tells it, and when.
    #[test]
    fn the_last_of_forced_states_holds_in_whatever_order_they_are_told() {
        let words = [
            force(BreakerState::ForcedOpen, 1),
            force(BreakerState::Disabled, 2),
            force(BreakerState::Closed, 3),
            force(BreakerState::ForcedClosed, 3),
        ];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            let mut fleet = fleet(1);
            for (n, word) in order.into_iter().enumerate() {
                acts(&mut fleet, &[(n as u64 + 1, "b", words[word])], NOW);
            }
            assert_eq!(fleet.forced("k"), BreakerState::ForcedClosed);
            let next = fleet.force("k", BreakerState::Closed, NOW);
            assert_eq!(next, Some(force(BreakerState::Closed, 4)));
        }
    }

    /// C8: what comes in is bounded, and dropped where it is no word.
    #[test]
    fn what_a_hostile_process_writes_is_dropped_and_counted() {
        let mut fleet = fleet(1);
        let mut hostile = news(&["a", "b"], &[(1, "b", open(30))]);
        hostile.records[0].value = "1 open 0 ".repeat(100);
        assert_eq!(fleet.read(hostile, NOW).0, []);
        assert_eq!(fleet.dropped(), 1);
        let mut long = news(&["a", "b"], &[(1, "b", open(30))]);
        (long.seq, long.records[0].seq) = (2, 2);
        long.records[0].key = "k".repeat(MAX_KEY_BYTES + 1);
        assert_eq!(fleet.read(long, NOW).0, []);
        assert_eq!(fleet.dropped(), 2);
        for n in (0..2 * MAX_KEYS as u64).step_by(250) {
            let words: Vec<_> = (3..253).map(|seq| (n + seq, "b", open(30))).collect();
            let mut many = news(&["a", "b"], &words);
            for record in &mut many.records {
                record.key = record.seq.to_string();
            }
            fleet.read(many, NOW);
        }
        assert_eq!(fleet.topics.len(), MAX_KEYS);
        assert_eq!(fleet.dropped(), 2 + MAX_KEYS as u64);
        fleet.forget(NOW + secs(1_000));
        assert_eq!(fleet.topics.len(), 0);
    }

    /// C8: a store that has lost everything.
    #[test]
    fn a_new_store_is_read_from_its_beginning() {
        let mut fleet = fleet(1);
        acts(&mut fleet, &[(9, "b", open(30))], NOW);
        let mut fresh = news(&["a", "b"], &[(1, "b", open(30))]);
        fresh.store = "another".to_owned();
        let (acts, is_new) = fleet.read(fresh, NOW);
        assert!(is_new);
        assert_eq!(acts, [("k".to_owned(), Act::Open(secs(30)))]);
        assert_eq!(fleet.cursor(), ("another", 1));
    }
}
