//! The state machine of one breaker. Pure: `now` is an argument, the time since any fixed moment.
//!
//! An admission carries the generation of the state in which it was given. The generation changes with
//! the state, or when a closed breaker is reset, and only then; a result of an earlier one is stale: it
//! decides nothing.

use std::{mem, time::Duration};

use super::{
    rules::Rules,
    window::{Mark, Quiet, Tally, Window},
};
use crate::event::transition::{BreakerState, TransitionReason};
use crate::kit::registry::Keep;

#[derive(Debug)]
pub(super) struct Machine {
    phase: Phase,
    generation: u32,
    window: Window,
    /// The window as it was when the breaker opened.
    tripped: Tally,
    /// Probes that failed since the breaker was closed last.
    failed_probes: u32,
    /// The latest moment seen. Threads may come with an earlier one; time does not go back for that.
    now: Duration,
    tickets: u32,
    failures: u64,
    opened: u64,
}

#[derive(Debug)]
enum Phase {
    Closed,
    Open { until: Duration },
    HalfOpen(HalfOpen),
    ForcedOpen,
    ForcedClosed,
    Disabled,
}

#[derive(Debug)]
struct HalfOpen {
    since: Duration,
    probes: Vec<Probe>,
    successes: u32,
    /// Probes in a row that ended without a verdict.
    undecided: u32,
}

impl HalfOpen {
    fn new(since: Duration) -> Self {
        Self {
            since,
            probes: Vec::new(),
            successes: 0,
            undecided: 0,
        }
    }

    /// Probes that run and hold their place.
    fn running(&self, now: Duration) -> usize {
        self.probes.iter().filter(|probe| probe.until > now).count()
    }

    /// Whether every call is admitted, as too many probes told nothing.
    fn admits_all(&self) -> bool {
        self.undecided >= MOST_UNDECIDED
    }

    fn admits(&self, now: Duration, rules: &Rules) -> bool {
        // At most u32::MAX places, each of them a probe that is running.
        let running = self.running(now) as u32;
        let enough = rules.probes.max(rules.successes());
        self.admits_all() || running < rules.probes && running + self.successes < enough
    }

    /// Only the owner gives a place back: it is gone if the lease was over.
    fn give_back(&mut self, ticket: u32, verdict: Verdict) {
        let before = self.probes.len();
        self.probes.retain(|probe| probe.ticket != ticket);
        match verdict {
            Verdict::Result(_) => self.undecided = 0,
            Verdict::Neutral if self.probes.len() < before => self.undecided += 1,
            Verdict::Neutral => {}
        }
    }
}

/// The place of a probe. A probe that hangs loses it after its lease.
#[derive(Debug)]
struct Probe {
    ticket: u32,
    until: Duration,
}

/// An admission: what its result has to come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(super) generation: u32,
    /// Which probe it is; 0 for none.
    pub(super) ticket: u32,
}

impl Pass {
    pub(crate) fn is_probe(self) -> bool {
        self.ticket != 0
    }
}

/// What a call's end says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Result(Mark),
    /// Nothing: the place is given back.
    Neutral,
}

impl Verdict {
    pub(crate) const SUCCESS: Self = Self::Result(Mark {
        failure: false,
        slow: false,
    });
    pub(crate) const FAILURE: Self = Self::Result(Mark {
        failure: true,
        slow: false,
    });
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(super) from: BreakerState,
    pub(super) to: BreakerState,
    pub(super) reason: TransitionReason,
    pub(super) generation: u32,
    pub(super) tally: Tally,
    pub(super) open_for: Option<Duration>,
}

/// What somebody may demand of a breaker from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Closed, and everything forgotten.
    Reset,
    Open,
    Closed,
    Disabled,
}

/// What became of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Counted(Option<Change>),
    /// It was admitted in an earlier state.
    Stale,
}

/// While probes run nobody can know when they end: look again soon.
const HALF_OPEN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// After so many probes in a row that told nothing (their callers hung up, say) a half-open breaker admits every call, until
/// one of them tells something: callers who give no verdict must not keep it half-open.
const MOST_UNDECIDED: u32 = 5;

fn half_open_retry_after(rules: &Rules) -> Duration {
    HALF_OPEN_RETRY_AFTER.min(rules.open_for)
}

