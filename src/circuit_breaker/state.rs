//! The state machine of one breaker. Pure: its time is [set](Machine::at), and counts from any
//! fixed moment.
//!
//! An admission carries the generation of the state in which it was given. The generation changes
//! with the state, or when a closed breaker is reset, and only then; a result of an earlier one is
//! stale: it decides nothing.

use std::{sync::Arc, time::Duration};

use super::{
    rules::Rules,
    snapshot::{BreakerSnapshot, Refused},
    window::{Tally, Verdict, Window},
};
use crate::{
    error::Outage,
    event::{
        availability::Reason,
        transition::{BreakerState, OpenCause, Transition, TransitionReason},
    },
    kit::registry::Eviction,
};

#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) rules: Arc<Rules>,
    pub(super) state: BreakerState,
    /// Why it is in that state; `None`: it has never been in another.
    reason: Option<TransitionReason>,
    pub(super) generation: u32,
    pub(super) window: Window,
    /// The window as it was when the breaker opened.
    pub(super) tripped: Tally,
    /// Probes that failed since the last success that closed the breaker, or that followed an error
    /// that closed it.
    pub(super) failed_probes: u32,
    /// While open, the end of the open period; while half-open, when that state began.
    probe_from: Duration,
    /// The probes of a half-open breaker: the ticket of each, and when its lease ends. A probe that
    /// hangs loses its place then.
    pub(super) probes: Vec<(u32, Duration)>,
    /// Probes that succeeded since the breaker became half-open.
    successes: u32,
    /// Consecutive probes that neither succeeded nor failed.
    undecided: u32,
    /// The outages of connections that have counted last, and after which attempts to connect.
    outages: Vec<(Outage, u64)>,
    /// The outage that it is open or half-open for.
    lost: Option<Outage>,
    /// The opening came from another process, and no result of this one led to it. For an open or
    /// half-open breaker.
    adopted: bool,
    /// When a failing server is back, by its own word: no open period ends earlier. Zero if none
    /// has said so.
    announced: Duration,
    /// The latest moment seen.
    pub(super) now: Duration,
    tickets: u32,
    /// The failures that have counted.
    pub(super) failures: u64,
    opened: u64,
    /// Why it has opened last, by whatever means.
    last_opening: Option<OpenCause>,
    /// Why the last call failed, of those that a registry of servers has recorded.
    pub(super) failed_with: Option<Reason>,
    /// The hash of the tool that the failures since the last answer are evidence against, or
    /// [`SERVER`]. Only the latter opens the breaker.
    pub(super) blamed: Option<u64>,
    /// How often the availability of the server has changed, and when it has last.
    pub(super) changes: u64,
    pub(super) since: Duration,
    /// Results of calls that were admitted in an earlier state.
    stale: u64,
    /// The state has changed, or a probe has ended, and no call that waits for that knows it yet.
    pub(super) has_news: bool,
}

/// An admission: what its result has to come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(super) generation: u32,
    /// Which probe it is; 0 for none.
    pub(super) ticket: u32,
}

impl Pass {
    /// The pass of a call that came before there was anything to admit it.
    pub(crate) const FIRST: Self = Self::of(0);

    /// Returns the pass of a call that is not a probe.
    pub(super) const fn of(generation: u32) -> Self {
        let ticket = 0;
        Self { generation, ticket }
    }

    pub(crate) fn is_probe(self) -> bool {
        self.ticket != 0
    }
}

/// The passes of an admitted call: that of the breaker, and that of its principal's own circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) pass: Pass,
    pub(super) own: Pass,
}

impl From<Pass> for Admission {
    fn from(pass: Pass) -> Self {
        let own = Pass::FIRST;
        Self { pass, own }
    }
}

/// While probes run, the end of the state is unknown: look again soon.
const HALF_OPEN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// After this many consecutive undecided probes (dropped by their callers, for example) a half-open
/// breaker admits every call, until one succeeds or fails. Callers that drop their calls must not
/// keep it half-open.
const MOST_UNDECIDED: u32 = 5;

