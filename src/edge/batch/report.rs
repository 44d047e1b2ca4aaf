use std::{fmt, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    event::ms,
    result::{Status, ToolResult},
};

/// The report of a [`Sequence`](super::Sequence): a result for each call, in order, and their
/// tally.
///
/// `Debug` and `Serialize` show no data unredacted, as those of [`ToolResult`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SequenceReport<T> {
    pub(super) results: Vec<ToolResult<T>>,
    pub(super) tally: Tally,
    pub(super) duration: Duration,
    pub(super) budget: Option<Duration>,
}

impl<T> SequenceReport<T> {
    /// A result for each call, in order.
    pub fn results(&self) -> &[ToolResult<T>] {
        &self.results
    }

    /// The same, taken out.
    pub fn into_results(self) -> Vec<ToolResult<T>> {
        self.results
    }

    /// How long it took, from its beginning to the end of the last call.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// The time that the calls had together.
    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    /// How many calls ended in which way.
    pub fn tally(&self) -> Tally {
        self.tally
    }
}

/// How many calls ended in which way.
///
/// Each call is one of succeeded, failed, timed out, skipped and cancelled; slow ones are counted
/// besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// All of them.
    pub calls: usize,
    /// They have their answers.
    pub succeeded: usize,
    /// They failed, were refused, or were answered with an error in the tool's own words.
    pub failed: usize,
    /// They were started and did not end in time.
    pub timed_out: usize,
    /// They were not started: no time was left.
    pub skipped: usize,
    /// They were given up.
    pub cancelled: usize,
    /// They took more than their fraction of the timeout.
    pub slow: usize,
}

impl Tally {
    pub(super) fn count<T>(&mut self, result: &ToolResult<T>) {
        self.calls += 1;
        self.slow += usize::from(result.metadata().is_slow());
        *match result.status() {
            Status::Success => &mut self.succeeded,
            Status::Error => &mut self.failed,
            Status::Timeout => &mut self.timed_out,
            Status::Skipped => &mut self.skipped,
            Status::Cancelled => &mut self.cancelled,
        } += 1;
    }
}

/// `3 calls in 12.5 s: 1 succeeded, 1 timed out, 1 skipped`
impl<T> fmt::Display for SequenceReport<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        let calls = if tally.calls == 1 { "call" } else { "calls" };
        write!(
            f,
            "{} {calls} in {:.1} s",
            tally.calls,
            self.duration.as_secs_f64()
        )?;
        let parts = [
            (tally.succeeded, "succeeded"),
            (tally.failed, "failed"),
            (tally.timed_out, "timed out"),
            (tally.skipped, "skipped"),
            (tally.cancelled, "cancelled"),
            (tally.slow, "slow"),
        ];
        let mut between = ": ";
        for (n, what) in parts {
            if n > 0 {
                write!(f, "{between}{n} {what}")?;
                between = ", ";
            }
        }
        Ok(())
    }
}

impl<T: Serialize> Serialize for SequenceReport<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("SequenceReport", 4)?;
        report.serialize_field("tally", &self.tally)?;
        report.serialize_field("duration_ms", &ms(self.duration))?;
        report.serialize_field("budget_ms", &self.budget.map(ms))?;
        report.serialize_field("results", &self.results)?;
        report.end()
    }
}
