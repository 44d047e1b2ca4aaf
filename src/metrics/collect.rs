//! All that was counted, gathered from where it was counted.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
    time::Duration,
};

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::{
    breakers::Breakers,
    handle::Metrics,
    labels::Labels,
    latency::Range,
    seat::Seats,
    tally::{Counts, by_label},
};
use crate::call::{Signal, Signals};

/// What was counted of one tool.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    pub(super) counts: Counts,
    pub(super) codes: BTreeMap<Arc<str>, u64>,
    pub(super) latency: Histogram<u64>,
    pub(super) in_flight: u64,
    /// What the layers that its calls pass can tell.
    pub(super) signals: Signals,
    /// It has a row; else only calls in flight can be there.
    pub(super) is_known: bool,
}

impl Totals {
    pub(super) fn new(range: &Range) -> Self {
        Self {
            counts: Counts::default(),
            codes: BTreeMap::new(),
            latency: range.histogram(),
            in_flight: 0,
            signals: Signals::default(),
            is_known: false,
        }
    }

    fn read(&mut self, seats: &Seats) {
        let row = seats.row();
        self.is_known |= row.is_known();
        self.in_flight += seats.in_flight();
        self.signals |= row.signals();
        row.lanes.read(|tally| {
            self.counts.add(&tally.counts);
            tally.latency.add_to(&mut self.latency);
            for (label, n) in by_label(&row.codes, &tally.codes) {
                self.code(label, n);
            }
        });
    }

    fn code(&mut self, label: &str, n: u64) {
        match self.codes.get_mut(label) {
            Some(known) => *known += n,
            None => drop(self.codes.insert(label.into(), n)),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        // Of one range, and this one grows.
        let _ = self.latency.add(&other.latency);
        self.in_flight += other.in_flight;
        self.signals |= other.signals;
        for (label, n) in &other.codes {
            self.code(label, *n);
        }
    }

    fn subtract(&mut self, earlier: &Self) {
        self.counts.subtract(&earlier.counts);
        // What was there earlier is there still.
        let _ = self.latency.subtract(&earlier.latency);
        self.codes.retain(|label, n| {
            *n -= earlier.codes.get(label).unwrap_or(&0);
            *n > 0
        });
    }

    /// How many there were, if any layer would have said so.
    fn told(&self, signal: Signal, count: u64) -> Option<u64> {
        (count > 0 || self.signals.has(signal)).then_some(count)
    }

    pub(super) fn slow(&self) -> Option<u64> {
        self.told(Signal::SlowCalls, self.counts.slow)
    }

    pub(super) fn rate_limited(&self) -> Option<u64> {
        self.told(Signal::RateLimits, self.counts.rate_limited)
    }

    pub(super) fn breaker_rejected(&self) -> Option<u64> {
        self.told(Signal::Breakers, self.counts.breaker_rejected)
    }

    pub(super) fn retries(&self) -> Option<u64> {
        self.told(Signal::Retries, self.counts.retries)
    }

    fn is_quiet(&self) -> bool {
        self.in_flight == 0 && self.counts == Counts::default()
    }
}

/// What was counted, at one moment.
#[derive(Clone, Debug)]
pub(super) struct Collected {
    pub(super) range: Range,
    pub(super) tools: BTreeMap<Labels, Totals>,
    pub(super) breakers: Breakers,
}

impl Collected {
    pub(super) fn new(range: Range, breakers: Breakers) -> Self {
        Self {
            range,
            tools: BTreeMap::new(),
            breakers,
        }
    }

    /// Names that look the same as labels share a row.
    pub(super) fn add(&mut self, seats: &Seats) {
        let totals = match self.tools.entry(seats.row().labels.clone()) {
            btree_map::Entry::Vacant(vacant) => vacant.insert(Totals::new(&self.range)),
            btree_map::Entry::Occupied(occupied) => occupied.into_mut(),
        };
        totals.read(seats);
    }

    fn subtract(&mut self, earlier: &Self) {
        for (labels, totals) in &mut self.tools {
            if let Some(earlier) = earlier.tools.get(labels) {
                totals.subtract(earlier);
            }
        }
        for (labels, told) in &mut self.breakers {
            if let Some(earlier) = earlier.breakers.get(labels) {
                told.openings -= earlier.openings;
            }
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

/// What was there when a period began.
#[derive(Debug)]
pub(super) struct Period {
    since: Instant,
    before: Collected,
}

/// What happened in a period.
#[derive(Debug)]
pub(super) struct Happened {
    pub(super) during: Duration,
    pub(super) collected: Collected,
}

impl Period {
    /// From when there was nothing.
    pub(super) fn new(range: Range) -> Self {
        Self {
            since: Instant::now(),
            before: Collected::new(range, Breakers::new()),
        }
    }

    pub(super) fn from_now(metrics: &Metrics) -> Self {
        Self {
            since: Instant::now(),
            before: metrics.collect(),
        }
    }

    /// What has happened until now.
    pub(super) fn read(&self, metrics: &Metrics) -> Happened {
        self.until(metrics.collect())
    }

    /// The same, and the next period begins in the same moment.
    pub(super) fn next(&mut self, metrics: &Metrics) -> Happened {
        let now = metrics.collect();
        let happened = self.until(now.clone());
        *self = Self {
            since: self.since + happened.during,
            before: now,
        };
        happened
    }

    fn until(&self, mut now: Collected) -> Happened {
        let during = self.since.elapsed();
        now.subtract(&self.before);
        now.tools.retain(|_, totals| !totals.is_quiet());
        Happened {
            during,
            collected: now,
        }
    }
}
