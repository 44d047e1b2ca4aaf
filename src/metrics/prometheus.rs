//! The text format of Prometheus, version 0.0.4.

use std::fmt;

use hdrhistogram::Histogram;

use super::{
    collect::{Collected, Totals},
    labels::Labels,
    names,
};
use crate::event::{BreakerState, CallOutcome, RetryRefusal};

/// Prints what was collected.
pub(super) struct Prometheus<'a> {
    pub(super) all: &'a Collected,
    pub(super) aliases: bool,
}

impl fmt::Display for Prometheus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.executions(f)?;
        self.counter(f, &names::ATTEMPTS, |t| Some(t.counts.attempts))?;
        self.durations(f)?;
        self.errors(f, &names::ERRORS, names::label::CODE)?;
        if self.aliases {
            self.errors(f, &names::ERRORS_ALIAS, names::label::ERROR_CODE)?;
        }
        let timeouts = |t: &Totals| Some(t.counts.of(CallOutcome::Timeout));
        self.counter(f, &names::TIMEOUTS, timeouts)?;
        self.counter(f, &names::SLOW, Totals::slow)?;
        self.counter(f, &names::RETRIES, Totals::retries)?;
        self.refused(f)?;
        self.counter(f, &names::RATE_LIMITED, Totals::rate_limited)?;
        self.counter(f, &names::REJECTED, Totals::breaker_rejected)?;
        self.in_flight(f)?;
        self.breakers(f)
    }
}

impl<'a> Prometheus<'a> {
    fn tools(&self) -> impl Iterator<Item = (&'a Labels, &'a Totals)> {
        // A name without a row has calls in flight and nothing else; it is no label yet.
        self.all.tools.iter().filter(|(_, totals)| totals.is_known)
    }

    fn executions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names::EXECUTIONS.head(f)?;
        for (labels, totals) in self.tools() {
            for outcome in CallOutcome::ALL {
                let label = Some((names::label::OUTCOME, outcome.name()));
                names::EXECUTIONS.line(f, labels, label, totals.counts.of(outcome))?;
            }
        }
        Ok(())
    }

    fn counter(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &names::Metric,
        value: impl Fn(&Totals) -> Option<u64>,
    ) -> fmt::Result {
        let told = |(labels, totals)| Some((labels, value(totals)?));
        let mut told = self.tools().filter_map(told).peekable();
        if told.peek().is_some() {
            name.head(f)?;
        }
        told.try_for_each(|(labels, n)| name.line(f, labels, None, n))
    }

    fn errors(&self, f: &mut fmt::Formatter<'_>, name: &names::Metric, label: &str) -> fmt::Result {
        name.head(f)?;
        for (labels, totals) in self.tools() {
            for (code, n) in &totals.codes {
                name.line(f, labels, Some((label, code)), *n)?;
            }
        }
        Ok(())
    }

    fn refused(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.tools().filter(|(_, t)| t.retries().is_some());
        let mut told = told.peekable();
        if told.peek().is_some() {
            names::REFUSED.head(f)?;
        }
        for (labels, totals) in told {
            for (reason, n) in RetryRefusal::ALL.iter().zip(totals.counts.refused) {
                let label = Some((names::label::REASON, reason.name()));
                names::REFUSED.line(f, labels, label, n)?;
            }
        }
        Ok(())
    }

    fn durations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names::DURATION.head(f)?;
        for (labels, totals) in self.tools() {
            let name = names::DURATION.name;
            for (le, n) in cumulative(&totals.latency, totals.counts.clamped) {
                let le = Some((names::label::LE, &*le));
                names::line(f, &format_args!("{name}_bucket"), labels, le, &n)?;
            }
            let sum = totals.counts.micros as f64 / 1e3;
            names::line(f, &format_args!("{name}_sum"), labels, None, &sum)?;
            let count = totals.latency.len();
            names::line(f, &format_args!("{name}_count"), labels, None, &count)?;
        }
        Ok(())
    }

    fn in_flight(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names::IN_FLIGHT.head(f)?;
        let without_row = self.all.tools.values().filter(|totals| !totals.is_known);
        let without_row: u64 = without_row.map(|totals| totals.in_flight).sum();
        for (labels, totals) in self.tools() {
            let is_other = *labels == Labels::other();
            let more = if is_other { without_row } else { 0 };
            names::IN_FLIGHT.line(f, labels, None, totals.in_flight + more)?;
        }
        Ok(())
    }

    fn breakers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all.breakers.is_empty() {
            return Ok(());
        }
        names::OPENINGS.head(f)?;
        for (labels, told) in &self.all.breakers {
            names::OPENINGS.line(f, labels, None, told.openings)?;
        }
        names::STATE.head(f)?;
        for (labels, told) in &self.all.breakers {
            if let Some(level) = told.state.map(BreakerState::level) {
                names::STATE.line(f, labels, None, level.into())?;
            }
        }
        Ok(())
    }
}

/// How many latencies are at most as long as each bound, in milliseconds, the last one without bound: there alone are
/// those that were `clamped` to the longest that is told apart.
fn cumulative(histogram: &Histogram<u64>, clamped: u64) -> impl Iterator<Item = (String, u64)> {
    let mut recorded = histogram.iter_recorded().peekable();
    let mut sum = 0;
    let bounded = names::BOUNDS_MS.iter().map(move |bound| {
        // Of values that are not told apart, the bound may be any one.
        let fits = |value| histogram.lowest_equivalent(value) <= bound * 1000;
        while let Some(step) = recorded.next_if(|step| fits(step.value_iterated_to())) {
            sum += step.count_at_value();
        }
        (
            bound.to_string(),
            sum.min(histogram.len().saturating_sub(clamped)),
        )
    });
    bounded.chain([("+Inf".to_owned(), histogram.len())])
}