/// In place of the hash of a tool: failures are evidence against its server.
pub(crate) const SERVER: u64 = u64::MAX;

/// Bounds the outages that are known. Several connections may be lost together, each with many
/// calls.
const MAX_OUTAGES: usize = 8;

/// Returns the outage, if its tool service says when it connects again.
fn watched(outage: &Outage) -> Option<Outage> {
    Some(outage.clone()).filter(|outage| outage.remaining().is_some())
}

impl Machine {
    pub(super) fn new(state: BreakerState, rules: &Arc<Rules>) -> Self {
        Self {
            rules: Arc::clone(rules),
            state,
            // A layer with all breakers disabled makes further ones disabled too.
            reason: (state != BreakerState::Closed).then_some(TransitionReason::Forced),
            window: Window::new(&rules.trip),
            ..Self::default()
        }
    }

    /// Sets its time. A thread that comes with an earlier moment does not turn it back.
    pub(super) fn at(&mut self, now: Duration) -> &mut Self {
        self.now = self.now.max(now);
        self
    }

    /// Returns whether it is closed and remembers nothing that matters.
    pub(super) fn is_as_new(&mut self) -> bool {
        self.state == BreakerState::Closed
            && self.failed_probes == 0
            && self.window.tally(self.now).is_clean()
    }

    /// State and counters, without the key and the refusals.
    pub(super) fn snapshot(&mut self) -> BreakerSnapshot {
        let tally = match self.counts() {
            true => self.window.tally(self.now),
            false => self.tripped,
        };
        BreakerSnapshot {
            state: self.state,
            reason: self.reason,
            generation: self.generation,
            calls: tally.calls,
            failures: tally.failures,
            slow_calls: tally.slow,
            probes: self.running(),
            retry_after: self.look().err(),
            adopted: self.adopted,
            failed_total: self.failures,
            opened_total: self.opened,
            stale_total: self.stale,
            ..BreakerSnapshot::default()
        }
    }

    /// Returns why a call would be refused. A call that may not probe becomes a probe only after
    /// another period without any other. Changes nothing.
    pub(super) fn refuses(&self, may_probe: impl Fn() -> bool) -> Option<Refused> {
        let retry_after = match self.look() {
            Err(retry_after) => retry_after,
            Ok(()) if self.wants_another() && !may_probe() => self.soon(),
            Ok(()) => return None,
        };
        Some(Refused {
            retry_after,
            cause: self.last_opening,
            of_principal: false,
            is_half_open: self.state == BreakerState::HalfOpen,
        })
    }

    /// Admits a call that is not [refused](Self::refuses).
    pub(super) fn admit(&mut self) -> (Pass, Option<Transition>) {
        let transition = self.end_period();
        let mut ticket = 0;
        if self.state == BreakerState::HalfOpen && !self.admits_all() {
            self.probes.retain(|(_, until)| *until > self.now);
            // Never 0, and never the ticket of a hanging probe: its lease is shorter than the time
            // to hand out four billion.
            self.tickets = self.tickets.wrapping_add(1).max(1);
            ticket = self.tickets;
            let until = self.now.saturating_add(self.rules.lease);
            self.probes.push((ticket, until));
        }
        let generation = self.generation;
        (Pass { generation, ticket }, transition)
    }

    /// Returns whether the place of a probe is kept for a call that may probe.
    fn wants_another(&self) -> bool {
        let is_kept = match self.state {
            BreakerState::Open => true,
            BreakerState::HalfOpen => self.rules.safe_probes || !self.admits_all(),
            _ => false,
        };
        let until = self.probe_from.saturating_add(self.rules.open_for);
        is_kept && self.rest().is_zero() && self.now < until
    }

