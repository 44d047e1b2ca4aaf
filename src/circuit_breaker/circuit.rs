//! One breaker as the layer uses it: the cell, its settings and its listeners.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::broadcast, time::Instant};

use super::{
    cell::Cell,
    handle::{Breaker, Permit},
    probe::Ping,
    rules::Rules,
    state::{Pass, Recorded},
    window::Verdict,
};
use crate::{
    call::{CallInfo, ReplaySafety, Signal, ToolCall},
    error::ToolError,
    event::{
        Audience, Event, Listener,
        transition::{BreakerState, OpenCause, Opening, Transition},
    },
    kit::{
        in_flight::{Abandoned, Report},
        registry::{Evict, Keep},
    },
    outcome::{Classify, Count},
};

/// How many transitions are kept for a slow subscriber.
pub(super) const BACKLOG: usize = 256;

/// Decides how a call counts that was dropped unfinished.
pub(super) type AbandonedFn = dyn Fn(&Abandoned) -> Count + Send + Sync;

/// Shared by all breakers of one layer value.
pub(super) struct Shared {
    pub(super) rules: Rules,
    /// Sent in place of a probe.
    pub(super) ping: Option<Ping>,
    /// Whether [`Count::ToolFailure`] is a failure.
    pub(super) counts_tools: bool,
    pub(super) counts_reported: bool,
    /// How long a call may be pending before a drop counts as a failure.
    pub(super) abandoned_after: Option<Duration>,
    /// Decides instead of `abandoned_after`.
    pub(super) abandoned_policy: Option<Arc<AbandonedFn>>,
    pub(super) listener: Listener,
    /// Whether new breakers are disabled.
    pub(super) disabled: AtomicBool,
    /// Held while all breakers are forced.
    pub(super) forcing: Mutex<()>,
    pub(super) subscribers: OnceLock<broadcast::Sender<(u64, Transition)>>,
    pub(super) origin: Instant,
}

impl Shared {
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// What the end of a call says; `None`: nothing.
    fn verdict(
        &self,
        count: Count,
        reported: bool,
        elapsed: impl FnOnce() -> Duration,
    ) -> Option<Verdict> {
        let failure = match count {
            Count::Success => false,
            Count::Failure => true,
            Count::ToolFailure if self.counts_tools => true,
            Count::Neutral if reported && self.counts_reported => true,
            Count::ToolFailure | Count::Neutral => return None,
        };
        let slow = self.rules.is_slow(elapsed);
        Some(Verdict { failure, slow })
    }

    fn abandoned(&self, how: &Abandoned, call: &CallInfo) -> Count {
        if let Some(policy) = &self.abandoned_policy {
            return policy(how);
        }
        let limit = self.abandoned_after.or(self.rules.slow_call());
        // A deadline that had passed before the call began to wait says nothing of the tool.
        let timed_out = how.past_deadline && !how.pending.is_zero();
        match timed_out || how.pending >= limit.unwrap_or_else(|| call.patience()) {
            true => Count::Failure,
            false => Count::Neutral,
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)
    }
}

/// The value of a key in the registry.
#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) cell: Cell,
    pub(super) shared: Arc<Shared>,
    /// Shared by all keys beyond the bound.
    pub(super) is_overflow: bool,
    /// The shortest timeout on the way of the last call that was judged and had one, in milliseconds; 0 if none was.
    limit_ms: AtomicU32,
    /// `generation << 32 | milliseconds + 1`: how long the call took whose result has opened it last.
    latency: AtomicU64,
    /// The listeners of calls that have met this breaker.
    audience: Audience,
}

impl Circuit {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let state = match shared.disabled.load(Relaxed) {
            true => BreakerState::Disabled,
            false => BreakerState::Closed,
        };
        Self {
            cell: Cell::new(state, &shared.rules),
            shared: Arc::clone(shared),
            is_overflow: false,
            limit_ms: AtomicU32::new(0),
            latency: AtomicU64::new(0),
            audience: Audience::default(),
        }
    }

    /// The breaker that the keys beyond the bound share: it lets calls pass, so that one bad tool does not stop
    /// all others there.
    pub(super) fn overflow(shared: &Arc<Shared>) -> Self {
        Self {
            cell: Cell::new(BreakerState::Disabled, &shared.rules),
            is_overflow: true,
            ..Self::new(shared)
        }
    }
}

impl Evict for Circuit {
    const IS_KNOWN: bool = false;

