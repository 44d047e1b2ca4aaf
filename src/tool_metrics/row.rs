use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use super::{
    counts::{Collected, Counts, Tool, label},
    labels::Labels,
    latency::Range,
    names::Series,
    sink::{CallEnd, Sink, ToolSink},
};
use crate::{
    call::CallInfo,
    kit::registry::{Entry, Evict, Eviction},
    lock::lock,
};

/// The settings and sinks of all rows of a [`Metrics`](super::Metrics).
pub(super) struct Shared {
    pub(super) range: Range,
    pub(super) sinks: Vec<Box<dyn Sink>>,
    /// Prometheus' text has other systems' names too.
    pub(super) aliases: bool,
}

/// The row of one tool.
///
/// A model can invent names, so a row is *shown* only after its first call that
/// [shows](CallEnd::shows_a_tool) that there is such a tool. Until then it counts nothing but calls
/// in flight, the rest counts for [`OTHER`](super::OTHER), and it is forgotten when its place is
/// needed.
///
/// A server that cannot be reached fails invented names as well. So rows that no call has
/// [proved](CallEnd::proves_a_tool) have half of the places at most.
pub(super) struct Row {
    labels: Labels,
    counts: Mutex<Counts>,
    shown: AtomicBool,
    /// Its key is known to the registry too. Never set for the other row.
    proved: AtomicBool,
    sinks: OnceLock<Box<[Box<dyn ToolSink>]>>,
    shared: Arc<Shared>,
    /// `None` for the other row itself.
    other: Option<Arc<Self>>,
}

impl Row {
    /// `other` counts for it until it is shown; the other one itself has none.
    pub(super) fn new(labels: Labels, shared: &Arc<Shared>, other: Option<&Arc<Self>>) -> Self {
        Self {
            labels,
            counts: Mutex::new(Counts::new(shared.range)),
            shown: AtomicBool::new(other.is_none()),
            proved: AtomicBool::new(false),
            sinks: OnceLock::new(),
            shared: Arc::clone(shared),
            other: other.cloned(),
        }
    }

    #[inline]
    fn is_shown(&self) -> bool {
        self.shown.load(Relaxed)
    }

    /// Marks the row as that of a tool that exists.
    fn recognised(&self) {
        if !self.is_shown() {
            self.shown.store(true, Relaxed);
        }
    }

    /// Returns this row if it counts as shown, else that of all others.
    fn or_other(&self, as_shown: bool) -> &Self {
        match &self.other {
            Some(other) if !as_shown => other,
            _ => self,
        }
    }

    #[inline]
    fn has_sinks(&self) -> bool {
        !self.shared.sinks.is_empty()
    }

    /// Calls the sinks. Not of a row that is not shown.
    fn tell(&self, tell: impl Fn(&dyn ToolSink)) {
        if self.has_sinks() {
            // A sink that is made may call the tool itself: nothing is locked.
            if self.sinks.get().is_none() {
                let sinks = self.shared.sinks.iter();
                let all = sinks.map(|sink| sink.tool(&self.labels)).collect();
                let _ = self.sinks.set(all);
            }
            let all = self.sinks.get().into_iter().flatten();
            all.for_each(|sink| tell(&**sink));
        }
    }

    /// Adds its counters to those of other rows with the same labels.
    pub(super) fn collect(&self, in_flight: usize, all: &mut Collected) {
        let tool = all.tools.entry(self.labels.clone());
        let tool = tool.or_insert_with(|| Tool::new(self.shared.range));
        tool.in_flight += in_flight as u64;
        tool.is_shown |= self.is_shown();
        tool.counts.merge(&lock(&self.counts));
    }

    /// Counts an event of a running call that an inner layer reported.
    pub(super) fn happened(seat: Seat, series: Series) {
        let row = Arc::clone(seat.value());
        // The reused answer may be the error of a name that a model has invented.
        if series != Series::Reused {
            row.recognised();
        }
        let row = row.or_other(row.is_shown());
        lock(&row.counts).add(series, 1);
        // The row has counted, so it stays. The event is not a call in flight for sinks.
        drop(seat);
        row.tell(|sink| sink.happened(series));
    }

    /// A call begins. Returns whether the sinks count it as in flight at this row;
    /// [`ended`](Self::ended) needs that again.
    #[inline]
    pub(super) fn began(&self) -> bool {
        let as_shown = self.is_shown();
        if self.has_sinks() {
            self.or_other(as_shown).tell(|sink| sink.started());
        }
        as_shown
    }

    /// A call has ended, usually with a success and without sinks.
    #[inline]
    pub(super) fn ended(at: &Place, call: &CallInfo, began_as_shown: bool, end: &CallEnd<'_>) {
        let row = at.value();
        if end.failure.is_none() && row.proved.load(Relaxed) && !row.has_sinks() {
            return lock(&row.counts).ended(end);
        }
        Self::ended_otherwise(at, call, began_as_shown, end);
    }

    #[inline(never)]
    fn ended_otherwise(at: &Place, call: &CallInfo, began_as_shown: bool, end: &CallEnd<'_>) {
        let row = at.value();
        row.or_other(began_as_shown).tell(|sink| sink.left());
        if end.shows_a_tool() {
            row.recognised();
        }
        if end.proves_a_tool() {
            at.prove(call);
            row.proved.store(at.is_known(), Relaxed);
        }
        row.or_other(row.is_shown()).count(end);
    }

    fn count(&self, end: &CallEnd<'_>) {
        // A code is redacted before the lock is taken.
        let label = end.code.map(|code| {
            let same = lock(&self.counts).label(code);
            same.unwrap_or_else(|| label(code))
        });
        let mut counts = lock(&self.counts);
        counts.ended(end);
        let code = label.map(|label| counts.failed(label));
        // A sink is not called under the lock.
        drop(counts);
        let code = code.as_deref();
        self.tell(|sink| sink.ended(&CallEnd { code, ..*end }));
    }
}

impl Evict for Arc<Row> {
    const IS_KNOWN: bool = false;

    fn eviction(&self) -> Eviction {
        match self.is_shown() {
            true => Eviction::Forbidden,
            false => Eviction::Free,
        }
    }
}

/// A row and its key.
pub(super) type Place = Entry<Arc<Row>>;

/// A call in flight: this reference is all that counts it, and it keeps the row of its tool. A call
/// is counted before its seat is dropped.
pub(super) type Seat = Arc<Place>;
