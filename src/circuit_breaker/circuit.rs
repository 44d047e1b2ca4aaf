//! One breaker as the layer uses it: the cell, its settings, and who hears of it.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::broadcast, time::Instant};

use super::{
    cell::Cell,
    rules::Rules,
    state::{Change, Pass, Recorded, Verdict},
    window::Mark,
};
use crate::{
    call::{CallInfo, Signal, ToolCall},
    error::{ErrorKind, ToolError},
    event::{
        Audience, Event, Listener,
        transition::{BreakerState, Transition},
    },
    kit::{
        in_flight::{Abandoned, Report},
        registry::{Entry, Evict, Keep, Registry},
    },
    outcome::Count,
};

/// Transitions that a subscriber may be behind.
pub(super) const BACKLOG: usize = 256;

/// Shared by all breakers of one layer value.
pub(super) struct Shared {
    pub(super) rules: Rules,
    /// Whether what tells of a tool alone counts.
    pub(super) counts_tools: bool,
    pub(super) counts_reported: bool,
    pub(super) abandoned: AbandonedPolicy,
    pub(super) listener: Listener,
    /// What breakers that are made from now on begin as.
    pub(super) disabled: AtomicBool,
    /// Taken by those who demand something of all breakers.
    pub(super) demanding: Mutex<()>,
    pub(super) subscribers: OnceLock<broadcast::Sender<Transition>>,
    pub(super) origin: Instant,
}

/// How a call counts that was dropped unfinished.
#[derive(Clone, Default)]
pub(super) enum AbandonedPolicy {
    /// A failure if its deadline had passed, or it had been pending for as long as a slow call takes, or
    /// as its timeout allows.
    #[default]
    Timeout,
    /// As before, with this limit.
    After(Duration),
    By(Arc<dyn Fn(&Abandoned) -> Count + Send + Sync>),
}

impl AbandonedPolicy {
    fn count(&self, how: &Abandoned, patience: impl FnOnce() -> Duration) -> Count {
        let patience = match self {
            Self::Timeout => patience(),
            Self::After(limit) => *limit,
            Self::By(policy) => return policy(how),
        };
        // A deadline that had passed before the call began to wait says nothing of the tool.
        let timed_out = how.past_deadline && !how.pending.is_zero();
        if timed_out || how.pending >= patience {
            Count::Failure
        } else {
            Count::Neutral
        }
    }
}

impl Shared {
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn verdict(&self, count: Count, reported: bool, slow: bool) -> Verdict {
        let failure = match count {
            Count::Success => false,
            Count::Failure => true,
            Count::ToolFailure if self.counts_tools => true,
            Count::Neutral if reported && self.counts_reported => true,
            Count::ToolFailure | Count::Neutral => return Verdict::Neutral,
        };
        Verdict::Result(Mark { failure, slow })
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
    /// Who hears of it without being wired to it.
    audience: Audience,
}

impl Circuit {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let state = if shared.disabled.load(Relaxed) {
            BreakerState::Disabled
        } else {
            BreakerState::Closed
        };
        Self::in_state(state, shared)
    }

    /// What the keys beyond the bound share: it lets calls pass, so that one bad tool does not stop
    /// all others there.
    pub(super) fn overflow(shared: &Arc<Shared>) -> Self {
        Self {
            is_overflow: true,
            ..Self::in_state(BreakerState::Disabled, shared)
        }
    }

    fn in_state(state: BreakerState, shared: &Arc<Shared>) -> Self {
        Self {
            cell: Cell::new(state, &shared.rules),
            shared: Arc::clone(shared),
            is_overflow: false,
            limit_ms: AtomicU32::new(0),
            audience: Audience::default(),
        }
    }
}

impl Evict for Circuit {
    const IS_KNOWN: bool = false;

    fn keep(&self) -> Keep {
        self.cell.keep(self.shared.now(), &self.shared.rules)
    }
}

pub(super) type Circuits = Registry<Circuit>;
pub(super) type CircuitEntry = Entry<Circuit>;

impl CircuitEntry {
    /// A result, or a refusal, shows that there is this breaker: the call's listeners hear of it, once.
    #[inline]
    fn introduce(&self, call: &CallInfo) {
        if self.value().audience.is_new_to(call) {
            self.introduce_news(call);
        }
    }

    #[cold]
    fn introduce_news(&self, call: &CallInfo) {
        let Circuit {
            cell,
            shared,
            is_overflow: false,
            audience,
            ..
        } = self.value()
        else {
            return;
        };
        let look = cell.look(shared.now(), &shared.rules);
        let event = Event::Breaker {
            server: self.server(),
            tool: self.name(),
            state: look.state,
            generation: look.generation,
            call,
        };
        audience.introduce(call, &event);
    }

    /// Admits a call, or says why not; none is that of a handle.
    #[inline]
    pub(super) fn admit(&self, call: Option<&ToolCall>) -> Result<Pass, Duration> {
        match self.value().cell.pass() {
            Some(pass) => Ok(pass),
            None => self.admit_unless_closed(call),
        }
    }

