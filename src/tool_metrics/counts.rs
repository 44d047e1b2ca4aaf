//! The counters of one tool, and those of all tools together.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    breakers::Breakers,
    labels::{Labels, OTHER},
    latency::{Latencies, Range},
    names::Series,
    sink::CallEnd,
};
use crate::{
    error::ErrorKind,
    event::{InertReason, TokenOutcome},
    text::Short,
};

/// How many codes of a tool are distinguished. The rest is `_other`.
const MAX_CODES: usize = 16;

/// Counters, failures by code, and a histogram. They only ever grow.
#[derive(Clone, Debug)]
pub(super) struct Figures<const N: usize> {
    counts: [u64; N],
    /// By error code, redacted and short.
    pub(super) codes: BTreeMap<Arc<str>, u64>,
    pub(super) latencies: Latencies,
}

/// The figures of one tool.
pub(super) type Counts = Figures<{ Series::COUNT }>;

/// The tokens that calls of all tools needed.
pub(super) type Tokens = Figures<{ TokenOutcome::ALL.len() }>;

impl<const N: usize> Figures<N> {
    pub(super) fn new(range: Range) -> Self {
        Self {
            counts: [0; N],
            codes: BTreeMap::new(),
            latencies: Latencies::new(range),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.counts.iter_mut().zip(other.counts) {
            *ours += theirs;
        }
        for (label, n) in &other.codes {
            *self.codes.entry(Arc::clone(label)).or_default() += n;
        }
        self.latencies.add(&other.latencies);
    }

    fn subtract(&mut self, earlier: &Self) {
        for (ours, earlier) in self.counts.iter_mut().zip(earlier.counts) {
            *ours = ours.saturating_sub(earlier);
        }
        subtract(&mut self.codes, &earlier.codes);
        self.latencies.subtract(&earlier.latencies);
    }
}

impl Tokens {
    pub(super) fn needed(
        &mut self,
        outcome: TokenOutcome,
        exchange: Option<Duration>,
        failure: Option<ErrorKind>,
    ) {
        self.counts[outcome as usize] += 1;
        if let Some(took) = exchange {
            self.latencies.record(took);
        }
        if let Some(kind) = failure {
            *self.codes.entry(kind.code().into()).or_default() += 1;
        }
    }

    pub(super) fn of(&self, outcome: TokenOutcome) -> u64 {
        self.counts[outcome as usize]
    }
}

impl Counts {
    #[inline]
    pub(super) fn add(&mut self, series: Series, n: u64) {
        self.counts[series.place()] += n;
    }

    pub(super) fn of(&self, series: Series) -> u64 {
        self.counts[series.place()]
    }

    /// Returns a counter's value, if the counter is there.
    pub(super) fn get(&self, series: Series) -> Option<u64> {
        let count = self.of(series);
        (count > 0 || series.is_always_there()).then_some(count)
    }

    pub(super) fn is_zero(&self) -> bool {
        self.counts == [0; Series::COUNT]
    }

    /// Counts a call that has ended, but for its code.
    #[inline(always)]
    pub(super) fn ended(&mut self, end: &CallEnd<'_>) {
        end.each_count(|series, n| self.add(series, n));
        if end.was_sent() {
            self.latencies.record(end.duration);
        }
    }

    /// Returns the label of a code that was counted before and needed no redaction.
    pub(super) fn label(&self, code: &str) -> Option<Arc<str>> {
        let (label, _) = self.codes.get_key_value(code)?;
        Some(Arc::clone(label))
    }