    fn keep(&self) -> Keep {
        self.cell.keep(self.shared.now())
    }
}

impl Breaker {
    /// A result, or a refusal, shows that there is this breaker: the call's listeners get its state, once.
    #[inline]
    fn introduce(&self, call: &CallInfo) {
        if self.circuit().audience.is_new_to(call) {
            self.introduce_first(call);
        }
    }

    #[cold]
    fn introduce_first(&self, call: &CallInfo) {
        let circuit = self.circuit();
        if circuit.is_overflow {
            return;
        }
        let seen = self.look();
        let event = Event::Breaker {
            server: self.server(),
            tool: self.tool(),
            state: seen.state,
            generation: seen.generation,
            call,
        };
        circuit.audience.introduce(call, &event);
    }

    /// Admits a call, or returns when to come back. Without a call it is an admission by hand.
    #[inline]
    pub(super) fn admit_call(&self, call: Option<&ToolCall>) -> Result<Pass, Duration> {
        match self.circuit().cell.pass() {
            Some(pass) => Ok(pass),
            None => self.admit_unless_closed(call),
        }
    }

    #[cold]
    fn admit_unless_closed(&self, call: Option<&ToolCall>) -> Result<Pass, Duration> {
        let Circuit {
            cell,
            shared,
            limit_ms,
            ..
        } = self.circuit();
        let limit_ms = limit_ms.load(Relaxed);
        let is_fit = |call: &ToolCall| {
            let is_safe = !shared.rules.safe_probes || call.replay_safety() == ReplaySafety::Safe;
            is_safe && call.may_probe(limit_ms)
        };
        let may_probe = || call.is_none_or(is_fit);
        let (admission, transition) = cell.admit(|| shared.now(), may_probe, &shared.rules);
        if let Some(transition) = transition {
            // A listener that panics must not cost a probe's place.
            let mut permit = Permit::new(self, admission.ok());
            self.emit(transition, call.map(ToolCall::info).as_ref());
            permit.pass = None;
        }
        if let (Err(_), Some(call)) = (&admission, call) {
            self.introduce(&call.info());
        }
        admission
    }

    /// The refusal of a call that would not be admitted now. Reserves nothing.
    #[inline]
    pub(super) fn refusal(&self, call: &CallInfo) -> Option<ToolError> {
        let Circuit { cell, shared, .. } = self.circuit();
        let retry_after = cell.refuses(|| shared.now(), &shared.rules)?;
        self.introduce(call);
        Some(refusal(Some(call), retry_after, cell.cause()))
    }

    /// The error of a call whose inner service failed to become ready. It counts as a result, if the call is admitted.
    pub(super) fn not_ready<Res>(
        &self,
        call: &ToolCall,
        error: ToolError,
        classifier: &impl Classify<Res>,
    ) -> ToolError {
        // Foreign code, and it may panic: before there is a permit.
        let outcome = classifier.classify(Err(&error));
        let info = call.info();
        match self.admit_call(Some(call)) {
            Ok(pass) => {
                let admitted = Admitted::new(self.clone(), info, pass);
                admitted.ended(outcome.count(), outcome.is_reported_failure(), None);
                error
            }
            Err(retry_after) => self.refused(Some(&info), retry_after),
        }
    }

    /// The error of a call that was not admitted.
    #[cold]
    pub(super) fn refused(&self, call: Option<&CallInfo>, retry_after: Duration) -> ToolError {
        refusal(call, retry_after, self.circuit().cell.cause())
    }

    /// Takes the end of an admitted call; true if it has just opened the breaker. Only then `latency` is asked for how long
    /// the call took, if that is known.
    #[inline]
    pub(super) fn end(
        &self,
        pass: Pass,
        verdict: Option<Verdict>,
        latency: impl FnOnce() -> Option<Duration>,
        call: Option<&CallInfo>,
    ) -> bool {
        let Circuit { cell, shared, .. } = self.circuit();
        match cell.record(pass, verdict, || shared.now(), &shared.rules) {
            Recorded::Counted(Some(transition)) => {
                let opens = transition.to == BreakerState::Open;
                if let (true, Some(latency)) = (opens, latency()) {
                    self.note_latency(transition.generation, latency);
                }
                self.emit(transition, call);
                opens
            }
            Recorded::Counted(None) | Recorded::Stale => false,
        }
    }

    #[cold]
    fn note_latency(&self, generation: u32, latency: Duration) {
        let ms = u32::try_from(latency.as_millis()).unwrap_or(u32::MAX);
        let word = u64::from(generation) << 32 | u64::from(ms.saturating_add(1));
        self.circuit().latency.store(word, Relaxed);
    }

