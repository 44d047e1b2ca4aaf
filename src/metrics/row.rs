use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use super::{
    codes::Codes,
    labels::Labels,
    lanes::Lanes,
    latency::Range,
    names::Series,
    sink::{CallEnd, Sinks, ToolSink},
    tally::Tally,
};
use crate::kit::registry::{Entry, Evict, Keep};

/// The settings and sinks of all rows of a [`Metrics`](super::Metrics).
pub(super) struct Shared {
    pub(super) range: Range,
    pub(super) sinks: Sinks,
    /// Whether Prometheus' text has other systems' names too.
    pub(super) aliases: bool,
}

/// The counters of one tool.
///
/// A model can invent names, so a row is *known* only after its first call that
/// [shows](CallEnd::shows_a_tool) that there is such a tool. Until then it counts nothing but calls
/// in flight, the rest counts for [`OTHER`](super::OTHER), and it is forgotten when its place is
/// needed.
pub(super) struct Row {
    pub(super) labels: Labels,
    pub(super) codes: Codes,
    pub(super) lanes: Lanes,
    known: AtomicBool,
    sinks: OnceLock<Box<[Box<dyn ToolSink>]>>,
    shared: Arc<Shared>,
    /// `None` for the other row itself.
    other: Option<Arc<Self>>,
}

impl Row {
    /// `other` counts for it until it is known; the other one itself has none.
    pub(super) fn new(labels: Labels, shared: &Arc<Shared>, other: Option<&Arc<Self>>) -> Self {
        Self {
            labels,
            codes: Codes::default(),
            lanes: Lanes::new(),
            known: AtomicBool::new(other.is_none()),
            sinks: OnceLock::new(),
            shared: Arc::clone(shared),
            other: other.cloned(),
        }
    }

    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }

    /// The row that counts, as long as this one is not known.
    fn or_other(&self, as_known: bool) -> &Self {
        match &self.other {
            Some(other) if !as_known => other,
            _ => self,
        }
    }

    /// Marks the row as that of a tool that exists.
    fn recognised(&self) {
        if !self.is_known() {
            self.known.store(true, Relaxed);
        }
    }

    #[inline]
    fn has_sinks(&self) -> bool {
        !self.shared.sinks.0.is_empty()
    }

    /// Calls the sinks. Not of a row that is not known.
    fn tell(&self, tell: impl Fn(&dyn ToolSink)) {
        let all = &self.shared.sinks.0;
        if !all.is_empty() {
            let make = || all.iter().map(|sink| sink.tool(&self.labels)).collect();
            self.sinks
                .get_or_init(make)
                .iter()
                .for_each(|sink| tell(&**sink));
        }
    }

    #[inline]
    fn write(&self, write: impl FnOnce(&mut Tally)) {
        self.lanes.write(&self.shared.range, write);
    }

    /// A call begins. Returns whether the sinks count it as in flight at this row;
    /// [`ended`](Self::ended) needs that again.
    #[inline]
    pub(super) fn began(&self) -> bool {
        let as_known = self.is_known();
        if self.has_sinks() {
            self.tell_start(as_known);
        }
        as_known
    }

    #[inline(never)]
    fn tell_start(&self, as_known: bool) {
        self.or_other(as_known).tell(|sink| sink.started());
    }

    /// A call has ended, usually with a success and without sinks.
    #[inline]
    pub(super) fn ended(&self, began_as_known: bool, end: &CallEnd<'_>) {
        if end.failure.is_none() && self.is_known() && !self.has_sinks() {
            return self.write(|tally| tally.ended(end, &self.shared.range));
        }
        self.ended_otherwise(began_as_known, end);
    }

    #[inline(never)]
    fn ended_otherwise(&self, began_as_known: bool, end: &CallEnd<'_>) {
        self.or_other(began_as_known).tell(|sink| sink.left());
        let known = self.is_known() || end.shows_a_tool();
        if known {
            self.recognised();
        }
        self.or_other(known).count(end);
    }

    fn count(&self, end: &CallEnd<'_>) {
        let code_place = end.code.map(|code| self.codes.place(code));
        let end = CallEnd {
            code: code_place.map(|place| self.codes.label(place)),
            code_place,
            ..*end
        };
        self.write(|tally| tally.ended(&end, &self.shared.range));
        self.tell(|sink| sink.ended(&end));
    }

    /// A layer below has reported an event of a running call.
    pub(super) fn happened(&self, series: Series) {
        // The reused answer may be the error of a name that a model has invented.
        if series != Series::Reused {
            self.recognised();
        }
        let row = self.or_other(self.is_known());
        row.write(|tally| tally.counts.add(series, 1));
        row.tell(|sink| match series {
            Series::Retries => sink.retried(),
            Series::Refused(reason) => sink.refused(reason),
            Series::RateLimited => sink.rate_limited(),
            Series::Reused => sink.reused(),
            // Counted at the end of the call.
            _ => {}
        });
    }
}

/// A call in flight: this reference is all that counts it, and it keeps the row of its tool. A call
/// is counted before its seat is dropped.
pub(super) type Seat = Arc<Entry<Arc<Row>>>;

impl Evict for Arc<Row> {
    fn keep(&self) -> Keep {
        match self.is_known() {
            true => Keep::Always,
            false => Keep::IfUsed,
        }
    }
}
