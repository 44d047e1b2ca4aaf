//! The range of the latencies that are distinguished, and their histograms.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// A histogram counts whole microseconds.
#[inline]
pub(super) fn micros(d: Duration) -> u64 {
    let whole = d.as_secs().saturating_mul(1_000_000);
    whole.saturating_add(d.subsec_micros().into())
}

/// Which latencies are distinguished, and how finely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub(super) struct Range {
    lowest_us: u64,
    highest_us: u64,
    digits: u8,
}

/// A range as a peer wrote it.
#[derive(Deserialize)]
struct Unchecked {
    lowest_us: u64,
    highest_us: u64,
    digits: u8,
}

impl TryFrom<Unchecked> for Range {
    type Error = ConfigError;

    fn try_from(range: Unchecked) -> Result<Self, ConfigError> {
        let [lowest, highest] = [range.lowest_us, range.highest_us].map(Duration::from_micros);
        Self::new(lowest, highest, range.digits)
    }
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

    /// An empty histogram. It grows with what it is given.
    pub(super) fn histogram(&self) -> Histogram<u64> {
        let low = self.lowest_us;
        let mut empty =
            Histogram::new_with_bounds(low, 2 * low, self.digits).expect("a range is checked");
        empty.auto(true);
        empty
    }

    /// Microseconds as they are recorded, and whether it was too long for that.
    #[inline]
    pub(super) fn fit(&self, us: u64) -> (u64, bool) {
        (
            us.max(self.lowest_us).min(self.highest_us),
            us > self.highest_us,
        )
    }

    /// A histogram from another process: none if a latency is not of this range, or there are more
    /// than can be added up.
    pub(super) fn decode(&self, counts: &[(u64, u64)]) -> Option<Histogram<u64>> {
        const MOST: u64 = 1 << 56;
        let (mut decoded, mut calls) = (self.histogram(), 0_u64);
        for (us, count) in counts {
            calls = calls.checked_add(*count).filter(|calls| *calls < MOST)?;
            let (us, too_long) = self.fit(*us);
            if too_long || decoded.record_n(us, *count).is_err() {
                return None;
            }
        }
        Some(decoded)
    }
}

/// Each latency that was met, in microseconds, and how often.
pub(super) fn encode(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let met = histogram.iter_recorded();
    met.map(|met| {
        let us = histogram.lowest_equivalent(met.value_iterated_to());
        (us, met.count_at_value())
    })
    .collect()
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
    fn what_is_too_long_is_clamped_and_said_to_be() {
        let range = Range::default();
        assert_eq!(range.fit(0), (1, false));
        assert_eq!(range.fit(3_600_000_000), (3_600_000_000, false));
        assert_eq!(range.fit(u64::MAX), (3_600_000_000, true));
    }

    #[test]
    fn a_histogram_survives_the_way_to_another_process() {
        for digits in 1..=5 {
            let range = Range::new(Duration::from_micros(1), 3600 * S, digits).unwrap();
            let mut histogram = range.histogram();
            for n in 0..40 {
                let (us, _) = range.fit(1 << n);
                histogram.record(us).unwrap();
            }
            assert_eq!(range.decode(&encode(&histogram)), Some(histogram));
        }
    }

    #[test]
    fn a_range_from_a_peer_is_checked() {
        let json = |digits| format!(r#"{{"lowest_us":1,"highest_us":1000,"digits":{digits}}}"#);
        assert!(serde_json::from_str::<Range>(&json(3)).is_ok());
        assert!(serde_json::from_str::<Range>(&json(200)).is_err());
    }

    /// Rule 8.
    #[test]
    fn nonsense_from_a_peer_is_nothing() {
        let range = Range::default();
        assert_eq!(range.decode(&[]), Some(range.histogram()));
        assert!(range.decode(&[(0, 1), (3_600_000_000, 2)]).is_some());
        for counts in [
            &[(3_600_000_001, 1)][..],
            &[(1, u64::MAX)],
            &[(1, 1 << 55), (1, 1 << 55)],
        ] {
            assert_eq!(range.decode(counts), None, "{counts:?}");
        }
    }
}
