use std::{collections::BTreeMap, fmt};

use hdrhistogram::Histogram;

use super::{
    inert,
    latency::{Range, encode},
    snapshot::{BreakerRow, Latency, Snapshot, Stats, TokenStats, ToolRow},
};
use crate::event::BreakerState;

/// Two snapshots that cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// A row that has timed calls has no histogram: use
    /// [`Metrics::export`](super::Metrics::export).
    NoHistogram,
    /// They distinguish other latencies.
    OtherLatencies,
    /// A histogram has latencies beyond the range, or too many calls to be added up.
    BadHistogram,
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoHistogram => "a snapshot without histograms cannot be merged",
            Self::OtherLatencies => "the snapshots tell other latencies apart",
            Self::BadHistogram => "a histogram has latencies beyond its range, or too many calls",
        })
    }
}

impl std::error::Error for MergeError {}

impl Snapshot {
    /// Adds what another process, or another [`Metrics`](super::Metrics), has counted. Both
    /// snapshots need their histograms. The period becomes the longer one, and a breaker's state
    /// the worse one.
    ///
    /// # Errors
    ///
    /// [`MergeError`]; then this snapshot is as it was.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if self.latency != other.latency {
            return Err(MergeError::OtherLatencies);
        }
        let mut merged = self.clone();
        let range = &merged.latency;
        merged.period = self.period.max(other.period);
        merged.total.merge(&other.total, range)?;
        merged.tools = merge_tools(&self.tools, &other.tools, range)?;
        if let Some(tokens) = &other.tokens {
            let ours = merged.tokens.get_or_insert_default();
            ours.merge(tokens, &self.latency)?;
        }
        merged.breakers = merge_breakers(&self.breakers, &other.breakers);
        merged.inert = inert::merge(&self.inert, &other.inert);
        *self = merged;
        Ok(())
    }
}

fn merge_tools(
    ours: &[ToolRow],
    theirs: &[ToolRow],
    range: &Range,
) -> Result<Vec<ToolRow>, MergeError> {
    let mut merged = BTreeMap::new();
    for row in ours.iter().chain(theirs) {
        let stats: &mut Stats = merged.entry((&row.server, &row.tool)).or_default();
        stats.merge(&row.stats, range)?;
    }
    let rows = merged.into_iter().map(|((server, tool), stats)| ToolRow {
        server: server.clone(),
        tool: tool.clone(),
        stats,
    });
    Ok(rows.collect())
}

fn merge_breakers(ours: &[BreakerRow], theirs: &[BreakerRow]) -> Vec<BreakerRow> {
    let mut merged = BTreeMap::new();
    for row in ours.iter().chain(theirs) {
        let known = merged.entry((&row.server, &row.tool));
        let empty = || BreakerRow {
            openings: 0,
            ..row.clone()
        };
        known.or_insert_with(empty).merge(row);
    }
    merged.into_values().collect()
}

impl BreakerRow {
    fn merge(&mut self, other: &Self) {
        self.openings = self.openings.saturating_add(other.openings);
        let level = |row: &Self| row.state.map(BreakerState::level);
        if level(other) > level(self) {
            self.state = other.state;
        }
    }
}

impl TokenStats {
    fn merge(&mut self, other: &Self, range: &Range) -> Result<(), MergeError> {
        self.exchange.merge(&other.exchange, range)?;
        for (ours, theirs) in [
            (&mut self.hits, other.hits),
            (&mut self.exchanged, other.exchanged),
            (&mut self.shared, other.shared),
            (&mut self.failed, other.failed),
        ] {
            *ours = ours.saturating_add(theirs);
        }
        add_each(&mut self.failures, &other.failures);
        Ok(())
    }
}

impl Stats {
    fn merge(&mut self, other: &Self, range: &Range) -> Result<(), MergeError> {
        self.latency.merge(&other.latency, range)?;
        macro_rules! add {
            ($($field:ident)*) => {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            };
        }
        add!(calls successes errors rejected timeouts skipped cancelled panicked attempts in_flight);
        macro_rules! add_reported {
            ($($field:ident)*) => {
                $(self.$field = sum(self.$field, other.$field);)*
            };
        }
        add_reported!(retries rate_limited slow breaker_rejected reused);
        add_each(&mut self.codes, &other.codes);
        if let Some(reasons) = &other.refused_retries {
            add_each(self.refused_retries.get_or_insert_default(), reasons);
        }
        self.rate();
        Ok(())
    }
}

/// The sum of those that are known.
fn sum(ours: Option<u64>, theirs: Option<u64>) -> Option<u64> {
    let known = ours.into_iter().chain(theirs);
    known.reduce(u64::saturating_add)
}

fn add_each(ours: &mut BTreeMap<String, u64>, theirs: &BTreeMap<String, u64>) {
    for (name, n) in theirs {
        let count = ours.entry(name.clone()).or_default();
        *count = count.saturating_add(*n);
    }
}

impl Latency {
    fn merge(&mut self, other: &Self, range: &Range) -> Result<(), MergeError> {
        let mut ours = self.histogram(range)?;
        let theirs = other.histogram(range)?;
        ours.add(&theirs).map_err(|_| MergeError::BadHistogram)?;
        self.sum = self.sum.saturating_add(other.sum);
        self.clamped = self.clamped.saturating_add(other.clamped);
        self.histogram = Some(encode(&ours));
        self.measure(&ours);
        Ok(())
    }

    fn histogram(&self, range: &Range) -> Result<Histogram<u64>, MergeError> {
        match &self.histogram {
            Some(counts) => range.decode(counts).ok_or(MergeError::BadHistogram),
            None if self.count == 0 => Ok(range.histogram()),
            None => Err(MergeError::NoHistogram),
        }
    }
}
