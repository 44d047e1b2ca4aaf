//! Gathers the counts of all rows.

use std::{collections::BTreeMap, sync::Arc};

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::{
    breakers::Breakers, handle::Metrics, inert::InertCalls, labels::Labels, latency::Range,
    names::Series, row::Row, snapshot::Snapshot, tally::Counts, tokens::TokenTotals,
};

/// The counts of one tool.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    pub(super) counts: Counts,
    pub(super) codes: BTreeMap<Arc<str>, u64>,
    pub(super) latency: Histogram<u64>,
    pub(super) in_flight: u64,
    /// Whether it has a row. Without one there can be calls in flight only.
    pub(super) is_known: bool,
}

impl Totals {
    pub(super) fn new(range: &Range) -> Self {
        Self {
            counts: Counts::default(),
            codes: BTreeMap::new(),
            latency: range.histogram(),
            in_flight: 0,
            is_known: false,
        }
    }

    pub(super) fn read(&mut self, row: &Row, calls: usize) {
        self.is_known |= row.is_known();
        self.in_flight += calls as u64;
        row.lanes.read(|tally| {
            self.counts.combine(&tally.counts, u64::saturating_add);
            // It cannot fail: both are of one range, and this one resizes itself.
            let _ = self.latency.add(&tally.latency);
            for (place, n) in tally.codes.iter().enumerate().filter(|(_, n)| **n > 0) {
                self.code(row.codes.label(place), *n);
            }
        });
    }

    pub(super) fn code(&mut self, label: &str, n: u64) {
        match self.codes.get_mut(label) {
            Some(known) => *known += n,
            None => drop(self.codes.insert(label.into(), n)),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.counts.combine(&other.counts, u64::saturating_add);
        // It cannot fail: both are of one range, and this one resizes itself.
        let _ = self.latency.add(&other.latency);
        self.in_flight += other.in_flight;
        for (label, n) in &other.codes {
            self.code(label, *n);
        }
    }

    pub(super) fn subtract(&mut self, earlier: &Self) {
        self.counts.combine(&earlier.counts, u64::saturating_sub);
        // It cannot fail: counts only grow.
        let _ = self.latency.subtract(&earlier.latency);
        self.codes.retain(|label, n| {
            *n -= earlier.codes.get(label).unwrap_or(&0);
            *n > 0
        });
    }

    /// A counter's value, if the counter is there.
    pub(super) fn get(&self, series: Series) -> Option<u64> {
        let count = self.counts.of(series);
        (count > 0 || series.is_always_there()).then_some(count)
    }

    fn is_quiet(&self) -> bool {
        self.in_flight == 0 && self.counts == Counts::default()
    }
}

/// All counts at one moment.
#[derive(Clone, Debug)]
pub(super) struct Collected {
    pub(super) range: Range,
    pub(super) tools: BTreeMap<Labels, Totals>,
    pub(super) breakers: Breakers,
    pub(super) tokens: Option<TokenTotals>,
    pub(super) inert: InertCalls,
}

impl Collected {
    pub(super) fn new(range: Range, breakers: Breakers) -> Self {
        Self {
            range,
            tools: BTreeMap::new(),
            breakers,
            tokens: None,
            inert: InertCalls::new(),
        }
    }

    /// Names that look the same as labels share a row.
    pub(super) fn add(&mut self, row: &Row, calls: usize) {
        let totals = self.tools.entry(row.labels.clone());
        totals
            .or_insert_with(|| Totals::new(&self.range))
            .read(row, calls);
    }

    fn subtract(&mut self, earlier: &Self) {
        for (labels, totals) in &mut self.tools {
            if let Some(earlier) = earlier.tools.get(labels) {
                totals.subtract(earlier);
            }
        }
        for (labels, breaker) in &mut self.breakers {
            if let Some(earlier) = earlier.breakers.get(labels) {
                breaker.openings -= earlier.openings;
            }
        }
        if let (Some(tokens), Some(earlier)) = (&mut self.tokens, &earlier.tokens) {
            tokens.subtract(earlier);
        }
        for (of, calls) in &mut self.inert {
            *calls -= earlier.inert.get(of).unwrap_or(&0);
        }
    }

    pub(super) fn total(&self) -> Totals {
        let mut total = Totals::new(&self.range);
        for totals in self.tools.values() {
            total.add(totals);
        }
        total
    }
}

/// The counts when a period began.
#[derive(Debug)]
pub(super) struct Period {
    since: Instant,
    before: Collected,
}

impl Period {
    /// One that begins now.
    pub(super) fn new(before: Collected) -> Self {
        Self {
            since: Instant::now(),
            before,
        }
    }

    /// The counts from then until now.
    pub(super) fn read(&self, mut now: Collected, with_histograms: bool) -> Snapshot {
        let period = self.since.elapsed();
        now.subtract(&self.before);
        now.tools.retain(|_, totals| !totals.is_quiet());
        Snapshot::of(&now, period, with_histograms)
    }

    /// Reads the period, and begins the next one at the same moment.
    pub(super) fn next(&mut self, now: Collected, with_histograms: bool) -> Snapshot {
        let snapshot = self.read(now.clone(), with_histograms);
        *self = Self {
            since: self.since + snapshot.period,
            before: now,
        };
        snapshot
    }
}

/// Reads what happened, interval by interval; made by [`Metrics::interval`].
///
/// Readers are independent of each other and of [`Metrics::reset`]: what one has read adds up to
/// all that happened since it was made. It keeps a copy of all counters and histograms.
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

    /// The counts since the last snapshot, or since the reader was made.
    pub fn snapshot(&mut self) -> Snapshot {
        self.period.next(self.metrics.collect(), false)
    }

    /// The same with every tool's histogram; see [`Metrics::export`].
    pub fn export(&mut self) -> Snapshot {
        self.period.next(self.metrics.collect(), true)
    }
}

crate::text::debug_fields! { {} |this| Interval { metrics: this.metrics, .. } }
