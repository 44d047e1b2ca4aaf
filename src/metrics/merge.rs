use std::{collections::BTreeMap, fmt};

use hdrhistogram::Histogram;

use super::{
    latency::{Range, encode},
    snapshot::{BreakerRow, Latency, Snapshot, Stats, ToolRow},
};
use crate::event::BreakerState;

/// Two snapshots that cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// A row that has timed calls has no histogram: use [`Metrics::export`](super::Metrics::export).
    NoHistogram,
    /// They tell other latencies apart.
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
    /// Adds what another process, or another [`Metrics`](super::Metrics), has counted. Both snapshots need their
    /// histograms. The period becomes the longer one, and a breaker's state the worse one.
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
        merged.breakers = merge_breakers(&self.breakers, &other.breakers);
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
    let mut merged: BTreeMap<_, BreakerRow> = BTreeMap::new();
    for row in ours.iter().chain(theirs) {
        match merged.get_mut(&(&row.server, &row.tool)) {
            Some(known) => known.merge(row),
            None => drop(merged.insert((&row.server, &row.tool), row.clone())),
        }
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

impl Stats {
    fn merge(&mut self, other: &Self, range: &Range) -> Result<(), MergeError> {
        self.latency.merge(&other.latency, range)?;
        let add = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        add(&mut self.calls, other.calls);
        add(&mut self.successes, other.successes);
        add(&mut self.errors, other.errors);
        add(&mut self.timeouts, other.timeouts);
        add(&mut self.skipped, other.skipped);
        add(&mut self.cancelled, other.cancelled);
        add(&mut self.panicked, other.panicked);
        add(&mut self.attempts, other.attempts);
        add(&mut self.rejected, other.rejected);
        let told = |a: &mut Option<u64>, b: Option<u64>| {
            *a = a.map(|a| a.saturating_add(b.unwrap_or(0))).or(b);
        };
        told(&mut self.retries, other.retries);
        told(&mut self.rate_limited, other.rate_limited);
        told(&mut self.slow, other.slow);
        told(&mut self.breaker_rejected, other.breaker_rejected);
        add(&mut self.in_flight, other.in_flight);
        for (code, n) in &other.codes {
            add(self.codes.entry(code.clone()).or_default(), *n);
        }
        if let Some(theirs) = &other.refused_retries {
            let ours = self.refused_retries.get_or_insert_default();
            for (reason, n) in theirs {
                add(ours.entry(reason.clone()).or_default(), *n);
            }
        }
        self.rate();
        Ok(())
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
