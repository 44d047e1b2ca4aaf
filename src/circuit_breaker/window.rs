//! The memory of a closed breaker. Pure: time is an argument.
//!
//! Each window has a fixed size, and recording a result takes constant time.

use std::{collections::VecDeque, mem, time::Duration};

use super::rules::{BUCKETS, Kind, Rates, Span};
use crate::event::transition::TransitionReason;

/// The results in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(super) calls: u32,
    pub(super) failures: u32,
    pub(super) slow: u32,
}

impl Tally {
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

/// The evidence of a result on the tool.
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
    /// The last results, exactly. Successes before the first other result are only counted.
    Calls {
        results: VecDeque<Verdict>,
        capacity: u32,
        tally: Tally,
    },
    Time(Box<Buckets>),
}

impl Default for Window {
    fn default() -> Self {
        Self::Consecutive { failures: 0 }
    }
}

impl Window {
    pub(super) fn new(trip: &Kind) -> Self {
        match *trip {
            Kind::Failures { window: None, .. } => Self::default(),
            Kind::Failures {
                threshold,
                window: Some(window),
                in_a_row,
            } => Self::Within {
                failures: VecDeque::new(),
                threshold,
                window,
                in_a_row,
            },
            Kind::Rates(Rates { span, .. }) => match span {
                Span::Calls(capacity) => Self::Calls {
                    results: VecDeque::new(),
                    capacity,
                    tally: Tally::default(),
                },
                Span::Time(window) => Self::Time(Box::new(Buckets::new(window))),
            },
        }
    }

    /// Records a result that ended `now`.
    pub(super) fn record(&mut self, verdict: Verdict, now: Duration) {
        match self {
            Self::Consecutive { failures } => {
                *failures = u32::from(verdict.failure) * failures.saturating_add(1);
            }
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
                failures, in_a_row, ..
            } => {
                if *in_a_row {
                    failures.clear();
                }
            }
            Self::Calls {
                results,
                capacity,
                tally,
            } => {
                let is_full = tally.calls == *capacity;
                if results.is_empty() {
                    if verdict == Verdict::SUCCESS {
                        tally.calls += u32::from(!is_full);
                        return;
                    }
                    results.reserve_exact(*capacity as usize);
                    results.resize(tally.calls as usize, Verdict::SUCCESS);
                }
                if is_full && let Some(oldest) = results.pop_front() {
                    tally.remove(oldest.into());
                }
                results.push_back(verdict);
                tally.merge(verdict.into());
            }
            Self::Time(buckets) => {
                buckets.advance(now);
                buckets.add(verdict.into());
            }
        }
    }

    /// Returns the counts of the window `now`.
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
            Self::Calls { tally, .. } => return *tally,
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

    /// Returns why the breaker should open, if it should.
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

    /// Returns whether one more success changes nothing, now and later.
    pub(super) fn ignores_successes(&self) -> bool {
        match self {
            Self::Consecutive { failures } => *failures == 0,
            Self::Within {
                failures, in_a_row, ..
            } => failures.is_empty() || !in_a_row,
            Self::Calls {
                capacity, tally, ..
            } => tally.is_clean() && tally.calls == *capacity,
            Self::Time(_) => false,
        }
    }
}

impl Rates {
    fn verdict(&self, tally: Tally) -> Option<TransitionReason> {
        if tally.is_clean() || tally.calls < self.minimum() {
            return None;
        }
        let reaches = |part: u32, rate: Option<f64>| {
            rate.is_some_and(|rate| f64::from(part) / f64::from(tally.calls) >= rate)
        };
        match () {
            () if reaches(tally.failures, self.failure_rate) => Some(TransitionReason::FailureRate),
            () if reaches(tally.slow, self.slow_call_rate) => Some(TransitionReason::SlowCallRate),
            () => None,
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
}

/// Whole nanoseconds; 584 years at most.
fn nanos(d: Duration) -> u64 {
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
}