    /// Returns whether a call would be refused, and when it should come back. Changes nothing.
    pub(super) fn look(&self) -> Result<(), Duration> {
        match self.state {
            BreakerState::Closed | BreakerState::ForcedClosed | BreakerState::Disabled => Ok(()),
            BreakerState::ForcedOpen => Err(self.rules.open_for),
            BreakerState::Open | BreakerState::HalfOpen => match self.rest() {
                rest if !rest.is_zero() => Err(rest),
                _ if self.state == BreakerState::Open || self.has_place() => Ok(()),
                _ => Err(self.soon()),
            },
        }
    }

    /// Returns when a call comes back that meets running probes: their end is unknown.
    fn soon(&self) -> Duration {
        HALF_OPEN_RETRY_AFTER.min(self.rules.open_for)
    }

    /// Returns when the open period ends, if that is after `since`. After a lost connection it ends
    /// when the tool service connects again.
    pub(super) fn period_end(&self, since: Duration) -> Option<Duration> {
        let end = match self.lost.as_ref().and_then(Outage::remaining) {
            None => self.probe_from,
            Some(Duration::ZERO) => return None,
            Some(rest) => self.now.saturating_add(rest),
        };
        (self.state == BreakerState::Open && end > since).then_some(end)
    }

    /// Returns how long no probe may begin, if it is open or half-open: until its period is over,
    /// or its tool service connects again.
    fn rest(&self) -> Duration {
        let lost = self.lost.as_ref().and_then(Outage::remaining);
        lost.unwrap_or_else(|| self.probe_from.saturating_sub(self.now))
    }

    /// Returns whether a half-open breaker admits one more call.
    fn has_place(&self) -> bool {
        // At most u32::MAX places, each of them a probe that is running.
        let running = self.running() as u32;
        let (probes, successes) = (self.rules.probes, self.rules.successes());
        let enough = probes.max(successes);
        self.admits_all() || running < probes && running + self.successes < enough
    }

    /// Probes that run and hold their place.
    fn running(&self) -> usize {
        let holds = |(_, until): &&(_, Duration)| *until > self.now;
        self.probes.iter().filter(holds).count()
    }

    /// Returns whether a half-open breaker admits every call, because too many probes were
    /// undecided.
    fn admits_all(&self) -> bool {
        self.undecided >= MOST_UNDECIDED
    }

    /// Makes an open breaker half-open once its period is over.
    pub(super) fn end_period(&mut self) -> Option<Transition> {
        if self.state != BreakerState::Open || !self.rest().is_zero() {
            return None;
        }
        self.probe_from = self.now;
        let reason = TransitionReason::PeriodElapsed;
        Some(self.turn(BreakerState::HalfOpen, reason, self.tripped))
    }

    /// Records the end of an admitted call, and the outage that it failed with. Without a `verdict`
    /// it only gives back a probe's place. Returns the transition that it caused, without the names
    /// of the breaker.
    pub(super) fn record(
        &mut self,
        pass: Pass,
        verdict: Option<Verdict>,
        outage: Option<&Outage>,
    ) -> Option<Transition> {
        if pass.generation != self.generation {
            self.stale += u64::from(verdict.is_some_and(|verdict| !verdict.answers));
            return None;
        }
        // Only the owner gives a place back: it is gone if the lease was over.
        let running = self.probes.len();
        self.probes.retain(|(ticket, _)| *ticket != pass.ticket);
        let is_freed = self.probes.len() < running;
        self.has_news |= is_freed;
        match verdict {
            Some(_) => self.undecided = 0,
            None => self.undecided += u32::from(is_freed),
        }
        self.count(verdict?, outage)
    }

    /// Returns whether a failure is part of an outage that has counted. A half-open breaker then
    /// waits until the tool service connects again.
    fn has_counted(&mut self, outage: Option<&Outage>) -> bool {
        let Some(outage) = outage else { return false };
        let attempt = outage.attempt();
        let known = self.outages.iter_mut().find(|(known, _)| known == outage);
        let Some((_, counted)) = known else {
            if self.outages.len() == MAX_OUTAGES {
                self.outages.remove(0);
            }
            self.outages.push((outage.clone(), attempt));
            return false;
        };
        if self.state != BreakerState::HalfOpen {
            let is_another = std::mem::replace(counted, attempt) != attempt && !outage.is_over();
            return !(is_another && self.rules.of_servers);
        }
        self.probe_from = self.now;
        self.lost = watched(outage);
        self.lost.is_some()
    }