impl Machine {
    pub(super) fn new(state: BreakerState, rules: &Rules) -> Self {
        let mut machine = Self {
            phase: Phase::Closed,
            generation: 0,
            window: Window::new(&rules.trip),
            tripped: Tally::default(),
            failed_probes: 0,
            now: Duration::ZERO,
            tickets: 0,
            failures: 0,
            opened: 0,
        };
        if state == BreakerState::Disabled {
            machine.phase = Phase::Disabled;
        }
        machine
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen(_) => BreakerState::HalfOpen,
            Phase::ForcedOpen => BreakerState::ForcedOpen,
            Phase::ForcedClosed => BreakerState::ForcedClosed,
            Phase::Disabled => BreakerState::Disabled,
        }
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Failures counted since the breaker exists.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// How often the breaker has opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// Admits a call, or tells when to come back. A call that `may_probe` not becomes a probe only if none other came for
    /// another period.
    pub(super) fn admit(
        &mut self,
        now: Duration,
        may_probe: bool,
        rules: &Rules,
    ) -> (Result<Pass, Duration>, Option<Change>) {
        if !may_probe && self.wants_another(now, rules) {
            return (Err(half_open_retry_after(rules)), None);
        }
        let change = self.end_period(now);
        if let Err(retry_after) = self.look(now, rules) {
            return (Err(retry_after), change);
        }
        let now = self.now;
        let ticket = match &mut self.phase {
            Phase::HalfOpen(half_open) if !half_open.admits_all() => {
                let probes = &mut half_open.probes;
                probes.retain(|probe| probe.until > now);
                // Never 0, and not one that a hanging probe has still: a probe hangs no longer than it
                // takes to hand out four billion.
                self.tickets = self.tickets.wrapping_add(1).max(1);
                let until = now.saturating_add(rules.lease);
                probes.push(Probe {
                    ticket: self.tickets,
                    until,
                });
                self.tickets
            }
            _ => 0,
        };
        let generation = self.generation;
        (Ok(Pass { generation, ticket }), change)
    }

    /// Whether the place of a probe is kept for a call that may probe.
    fn wants_another(&self, now: Duration, rules: &Rules) -> bool {
        let since = match &self.phase {
            Phase::Open { until } => *until,
            Phase::HalfOpen(half_open) if !half_open.admits_all() => half_open.since,
            _ => return false,
        };
        let now = self.now.max(now);
        now >= since && now < since.saturating_add(rules.open_for)
    }

    /// Whether a call would be refused `now`, and when it should come back. Changes nothing.
    pub(super) fn look(&self, now: Duration, rules: &Rules) -> Result<(), Duration> {
        let now = self.now.max(now);
        match &self.phase {
            Phase::Closed | Phase::ForcedClosed | Phase::Disabled => Ok(()),
            Phase::Open { until } if now >= *until => Ok(()),
            Phase::Open { until } => Err(*until - now),
            Phase::ForcedOpen => Err(rules.open_for),
            Phase::HalfOpen(half_open) if half_open.admits(now, rules) => Ok(()),
            Phase::HalfOpen(_) => Err(half_open_retry_after(rules)),
        }
    }

    /// An open breaker whose period is over becomes half-open.
    pub(super) fn end_period(&mut self, now: Duration) -> Option<Change> {
        self.now = self.now.max(now);
        match self.phase {
            Phase::Open { until } if self.now >= until => {
                let phase = Phase::HalfOpen(HalfOpen::new(self.now));
                Some(self.turn(phase, TransitionReason::PeriodElapsed, self.tripped))
            }
            _ => None,
        }
    }

    /// Takes the end of an admitted call.
    pub(super) fn record(
        &mut self,
        pass: Pass,
        verdict: Verdict,
        now: Duration,
        rules: &Rules,
    ) -> Recorded {
        self.now = self.now.max(now);
        if pass.generation != self.generation {
            return Recorded::Stale;
        }
        let now = self.now;
        if let (Verdict::Result(mark), true) = (verdict, self.counts()) {
            self.failures += u64::from(mark.failure);
        }
        let change = match (&mut self.phase, verdict) {
            (Phase::Closed | Phase::ForcedClosed, Verdict::Result(mark)) => {
                self.window.record(mark, now);
                match self.window.verdict(&rules.trip, now) {
                    Some(reason) if matches!(self.phase, Phase::Closed) => {
                        self.tripped = self.window.tally(now);
                        Some(self.open(reason, rules, self.tripped))
                    }
                    _ => None,
                }
            }
            (Phase::HalfOpen(half_open), verdict) => {
                half_open.give_back(pass.ticket, verdict);
                let Verdict::Result(mark) = verdict else {
                    return Recorded::Counted(None);
                };
                let mut tally = Tally::of(half_open.successes);
                tally.merge(mark.into());
                if mark.failure || mark.slow {
                    self.failed_probes = self.failed_probes.saturating_add(1);
                    Some(self.open(TransitionReason::ProbeFailed, rules, tally))
                } else {
                    half_open.successes += 1;
                    (half_open.successes >= rules.successes()).then(|| {
                        self.forget(rules);
                        self.turn(Phase::Closed, TransitionReason::ProbesSucceeded, tally)
                    })
                }
            }
            _ => None,
        };
        Recorded::Counted(change)
    }

