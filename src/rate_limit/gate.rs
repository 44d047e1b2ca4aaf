//! The gate of one key. Pure: time is an argument, counted from any fixed moment.
//!
//! A rate limit closes it for as long as the server says. After that, calls return one by one, ever
//! faster, so that they do not meet the limit together again: from one call per second on, at twice
//! the rate each second. If a return has met the limit before, the next one begins at half the rate
//! that was too much, grows to that rate within ten seconds, and only then doubles, every five. So
//! every return ends within a minute and a half, whatever the demand. Processes that share the
//! limit share the turns.

use std::{collections::BTreeSet, time::Duration};

/// Calls per second from which no call is held back any more.
const FREE: f64 = 1000.0;

/// The return is over when no call had to be held back for this time.
const IDLE: Duration = Duration::from_secs(10);

/// The longest cooldown that other calls share. The call that met the limit gets the full one in
/// its error.
pub(super) const MAX_COOLDOWN: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Gate {
    returning: Option<Return>,
    /// Counts cooldowns and their extensions. A call that waits in an earlier round has to ask
    /// again.
    round: u32,
    /// The latest moment seen.
    now: Duration,
    /// The share of the next return.
    pub(super) share: Share,
    pub(super) own: Own,
}

/// Which of a return's turns are this process's, if several share the limit: each has one of so
/// many, in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) processes: u32,
    /// How many turns of others come before its first.
    pub(super) first: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            processes: 1,
            first: 0,
        }
    }
}

/// The cooldown of the key that this process knows itself: not by texts, and not from other
/// processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    /// The cooldown lasts until then at least.
    pub(super) until: Option<Duration>,
    /// Set if a limit was met; else a success has used up the server's grant.
    pub(super) is_met: bool,
    /// An operator has ended a cooldown, and no subscriber knows it yet.
    pub(super) is_cleared: bool,
}

#[derive(Debug)]
struct Return {
    /// When the cooldown ends.
    since: Duration,
    /// The next turn that was not given yet.
    next: Duration,
    /// Turns that were given and came back unused.
    free: BTreeSet<Duration>,
    /// Turns that were given.
    given: u32,
    /// The rate at which a return before has met the limit.
    ceiling: Option<f64>,
    /// Of how many processes each has one turn of so many.
    processes: u32,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Send the call now.
    Go,
    /// Send the call then, if the round is still the same.
    At(Duration),
    /// Its turn would come then, which is too late.
    TooLate(Duration),
}

impl Return {
    fn new(since: Duration, ceiling: Option<f64>, share: Share) -> Self {
        let mut new = Self {
            since,
            next: since,
            free: BTreeSet::new(),
            given: 0,
            ceiling,
            processes: share.processes,
        };
        new.next = new.later(since, share.first);
        new
    }

    /// Calls per second at a moment.
    fn rate(&self, at: Duration) -> f64 {
        let secs = at.saturating_sub(self.since).as_secs_f64();
        let rate = match self.ceiling {
            None => secs.exp2(),
            Some(ceiling) if secs < 10.0 => ceiling / 2.0 * (1.0 + secs / 10.0),
            Some(ceiling) => ceiling * ((secs - 10.0) / 5.0).exp2(),
        };
        rate.clamp(0.5, FREE)
    }

    /// Returns the turn after one of this process.
    fn after(&self, turn: Duration) -> Duration {
        self.later(turn, self.processes)
    }

    /// Returns the turn that comes `turns` later, over all processes.
    fn later(&self, turn: Duration, turns: u32) -> Duration {
        let next =
            |turn: Duration, _| turn.saturating_add(Duration::from_secs_f64(1.0 / self.rate(turn)));
        (0..turns).fold(turn, next)
    }
}

impl Gate {
    pub(super) fn is_open(&self) -> bool {
        self.returning.is_none()
    }

    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// Returns when the next call could be sent; `None` if immediately.
    pub(super) fn closed_until(&self, now: Duration) -> Option<Duration> {
        let now = self.now.max(now);
        let returning = self.returning.as_ref()?;
        (returning.next > now).then_some(returning.next)
    }

