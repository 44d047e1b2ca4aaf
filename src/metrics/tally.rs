//! What is counted of a tool's calls. Plain numbers; whoever shares them brings the lock.

use std::time::Duration;

use super::{
    codes::{Codes, MAX_CODES},
    latency::{Latencies, Range, micros},
    sink::CallEnd,
};
use crate::{
    error::ErrorKind,
    event::{CallOutcome, RetryRefusal},
};

/// Numbers that only ever grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) outcomes: [u64; CallOutcome::ALL.len()],
    pub(super) attempts: u64,
    pub(super) slow: u64,
    /// Refused by a circuit breaker.
    pub(super) breaker_rejected: u64,
    /// Too long for the histogram.
    pub(super) clamped: u64,
    pub(super) retries: u64,
    pub(super) refused: [u64; RetryRefusal::ALL.len()],
    pub(super) rate_limited: u64,
    /// The sum of the latencies.
    pub(super) micros: u64,
}

impl Counts {
    pub(super) fn calls(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    pub(super) fn of(&self, outcome: CallOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.each(other, u64::saturating_add);
    }

    pub(super) fn subtract(&mut self, earlier: &Self) {
        self.each(earlier, u64::saturating_sub);
    }

    fn each(&mut self, other: &Self, f: impl Fn(u64, u64) -> u64) {
        let apply = |a: &mut u64, b: &u64| *a = f(*a, *b);
        for (a, b) in self.outcomes.iter_mut().zip(&other.outcomes) {
            apply(a, b);
        }
        for (a, b) in self.refused.iter_mut().zip(&other.refused) {
            apply(a, b);
        }
        apply(&mut self.attempts, &other.attempts);
        apply(&mut self.slow, &other.slow);
        apply(&mut self.breaker_rejected, &other.breaker_rejected);
        apply(&mut self.clamped, &other.clamped);
        apply(&mut self.retries, &other.retries);
        apply(&mut self.rate_limited, &other.rate_limited);
        apply(&mut self.micros, &other.micros);
    }
}

/// What one lane of a tool has counted.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    /// By the places of [`Codes`].
    pub(super) codes: [u64; MAX_CODES + 1],
    pub(super) latency: Latencies,
}

impl Tally {
    pub(super) fn new(range: &Range) -> Self {
        Self {
            counts: Counts::default(),
            codes: [0; MAX_CODES + 1],
            latency: range.latencies(),
        }
    }

    /// Counts a call that has ended.
    #[inline(always)]
    pub(super) fn ended(&mut self, end: &CallEnd<'_>, code: Option<usize>, range: &Range) {
        let counts = &mut self.counts;
        counts.outcomes[end.outcome as usize] += 1;
        counts.attempts += u64::from(end.attempts);
        counts.slow += u64::from(end.slow);
        if let Some(place) = code {
            self.codes[place] += 1;
        }
        counts.breaker_rejected += u64::from(end.failure == Some(ErrorKind::CircuitOpen));
        if end.was_sent() {
            self.took(end.duration, range);
        }
    }

    #[inline]
    fn took(&mut self, latency: Duration, range: &Range) {
        let us = micros(latency);
        self.counts.micros = self.counts.micros.saturating_add(us);
        let (fitting, clamped) = range.fit(us);
        self.counts.clamped += u64::from(clamped);
        self.latency.record(fitting);
    }
}

/// The codes with their numbers.
pub(super) fn by_label<'a>(
    codes: &'a Codes,
    counted: &'a [u64; MAX_CODES + 1],
) -> impl Iterator<Item = (&'a str, u64)> {
    let labelled = counted.iter().enumerate().filter(|(_, n)| **n > 0);
    labelled.map(|(place, n)| (codes.label(place), *n))
}
