//! What a breaker remembers while it is closed. Pure: time is an argument.
//!
//! Each window has a fixed size, and recording a result takes constant time.

use std::{collections::VecDeque, mem, time::Duration};

use super::rules::{Kind, Rates, Span, Within};
use crate::event::transition::TransitionReason;

/// Buckets of a time window.
pub(super) const BUCKETS: usize = 32;

/// What a window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(super) calls: u32,
    pub(super) failures: u32,
    pub(super) slow: u32,
}

impl Tally {
    /// So many successes.
    pub(super) fn of(successes: u32) -> Self {
        Self {
            calls: successes,
            ..Self::default()
        }
    }

    pub(super) fn merge(&mut self, other: Tally) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failures = self.failures.saturating_add(other.failures);
        self.slow = self.slow.saturating_add(other.slow);
    }

    fn remove(&mut self, other: Tally) {
        self.calls = self.calls.saturating_sub(other.calls);
        self.failures = self.failures.saturating_sub(other.failures);
        self.slow = self.slow.saturating_sub(other.slow);
    }

    pub(super) fn is_clean(&self) -> bool {
        self.failures == 0 && self.slow == 0
    }
}

/// One result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(super) failure: bool,
    pub(super) slow: bool,
}

impl From<Mark> for Tally {
    fn from(mark: Mark) -> Self {
        Self {
            calls: 1,
            failures: mark.failure.into(),
            slow: mark.slow.into(),
        }
    }
}

/// How many successes may come before the window has to hear of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quiet {
    /// Each has to be recorded.
    No,
    /// One more success changes nothing, now and later.
    Always,
    /// They may be counted and added later, as long as there are at most so many, and in a window of
    /// time before the moment.
    Run { room: u32, until: Option<Duration> },
}

#[derive(Debug)]
pub(super) enum Window {
    Consecutive {
        failures: u32,
    },
    /// When the last failures ended, at most as many as open the breaker: so it is exact.
    Within {
        failures: VecDeque<Duration>,
        rule: Within,
    },
    Calls(Ring),
    Time(Box<Buckets>),
}

impl Window {
    pub(super) fn new(trip: &Kind) -> Self {
        match trip {
            Kind::Consecutive { .. } => Self::Consecutive { failures: 0 },
            Kind::Within(rule) => Self::Within {
                failures: VecDeque::new(),
                rule: *rule,
            },
            Kind::Rates(Rates { span, .. }) => match *span {
                Span::Calls(calls) => Self::Calls(Ring::new(calls)),
                Span::Time(window) => Self::Time(Box::new(Buckets::new(window))),
            },
        }
    }

    /// Records a result that ended `now`.
    pub(super) fn record(&mut self, mark: Mark, now: Duration) {
        match self {
            Self::Consecutive { failures } if mark.failure => {
                *failures = failures.saturating_add(1);
            }
            Self::Consecutive { failures } => *failures = 0,
            Self::Within { failures, rule } if mark.failure => {
                if failures.len() >= rule.failures as usize {
                    failures.pop_front();
                }
                failures.push_back(now);
            }
            Self::Within { failures, rule } if rule.in_a_row => failures.clear(),
            Self::Within { .. } => {}
            Self::Calls(ring) => ring.push(mark),
            Self::Time(buckets) => {
                buckets.advance(now);
                buckets.add(mark.into());
            }
        }
    }

    /// Records successes that ended before the window was last looked at.
    pub(super) fn add_successes(&mut self, count: u32) {
        match self {
            Self::Consecutive { failures } if count > 0 => *failures = 0,
            Self::Consecutive { .. } | Self::Within { .. } => {}
            Self::Calls(ring) => ring.push_successes(count),
            Self::Time(buckets) => buckets.add(Tally::of(count)),
        }
    }

    /// What is in the window `now`.
    pub(super) fn tally(&mut self, now: Duration) -> Tally {
        match self {
            Self::Consecutive { failures } => Tally {
                calls: *failures,
                failures: *failures,
                slow: 0,
            },
            Self::Within { failures, rule } => {
                let expired = |&at: &Duration| now.saturating_sub(at) >= rule.window;
                while failures.front().is_some_and(expired) {
                    failures.pop_front();
                }
                // At most the threshold, which is a u32.
                let failures = failures.len() as u32;
                Tally {
                    calls: failures,
                    failures,
                    slow: 0,
                }
            }
            Self::Calls(ring) => ring.tally,
            Self::Time(buckets) => {
                buckets.advance(now);
                buckets.tally
            }
        }
    }