    /// Returns the rest of the cooldown itself, if it is not over yet.
    pub(super) fn remaining(&self, now: Duration) -> Option<Duration> {
        let now = self.now.max(now);
        let since = self.returning.as_ref()?.since;
        (since > now).then(|| since - now)
    }

    /// Opens it, whatever was before. Whether it was closed.
    pub(super) fn clear(&mut self) -> bool {
        let was_closed = self.returning.take().is_some();
        self.round = self.round.wrapping_add(u32::from(was_closed));
        was_closed
    }

    /// Gives a call its turn, unless that would come after `latest`.
    pub(super) fn admit(&mut self, now: Duration, latest: Duration) -> Admission {
        self.now = self.now.max(now);
        let now = self.now;
        let Some(returning) = &mut self.returning else {
            return Admission::Go;
        };
        let idle = now >= returning.next.saturating_add(IDLE);
        // Calls that still wait keep their turns, which come within moments.
        if now >= returning.since && (idle || returning.rate(now) >= FREE) {
            self.returning = None;
            return Admission::Go;
        }
        // A turn that was given back comes first, if its time has not passed.
        while returning.free.first().is_some_and(|&turn| turn < now) {
            returning.free.pop_first();
        }
        let again = returning.free.first().copied();
        let turn = again.unwrap_or(returning.next.max(now));
        if turn > now && turn > latest {
            return Admission::TooLate(turn);
        }
        match again {
            Some(turn) => {
                returning.free.remove(&turn);
            }
            None => returning.next = returning.after(turn),
        }
        returning.given = returning.given.saturating_add(1);
        if turn > now {
            Admission::At(turn)
        } else {
            Admission::Go
        }
    }

    /// Takes back a turn that was not used.
    pub(super) fn give_back(&mut self, round: u32, turn: Duration) {
        let Some(returning) = &mut self.returning else {
            return;
        };
        if round != self.round || turn < self.now {
            return;
        }
        returning.given = returning.given.saturating_sub(1);
        returning.free.insert(turn);
        // A turn at the end of the queue shortens the queue.
        while let Some(last) = returning.free.last().copied()
            && returning.after(last) == returning.next
        {
            returning.free.remove(&last);
            returning.next = last;
        }
    }

    /// A call that was admitted in `round` has met the limit; the server wants `delay`.
    pub(super) fn limit(&mut self, now: Duration, round: u32, delay: Duration) {
        self.now = self.now.max(now);
        let ceiling = match &self.returning {
            // A call that was sent before the cooldown began says nothing of the rate.
            Some(returning) if round != self.round || self.now < returning.since => {
                return self.cool(now, delay);
            }
            // Nor does the first one of a return, even with a queue behind it: of several processes
            // it was another's.
            Some(returning)
                if (returning.given > 1 || returning.processes > 1)
                    && self.now >= returning.later(returning.since, 1) =>
            {
                // What was sent was sent at that rate at most, whenever the answer comes. Others'
                // turns go on.
                let sent = match returning.processes {
                    1 => returning.next.min(self.now),
                    _ => self.now,
                };
                Some(returning.rate(sent))
            }
            Some(returning) => returning.ceiling,
            None => None,
        };
        self.close(delay, ceiling);
    }

    /// Begins a cooldown of `delay` after the server's grant was used up: no limit was met.
    pub(super) fn cool(&mut self, now: Duration, delay: Duration) {
        self.now = self.now.max(now);
        let ceiling = match &self.returning {
            Some(returning) if returning.since >= self.now.saturating_add(delay) => return,
            Some(returning) => returning.ceiling,
            None => None,
        };
        self.close(delay, ceiling);
    }

