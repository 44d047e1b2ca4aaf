//! What is known of one server. Pure: `now` is an argument.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{ServerHealth, sign::Sign};
use crate::{
    event::availability::{Availability, AvailabilityChange, Reason},
    kit::registry::Keep,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) threshold: u32,
    pub(super) period: Duration,
    pub(super) refuses: bool,
}

/// Whether a call may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Pass,
    /// The probe of this number.
    Probe(u64),
    /// Not for so long.
    Refused(Duration),
}

/// What a call that may pass has to bring along when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// How often the server had come back when the call began.
    pub(super) recoveries: u64,
    /// Which probe it is.
    pub(super) probe: Option<u64>,
}

/// How the availability changes: [`AvailabilityChange`] without the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    from: Availability,
    to: Availability,
    reason: Option<Reason>,
    failures: u32,
    generation: u64,
}

impl Change {
    pub(super) fn of(self, server: Option<Arc<str>>) -> AvailabilityChange {
        AvailabilityChange {
            server,
            from: self.from,
            to: self.to,
            reason: self.reason,
            failures: self.failures,
            generation: self.generation,
        }
    }
}

/// After so long what nobody calls any more may be forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct State {
    pub(super) availability: Availability,
    pub(super) reason: Option<Reason>,
    /// Failures in a row.
    pub(super) failures: u32,
    pub(super) since: Instant,
    failed_at: Instant,
    /// How often the availability has changed.
    generation: u64,
    /// How often an answer has ended failures.
    recoveries: u64,
    /// When there is a probe, or another one in the place of one that hangs; `None`: so late that no clock reaches it.
    next: Option<Instant>,
    /// The number of the last probe, and whether it is under way.
    probes: u64,
    probing: bool,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            availability: Availability::Available,
            reason: None,
            failures: 0,
            since: now,
            failed_at: now,
            generation: 0,
            recoveries: 0,
            next: None,
            probes: 0,
            probing: false,
        }
    }

    pub(super) fn admit(&mut self, rules: &Rules, now: Instant) -> Admission {
        let refusal = self.refusal(rules, now);
        if refusal.is_some() || !self.guards(rules) {
            return refusal.map_or(Admission::Pass, Admission::Refused);
        }
        self.probes += 1;
        self.probing = true;
        self.next = now.checked_add(rules.period);
        Admission::Probe(self.probes)
    }

    /// The same as a look.
    pub(super) fn refusal(&self, rules: &Rules, now: Instant) -> Option<Duration> {
        if !self.guards(rules) {
            return None;
        }
        let wait = match self.next {
            Some(at) => at.saturating_duration_since(now),
            None => rules.period,
        };
        if wait.is_zero() {
            return None;
        }
        // It ends any moment.
        let most = if self.probing {
            Duration::from_secs(1)
        } else {
            wait
        };
        Some(wait.min(most))
    }

    /// What watchers hear of.
    pub(super) fn watched(&self) -> (Availability, Option<Reason>, Option<Instant>) {
        (self.availability, self.reason, self.next)
    }

    /// Odd if there are failures; the rest counts recoveries.
    pub(super) fn mark(&self) -> u64 {
        self.recoveries << 1 | u64::from(self.failures > 0)
    }

    pub(super) fn read(&self, server: Option<Arc<str>>, rules: &Rules) -> ServerHealth {
        ServerHealth {
            server,
            state: self.availability,
            reason: self.reason,
            failures: self.failures,
            since: self.since,
            probe_at: self.next.filter(|_| self.guards(rules)),
        }
    }

    pub(super) fn keep(&self, now: Instant) -> Keep {
        let recent = now.saturating_duration_since(self.failed_at) < FORGOTTEN;
        match self.availability {
            Availability::Available => Keep::IfUsed,
            Availability::Unavailable if recent => Keep::Always,
            _ => Keep::IfPossible,
        }
    }

    fn guards(&self, rules: &Rules) -> bool {
        rules.refuses && self.availability == Availability::Unavailable
    }

    /// A call has ended. Tells how the availability changes.
    pub(super) fn ended(
        &mut self,
        sign: Sign,
        pass: Pass,
        rules: &Rules,
        now: Instant,
    ) -> Option<Change> {
        let (from, failures) = (self.availability, self.failures);
        let was_the_probe = self.probing && pass.probe == Some(self.probes);
        if was_the_probe {
            self.probing = false;
            // The next call is another one, unless this one says something.
            self.next = Some(now);
        }
        match sign {
            Sign::Nothing => {}
            // It tells of the time before the server came back.
            Sign::Failure(_) if pass.recoveries != self.recoveries => {}
            Sign::Answer => {
                self.recoveries += u64::from(self.failures > 0);
                self.failures = 0;
                self.reason = None;
                self.availability = Availability::Available;
                self.probing = false;
            }
            Sign::Failure(reason) => {
                self.failures = self.failures.saturating_add(1);
                self.failed_at = now;
                self.reason = Some(reason);
                if self.availability == Availability::Unavailable {
                    if was_the_probe {
                        self.next = now.checked_add(rules.period);
                    }
                } else if self.failures >= rules.threshold {
                    self.availability = Availability::Unavailable;
                    self.next = now.checked_add(rules.period);
                } else {
                    self.availability = Availability::Degraded;
                }
            }
        }
        if from == self.availability {
            return None;
        }
        self.since = now;
        self.generation += 1;
        Some(Change {
            from,
            to: self.availability,
            reason: self.reason,
            failures: self.failures.max(failures),
            generation: self.generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        threshold: 3,
        period: Duration::from_secs(30),
        refuses: true,
    };
    const TIMEOUT: Sign = Sign::Failure(Reason::Timeout);

    fn pass(probe: Option<u64>) -> Pass {
        let recoveries = 0;
        Pass { recoveries, probe }
    }

    fn unavailable(now: Instant) -> State {
        let mut state = State::new(now);
        for _ in 0..3 {
            state.ended(TIMEOUT, pass(None), &RULES, now);
        }
        state
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// C10: whatever becomes of a probe, there is another one.
    #[test]
    fn one_probe_at_a_time_whatever_becomes_of_it() {
        let now = Instant::now();
        let mut state = unavailable(now);
        assert_eq!(state.admit(&RULES, now), Admission::Refused(secs(30)));
        let at = now + secs(30);
        assert_eq!(state.admit(&RULES, at), Admission::Probe(1));
        assert_eq!(state.admit(&RULES, at), Admission::Refused(secs(1)));
        // Dropped: the next one at once.
        state.ended(Sign::Nothing, pass(Some(1)), &RULES, at);
        assert_eq!(state.admit(&RULES, at), Admission::Probe(2));
        // Failed: after another period.
        state.ended(TIMEOUT, pass(Some(2)), &RULES, at);
        assert_eq!(state.admit(&RULES, at), Admission::Refused(secs(30)));
        // Hangs: another one after a period, and what it says then is not the probe's word.
        let at = at + secs(30);
        assert_eq!(state.admit(&RULES, at), Admission::Probe(3));
        let at = at + secs(30);
        assert_eq!(state.admit(&RULES, at), Admission::Probe(4));
        state.ended(Sign::Nothing, pass(Some(3)), &RULES, at);
        assert_eq!(state.admit(&RULES, at), Admission::Refused(secs(1)));
        state.ended(Sign::Answer, pass(Some(4)), &RULES, at);
        assert_eq!(state.admit(&RULES, at), Admission::Pass);
        assert_eq!(
            (state.availability, state.since),
            (Availability::Available, at)
        );
    }

    #[test]
    fn only_a_probe_begins_another_period() {
        let now = Instant::now();
        let mut state = unavailable(now);
        state.ended(TIMEOUT, pass(None), &RULES, now + secs(29));
        assert_eq!(state.admit(&RULES, now + secs(30)), Admission::Probe(1));
        assert_eq!(state.since, now);
    }

    /// Trap 2.
    #[test]
    fn a_failure_from_before_a_recovery_is_stale() {
        let now = Instant::now();
        let mut state = unavailable(now);
        assert_eq!(state.mark(), 1);
        // An answer counts, whenever its call began; but one more is no recovery.
        for _ in 0..2 {
            state.ended(Sign::Answer, pass(None), &RULES, now);
            assert_eq!(state.mark(), 2);
        }
        state.ended(TIMEOUT, pass(None), &RULES, now);
        assert_eq!((state.failures, state.mark()), (0, 2));
        let recoveries = 1;
        let fresh = Pass {
            recoveries,
            probe: None,
        };
        state.ended(TIMEOUT, fresh, &RULES, now);
        assert_eq!((state.failures, state.mark()), (1, 3));
    }

    #[test]
    fn failures_do_not_overflow() {
        let now = Instant::now();
        let mut state = unavailable(now);
        state.failures = u32::MAX;
        state.ended(TIMEOUT, pass(None), &RULES, now);
        assert_eq!(state.failures, u32::MAX);
        assert_eq!(state.availability, Availability::Unavailable);
    }

    #[test]
    fn each_change_is_told_once_and_numbered() {
        let now = Instant::now();
        let mut state = State::new(now);
        let signs = [
            TIMEOUT,
            TIMEOUT,
            TIMEOUT,
            TIMEOUT,
            Sign::Nothing,
            Sign::Answer,
        ];
        let changes: Vec<_> = signs
            .into_iter()
            .chain([Sign::Answer])
            .filter_map(|sign| state.ended(sign, pass(None), &RULES, now))
            .map(|c| (c.from, c.to, c.failures, c.generation))
            .collect();
        let (available, degraded, unavailable) = (
            Availability::Available,
            Availability::Degraded,
            Availability::Unavailable,
        );
        let expected = [
            (available, degraded, 1, 1),
            (degraded, unavailable, 3, 2),
            (unavailable, available, 4, 3),
        ];
        assert_eq!(changes, expected);
    }
}