    fn count(&mut self, verdict: Verdict, outage: Option<&Outage>) -> Option<Transition> {
        if verdict.failure && self.has_counted(outage) {
            return None;
        }
        if self.counts() || self.state == BreakerState::HalfOpen {
            self.failures += u64::from(verdict.failure);
        }
        match self.state {
            BreakerState::Closed | BreakerState::ForcedClosed if verdict.answers => None,
            BreakerState::Closed | BreakerState::ForcedClosed => {
                if !verdict.failure && !verdict.slow {
                    self.failed_probes = 0;
                }
                self.window.record(verdict, self.now);
                let reason = self.window.verdict(&self.rules.trip, self.now)?;
                if self.state == BreakerState::ForcedClosed || self.is_overdue() {
                    return None;
                }
                self.tripped = self.window.tally(self.now);
                Some(self.open(reason, outage, self.tripped))
            }
            BreakerState::HalfOpen => {
                let mut tally = Tally::from(verdict);
                tally.calls += self.successes;
                if verdict.failure || verdict.slow {
                    self.failed_probes = self.failed_probes.saturating_add(1);
                    return Some(self.open(TransitionReason::ProbeFailed, outage, tally));
                }
                self.successes += 1;
                (self.successes >= self.rules.successes()).then(|| {
                    // An error proves less: if calls fail still, the open period stays as long.
                    let kept = u32::from(verdict.answers) * self.failed_probes;
                    self.forget();
                    self.failed_probes = kept;
                    let reason = TransitionReason::ProbesSucceeded;
                    self.turn(BreakerState::Closed, reason, tally)
                })
            }
            _ => None,
        }
    }

    /// Returns whether the breaker, last used at `used`, may be evicted.
    pub(super) fn eviction(&mut self, used: Duration) -> Eviction {
        const LONG: Duration = Duration::from_secs(3600);
        let (is_as_new, is_overdue) = (self.is_as_new(), self.is_overdue());
        let is_over = |since: Duration| self.now >= since.saturating_add(LONG);
        match self.state {
            BreakerState::Open if is_over(self.probe_from) => Eviction::Costly,
            BreakerState::HalfOpen if is_over(used) => Eviction::Costly,
            BreakerState::Closed if is_as_new => Eviction::Free,
            BreakerState::Closed if is_overdue && !is_over(used) => Eviction::Forbidden,
            BreakerState::Closed => Eviction::Costly,
            _ => Eviction::Forbidden,
        }
    }

    /// Returns whether every call is admitted, and its result goes into the window.
    fn counts(&self) -> bool {
        matches!(
            self.state,
            BreakerState::Closed | BreakerState::ForcedClosed
        )
    }

    /// Returns whether every call is admitted.
    pub(super) fn admits(&self) -> bool {
        self.counts() || self.state == BreakerState::Disabled
    }

    /// Returns whether one more success changes nothing, now and later.
    pub(super) fn ignores_successes(&self) -> bool {
        let is_quiet = || self.rules.slow_call().is_none() && self.window.ignores_successes();
        match self.state {
            BreakerState::Disabled => true,
            _ => self.counts() && self.failed_probes == 0 && is_quiet(),
        }
    }

    /// Returns when the open period ends, or the lease of a probe that runs; in the past if a probe
    /// may begin. `None` if calls are not refused, or without end.
    pub(super) fn probe_at(&self) -> Option<Duration> {
        let rest = self.rest();
        match self.state {
            BreakerState::Open | BreakerState::HalfOpen if !rest.is_zero() => {
                Some(self.now.saturating_add(rest))
            }
            BreakerState::Open => Some(self.probe_from),
            BreakerState::HalfOpen if !self.admits_all() => {
                let ends = self.probes.iter().map(|(_, until)| *until);
                Some(ends.min().unwrap_or(self.probe_from))
            }
            _ => None,
        }
    }

