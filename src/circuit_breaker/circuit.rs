//! One breaker as the layer uses it: the cell, its settings and its listeners.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{broadcast, futures::OwnedNotified, watch},
    time::Instant,
};

use super::{
    cell::{Cell, Kept},
    rules::Rules,
    snapshot::Refused,
    weak::{Principal, WeakFailures},
    window::Verdict,
};
use crate::{
    call::{CallInfo, ReplaySafety, ToolCall},
    error::{Outage, ToolError},
    event::{
        Audience, Listener,
        availability::ServerHealth,
        transition::{BreakerState, Transition},
    },
    flow::Abandoned,
    kit::registry::{Evict, Eviction, Registry},
    outcome::{Count, Outcome},
};

/// How many transitions are kept for a slow subscriber.
pub(super) const BACKLOG: usize = 256;

/// The settings of a layer.
#[derive(Clone, Default)]
pub struct Settings {
    pub(super) rules: Arc<Rules>,
    /// [`Count::ToolFailure`] is a failure.
    pub(super) counts_tools: bool,
    pub(super) counts_reported: bool,
    pub(super) weak_failures: WeakFailures,
    /// How long a call may be pending before a drop counts as a failure.
    pub(super) abandoned_after: Option<Duration>,
}

crate::text::debug_fields! { {} |_| Settings { rules, weak_failures, .. } }

/// Shared by all breakers of one layer value.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) listener: Listener,
    /// The circuits of principals with weak failures, by the keys of breakers and principals.
    pub(super) principals: Registry<Principal>,
    /// The next epoch of such circuits, from 1.
    pub(super) epochs: AtomicU64,
    /// New breakers are disabled.
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

    pub(super) fn rules(&self) -> &Arc<Rules> {
        &self.settings.rules
    }
}

impl Settings {
    pub(super) fn abandoned(&self, how: &Abandoned, call: &CallInfo) -> Count {
        let limit = self.abandoned_after.or(self.rules.slow_call());
        // A deadline says nothing of the tool if it had passed before the call began to wait, or
        // passed while the call was held back.
        let timed_out = how.past_deadline && !how.pending.is_zero() && !how.was_held;
        match timed_out || how.pending >= limit.unwrap_or_else(|| call.patience()) {
            true => Count::Failure,
            false => Count::Neutral,
        }
    }
}

/// The end of a call, as it was classified.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    pub(super) count: Count,
    /// Does not say yet whether the call was slow.
    pub(super) verdict: Option<Verdict>,
    pub(super) weak: bool,
    /// The delay that a failing server has announced.
    pub(super) delay: Option<Duration>,
}

impl End {
    #[inline]
    pub(super) fn of(circuit: &Circuit, outcome: &Outcome, error: Option<&ToolError>) -> Self {
        let (count, settings) = (outcome.count(), || &circuit.shared.settings);
        let fails = match count {
            Count::Success => false,
            Count::Failure => true,
            Count::ToolFailure => settings().counts_tools,
            Count::Neutral => outcome.is_reported_failure() && settings().counts_reported,
        };
        // The tool is alive: it has answered.
        let answers = || outcome.is_reported() || error.is_some_and(ToolError::is_an_answer);
        Self {
            count,
            verdict: match count {
                _ if fails => Some(Verdict::FAILURE),
                Count::Success => Some(Verdict::SUCCESS),
                _ => answers().then_some(Verdict::ANSWERS),
            },
            weak: outcome.is_weak(),
            delay: outcome.cooldown(),
        }
    }

    /// Makes the end of a call that the breaker has seen itself.
    pub(super) fn seen(circuit: &Circuit, count: Count) -> Self {
        Self::of(circuit, &Outcome::neutral().with_count(count), None)
    }
}

