use super::{collect::Period, handle::Metrics, snapshot::Snapshot};

/// Reads what happened, interval by interval; made by [`Metrics::interval`].
///
/// Readers are independent of each other and of [`Metrics::reset`]: what one has read adds up to all that happened
/// since it was made. It keeps a copy of all counters and histograms.
///
/// ```
/// use tower_toolcall::metrics::Metrics;
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

    /// What happened since the last one, or since the reader was made.
    pub fn snapshot(&mut self) -> Snapshot {
        self.period.next(self.metrics.collect(), false)
    }

    /// The same with every tool's histogram; see [`Metrics::export`].
    pub fn export(&mut self) -> Snapshot {
        self.period.next(self.metrics.collect(), true)
    }
}

crate::text::debug_fields! { {} |this| Interval { metrics: this.metrics, .. } }
