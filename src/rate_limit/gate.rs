//! The gate of one key. Pure: time is an argument, counted from any fixed moment.
//!
//! A rate limit closes it for as long as the server says. After that calls return one by one, ever faster, so
//! that they do not meet the limit together again: from one call per second on, at twice the rate each second; or,
//! if a return has met the limit before, from half the rate at which it did, a tenth of that more each second.

use std::time::Duration;

/// Calls per second from which on nobody is held back any more.
const FREE: f64 = 1000.0;

/// When nobody had to be held back for so long, the return is over.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Gate {
    returning: Option<Return>,
    /// Counts cooldowns and their extensions. Who waits in an earlier round has to ask again.
    round: u32,
    /// The latest moment seen.
    now: Duration,
}

#[derive(Debug)]
struct Return {
    /// When the cooldown ends.
    since: Duration,
    /// The first moment that nobody has been given yet.
    next: Duration,
    /// The rate at which the limit was met in the return before.
    ceiling: Option<f64>,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may be sent now.
    Go,
    /// It may be sent then, if the round is the same still.
    At(Duration),
    /// Its turn would come then, which is too late.
    TooLate(Duration),
}

impl Return {
    /// Calls per second at a moment.
    fn rate(&self, at: Duration) -> f64 {
        let secs = at.saturating_sub(self.since).as_secs_f64();
        match self.ceiling {
            None => secs.exp2(),
            Some(ceiling) => ceiling * (0.5 + 0.05 * secs),
        }
    }
}

impl Gate {
    pub(super) fn is_open(&self) -> bool {
        self.returning.is_none()
    }

    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// When the next call could be sent; `None` if at once.
    pub(super) fn closed_until(&self, now: Duration) -> Option<Duration> {
        let now = self.now.max(now);
        let returning = self.returning.as_ref()?;
        (returning.next > now).then_some(returning.next)
    }

    /// Whether the cooldown itself is not over yet.
    pub(super) fn is_cooling(&self, now: Duration) -> bool {
        let now = self.now.max(now);
        self.returning.as_ref().is_some_and(|r| r.since > now)
    }

    /// Gives a call its turn, unless that would come after `latest`.
    pub(super) fn admit(&mut self, now: Duration, latest: Duration) -> Admission {
        self.now = self.now.max(now);
        let Some(returning) = &mut self.returning else {
            return Admission::Go;
        };
        let turn = returning.next.max(self.now);
        let rate = returning.rate(turn);
        if turn > self.now {
            if turn > latest {
                return Admission::TooLate(turn);
            }
        } else if rate >= FREE || self.now >= returning.next.saturating_add(IDLE) {
            self.returning = None;
            return Admission::Go;
        }
        // A ceiling below one call in ten seconds is as good as that.
        let gap = Duration::from_secs_f64(1.0 / rate.clamp(0.1, FREE));
        returning.next = turn.saturating_add(gap);
        if turn > self.now {
            Admission::At(turn)
        } else {
            Admission::Go
        }
    }

    /// A call that was admitted in `round` has met the limit, or brought the news that nothing is left of
    /// it; the server wants `delay`.
    pub(super) fn limit(&mut self, now: Duration, round: u32, delay: Duration) {
        self.now = self.now.max(now);
        let until = self.now.saturating_add(delay);
        let ceiling = match &self.returning {
            // Those that were sent before the cooldown began say nothing of the rate.
            Some(returning) if round != self.round || self.now < returning.since => {
                if until <= returning.since {
                    return;
                }
                returning.ceiling
            }
            Some(returning) => Some(returning.rate(self.now)),
            None => None,
        };
        self.round = self.round.wrapping_add(1);
        self.returning = Some(Return {
            since: until,
            next: until,
            ceiling,
        });
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

    /// L3: a return that meets the limit again is followed by a slower one.
    #[test]
    fn the_next_return_begins_at_half_the_rate_that_was_too_much() {
        let mut gate = cooling(secs(1));
        let round = gate.round();
        // Four seconds into the return: 16 calls per second.
        gate.limit(secs(5), round, secs(1));
        let first = gate.admit(secs(6), Duration::MAX);
        let second = gate.admit(secs(6), Duration::MAX);
        assert_eq!(first, Admission::Go);
        assert_eq!(second, Admission::At(secs(6) + ms(125)));
    }

    #[test]
    fn a_gate_that_held_nobody_back_for_ten_seconds_is_open() {
        let mut gate = cooling(secs(1));
        assert_eq!(gate.admit(secs(1), Duration::MAX), Admission::Go);
        assert!(!gate.is_open());
        assert_eq!(gate.admit(secs(12), Duration::MAX), Admission::Go);
        assert!(gate.is_open());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Trap 10: whatever comes, nobody is sent before the last cooldown that was told is over; and
        /// nothing overflows.
        #[test]
        fn nobody_is_sent_to_a_cooling_key(
            steps in prop::collection::vec((0u64..5_000, prop::option::of(any::<u64>()), 0u32..3), 1..100),
        ) {
            let mut gate = Gate::default();
            let (mut now, mut until) = (Duration::ZERO, Duration::ZERO);
            for (wait, told, ago) in steps {
                now += ms(wait);
                if let Some(told) = told {
                    let told = ms(told % 60_000);
                    let round = gate.round().saturating_sub(ago);
                    gate.limit(now, round, told);
                    until = until.max(now + told);
                }
                match gate.admit(now, Duration::MAX) {
                    Admission::Go => prop_assert!(now >= until),
                    Admission::At(at) => prop_assert!(at >= until && at > now),
                    Admission::TooLate(_) => prop_assert!(false),
                }
            }
            gate.limit(now, gate.round(), Duration::MAX);
            prop_assert_eq!(gate.admit(now, Duration::MAX), Admission::At(Duration::MAX));
        }
    }
}