    #[cold]
    fn admit_unless_closed(&self, call: Option<&ToolCall>) -> Result<Pass, Duration> {
        let shared = &self.value().shared;
        let limit_ms = self.value().limit_ms.load(Relaxed);
        let may_probe = || call.is_none_or(|call| call.may_probe(limit_ms));
        let cell = &self.value().cell;
        let (admission, change) = cell.admit(|| shared.now(), may_probe, &shared.rules);
        if let Some(change) = change {
            // A listener that panics must not cost a probe's place.
            let place = Place(self, admission.ok());
            self.tell(&change, call.map(ToolCall::info).as_ref());
            mem::forget(place);
        }
        if let (Err(_), Some(call)) = (&admission, call) {
            self.introduce(&call.info());
        }
        admission
    }

    /// When to come back, if the call would be refused now.
    #[inline]
    pub(super) fn refuses(&self, call: &CallInfo) -> Option<Duration> {
        let shared = &self.value().shared;
        let retry_after = self.value().cell.refuses(|| shared.now(), &shared.rules)?;
        self.introduce(call);
        Some(retry_after)
    }

    /// Takes a verdict; true if it has just opened the breaker.
    #[inline]
    pub(super) fn record(&self, pass: Pass, verdict: Verdict, call: Option<&CallInfo>) -> bool {
        let shared = &self.value().shared;
        let recorded = self
            .value()
            .cell
            .record(pass, verdict, || shared.now(), &shared.rules);
        match recorded {
            Recorded::Counted(Some(change)) => {
                self.tell(&change, call);
                change.to == BreakerState::Open
            }
            Recorded::Counted(None) | Recorded::Stale => false,
        }
    }

    #[cold]
    pub(super) fn tell(&self, change: &Change, call: Option<&CallInfo>) {
        let transition = Transition {
            server: self.server().map(Arc::from),
            tool: self.name().map(Arc::from),
            from: change.from,
            to: change.to,
            reason: change.reason,
            generation: change.generation,
            calls: change.tally.calls,
            failures: change.tally.failures,
            slow_calls: change.tally.slow,
            open_for: change.open_for,
        };
        let Circuit {
            shared, audience, ..
        } = self.value();
        let event = Event::Transition {
            transition: &transition,
            call,
        };
        shared.listener.tell_also(audience, &event);
        if let Some(subscribers) = shared.subscribers.get() {
            // An error says that nobody is subscribed now.
            let _ = subscribers.send(transition);
        }
    }
}

/// A probe's place, given back when it is dropped.
struct Place<'a>(&'a CircuitEntry, Option<Pass>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(pass) = self.1 {
            self.0.record(pass, Verdict::Neutral, None);
        }
    }
}

/// A refusal.
#[cold]
pub(super) fn refusal(call: Option<&CallInfo>, retry_after: Duration) -> ToolError {
    let text = "Circuit breaker open";
    if let Some(call) = call {
        call.record(|record| record.announce(Signal::Breakers));
    }
    ToolError::not_admitted(call, ErrorKind::CircuitOpen, text, retry_after)
}

/// An admitted call, until its end is known.
#[derive(Debug)]
pub(super) struct Admitted {
    entry: Arc<CircuitEntry>,
    pub(super) info: CallInfo,
    pass: Pass,
}

impl Admitted {
    #[inline]
    pub(super) fn new(entry: Arc<CircuitEntry>, info: CallInfo, pass: Pass) -> Self {
        info.record(|record| record.announce(Signal::Breakers));
        Self { entry, info, pass }
    }

    /// How long the call may be pending before a drop counts as a timeout.
    fn patience(&self) -> Duration {
        let slow_call = self.entry.value().shared.rules.slow_call();
        slow_call.unwrap_or_else(|| self.info.patience())
    }

    /// The call has a result.
    #[inline]
    pub(super) fn ended(&self, count: Count, reported: bool, since: Option<Instant>) {
        let succeeded = count == Count::Success;
        if succeeded {
            self.entry.prove(&self.info);
        }
        if !(succeeded && self.entry.value().cell.is_quiet(self.pass)) {
            self.record(count, reported, since);
        }
        // A neutral result does not show that there is such a tool. After the verdict: a listener may panic.
        if count != Count::Neutral {
            self.entry.introduce(&self.info);
        }
    }

    /// Keeps the call's shortest timeout for later probes: they are chosen before the layers below tell of theirs.
    fn learn_limit(&self) {
        // A call that was refused on its way has met none.
        match self.info.limit_ms() {
            0 => {}
            ms => self.entry.value().limit_ms.store(ms, Relaxed),
        }
    }

    #[inline(never)]
    fn record(&self, count: Count, reported: bool, since: Option<Instant>) {
        self.learn_limit();
        let shared = &self.entry.value().shared;
        let elapsed = || since.map_or(Duration::ZERO, |since| since.elapsed());
        let slow = shared.rules.is_slow(elapsed);
        let verdict = shared.verdict(count, reported, slow);
        self.entry.record(self.pass, verdict, Some(&self.info));
    }
}

impl Report for Admitted {
    fn abandoned(self, how: Abandoned) {
        let shared = &self.entry.value().shared;
        self.learn_limit();
        // A policy that panics must not cost a probe's place.
        let place = Place(&self.entry, Some(self.pass));
        let count = shared.abandoned.count(&how, || self.patience());
        mem::forget(place);
        let slow = shared.rules.is_slow(|| how.pending);
        let verdict = shared.verdict(count, false, slow);
        self.entry.record(self.pass, verdict, Some(&self.info));
    }

    fn panicked(self) {
        self.entry
            .record(self.pass, Verdict::FAILURE, Some(&self.info));
    }
}