/// The end of an admitted call, as a breaker records it.
#[derive(Default)]
pub(super) struct Report<'a> {
    /// Without one it only gives back a probe's place.
    pub(super) verdict: Option<Verdict>,
    /// For the circuit of the call's principal.
    pub(super) own: Option<Verdict>,
    /// A failing server says when it is back: an open period ends no earlier.
    pub(super) delay: Option<Duration>,
    pub(super) outage: Option<&'a Outage>,
    pub(super) call: Option<&'a CallInfo>,
}

impl Report<'_> {
    pub(super) fn of(verdict: Verdict) -> Self {
        let verdict = Some(verdict);
        Self {
            verdict,
            ..Self::default()
        }
    }
}

/// The value of a key in the registry.
pub(super) struct Circuit {
    pub(super) cell: Cell,
    pub(super) shared: Arc<Shared>,
    /// The [shortest timeout](crate::call::Record) on the way of the last call that was judged and
    /// had one; 0 if none was.
    pub(super) limit_ms: AtomicU32,
    /// The listeners of calls that have met this breaker.
    pub(super) audience: Audience,
    /// Refusals that callers got: of all of them, and of calls of single principals.
    pub(super) rejected: [AtomicU64; 2],
    /// The hash of the first tool of a server with which a call has succeeded; or 0, or
    /// [`SEVERAL`](super::server::SEVERAL).
    pub(super) tool: AtomicU64,
    /// The watchers of the availability of a server.
    pub(super) watchers: OnceLock<watch::Sender<ServerHealth>>,
}

impl Circuit {
    /// Keys beyond the bound share a breaker that lets every call pass, so that one bad tool does
    /// not stop all others there.
    pub(super) fn new(shared: &Arc<Shared>, is_overflow: bool) -> Self {
        let state = match is_overflow || shared.disabled.load(Relaxed) {
            true => BreakerState::Disabled,
            false => BreakerState::Closed,
        };
        Self {
            cell: Cell::new(state, shared.rules()),
            shared: Arc::clone(shared),
            limit_ms: AtomicU32::new(0),
            audience: Audience::default(),
            rejected: Default::default(),
            tool: AtomicU64::new(0),
            watchers: OnceLock::new(),
        }
    }

    /// Changes the state.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> T {
        self.cell.with(self.shared.rules(), self.shared.now(), work)
    }

    /// Looks at the state, if there is one.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        self.cell.peek(self.shared.now(), look)
    }

    /// Returns why a call would be refused. Admits nothing. One load while every call is admitted.
    #[inline]
    pub(super) fn refuses(
        &self,
        call: Option<&CallInfo>,
        may_probe: impl Fn() -> bool,
    ) -> Option<Refused> {
        if self.cell.pass().is_some() {
            return None;
        }
        let own = self.own(call).and_then(|own| own.refuses(&may_probe));
        own.or_else(|| self.peek(|kept| kept.machine.refuses(&may_probe))?)
    }

    /// Returns the next end of a probe that the call waits for, and when to look again even without
    /// one.
    pub(super) fn next_verdict(
        &self,
        call: &CallInfo,
        may_probe: bool,
    ) -> Option<(OwnedNotified, Duration)> {
        let next = |kept: &mut Kept| kept.next_verdict(may_probe);
        let own = self.own(Some(call)).and_then(|own| own.with(next));
        own.or_else(|| self.peek(next)?)
    }

    /// Returns whether a call can show that the tool works again.
    pub(super) fn may_probe(&self, call: &ToolCall) -> bool {
        let is_safe =
            !self.shared.rules().safe_probes || call.replay_safety() == ReplaySafety::Safe;
        is_safe && call.may_probe(self.limit_ms.load(Relaxed))
    }
}

impl Evict for Circuit {
    const IS_KNOWN: bool = false;

    fn eviction(&self) -> Eviction {
        match self.watchers.get() {
            Some(watchers) if watchers.receiver_count() > 0 => Eviction::Forbidden,
            _ => self.peek(Kept::eviction).unwrap_or(Eviction::Free),
        }
    }
}