    fn close(&mut self, delay: Duration, ceiling: Option<f64>) {
        let until = self.now.saturating_add(delay.min(MAX_COOLDOWN));
        self.round = self.round.wrapping_add(1);
        self.returning = Some(Return::new(until, ceiling, self.share));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn cooling(delay: Duration) -> Gate {
        let mut gate = Gate::default();
        gate.limit(secs(0), 0, delay);
        gate
    }

    #[test]
    fn an_open_gate_lets_every_call_pass() {
        let mut gate = Gate::default();
        assert!((0..1000).all(|_| gate.admit(secs(0), secs(0)) == Admission::Go));
    }

    /// L3.
    #[test]
    fn calls_return_one_by_one_after_the_cooldown() {
        let mut gate = cooling(secs(30));
        let turns: Vec<_> = (0..4).map(|_| gate.admit(secs(1), Duration::MAX)).collect();
        // After 1 s, then at twice the rate.
        let expected = [30_000, 31_000, 31_500, 31_854].map(|at| Admission::At(ms(at)));
        for (turn, expected) in turns.iter().zip(expected) {
            let (Admission::At(turn), Admission::At(expected)) = (turn, expected) else {
                panic!("{turn:?}");
            };
            assert!(turn.abs_diff(expected) < ms(1), "{turn:?} {expected:?}");
        }
    }

    /// L3, C8: together they return as one process would.
    #[test]
    fn processes_that_share_a_limit_have_one_turn_of_so_many_each() {
        let turns = |processes, first| {
            let mut gate = Gate {
                share: Share { processes, first },
                ..Gate::default()
            };
            gate.limit(secs(0), 0, secs(30));
            let turns = (0..30 / processes).map(|_| gate.admit(secs(1), Duration::MAX));
            turns.collect::<Vec<_>>()
        };
        let alone = turns(1, 0);
        for first in 0..3 {
            let own: Vec<_> = alone.iter().skip(first).step_by(3).copied().collect();
            assert_eq!(turns(3, first as u32), own);
        }
    }

    #[test]
    fn a_turn_that_would_come_too_late_is_not_taken() {
        let mut gate = cooling(secs(30));
        assert_eq!(gate.admit(secs(1), secs(29)), Admission::TooLate(secs(30)));
        assert_eq!(gate.admit(secs(1), secs(30)), Admission::At(secs(30)));
    }

    #[test]
    fn stragglers_extend_the_cooldown_and_do_not_shorten_it() {
        let mut gate = cooling(secs(30));
        gate.limit(secs(1), 0, secs(5));
        assert_eq!(gate.closed_until(secs(1)), Some(secs(30)));
        gate.limit(secs(1), 0, secs(60));
        assert_eq!(gate.closed_until(secs(1)), Some(secs(61)));
    }

    #[test]
    fn who_waits_when_the_cooldown_is_extended_has_to_ask_again() {
        let mut gate = cooling(secs(30));
        gate.admit(secs(1), Duration::MAX);
        let round = gate.round();
        gate.limit(secs(1), 0, secs(60));
        assert_ne!(gate.round(), round);
    }

    /// L3, C8: of a hundred processes each has sent one call at most when the limit is met.
    #[test]
    fn a_fleet_learns_the_rate_that_was_too_much() {
        let mut gate = Gate {
            share: Share {
                processes: 100,
                first: 7,
            },
            ..Gate::default()
        };
        gate.limit(secs(0), 0, secs(1));
        // Met by another process, four seconds into the return: 16 calls per second.
        gate.limit(secs(5), gate.round(), secs(1));
        assert_eq!(gate.returning.as_ref().unwrap().ceiling, Some(16.0));
    }

    /// L3: a return that meets the limit again is followed by a slower one.
    #[test]
    fn the_next_return_begins_at_half_the_rate_that_was_too_much() {
        let mut gate = cooling(secs(1));
        let round = gate.round();
        // Four seconds into the return: 16 calls per second.
        for at in 1..=5 {
            gate.admit(secs(at), Duration::MAX);
        }
        gate.limit(secs(5), round, secs(1));
        let first = gate.admit(secs(6), Duration::MAX);
        let second = gate.admit(secs(6), Duration::MAX);
        assert_eq!(first, Admission::Go);
        assert_eq!(second, Admission::At(secs(6) + ms(125)));
    }

    /// A backlog does not keep the gate closed.
    #[test]
    fn a_gate_opens_under_any_demand() {
        let mut gate = cooling(secs(1));
        let mut now = secs(0);
        while now < secs(120) {
            for _ in 0..5 {
                gate.admit(now, Duration::MAX);
            }
            now += ms(2);
        }
        assert!(gate.is_open());
    }

    /// A limit that the first call of a return meets says nothing of the rate.
    #[test]
    fn limits_that_are_met_at_once_do_not_slow_the_return_down() {
        let (mut gate, mut now) = (cooling(secs(1)), secs(0));
        for _ in 0..40 {
            now += secs(2);
            assert_eq!(gate.admit(now, Duration::MAX), Admission::Go);
            gate.limit(now, gate.round(), secs(1));
        }
        let turns = (0..100).filter(|_| gate.admit(now, now + secs(10)) != Admission::Go);
        assert_eq!(turns.count(), 100);
        // With a queue behind it as well.
        gate.limit(now + secs(1), gate.round(), secs(1));
        assert_eq!(gate.returning.as_ref().unwrap().ceiling, None);
    }

    /// A turn that is given back is given to the next call that asks.
    #[test]
    fn turns_that_come_back_are_given_again() {
        let mut gate = cooling(secs(30));
        let turn = |gate: &mut Gate| match gate.admit(secs(1), Duration::MAX) {
            Admission::At(at) => at,
            other => panic!("{other:?}"),
        };
        let turns: Vec<_> = (0..200).map(|_| turn(&mut gate)).collect();
        let round = gate.round();
        gate.give_back(round, turns[50]);
        assert_eq!(turn(&mut gate), turns[50]);
        for turn in &turns {
            gate.give_back(round, *turn);
        }
        assert_eq!(turn(&mut gate), secs(30));
        // One of another round is none of ours.
        gate.limit(secs(1), round, secs(60));
        gate.give_back(round, turns[0]);
        assert_eq!(turn(&mut gate), secs(61));
    }

    #[test]
    fn no_hint_closes_the_gate_for_more_than_a_day() {
        let gate = cooling(Duration::MAX);
        assert_eq!(gate.closed_until(secs(1)), Some(MAX_COOLDOWN));
    }

    #[test]
    fn a_gate_that_held_no_call_back_for_ten_seconds_is_open() {
        let mut gate = cooling(secs(1));
        assert_eq!(gate.admit(secs(1), Duration::MAX), Admission::Go);
        assert!(!gate.is_open());
        assert_eq!(gate.admit(secs(12), Duration::MAX), Admission::Go);
        assert!(gate.is_open());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Trap 10: whatever comes, no call is sent before the last announced cooldown is over; and
        /// nothing overflows.
        #[test]
        fn no_call_is_sent_to_a_cooling_key(
            steps in prop::collection::vec((0u64..5_000, prop::option::of(any::<u64>()), 0u32..3), 1..100),
        ) {
            let mut gate = Gate::default();
            let (mut now, mut until) = (Duration::ZERO, Duration::ZERO);
            for (wait, hint, ago) in steps {
                now += ms(wait);
                if let Some(hint) = hint {
                    let hint = ms(hint % 60_000);
                    let round = gate.round().saturating_sub(ago);
                    gate.limit(now, round, hint);
                    until = until.max(now + hint);
                }
                match gate.admit(now, Duration::MAX) {
                    Admission::Go => prop_assert!(now >= until),
                    Admission::At(at) => prop_assert!(at >= until && at > now),
                    Admission::TooLate(_) => prop_assert!(false),
                }
            }
            // However slow it has become: once no limit is met any more, it opens within two
            // minutes, whatever the demand.
            now = now.max(until);
            let end = now + secs(120);
            while now < end {
                gate.admit(now, now);
                now += ms(100);
            }
            prop_assert!(gate.is_open());
        }
    }
}
