//! The text format of Prometheus, version 0.0.4.

use std::fmt::{self, Display, Write as _};

use super::{
    counts::{Collected, Tool},
    labels::Labels,
    latency::Latencies,
    names::{self, BOUNDS_MS, Metric, Series, label},
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
        let series: Vec<Series> = Series::all().collect();
        let same_metric = |a: &Series, b: &Series| a.metric().name == b.metric().name;
        for series in series.chunk_by(same_metric) {
            numbers(f, "counter", series[0].metric(), self.counts(series))?;
            if let [Series::Attempts] = series {
                histograms(f, names::DURATION, self.latencies())?;
                numbers(f, "counter", names::ERRORS, self.errors(label::CODE))?;
                let alias = Metric {
                    name: names::ERRORS_ALIAS,
                    ..names::ERRORS
                };
                let errors = self.errors(label::ERROR_CODE).filter(|_| self.aliases);
                numbers(f, "counter", alias, errors)?;
            }
        }
        numbers(f, "gauge", names::IN_FLIGHT, self.in_flight())?;
        self.common(f)
    }
}

impl<'a> Prometheus<'a> {
    fn tools(&self) -> impl Iterator<Item = (&'a Labels, &'a Tool)> + use<'a> {
        // A name without a row has calls in flight and nothing else; it is no label yet.
        self.all.tools.iter().filter(|(_, tool)| tool.is_known)
    }

    /// The series of one metric.
    fn counts(&self, series: &[Series]) -> impl Iterator<Item = Sample<'a>> {
        self.tools().flat_map(move |(labels, tool)| {
            series.iter().filter_map(move |series| {
                Some((of(labels, series.label()), tool.counts.get(*series)?))
            })
        })
    }

    fn latencies(&self) -> impl Iterator<Item = (Vec<(&'a str, &'a str)>, &'a Latencies)> {
        self.tools()
            .map(|(labels, tool)| (of(labels, None), &tool.counts.latencies))
    }

    fn errors(&self, label: &'static str) -> impl Iterator<Item = Sample<'a>> {
        self.tools().flat_map(move |(labels, tool)| {
            let codes = tool.counts.codes.iter();
            codes.map(move |(code, n)| (of(labels, Some((label, code))), *n))
        })
    }

    fn in_flight(&self) -> impl Iterator<Item = Sample<'a>> {
        let without_row = self.all.tools.values().filter(|tool| !tool.is_known);
        let without_row: u64 = without_row.map(|tool| tool.in_flight).sum();
        self.tools().map(move |(labels, tool)| {
            let is_other = *labels == Labels::other();
            let more = if is_other { without_row } else { 0 };
            (of(labels, None), tool.in_flight + more)
        })
    }

    /// The counters that do not belong to one tool.
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
        let failures = tokens.failures.iter();
        let failures = failures.map(|(code, n)| (vec![(label::CODE, *code)], *n));
        numbers(f, "counter", names::TOKEN_FAILURES, failures)?;
        let exchanges = [(Vec::new(), &tokens.exchanges)];
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
    metric: Metric,
    samples: impl IntoIterator<Item = Sample<'a>>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_some() {
        head(f, kind, &metric)?;
    }
    samples.try_for_each(|(labels, n)| line(f, metric.name, "", &labels, &n))
}

fn histograms<'a>(
    f: &mut fmt::Formatter<'_>,
    metric: Metric,
    all: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, &'a Latencies)>,
) -> fmt::Result {
    head(f, "histogram", &metric)?;
    for (labels, latencies) in all {
        for (le, n) in cumulative(latencies) {
            let labels = [&labels[..], &[(label::LE, &*le)]].concat();
            line(f, metric.name, "_bucket", &labels, &n)?;
        }
        let sum = latencies.sum_us as f64 / 1e3;
        line(f, metric.name, "_sum", &labels, &sum)?;
        let count = latencies.histogram.len();
        line(f, metric.name, "_count", &labels, &count)?;
    }
    Ok(())
}

/// The two lines before the first one of a metric.
fn head(f: &mut fmt::Formatter<'_>, kind: &str, Metric { name, help }: &Metric) -> fmt::Result {
    writeln!(
        f,
        "# HELP {name} {help}
# TYPE {name} {kind}"
    )
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
        write!(f, "{before}{label}=\"{}\"", Escaped(text))?;
    }
    let after = if labels.is_empty() { "" } else { "}" };
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
/// bound: there alone are those that were clamped to the longest of the range.
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
