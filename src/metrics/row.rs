use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    codes::Codes,
    labels::Labels,
    lanes::Lanes,
    latency::Range,
    sink::{CallEnd, Sinks, ToolSink, ToolSinks},
    tally::Tally,
};
use crate::{
    call::{Signal, Signals},
    error::ErrorKind,
    event::{CallOutcome, RetryRefusal},
    kit::lane::Spread,
};

/// What all rows of a [`Metrics`](super::Metrics) share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) range: Range,
    pub(super) sinks: Sinks,
    /// Whether Prometheus' text has other systems' names too.
    pub(super) aliases: bool,
}

/// What is known of the end of a call.
pub(super) struct Ended<'a> {
    pub(super) failure: Option<Failure<'a>>,
    pub(super) duration: Duration,
    pub(super) attempts: u32,
    pub(super) slow: bool,
    /// What the layers below can tell.
    pub(super) signals: Signals,
}

/// What went wrong.
pub(super) struct Failure<'a> {
    pub(super) kind: ErrorKind,
    pub(super) code: &'a str,
    pub(super) outcome: CallOutcome,
    pub(super) is_own_refusal: bool,
}

impl From<ErrorKind> for Failure<'static> {
    fn from(kind: ErrorKind) -> Self {
        Self {
            kind,
            code: kind.code(),
            outcome: CallOutcome::of(kind),
            is_own_refusal: false,
        }
    }
}

impl Ended<'_> {
    /// Whether this side let the call go, at its first attempt at least.
    fn was_sent(&self) -> bool {
        use ErrorKind::{CircuitOpen, DeadlineExceeded, Overloaded};
        match &self.failure {
            Some(failure) if failure.is_own_refusal => self.attempts > 0,
            // Of another layer, which did not say so.
            Some(failure)
                if matches!(failure.kind, CircuitOpen | DeadlineExceeded | Overloaded) =>
            {
                self.attempts > 1
            }
            _ => true,
        }
    }

    /// Whether it shows that there is a tool of this name, for a call that was sent or not. A model can invent names, and
    /// what refuses a call without asking its server refuses invented ones as well.
    fn shows_a_tool(&self, sent: bool) -> bool {
        let is_unknown = |failure: &Failure<'_>| failure.kind == ErrorKind::NotFound;
        sent && !self.failure.as_ref().is_some_and(is_unknown)
    }
}

/// What is counted of one tool.
///
/// A model can invent names, so a row is *known* only after its first call that [shows](Ended::shows_a_tool) that
/// there is such a tool. Until then it counts nothing but calls in flight, the rest counts for [`OTHER`](super::OTHER), and it is
/// forgotten when its place is needed.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) labels: Labels,
    pub(super) codes: Codes,
    pub(super) lanes: Lanes,
    known: AtomicBool,
    /// [`Signals`]: what is 0 if nothing was told, and not unknown.
    signals: AtomicU8,
    sinks: OnceLock<ToolSinks>,
    shared: Arc<Shared>,
    /// None for the other one itself.
    other: Option<Spread<Self>>,
}

/// A sink hears of a call's end what it heard of its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Began {
    as_known: bool,
}

impl Row {
    pub(super) fn other(shared: &Arc<Shared>) -> Self {
        Self::make(Labels::other(), shared, None)
    }

    pub(super) fn new(labels: Labels, shared: &Arc<Shared>, other: &Spread<Self>) -> Self {
        Self::make(labels, shared, Some(other.clone()))
    }