    /// How much harm it would do to forget it.
    pub(super) fn keep(&self, now: Duration) -> Keep {
        const LONG: Duration = Duration::from_secs(3600);
        match self.phase {
            Phase::Open { until } if now >= until.saturating_add(LONG) => Keep::IfPossible,
            Phase::HalfOpen(_) if now >= self.now.saturating_add(LONG) => Keep::IfPossible,
            Phase::Closed if self.window.is_clean(now) => Keep::IfUsed,
            Phase::Closed => Keep::IfPossible,
            _ => Keep::Always,
        }
    }

    /// Whether every call is admitted, and its result noted.
    fn admits(&self) -> bool {
        matches!(self.phase, Phase::Closed | Phase::ForcedClosed)
    }

    /// Whether results matter in this state.
    fn counts(&self) -> bool {
        self.admits() || matches!(self.phase, Phase::HalfOpen(_))
    }

    /// Successes of this generation that ended before now and need no look at the clock.
    pub(super) fn add_successes(&mut self, count: u32) {
        if self.admits() {
            self.window.add_successes(count);
        }
    }

    /// How many successes may go by unheard.
    pub(super) fn quiet(&self, rules: &Rules) -> Quiet {
        match self.phase {
            Phase::Closed | Phase::ForcedClosed => self.window.quiet(&rules.trip),
            Phase::Disabled => Quiet::Always,
            Phase::Open { .. } | Phase::HalfOpen(_) | Phase::ForcedOpen => Quiet::No,
        }
    }

    /// When the open period ends, or the lease of a probe that runs; in the past if a probe may begin. `None` if calls are not
    /// refused, or without end.
    pub(super) fn probe_at(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Open { until } => Some(*until),
            Phase::HalfOpen(half_open) if !half_open.admits_all() => {
                let ends = half_open.probes.iter().map(|probe| probe.until);
                Some(ends.min().unwrap_or(half_open.since))
            }
            _ => None,
        }
    }

    /// Probes that run and hold their place.
    pub(super) fn probes(&self, now: Duration) -> usize {
        let now = self.now.max(now);
        match &self.phase {
            Phase::HalfOpen(half_open) => half_open.running(now),
            _ => 0,
        }
    }

    /// What is in the window, or was when the breaker opened.
    pub(super) fn tally(&mut self, now: Duration) -> Tally {
        match self.phase {
            Phase::Closed | Phase::ForcedClosed => self.window.tally(self.now.max(now)),
            _ => self.tripped,
        }
    }

    /// Does what somebody demands from outside; nothing if it is so already.
    pub(super) fn force(&mut self, demand: Demand, now: Duration, rules: &Rules) -> Option<Change> {
        self.now = self.now.max(now);
        let phase = match demand {
            Demand::Reset => {
                self.forget(rules);
                Phase::Closed
            }
            Demand::Open => Phase::ForcedOpen,
            Demand::Closed => Phase::ForcedClosed,
            Demand::Disabled => Phase::Disabled,
        };
        if mem::discriminant(&phase) == mem::discriminant(&self.phase) {
            if demand == Demand::Reset {
                // What was admitted before is stale, although the state is the same.
                self.generation = self.generation.wrapping_add(1);
            }
            return None;
        }
        if demand == Demand::Open && self.admits() {
            self.tripped = self.window.tally(self.now);
        }
        if let Demand::Closed = demand {
            self.forget(rules);
        }
        Some(self.turn(phase, TransitionReason::Forced, self.tripped))
    }

    fn open(&mut self, reason: TransitionReason, rules: &Rules, tally: Tally) -> Change {
        self.opened += 1;
        let period = rules.open_for(self.failed_probes);
        let until = self.now.saturating_add(period);
        Change {
            open_for: Some(period),
            ..self.turn(Phase::Open { until }, reason, tally)
        }
    }

    /// What was before does not count any more.
    fn forget(&mut self, rules: &Rules) {
        self.window = Window::new(&rules.trip);
        self.tripped = Tally::default();
        self.failed_probes = 0;
    }

    fn turn(&mut self, phase: Phase, reason: TransitionReason, tally: Tally) -> Change {
        let from = self.state();
        self.phase = phase;
        self.generation = self.generation.wrapping_add(1);
        Change {
            from,
            to: self.state(),
            reason,
            generation: self.generation,
            tally,
            open_for: None,
        }
    }
}