    /// Counts a failed call by the label of its code. Returns the label that counts.
    pub(super) fn failed(&mut self, label: Arc<str>) -> Arc<str> {
        let label = match self.codes.len() < MAX_CODES || self.codes.contains_key(&label) {
            true => label,
            false => OTHER.into(),
        };
        *self.codes.entry(Arc::clone(&label)).or_default() += 1;
        label
    }
}

/// Returns a code as a label: redacted and short.
pub(super) fn label(code: &str) -> Arc<str> {
    Short::name(code).to_string().into()
}

/// Subtracts earlier values. Those that have not grown are left out.
fn subtract<K: Ord>(counts: &mut BTreeMap<K, u64>, earlier: &BTreeMap<K, u64>) {
    counts.retain(|key, n| {
        *n = n.saturating_sub(*earlier.get(key).unwrap_or(&0));
        *n > 0
    });
}

/// The counters that do not belong to one tool. They rarely change, so they share a lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    pub(super) breakers: Breakers,
    /// `None` before the first call that needed a token.
    pub(super) tokens: Option<Tokens>,
    /// The calls for which a layer could do nothing, by layer and reason.
    pub(super) inert: BTreeMap<(&'static str, InertReason), u64>,
}

/// The counters of one tool at one moment.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) counts: Counts,
    pub(super) in_flight: u64,
    /// Set if the tool has a row. Without a row it can only have calls in flight.
    pub(super) is_shown: bool,
}

impl Tool {
    pub(super) fn new(range: Range) -> Self {
        Self {
            counts: Counts::new(range),
            in_flight: 0,
            is_shown: false,
        }
    }
}

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    pub(super) tools: BTreeMap<Labels, Tool>,
    pub(super) common: Common,
}

impl Collected {
    /// Returns the sums over all tools.
    pub(super) fn total(&self) -> Tool {
        let mut tools = self.tools.values();
        let first = tools.next().cloned();
        let mut total = first.unwrap_or_else(|| Tool::new(Range::default()));
        for tool in tools {
            total.counts.merge(&tool.counts);
            total.in_flight += tool.in_flight;
        }
        total
    }

    pub(super) fn subtract(&mut self, earlier: &Self) {
        for (labels, tool) in &mut self.tools {
            if let Some(earlier) = earlier.tools.get(labels) {
                tool.counts.subtract(&earlier.counts);
            }
        }
        let (common, earlier) = (&mut self.common, &earlier.common);
        for (labels, breaker) in &mut common.breakers {
            let earlier = earlier.breakers.get(labels).map_or(0, |b| b.openings);
            breaker.openings = breaker.openings.saturating_sub(earlier);
        }
        if let (Some(tokens), Some(earlier)) = (&mut common.tokens, &earlier.tokens) {
            tokens.subtract(earlier);
        }
        subtract(&mut common.inert, &earlier.inert);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seventeenth_code_has_no_label_of_its_own() {
        let mut counts = Counts::new(Range::default());
        for n in 0..100 {
            let expected = match n {
                0..16 => format!("CODE_{n}"),
                _ => OTHER.to_owned(),
            };
            assert_eq!(*counts.failed(label(&format!("CODE_{n}"))), *expected);
        }
        assert_eq!(*counts.failed(label("CODE_3")), *"CODE_3");
        assert_eq!((counts.codes["CODE_3"], counts.codes[OTHER]), (2, 84));
    }

    #[test]
    fn labels_of_codes_are_redacted_and_short() {
        let mut counts = Counts::new(Range::default());
        let long = "X".repeat(1 << 20);
        for code in ["password=hunter2", &long, "password=hunter2", &long] {
            let label = counts.failed(label(code));
            assert!(!label.contains("hunter2") && label.len() <= 67, "{label}");
        }
        assert_eq!(counts.codes.len(), 2);
    }

    #[test]
    fn counts_that_have_shrunk_subtract_to_zero() {
        let counted = |n| {
            let mut counts = Counts::new(Range::default());
            counts.add(Series::Retries, n);
            (0..n).for_each(|_| drop(counts.failed(label("CODE"))));
            (0..n).for_each(|_| counts.latencies.record(Duration::from_secs(1)));
            counts
        };
        let mut now = counted(1);
        now.subtract(&counted(2));
        assert!(now.is_zero() && now.codes.is_empty());
        assert_eq!(now.latencies.sum_us, 0);
    }
}
