//! The text format of Prometheus, version 0.0.4.

use std::fmt::{self, Display, Write as _};

use hdrhistogram::Histogram;

use super::{
    collect::{Collected, Totals},
    labels::Labels,
    names::{self, Metric, Series, label},
};
use crate::event::{BreakerState, TokenOutcome};

/// Prints what was collected.
pub(super) struct Prometheus<'a> {
    pub(super) all: &'a Collected,
    pub(super) aliases: bool,
}

impl fmt::Display for Prometheus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let series: Vec<Series> = Series::all().collect();
        let same_metric = |a: &Series, b: &Series| a.metric().name == b.metric().name;
        let mut counters = series.chunk_by(same_metric);
        // Executions and attempts.
        counters
            .by_ref()
            .take(2)
            .try_for_each(|series| self.counter(f, series))?;
        self.durations(f)?;
        self.errors(f, names::ERRORS.name, label::CODE)?;
        if self.aliases {
            self.errors(f, names::ERRORS_ALIAS, label::ERROR_CODE)?;
        }
        counters.try_for_each(|series| self.counter(f, series))?;
        self.in_flight(f)?;
        self.breakers(f)?;
        self.inert(f)?;
        self.tokens(f)
    }
}

impl<'a> Prometheus<'a> {
    fn tools(&self) -> impl Iterator<Item = (&'a Labels, &'a Totals)> {
        // A name without a row has calls in flight and nothing else; it is no label yet.
        self.all.tools.iter().filter(|(_, totals)| totals.is_known)
    }

    /// The series of one metric.
    fn counter(&self, f: &mut fmt::Formatter<'_>, series: &[Series]) -> fmt::Result {
        let metric = series[0].metric();
        let known = |(labels, totals): (&'a Labels, &'a Totals)| {
            let count = |series: &Series| Some((labels, series.label(), totals.get(*series)?));
            series.iter().filter_map(count).collect::<Vec<_>>()
        };
        let mut lines = self.tools().flat_map(known).peekable();
        if lines.peek().is_some() {
            head(f, metric.name, "counter", metric.help)?;
        }
        lines.try_for_each(|(labels, label, n)| line(f, &metric.name, Some(labels), label, &n))
    }

    fn errors(&self, f: &mut fmt::Formatter<'_>, name: &str, label: &str) -> fmt::Result {
        head(f, name, "counter", names::ERRORS.help)?;
        for (labels, totals) in self.tools() {
            for (code, n) in &totals.codes {
                line(f, &name, Some(labels), Some((label, &**code)), n)?;
            }
        }
        Ok(())
    }

    fn durations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metric { name, help, .. } = names::DURATION;
        head(f, name, "histogram", help)?;
        self.tools()
            .try_for_each(|(labels, totals)| histogram(f, name, Some(labels), totals))
    }

    fn in_flight(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metric { name, help, .. } = names::IN_FLIGHT;
        head(f, name, "gauge", help)?;
        let without_row = self.all.tools.values().filter(|totals| !totals.is_known);
        let without_row: u64 = without_row.map(|totals| totals.in_flight).sum();
        for (labels, totals) in self.tools() {
            let is_other = *labels == Labels::other();
            let more = if is_other { without_row } else { 0 };
            line(f, &name, Some(labels), None, &(totals.in_flight + more))?;
        }
        Ok(())
    }

    fn breakers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all.breakers.is_empty() {
            return Ok(());
        }
        let Metric { name, help, .. } = names::OPENINGS;
        head(f, name, "counter", help)?;
        for (labels, seen) in &self.all.breakers {
            line(f, &name, Some(labels), None, &seen.openings)?;
        }
        let Metric { name, help, .. } = names::STATE;
        head(f, name, "gauge", help)?;
        for (labels, seen) in &self.all.breakers {
            if let Some(level) = seen.state.map(BreakerState::level) {
                line(f, &name, Some(labels), None, &level)?;
            }
        }
        Ok(())
    }

    fn inert(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metric { name, help, .. } = names::INERT;
        if !self.all.inert.is_empty() {
            head(f, name, "counter", help)?;
        }
        for ((layer, reason), calls) in &self.all.inert {
            let of = [(label::LAYER, *layer), (label::REASON, reason.name())];
            line(f, &name, None, of, calls)?;
        }
        Ok(())
    }

    fn tokens(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tokens) = &self.all.tokens else {
            return Ok(());
        };
        let Metric { name, help, .. } = names::TOKENS;
        head(f, name, "counter", help)?;
        for outcome in TokenOutcome::ALL {
            let label = Some((label::OUTCOME, outcome.name()));
            line(f, &name, None, label, &tokens.of(outcome))?;
        }
        let Metric { name, help, .. } = names::TOKEN_FAILURES;
        head(f, name, "counter", help)?;
        for (code, n) in &tokens.exchanges.codes {
            line(f, &name, None, Some((label::CODE, &**code)), n)?;
        }
        let Metric { name, help, .. } = names::TOKEN_EXCHANGE;
        head(f, name, "histogram", help)?;
        histogram(f, name, None, &tokens.exchanges)
    }
}

/// The lines of a histogram.
fn histogram(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    labels: Option<&Labels>,
    totals: &Totals,
) -> fmt::Result {
    for (le, n) in cumulative(&totals.latency, totals.counts.clamped) {
        let le = Some((label::LE, &*le));
        line(f, &format_args!("{name}_bucket"), labels, le, &n)?;
    }
    let sum = totals.counts.micros as f64 / 1e3;
    line(f, &format_args!("{name}_sum"), labels, None, &sum)?;
    let count = totals.latency.len();
    line(f, &format_args!("{name}_count"), labels, None, &count)
}

/// The two lines before the first one of a metric.
fn head(f: &mut fmt::Formatter<'_>, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn line<'v>(
    f: &mut fmt::Formatter<'_>,
    name: &dyn Display,
    labels: Option<&'v Labels>,
    more: impl IntoIterator<Item = (&'v str, &'v str)>,
    value: &dyn Display,
) -> fmt::Result {
    let of_tool = labels.map(|labels| {
        let server = labels.server().unwrap_or_default();
        [(label::SERVER, server), (label::TOOL, labels.tool())]
    });
    write!(f, "{name}")?;
    let mut before = '{';
    for (label, text) in of_tool.into_iter().flatten().chain(more) {
        write!(f, "{before}{label}=\"{}\"", Escaped(text))?;
        before = ',';
    }
    let after = if before == ',' { "}" } else { "" };
    writeln!(f, "{after} {value}")
}

/// The value of a label, as the text format wants it.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

/// How many latencies are at most as long as each bound, in milliseconds, the last one without
/// bound: there alone are those that were `clamped` to the longest of the range.
fn cumulative(histogram: &Histogram<u64>, clamped: u64) -> impl Iterator<Item = (String, u64)> {
    let mut recorded = histogram.iter_recorded().peekable();
    let mut sum = 0;
    let bounded = names::BOUNDS_MS.iter().map(move |bound| {
        // Of values that are not distinguished from the bound most are longer: a timeout of 2 s
        // ends calls a little after 2 s.
        let fits = |value| histogram.highest_equivalent(value) <= bound * 1000;
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