    fn make(labels: Labels, shared: &Arc<Shared>, other: Option<Spread<Self>>) -> Self {
        Self {
            labels,
            codes: Codes::default(),
            lanes: Lanes::new(),
            known: AtomicBool::new(other.is_none()),
            signals: AtomicU8::new(0),
            sinks: OnceLock::new(),
            shared: Arc::clone(shared),
            other,
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

    /// It is a tool, not just a name.
    fn recognised(&self) {
        if !self.is_known() {
            self.known.store(true, Relaxed);
        }
    }

    #[inline]
    pub(super) fn signals(&self) -> Signals {
        Signals::from_bits(self.signals.load(Relaxed))
    }

    /// Calls pass layers that can tell this.
    #[inline]
    fn learn(&self, signals: Signals) {
        if self.signals() | signals != self.signals() {
            self.learn_news(signals);
        }
    }

    #[cold]
    fn learn_news(&self, signals: Signals) {
        let known = Signals::from_bits(self.signals.fetch_or(signals.bits(), Relaxed));
        for signal in Signal::ALL {
            if signals.has(signal) && !known.has(signal) {
                self.tell(|sink| sink.announced(signal));
            }
        }
    }

    #[inline]
    fn has_sinks(&self) -> bool {
        !self.shared.sinks.0.is_empty()
    }

    /// The sinks hear nothing of a row that is not known.
    fn tell(&self, tell: impl Fn(&dyn ToolSink)) {
        if self.has_sinks() {
            self.sinks
                .get_or_init(|| self.shared.sinks.tool(&self.labels))
                .each(tell);
        }
    }

    #[inline]
    fn write(&self, write: impl FnOnce(&mut Tally)) {
        self.lanes.write(&self.shared.range, write);
    }

    /// A call begins.
    #[inline]
    pub(super) fn began(&self) -> Began {
        let as_known = self.is_known();
        if self.has_sinks() {
            self.tell_start(as_known);
        }
        Began { as_known }
    }

    #[inline(never)]
    fn tell_start(&self, as_known: bool) {
        self.or_other(as_known).tell(|sink| sink.started());
    }

    /// It has ended with a success, which is usually all there is to count.
    #[inline]
    pub(super) fn succeeded(
        &self,
        began: Began,
        duration: Duration,
        attempts: u32,
        slow: bool,
        signals: Signals,
    ) {
        if self.is_known() && !self.has_sinks() {
            self.learn(signals);
            let end = CallEnd::success(duration, attempts, slow);
            return self.write(|tally| tally.ended(&end, None, &self.shared.range));
        }
        let ended = Ended {
            failure: None,
            duration,
            attempts,
            slow,
            signals,
        };
        self.ended(began, &ended);
    }

    /// It has ended.
    #[inline(never)]
    pub(super) fn ended(&self, began: Began, ended: &Ended<'_>) {
        self.or_other(began.as_known).tell(|sink| sink.left());
        let sent = ended.was_sent();
        let known = self.is_known() || ended.shows_a_tool(sent);
        if known {
            self.recognised();
        }
        self.or_other(known).count(ended, sent);
    }

    fn count(&self, ended: &Ended<'_>, sent: bool) {
        self.learn(ended.signals);
        let failure = ended.failure.as_ref();
        let place = failure.map(|failure| self.codes.place(failure.code));
        let end = CallEnd {
            outcome: failure.map_or(CallOutcome::Success, |failure| failure.outcome),
            failure: failure.map(|failure| failure.kind),
            code: place.map(|place| self.codes.label(place)),
            duration: ended.duration,
            attempts: ended.attempts,
            slow: ended.slow,
            sent,
        };
        self.write(|tally| tally.ended(&end, place, &self.shared.range));
        self.tell(|sink| sink.ended(&end));
    }

    /// A call is sent again.
    pub(super) fn retried(&self) {
        self.recognised();
        self.learn(Signal::Retries.into());
        self.write(|tally| tally.counts.retries += 1);
        self.tell(|sink| sink.retried());
    }

    /// A call is not sent again.
    pub(super) fn refused(&self, reason: RetryRefusal) {
        self.recognised();
        self.learn(Signal::Retries.into());
        self.write(|tally| tally.counts.refused[reason as usize] += 1);
        self.tell(|sink| sink.refused(reason));
    }

    /// A call met a rate limit.
    pub(super) fn rate_limited(&self) {
        self.recognised();
        self.learn(Signal::RateLimits.into());
        self.write(|tally| tally.counts.rate_limited += 1);
        self.tell(|sink| sink.rate_limited());
    }
}