    /// Forces the state: closed, which is a reset, forced open, or disabled. In that state already,
    /// a reset forgets what was counted, and the others do nothing.
    pub(super) fn force(
        &mut self,
        state: BreakerState,
        reason: TransitionReason,
    ) -> Option<Transition> {
        if state == self.state {
            if state == BreakerState::Closed {
                self.forget();
                // What was admitted before is stale, although the state is the same.
                self.generation = self.generation.wrapping_add(1);
            }
            return None;
        }
        match state {
            BreakerState::Closed | BreakerState::ForcedClosed => self.forget(),
            BreakerState::ForcedOpen if self.counts() => {
                self.tripped = self.window.tally(self.now);
            }
            _ => {}
        }
        Some(self.turn(state, reason, self.tripped))
    }

    /// Takes over an opening of another process, for `period` from now on. An open period never
    /// gets shorter by it; a forced state stays.
    pub(super) fn adopt(&mut self, period: Duration) -> Option<Transition> {
        let until = self.now.saturating_add(period);
        match self.state {
            BreakerState::Closed => {
                self.tripped = self.window.tally(self.now);
                self.adopted = true;
            }
            BreakerState::HalfOpen => self.lost = None,
            BreakerState::Open => {
                self.probe_from = self.probe_from.max(until);
                return None;
            }
            _ => return None,
        }
        self.probe_from = until;
        Some(Transition {
            open_for: Some(period),
            ..self.turn(BreakerState::Open, TransitionReason::Shared, self.tripped)
        })
    }

    /// A failing server says when it is back. Also true of a result that is stale otherwise.
    pub(super) fn announced(&mut self, delay: Duration) {
        self.announced = self.announced.max(self.now.saturating_add(delay));
        if self.state == BreakerState::Open {
            self.probe_from = self.probe_from.max(self.announced);
        }
    }

    fn open(
        &mut self,
        reason: TransitionReason,
        outage: Option<&Outage>,
        tally: Tally,
    ) -> Transition {
        // A probe that loses the next connection as well is a failure of its own.
        self.lost = match self.lost {
            None => outage.and_then(watched),
            Some(_) => None,
        };
        self.opened += 1;
        self.adopted = false;
        let period = self.rules.open_for(self.failed_probes);
        self.probe_from = self.now.saturating_add(period).max(self.announced);
        let period = self.probe_from - self.now;
        Transition {
            open_for: Some(period),
            ..self.turn(BreakerState::Open, reason, tally)
        }
    }

    /// Forgets all results.
    fn forget(&mut self) {
        self.window = Window::new(&self.rules.trip);
        self.tripped = Tally::default();
        self.failed_probes = 0;
        self.announced = Duration::ZERO;
        (self.failed_with, self.blamed) = (None, None);
    }

    fn turn(&mut self, state: BreakerState, reason: TransitionReason, tally: Tally) -> Transition {
        let from = std::mem::replace(&mut self.state, state);
        self.reason = Some(reason);
        if !matches!(state, BreakerState::Open | BreakerState::HalfOpen) {
            (self.lost, self.adopted) = (None, false);
        }
        self.generation = self.generation.wrapping_add(1);
        self.has_news = true;
        if state.is_open() {
            self.last_opening = Some(OpenCause {
                reason,
                failures: tally.failures,
                calls: tally.calls,
            });
        }
        self.probes = Vec::new();
        (self.successes, self.undecided) = (0, 0);
        Transition {
            server: None,
            tool: None,
            from,
            to: state,
            reason,
            generation: self.generation,
            calls: tally.calls,
            failures: tally.failures,
            slow_calls: tally.slow,
            open_for: None,
        }
    }
}
