use tokio::time::Instant;

use super::{counts::Collected, handle::Metrics, snapshot::Snapshot};

/// The counts when a period began.
#[derive(Debug)]
pub(super) struct Period {
    since: Instant,
    before: Collected,
}

impl Period {
    /// Makes an interval that begins now.
    pub(super) fn new(before: Collected) -> Self {
        Self {
            since: Instant::now(),
            before,
        }
    }

    /// Returns the counts from then until now.
    pub(super) fn read(&self, mut now: Collected, with_histograms: bool) -> Snapshot {
        let period = self.since.elapsed();
        now.subtract(&self.before);
        now.tools
            .retain(|_, tool| tool.in_flight > 0 || !tool.counts.is_zero());
        Snapshot::of(&now, period, with_histograms)
    }
}

/// Reads what happened, interval by interval; made by [`Metrics::interval`].
///
/// Readers are independent of each other and of [`Metrics::reset`]: what one has read adds up to
/// all that happened since it was made. It keeps a copy of all counters and histograms.
///
/// A counter that needs an event, such as [`Stats::retries`](super::Stats::retries), is `None` in
/// an interval without one: it is absent from JSON, and a dash in the table.
///
/// ```
/// use tower_toolcall::tool_metrics::Metrics;
///
/// let metrics = Metrics::new();
/// let mut minute = metrics.interval();
/// // Every minute:
/// println!("{}", minute.snapshot());
/// ```
pub struct Interval {
    metrics: Metrics,
    period: Period,
}

impl Interval {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            period: Period::new(metrics.collect()),
            metrics,
        }
    }

    /// Returns the counts since the last snapshot, or since the reader was made.
    pub fn snapshot(&mut self) -> Snapshot {
        self.next(false)
    }

    /// Returns the interval with every tool's histogram; see [`Metrics::export`].
    pub fn export(&mut self) -> Snapshot {
        self.next(true)
    }

    /// Reads the period, and begins the next one at the same moment.
    fn next(&mut self, with_histograms: bool) -> Snapshot {
        let now = self.metrics.collect();
        let snapshot = self.period.read(now.clone(), with_histograms);
        self.period = Period {
            since: self.period.since + snapshot.period,
            before: now,
        };
        snapshot
    }
}

crate::text::debug_fields! { {} |_| Interval { metrics, .. } }
