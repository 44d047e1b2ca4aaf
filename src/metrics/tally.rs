//! The counts of a tool's calls: plain numbers, without a lock.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{
    codes::MAX_CODES,
    latency::{Range, micros},
    names::Series,
    sink::CallEnd,
};

/// Numbers that only ever grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    series: [u64; Series::COUNT],
    /// Too long for the histogram.
    pub(super) clamped: u64,
    /// The sum of the latencies.
    pub(super) micros: u64,
}

impl Counts {
    #[inline]
    pub(super) fn add(&mut self, series: Series, n: u64) {
        self.series[series.place()] += n;
    }

    pub(super) fn of(&self, series: Series) -> u64 {
        self.series[series.place()]
    }

    /// Replaces each number by the result of `f` with that of `other`.
    pub(super) fn combine(&mut self, other: &Self, f: impl Fn(u64, u64) -> u64) {
        let ours = self.series.iter_mut();
        let ours = ours.chain([&mut self.clamped, &mut self.micros]);
        let others = other.series.iter().chain([&other.clamped, &other.micros]);
        for (ours, other) in ours.zip(others) {
            *ours = f(*ours, *other);
        }
    }

    /// Counts and records how long a call took.
    #[inline]
    pub(super) fn took(&mut self, took: Duration, range: &Range, latency: &mut Histogram<u64>) {
        let us = micros(took);
        self.micros = self.micros.saturating_add(us);
        let (fitting, clamped) = range.fit(us);
        self.clamped += u64::from(clamped);
        // It cannot fail: the histogram resizes itself.
        let _ = latency.record(fitting);
    }
}

/// The counts of one lane of a tool.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    /// By the places of [`Codes`](super::codes::Codes).
    pub(super) codes: [u64; MAX_CODES + 1],
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn new(range: &Range) -> Self {
        Self {
            counts: Counts::default(),
            codes: [0; MAX_CODES + 1],
            latency: range.histogram(),
        }
    }

    /// Counts a call that has ended.
    #[inline(always)]
    pub(super) fn ended(&mut self, end: &CallEnd<'_>, range: &Range) {
        end.each_count(|series, n| self.counts.add(series, n));
        if let Some(place) = end.code_place {
            self.codes[place] += 1;
        }
        if end.was_sent() {
            self.counts.took(end.duration, range, &mut self.latency);
        }
    }
}
