//! What a breaker remembers while it is closed. Pure: time is an argument.
//!
//! Each window has a fixed size, and recording a result takes constant time.

use std::{collections::VecDeque, mem, time::Duration};

use super::rules::{Kind, Rates, Span};
use crate::event::transition::TransitionReason;

/// Buckets of a time window.
pub(super) const BUCKETS: usize = 32;

/// The results in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(super) calls: u32,
    pub(super) failures: u32,
    pub(super) slow: u32,
}

impl Tally {
    /// A tally of this many successes.
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

/// What a result says of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(super) failure: bool,
    pub(super) slow: bool,
    /// The tool has answered: this proves it alive, and counts in no window.
    pub(super) answers: bool,
}

impl Verdict {
    pub(crate) const SUCCESS: Self = Self {
        failure: false,
        slow: false,
        answers: false,
    };
    pub(crate) const FAILURE: Self = Self {
        failure: true,
        ..Self::SUCCESS
    };
    /// A success of a probe; nothing while the breaker is closed.
    pub(super) const ANSWERS: Self = Self {
        answers: true,
        ..Self::SUCCESS
    };
}

impl From<Verdict> for Tally {
    fn from(verdict: Verdict) -> Self {
        Self {
            calls: 1,
            failures: verdict.failure.into(),
            slow: verdict.slow.into(),
        }
    }
}

#[derive(Debug)]
pub(super) enum Window {
    Consecutive {
        failures: u32,
    },
    /// When the last failures ended, at most as many as open the breaker: so it is exact.
    Within {
        failures: VecDeque<Duration>,
        threshold: u32,
        window: Duration,
        in_a_row: bool,
    },
    Calls(Ring),
    Time(Box<Buckets>),
}

impl Window {
    pub(super) fn new(trip: &Kind) -> Self {
        match trip {
            Kind::Failures { window: None, .. } => Self::Consecutive { failures: 0 },
            &Kind::Failures {
                threshold,
                window: Some(window),
                in_a_row,
            } => Self::Within {
                failures: VecDeque::new(),
                threshold,
                window,
                in_a_row,
            },
            Kind::Rates(Rates { span, .. }) => match *span {
                Span::Calls(calls) => Self::Calls(Ring::new(calls)),
                Span::Time(window) => Self::Time(Box::new(Buckets::new(window))),
            },
        }
    }

    /// Records a result that ended `now`.
    pub(super) fn record(&mut self, verdict: Verdict, now: Duration) {
        match self {
            Self::Consecutive { failures } if verdict.failure => {
                *failures = failures.saturating_add(1);
            }
            Self::Consecutive { failures } => *failures = 0,
            Self::Within {
                failures,
                threshold,
                ..
            } if verdict.failure => {
                if failures.len() >= *threshold as usize {
                    failures.pop_front();
                }
                failures.push_back(now);
            }
            Self::Within {
                failures,
                in_a_row: true,
                ..
            } => failures.clear(),
            Self::Within { .. } => {}
            Self::Calls(ring) => ring.push(verdict),
            Self::Time(buckets) => {
                buckets.advance(now);
                buckets.add(verdict.into());
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
        let failures = match self {
            Self::Consecutive { failures } => *failures,
            Self::Within {
                failures, window, ..
            } => {
                let expired = |&at: &Duration| now.saturating_sub(at) >= *window;
                while failures.front().is_some_and(expired) {
                    failures.pop_front();
                }
                // At most the threshold, which is a u32.
                failures.len() as u32
            }
            Self::Calls(ring) => return ring.tally,
            Self::Time(buckets) => {
                buckets.advance(now);
                return buckets.tally;
            }
        };
        Tally {
            calls: failures,
            failures,
            slow: 0,
        }
    }

    /// Returns whether it is as good as new `now`. Removes nothing.
    pub(super) fn is_clean(&self, now: Duration) -> bool {
        match self {
            Self::Consecutive { failures } => *failures == 0,
            Self::Within {
                failures, window, ..
            } => {
                let last = failures.back();
                last.is_none_or(|&at| now.saturating_sub(at) >= *window)
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
            Kind::Failures {
                threshold,
                in_a_row,
                ..
            } => (tally.failures >= *threshold).then_some(match in_a_row {
                true => TransitionReason::ConsecutiveFailures,
                false => TransitionReason::FailuresInWindow,
            }),
            Kind::Rates(rates) => rates.verdict(tally),
        }
    }

    /// How many successes may be added later instead of being recorded one by one, and in a window
    /// of time before which moment. `None` if a success changes nothing, now and later.
    pub(super) fn room(&self, trip: &Kind) -> Option<(u32, Option<Duration>)> {
        let (tally, until) = match self {
            Self::Consecutive { failures: 0 } => return None,
            Self::Within {
                failures, in_a_row, ..
            } if failures.is_empty() || !in_a_row => return None,
            Self::Consecutive { .. } | Self::Within { .. } => return Some((0, None)),
            Self::Calls(ring) if ring.tally.is_clean() => {
                return match ring.room() {
                    0 => None,
                    room => Some((room, None)),
                };
            }
            Self::Calls(ring) => (ring.tally, None),
            Self::Time(buckets) => (buckets.tally, Some(buckets.end())),
        };
        match trip {
            Kind::Rates(rates) => Some((rates.room(tally), until)),
            Kind::Failures { .. } => Some((0, None)),
        }
    }
}

/// The last `n` results, exactly.
#[derive(Debug)]
pub(super) struct Ring {
    /// Empty until the first result that is not a success.
    results: VecDeque<Verdict>,
    capacity: u32,
    tally: Tally,
}

impl Ring {
    fn new(capacity: u32) -> Self {
        Self {
            results: VecDeque::new(),
            capacity,
            tally: Tally::default(),
        }
    }

    /// How many more results fit in.
    fn room(&self) -> u32 {
        self.capacity - self.tally.calls
    }

    fn push(&mut self, verdict: Verdict) {
        if self.results.is_empty() {
            if verdict == Verdict::SUCCESS {
                return self.push_successes(1);
            }
            self.results.reserve_exact(self.capacity as usize);
            self.results
                .resize(self.tally.calls as usize, Verdict::SUCCESS);
        }
        if self.room() == 0
            && let Some(oldest) = self.results.pop_front()
        {
            self.tally.remove(oldest.into());
        }
        self.results.push_back(verdict);
        self.tally.merge(verdict.into());
    }

    fn push_successes(&mut self, count: u32) {
        if self.results.is_empty() {
            self.tally.calls += count.min(self.room());
            return;
        }
        for _ in 0..count.min(self.capacity) {
            self.push(Verdict::SUCCESS);
        }
    }
}

/// The results of the last `window`, in buckets of a 32nd of it: a result counts for at least 31
/// and at most 32 of them.
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

    /// Removes the results that are too old `now`.
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

    const FAILURE: Verdict = Verdict::FAILURE;
    const SUCCESS: Verdict = Verdict::SUCCESS;

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
    fn a_window_of_time_is_empty_after_a_year_without_a_look() {
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

    /// The model found it: a look at the window moved it on, the shares were above their limit
    /// without a failure, and successes went by unheard.
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
        assert!(matches!(window.room(&trip), Some((0, _))));
    }

    #[test]
    fn the_success_that_completes_the_minimum_is_heard() {
        let rates = Rates::over_calls(10).with_failure_rate(0.1);
        let (mut window, trip) = window(rates.with_minimum_calls(5));
        window.record(FAILURE, secs(0));
        assert_eq!(window.room(&trip), Some((3, None)));
    }
}
