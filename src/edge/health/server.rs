use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{ServerHealth, layer::Rules, record::Record, sign::Sign};
use crate::{
    call::CallInfo,
    circuit_breaker::{self, Pass, Recorded, Verdict},
    error::Outage,
    event::{
        availability::AvailabilityChange,
        transition::{BreakerState, TransitionReason},
    },
    kit::registry::{Evict, Keep},
};

/// Shared by all servers of a registry.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rules: Rules,
    pub(super) breaker: circuit_breaker::Rules,
    pub(super) origin: Instant,
}

impl Shared {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// Returns whether a server has more than one tool.
pub(super) type HasMore = Box<dyn Fn() -> bool + Send + Sync>;

/// One server, for all threads: a record for its watchers, and the breaker that refuses its calls. The breaker admits
/// calls, keeps the probe's place and knows stale results; the record decides when it opens.
pub(super) struct Server {
    name: Option<Arc<str>>,
    /// Whether its calls may be refused, by setting. Calls that name no server may be for any of them, and are not refused.
    may_be_refused: bool,
    /// Whether there are failures that an answer would end.
    is_failing: AtomicBool,
    /// Whether the number of its tools matters and fewer than two are known.
    is_learning: AtomicBool,
    breaker: circuit_breaker::Cell,
    /// Locked before the breaker.
    record: Mutex<Record>,
    /// The outage that has counted last, and after which attempt to connect.
    outage: Mutex<Option<(Outage, u64)>>,
    /// The hash of the first tool with which a call has succeeded; zero if none has.
    tool: AtomicU64,
    pub(super) has_more: OnceLock<HasMore>,
    changed: watch::Sender<ServerHealth>,
}

impl Server {
    pub(super) fn new(name: Option<&str>, shared: &Shared) -> Self {
        let name = name.map(|s| &s[..crate::text::floor(s, crate::MAX_NAME_BYTES)]);
        let name: Option<Arc<str>> = name.map(Arc::from);
        let record = Record::new(Instant::now());
        let may_be_refused = shared.rules.refuses && name.is_some();
        Self {
            changed: watch::Sender::new(record.read(name.clone(), None)),
            name,
            may_be_refused,
            is_failing: AtomicBool::new(false),
            is_learning: AtomicBool::new(may_be_refused),
            breaker: circuit_breaker::Cell::new(BreakerState::Closed, &shared.breaker),
            record: Mutex::new(record),
            outage: Mutex::default(),
            tool: AtomicU64::new(0),
            has_more: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self, shared: &Shared) -> ServerHealth {
        let record = self.lock();
        let probe_at = self
            .breaker
            .probe_at(shared.now())
            .and_then(|at| shared.origin.checked_add(at));
        record.read(self.name.clone(), probe_at)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<ServerHealth> {
        self.changed.subscribe()
    }

    /// Admits a call, or returns when to come back.
    #[inline]
    pub(super) fn admit(&self, shared: &Shared) -> Result<Pass, Duration> {
        match self.breaker.pass() {
            Some(pass) => Ok(pass),
            None => self.admit_or_refuse(shared),
        }
    }

    #[cold]
    fn admit_or_refuse(&self, shared: &Shared) -> Result<Pass, Duration> {
        let now = || shared.now();
        let (admission, _) = self.breaker.admit(now, || true, &shared.breaker);
        // Watchers see probes.
        if admission.is_ok_and(Pass::is_probe) {
            self.publish(shared);
        }
        admission
    }

    /// When to come back, if a call would be refused now. Reserves nothing.
    pub(super) fn refuses(&self, shared: &Shared) -> Option<Duration> {
        self.breaker.refuses(|| shared.now(), &shared.breaker)
    }

    /// Whether an answer changes nothing. Two loads.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        !self.is_failing.load(SeqCst) && !self.is_learning.load(SeqCst)
    }

    /// A call of this tool has succeeded: the server has it.
    pub(super) fn learn(&self, call: &CallInfo) {
        if call.listed_tool().is_none() {
            return;
        }
        match self.tool.load(Relaxed) {
            0 => self.tool.store(call.tool_hash(), Relaxed),
            known if known == call.tool_hash() => {}
            _ => self.is_learning.store(false, SeqCst),
        }
    }

    /// Whether no other tool of the server is known. A tool that is in no list yet may be any of several.
    fn is_only_tool(&self, call: &CallInfo) -> bool {
        let known = self.tool.load(Relaxed);
        (known == 0 || known == call.tool_hash())
            && self.is_learning.load(SeqCst)
            && call.listed_tool().is_some()
            && !self.has_more.get().is_some_and(|has_more| has_more())
    }

    /// Returns whether a failure with this outage counts: once for all calls that were lost with the connection, and once for
    /// each attempt to connect that failed.
    fn counts(&self, outage: &Outage) -> bool {
        let mut last = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = outage.attempt();
        let is_known = |(known, seen): &(Outage, u64)| {
            known == outage && (outage.is_over() || *seen == attempt)
        };
        let counts = !last.as_ref().is_some_and(is_known);
        if counts {
            *last = Some((outage.clone(), attempt));
        }
        counts
    }

    /// Records the end of a call. Returns how the availability has changed, and whether watchers were notified.
    pub(super) fn ended(
        &self,
        sign: Sign,
        outage: Option<&Outage>,
        pass: Pass,
        call: &CallInfo,
        shared: &Shared,
    ) -> (Option<AvailabilityChange>, bool) {
        const NOTHING: (Option<AvailabilityChange>, bool) = (None, false);
        match sign {
            Sign::Answer if !self.is_failing.load(SeqCst) => return NOTHING,
            Sign::Nothing if !pass.is_probe() => return NOTHING,
            _ => {}
        }
        let sign = match outage {
            Some(outage) if matches!(sign, Sign::Failure(_)) && !self.counts(outage) => {
                Sign::Nothing
            }
            _ => sign,
        };
        // A list of tools has locks of its own.
        let is_only_tool = self.is_only_tool(call);
        let mut record = self.lock();
        let (before, now) = (*record, Instant::now());
        let (at, rules) = (shared.now(), &shared.breaker);
        let (after, recorded) = match sign {
            Sign::Answer if before.failures == 0 => return NOTHING,
            Sign::Answer => {
                // An answer closes the breaker, whenever its call began; calls that began before are stale from now on.
                let turned =
                    self.breaker
                        .force(BreakerState::Closed, TransitionReason::Forced, at, rules);
                (before.answered(now), Recorded::Counted(turned))
            }
            Sign::Failure(reason) => {
                let threshold = shared.rules.threshold;
                let tool = call.listed_tool().map(|_| call.tool_hash());
                let after = before.failed(reason, tool, is_only_tool, threshold, now);
                let refuses = self.may_be_refused && after.is_to_be_refused();
                let verdict = refuses.then_some(Verdict::FAILURE);
                (
                    after,
                    self.breaker.record(pass, verdict, outage, || at, rules),
                )
            }
            Sign::Nothing => (before, self.breaker.record(pass, None, None, || at, rules)),
        };
        let Recorded::Counted(turned) = recorded else {
            return NOTHING;
        };
        *record = after;
        self.is_failing.store(after.failures > 0, SeqCst);
        drop(record);
        let is_news = turned.is_some() || pass.is_probe() || after.is_news_after(&before);
        if is_news {
            self.publish(shared);
        }
        (after.change_since(&before, self.name.as_ref()), is_news)
    }

    /// Notifies the watchers of the server. Holds no lock, so that a watcher that reads does not block calls.
    fn publish(&self, shared: &Shared) {
        // Read under the sender's lock, so that the last value sent is the latest state.
        self.changed.send_modify(|seen| *seen = self.read(shared));
    }
}

impl Evict for Server {
    fn keep(&self) -> Keep {
        match self.changed.receiver_count() {
            0 => self.lock().keep(Instant::now()),
            _ => Keep::Always,
        }
    }
}