    /// The last time that it opened; `None` if it never has.
    ///
    /// It stays when the breaker closes or is reset, until it opens again.
    pub fn last_opening(&self) -> Option<Opening> {
        let Circuit {
            cell,
            shared,
            latency,
            ..
        } = self.circuit();
        let opened = cell.last_opening()?;
        let latency = latency.load(Relaxed);
        // A result that opens the breaker tells this a moment later.
        let is_its_own = (latency >> 32) as u32 == opened.generation;
        let ms = (latency as u32).checked_sub(1).filter(|_| is_its_own);
        Some(Opening {
            reason: opened.cause.reason,
            at: shared.origin + opened.at,
            calls: opened.cause.calls,
            failures: opened.cause.failures,
            slow_calls: opened.slow_calls,
            latency: ms.map(|ms| Duration::from_millis(ms.into())),
        })
    }

    /// Emits a transition of this breaker, which does not name it yet.
    #[cold]
    pub(super) fn emit(&self, transition: Transition, call: Option<&CallInfo>) {
        let transition = Transition {
            server: self.server().map(Arc::from),
            tool: self.tool().map(Arc::from),
            ..transition
        };
        let Circuit {
            shared, audience, ..
        } = self.circuit();
        let event = Event::Transition {
            transition: &transition,
            call,
        };
        shared.listener.tell_also(audience, &event);
        if let Some(subscribers) = shared.subscribers.get() {
            // The error means that there is no subscriber now.
            let _ = subscribers.send((self.0.hash(), transition));
        }
    }
}

/// A refusal.
#[cold]
fn refusal(call: Option<&CallInfo>, retry_after: Duration, cause: Option<OpenCause>) -> ToolError {
    if let Some(call) = call {
        call.record(|record| record.announce(Signal::Breakers));
    }
    ToolError::circuit_open(call, retry_after, cause)
}

/// An admitted call, until its end is known.
#[derive(Debug)]
pub(super) struct Admitted {
    breaker: Breaker,
    pub(super) info: CallInfo,
    pass: Pass,
}

impl Admitted {
    #[inline]
    pub(super) fn new(breaker: Breaker, info: CallInfo, pass: Pass) -> Self {
        info.record(|record| record.announce(Signal::Breakers));
        Self {
            breaker,
            info,
            pass,
        }
    }

    /// The call has a result. Forced inline: a call of it takes 39 of the 333 instructions of a success.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(super) fn ended(&self, count: Count, reported: bool, since: Option<Instant>) {
        let succeeded = count == Count::Success;
        if succeeded {
            self.breaker.0.prove(&self.info);
        }
        if !(succeeded && self.breaker.circuit().cell.is_quiet(self.pass)) {
            self.record(count, reported, since);
        }
        // A neutral result does not show that there is such a tool. After the verdict: a listener may panic.
        if count != Count::Neutral {
            self.breaker.introduce(&self.info);
        }
    }

    /// Keeps the call's shortest timeout for later probes: they are chosen before the layers below have set theirs.
    fn learn_limit(&self) {
        // A call that was refused on its way has met none.
        match self.info.limit_ms() {
            0 => {}
            ms => self.breaker.circuit().limit_ms.store(ms, Relaxed),
        }
    }

    #[inline(never)]
    fn record(&self, count: Count, reported: bool, since: Option<Instant>) {
        self.learn_limit();
        let elapsed = || since.map_or(Duration::ZERO, |since| since.elapsed());
        let verdict = self
            .breaker
            .circuit()
            .shared
            .verdict(count, reported, elapsed);
        let latency = || since.map(|since| since.elapsed());
        self.breaker
            .end(self.pass, verdict, latency, Some(&self.info));
    }
}

impl Report for Admitted {
    fn abandoned(self, how: Abandoned) {
        self.learn_limit();
        let shared = &self.breaker.circuit().shared;
        // A policy that panics must not cost a probe's place.
        let mut permit = Permit::new(&self.breaker, Some(self.pass));
        let count = shared.abandoned(&how, &self.info);
        let verdict = shared.verdict(count, false, || how.pending);
        permit.end(verdict, Some(how.pending), Some(&self.info));
    }

    fn panicked(self) {
        self.breaker
            .end(self.pass, Some(Verdict::FAILURE), || None, Some(&self.info));
    }
}