    /// Whether it is as good as new, without moving it on.
    pub(super) fn is_clean(&self, now: Duration) -> bool {
        match self {
            Self::Consecutive { failures } => *failures == 0,
            Self::Within { failures, rule } => {
                let last = failures.back();
                last.is_none_or(|&at| now.saturating_sub(at) >= rule.window)
            }
            Self::Calls(ring) => ring.tally.is_clean(),
            Self::Time(buckets) => {
                let last = buckets.present.saturating_add(BUCKETS as u64);
                buckets.tally.is_clean() || nanos(now) / buckets.width >= last
            }
        }
    }

    /// Why the breaker should open, if it should.
    pub(super) fn verdict(&mut self, trip: &Kind, now: Duration) -> Option<TransitionReason> {
        let tally = self.tally(now);
        match trip {
            Kind::Consecutive { failures } => {
                (tally.failures >= *failures).then_some(TransitionReason::ConsecutiveFailures)
            }
            Kind::Within(rule) => {
                (tally.failures >= rule.failures).then_some(match rule.in_a_row {
                    true => TransitionReason::ConsecutiveFailures,
                    false => TransitionReason::FailuresInWindow,
                })
            }
            Kind::Rates(rates) => rates.verdict(tally),
        }
    }

    pub(super) fn quiet(&self, trip: &Kind) -> Quiet {
        let (tally, until) = match self {
            Self::Consecutive { failures: 0 } => return Quiet::Always,
            Self::Consecutive { .. } => return Quiet::No,
            Self::Within { failures, rule } => {
                return match rule.in_a_row && !failures.is_empty() {
                    true => Quiet::No,
                    false => Quiet::Always,
                };
            }
            Self::Calls(ring) if ring.tally.is_clean() => {
                return match ring.room() {
                    0 => Quiet::Always,
                    room => Quiet::Run { room, until: None },
                };
            }
            Self::Calls(ring) => (ring.tally, None),
            Self::Time(buckets) => (buckets.tally, Some(buckets.end())),
        };
        let room = match trip {
            Kind::Rates(rates) => rates.room(tally),
            Kind::Consecutive { .. } | Kind::Within(_) => 0,
        };
        Quiet::Run { room, until }
    }
}

/// The last `n` results, exactly.
#[derive(Debug)]
pub(super) struct Ring {
    /// Empty as long as there were successes only.
    marks: Box<[Mark]>,
    capacity: u32,
    next: usize,
    tally: Tally,
}

impl Ring {
    fn new(capacity: u32) -> Self {
        Self {
            marks: Box::default(),
            capacity,
            next: 0,
            tally: Tally::default(),
        }
    }

    /// Results that it has room for yet.
    fn room(&self) -> u32 {
        self.capacity - self.tally.calls
    }

    fn push(&mut self, mark: Mark) {
        if self.marks.is_empty() {
            if mark == Mark::default() {
                return self.push_successes(1);
            }
            self.marks = vec![Mark::default(); self.capacity as usize].into();
            self.next = self.tally.calls as usize % self.marks.len();
        }
        if self.room() == 0 {
            self.tally.remove(self.marks[self.next].into());
        }
        self.marks[self.next] = mark;
        self.next = (self.next + 1) % self.marks.len();
        self.tally.merge(mark.into());
    }

    fn push_successes(&mut self, count: u32) {
        if self.marks.is_empty() {
            self.tally.calls += count.min(self.room());
            return;
        }
        for _ in 0..count.min(self.capacity) {
            self.push(Mark::default());
        }
    }
}

/// The results of the last `window`, in buckets of a 32nd of it: a result counts for at least 31 and at
/// most 32 of them.
#[derive(Debug)]
pub(super) struct Buckets {
    /// Nanoseconds.
    width: u64,
    buckets: [Tally; BUCKETS],
    /// The number of the present bucket, counted from the origin of time.
    present: u64,
    tally: Tally,
}

impl Buckets {
    fn new(window: Duration) -> Self {
        Self {
            width: nanos(window).div_ceil(BUCKETS as u64).max(1),
            buckets: [Tally::default(); BUCKETS],
            present: 0,
            tally: Tally::default(),
        }
    }

    /// Forgets what is too old `now`.
    fn advance(&mut self, now: Duration) {
        let target = nanos(now) / self.width;
        let steps = target.saturating_sub(self.present).min(BUCKETS as u64);
        for bucket in (target + 1 - steps)..=target {
            let old = &mut self.buckets[bucket as usize % BUCKETS];
            self.tally.remove(mem::take(old));
        }
        self.present = self.present.max(target);
    }

