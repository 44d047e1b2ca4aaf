//! The text format of Prometheus, version 0.0.4.

use std::fmt::{self, Display};

use super::{
    counts::Collected,
    labels::Labels,
    latency::Latencies,
    names::{self, BOUNDS_MS, Series, help, label},
};
use crate::event::{BreakerState, TokenOutcome};

/// Prints what was collected.
pub(super) struct Prometheus<'a> {
    pub(super) all: &'a Collected,
    pub(super) aliases: bool,
}

/// One line: its labels and its value.
type Sample<'a> = (Vec<(&'a str, &'a str)>, u64);

impl fmt::Display for Prometheus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A row that is not shown has calls in flight alone; they count for the row of all others.
        let all = || self.all.tools.iter();
        let tools = || all().filter(|(_, tool)| tool.is_shown);
        let series: Vec<Series> = Series::all().collect();
        for series in series.chunk_by(|a, b| a.metric() == b.metric()) {
            let counts = tools().flat_map(|(labels, tool)| {
                let count = |s: &Series| Some((of(labels, s.label()), tool.counts.get(*s)?));
                series.iter().filter_map(count)
            });
            numbers(f, "counter", series[0].metric(), counts)?;
            if let [Series::Attempts] = series {
                let latencies = tools().map(|(labels, t)| (of(labels, None), &t.counts.latencies));
                histograms(f, names::DURATION, latencies)?;
                let errors = |label| {
                    tools().flat_map(move |(labels, tool)| {
                        let codes = tool.counts.codes.iter();
                        codes.map(move |(code, n)| (of(labels, Some((label, code))), *n))
                    })
                };
                numbers(f, "counter", names::ERRORS, errors(label::CODE))?;
                let errors = errors(label::ERROR_CODE).filter(|_| self.aliases);
                numbers(f, "counter", names::ERRORS_ALIAS, errors)?;
            }
        }
        let without_row = all().filter(|(_, tool)| !tool.is_shown);
        let without_row: u64 = without_row.map(|(_, tool)| tool.in_flight).sum();
        let in_flight = tools().map(|(labels, tool)| {
            let is_other = *labels == Labels::other();
            let more = if is_other { without_row } else { 0 };
            (of(labels, None), tool.in_flight + more)
        });
        numbers(f, "gauge", names::IN_FLIGHT, in_flight)?;
        self.common(f)
    }
}

impl Prometheus<'_> {
    /// Returns the counters that do not belong to one tool.
    fn common(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let common = &self.all.common;
        let breakers = || common.breakers.iter();
        let openings = breakers().map(|(labels, seen)| (of(labels, None), seen.openings));
        numbers(f, "counter", names::OPENINGS, openings)?;
        let states = breakers().filter_map(|(labels, seen)| {
            let level = seen.state.map(BreakerState::level)?;
            Some((of(labels, None), level.into()))
        });
        numbers(f, "gauge", names::STATE, states)?;
        let inert = common.inert.iter().map(|((layer, reason), n)| {
            let of = vec![(label::LAYER, *layer), (label::REASON, reason.name())];
            (of, *n)
        });
        numbers(f, "counter", names::INERT, inert)?;
        let Some(tokens) = &common.tokens else {
            return Ok(());
        };
        let outcome = |outcome: TokenOutcome| {
            let of = vec![(label::OUTCOME, outcome.name())];
            (of, tokens.of(outcome))
        };
        numbers(f, "counter", names::TOKENS, TokenOutcome::ALL.map(outcome))?;
        let failures = tokens.codes.iter();
        let failures = failures.map(|(code, n)| (vec![(label::CODE, &**code)], *n));
        numbers(f, "counter", names::TOKEN_FAILURES, failures)?;
        let exchanges = [(Vec::new(), &tokens.latencies)];
        histograms(f, names::TOKEN_EXCHANGE, exchanges)
    }
}

fn of<'a>(labels: &'a Labels, more: Option<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    let server = (label::SERVER, labels.server().unwrap_or_default());
    let both = [server, (label::TOOL, labels.tool())];
    both.into_iter().chain(more).collect()
}

fn numbers<'a>(
    f: &mut fmt::Formatter<'_>,
    kind: &str,
    metric: &str,
    samples: impl IntoIterator<Item = Sample<'a>>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_some() {
        head(f, kind, metric)?;
    }
    samples.try_for_each(|(labels, n)| line(f, metric, "", &labels, &n))
}

fn histograms<'a>(
    f: &mut fmt::Formatter<'_>,
    metric: &str,
    all: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, &'a Latencies)>,
) -> fmt::Result {
    head(f, "histogram", metric)?;
    for (labels, latencies) in all {
        for (le, n) in cumulative(latencies) {
            let labels = [&labels[..], &[(label::LE, &*le)]].concat();
            line(f, metric, "_bucket", &labels, &n)?;
        }
        let sum = latencies.sum_us as f64 / 1e3;
        line(f, metric, "_sum", &labels, &sum)?;
        let count = latencies.histogram.len();
        line(f, metric, "_count", &labels, &count)?;
    }
    Ok(())
}

/// Returns the two lines before the first one of a metric.
fn head(f: &mut fmt::Formatter<'_>, kind: &str, name: &str) -> fmt::Result {
    writeln!(f, "# HELP {name} {}\n# TYPE {name} {kind}", help(name))
}

fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    part: &str,
    labels: &[(&str, &str)],
    value: &dyn Display,
) -> fmt::Result {
    write!(f, "{name}{part}")?;
    for (n, (label, text)) in labels.iter().enumerate() {
        let before = if n == 0 { '{' } else { ',' };
        let text = text.replace('\\', r"\\").replace('"', "\\\"");
        write!(f, "{before}{label}=\"{}\"", text.replace('\n', r"\n"))?;
    }
    let after = if labels.is_empty() { "" } else { "}" };
    writeln!(f, "{after} {value}")
}

/// Returns how many latencies are at most as long as each bound, in milliseconds, the last one
/// without bound: there alone are those that were clamped to the longest of the range.
fn cumulative(latencies: &Latencies) -> impl Iterator<Item = (String, u64)> {
    let histogram = &latencies.histogram;
    let mut recorded = histogram.iter_recorded().peekable();
    let mut sum = 0;
    let bounded = BOUNDS_MS.iter().map(move |bound| {
        // Of values that are not distinguished from the bound most are longer: a timeout of 2 s
        // ends calls a little after 2 s.
        let fits = |value| histogram.highest_equivalent(value) <= bound * 1000;
        while let Some(step) = recorded.next_if(|step| fits(step.value_iterated_to())) {
            sum += step.count_at_value();
        }
        (
            bound.to_string(),
            sum.min(histogram.len() - latencies.clamped),
        )
    });
    bounded.chain([("+Inf".to_owned(), histogram.len())])
}
