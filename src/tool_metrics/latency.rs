//! The range of the latencies that are distinguished, and their histograms.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::config::ConfigError;

/// A histogram counts whole microseconds.
#[inline]
pub(super) fn micros(d: Duration) -> u64 {
    let whole = d.as_secs().saturating_mul(1_000_000);
    whole.saturating_add(d.subsec_micros().into())
}

/// The latencies that are distinguished, and how finely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    lowest_us: u64,
    highest_us: u64,
    digits: u8,
}

impl Default for Range {
    fn default() -> Self {
        Self {
            lowest_us: 1,
            highest_us: 3_600_000_000,
            digits: 2,
        }
    }
}

impl Range {
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    pub(super) fn new(
        lowest: Duration,
        highest: Duration,
        digits: u8,
    ) -> Result<Self, ConfigError> {
        let invalid = |reason: String| Err(ConfigError::new("latency", reason));
        if !(1..=5).contains(&digits) {
            return invalid(format!("{digits} significant digits are not 1 to 5"));
        }
        if lowest < Duration::from_micros(1) {
            return invalid(format!("{lowest:?} is less than a microsecond"));
        }
        if highest < 2 * lowest.min(Self::LONGEST) || highest > Self::LONGEST {
            return invalid(format!(
                "{highest:?} is less than twice {lowest:?}, or more than a year"
            ));
        }
        Ok(Self {
            lowest_us: micros(lowest),
            highest_us: micros(highest),
            digits,
        })
    }
}

/// How long calls took.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    range: Range,
    pub(super) histogram: Histogram<u64>,
    /// How many were too long for the histogram.
    pub(super) clamped: u64,
    /// The sum, in microseconds.
    pub(super) sum_us: u64,
}

impl Latencies {
    /// Makes an empty histogram, which grows with its values.
    pub(super) fn new(range: Range) -> Self {
        let low = range.lowest_us;
        let histogram = Histogram::new_with_bounds(low, 2 * low, range.digits);
        let mut histogram = histogram.expect("a range is checked");
        histogram.auto(true);
        Self {
            range,
            histogram,
            clamped: 0,
            sum_us: 0,
        }
    }

    #[inline]
    pub(super) fn record(&mut self, took: Duration) {
        let us = micros(took);
        let Range {
            lowest_us,
            highest_us,
            ..
        } = self.range;
        self.sum_us = self.sum_us.saturating_add(us);
        self.clamped += u64::from(us > highest_us);
        // It cannot fail: the histogram resizes itself.
        let _ = self.histogram.record(us.max(lowest_us).min(highest_us));
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.clamped += other.clamped;
        // It cannot fail: both are of one range, and this one resizes itself.
        let _ = self.histogram.add(&other.histogram);
    }

    pub(super) fn subtract(&mut self, earlier: &Self) {
        self.sum_us = self.sum_us.saturating_sub(earlier.sum_us);
        self.clamped = self.clamped.saturating_sub(earlier.clamped);
        // It cannot fail: counts only grow.
        let _ = self.histogram.subtract(&earlier.histogram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_range_that_cannot_work_is_refused() {
        let us = Duration::from_micros(1);
        for (low, high, digits) in [
            (us, S, 0),
            (us, S, 6),
            (Duration::ZERO, S, 2),
            (S, S, 2),
            (us, Duration::MAX, 2),
            (Duration::MAX, Duration::MAX, 2),
        ] {
            let error = Range::new(low, high, digits).unwrap_err();
            assert_eq!(error.field(), "latency");
        }
        assert_eq!(Range::new(us, 3600 * S, 2), Ok(Range::default()));
    }

    #[test]
    fn latencies_beyond_the_range_are_clamped_and_counted() {
        let mut latencies = Latencies::new(Range::default());
        for (took, clamped) in [(Duration::ZERO, 0), (3600 * S, 0), (Duration::MAX, 1)] {
            latencies.record(took);
            assert_eq!(latencies.clamped, clamped, "{took:?}");
        }
        assert_eq!((latencies.histogram.len(), latencies.sum_us), (3, u64::MAX));
    }
}