    fn add(&mut self, what: Tally) {
        self.tally.merge(what);
        self.buckets[self.present as usize % BUCKETS].merge(what);
    }

    /// When the present bucket ends.
    fn end(&self) -> Duration {
        Duration::from_nanos(self.width.saturating_mul(self.present + 1))
    }
}

/// Whole nanoseconds; 584 years at most.
pub(super) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit_breaker::{Rates, Trip};

    const FAILURE: Mark = Mark {
        failure: true,
        slow: false,
    };
    const SUCCESS: Mark = Mark {
        failure: false,
        slow: false,
    };

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn window(trip: impl Into<Trip>) -> (Window, Kind) {
        let trip = trip.into().0;
        (Window::new(&trip), trip)
    }

    /// Trap 16: what happened before the last N does not matter.
    #[test]
    fn a_window_of_calls_holds_the_last_n() {
        let (mut window, _) = window(Rates::over_calls(3).with_failure_rate(1.0));
        for (mark, failures) in [
            (FAILURE, 1),
            (FAILURE, 2),
            (SUCCESS, 2),
            (SUCCESS, 1),
            (SUCCESS, 0),
            (FAILURE, 1),
        ] {
            window.record(mark, secs(0));
            assert_eq!(window.tally(secs(0)).failures, failures);
        }
        assert_eq!(window.tally(secs(0)).calls, 3);
    }

    #[test]
    fn successes_that_are_added_later_push_failures_out() {
        let (mut window, _) = window(Rates::over_calls(3).with_failure_rate(1.0));
        window.record(FAILURE, secs(0));
        window.add_successes(2);
        assert_eq!(window.tally(secs(0)).failures, 1);
        window.add_successes(u32::MAX);
        let clean = Tally {
            calls: 3,
            ..Tally::default()
        };
        assert_eq!(window.tally(secs(0)), clean);
    }

    /// Trap 16, from both sides.
    #[test]
    fn a_result_stays_in_a_window_of_time_for_31_buckets_and_leaves_with_the_32nd() {
        let (mut window, _) = window(Rates::over_time(secs(32)).with_failure_rate(1.0));
        window.record(FAILURE, Duration::from_millis(500));
        assert_eq!(window.tally(Duration::from_millis(31_999)).failures, 1);
        assert_eq!(window.tally(secs(32)).failures, 0);
    }

    #[test]
    fn a_window_of_time_that_nobody_looked_at_for_a_year_is_empty() {
        let (mut window, _) = window(Rates::over_time(secs(32)).with_failure_rate(1.0));
        window.record(FAILURE, secs(1));
        assert_eq!(window.tally(secs(365 * 86_400)), Tally::default());
        window.record(FAILURE, Duration::MAX);
        assert_eq!(window.tally(Duration::MAX).failures, 1);
    }

    /// To the nanosecond.
    #[test]
    fn failures_within_a_window_are_those_within_it() {
        let (mut window, trip) = window(Trip::total_failures_within(2, secs(10)));
        window.record(FAILURE, secs(0));
        window.record(FAILURE, secs(10));
        assert_eq!(window.verdict(&trip, secs(10)), None);
        window.record(FAILURE, secs(20) - Duration::from_nanos(1));
        assert!(
            window
                .verdict(&trip, secs(20) - Duration::from_nanos(1))
                .is_some()
        );
    }

    /// The model found it: a look at the window moved it on, the shares were above their limit without
    /// a failure, and successes went by unheard.
    #[test]
    fn a_success_is_heard_where_what_has_left_was_better_than_what_is_there() {
        let rates = Rates::over_time(secs(32)).with_failure_rate(0.5);
        let (mut window, trip) = window(rates.with_minimum_calls(2));
        window.record(SUCCESS, secs(0));
        window.record(SUCCESS, secs(0));
        window.record(FAILURE, secs(20));
        assert_eq!(window.verdict(&trip, secs(20)), None);
        window.record(SUCCESS, secs(20));
        window.tally(secs(32));
        let Quiet::Run { room, .. } = window.quiet(&trip) else {
            panic!("{:?}", window.quiet(&trip));
        };
        assert_eq!(room, 0);
    }

    #[test]
    fn the_success_that_completes_the_minimum_is_heard() {
        let rates = Rates::over_calls(10).with_failure_rate(0.1);
        let (mut window, trip) = window(rates.with_minimum_calls(5));
        window.record(FAILURE, secs(0));
        let three_more = Quiet::Run {
            room: 3,
            until: None,
        };
        assert_eq!(window.quiet(&trip), three_more);
    }
}
