//! What is known of one server. Pure: `now` is an argument.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::error::{ErrorKind, ToolError};

/// Whether a server is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Availability {
    /// For all that is known, it is.
    #[default]
    Available,
    /// The last calls timed out or did not reach it, but not as many as it takes.
    Degraded,
    /// It is not.
    Unavailable,
}

/// Why a server is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The last call timed out.
    Timeout,
    /// The last call did not reach it, or lost its connection.
    ConnectionFailed,
}

/// What a call's end says of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Answer,
    Failure(Reason),
    Nothing,
}

impl Sign {
    pub(super) fn of<Res>(result: Result<&Res, &ToolError>) -> Self {
        let Err(error) = result else {
            return Self::Answer;
        };
        if error.is_own_refusal() {
            return Self::Nothing;
        }
        match error.kind() {
            ErrorKind::Timeout => Self::Failure(Reason::Timeout),
            ErrorKind::ConnectionFailed => Self::Failure(Reason::ConnectionFailed),
            ErrorKind::Failed
            | ErrorKind::Reported
            | ErrorKind::Upstream
            | ErrorKind::RateLimited
            | ErrorKind::PollTimeout => Self::Answer,
            // A layer or a leaf of this side may have said so.
            ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::Denied
                if error.status().is_some() || std::error::Error::source(error).is_some() =>
            {
                Self::Answer
            }
            _ => Self::Nothing,
        }
    }
}

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

#[derive(Debug)]
pub(super) struct State {
    pub(super) availability: Availability,
    pub(super) reason: Option<Reason>,
    /// Failures in a row.
    pub(super) failures: u32,
    pub(super) since: Instant,
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

    fn guards(&self, rules: &Rules) -> bool {
        rules.refuses && self.availability == Availability::Unavailable
    }

    /// A call has ended. Returns whether the state is another one.
    pub(super) fn ended(
        &mut self,
        sign: Sign,
        probe: Option<u64>,
        rules: &Rules,
        now: Instant,
    ) -> bool {
        let before = (self.availability, self.reason);
        let was_the_probe = self.probing && probe == Some(self.probes);
        if was_the_probe {
            self.probing = false;
            // The next call is another one, unless this one says something.
            self.next = Some(now);
        }
        match sign {
            Sign::Nothing => {}
            Sign::Answer => {
                self.failures = 0;
                self.reason = None;
                self.availability = Availability::Available;
                self.probing = false;
            }
            Sign::Failure(reason) => {
                self.failures = self.failures.saturating_add(1);
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
        if before.0 != self.availability {
            self.since = now;
        }
        before != (self.availability, self.reason)
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

    fn unavailable(now: Instant) -> State {
        let mut state = State::new(now);
        for _ in 0..3 {
            state.ended(TIMEOUT, None, &RULES, now);
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
        assert!(!state.ended(Sign::Nothing, Some(1), &RULES, at));
        assert_eq!(state.admit(&RULES, at), Admission::Probe(2));
        // Failed: after another period.
        state.ended(TIMEOUT, Some(2), &RULES, at);
        assert_eq!(state.admit(&RULES, at), Admission::Refused(secs(30)));
        // Hangs: another one after a period, and what it says then is not the probe's word.
        let at = at + secs(30);
        assert_eq!(state.admit(&RULES, at), Admission::Probe(3));
        let at = at + secs(30);
        assert_eq!(state.admit(&RULES, at), Admission::Probe(4));
        state.ended(Sign::Nothing, Some(3), &RULES, at);
        assert_eq!(state.admit(&RULES, at), Admission::Refused(secs(1)));
        assert!(state.ended(Sign::Answer, Some(4), &RULES, at));
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
        state.ended(TIMEOUT, None, &RULES, now + secs(29));
        assert_eq!(state.admit(&RULES, now + secs(30)), Admission::Probe(1));
        assert_eq!(state.since, now);
    }

    #[test]
    fn what_an_end_says_of_the_server() {
        let sign = |kind| Sign::of::<()>(Err(&ToolError::new(kind, "")));
        assert_eq!(Sign::of(Ok(&())), Sign::Answer);
        for &kind in ErrorKind::ALL {
            let expected = match kind {
                ErrorKind::Timeout => TIMEOUT,
                ErrorKind::ConnectionFailed => Sign::Failure(Reason::ConnectionFailed),
                ErrorKind::Failed
                | ErrorKind::Reported
                | ErrorKind::Upstream
                | ErrorKind::RateLimited
                | ErrorKind::PollTimeout => Sign::Answer,
                _ => Sign::Nothing,
            };
            assert_eq!(sign(kind), expected, "{kind:?}");
        }
        let refused = ToolError::new(ErrorKind::ConnectionFailed, "").into_own_refusal();
        assert_eq!(Sign::of::<()>(Err(&refused)), Sign::Nothing);
        let told = ToolError::from_status(http::StatusCode::NOT_FOUND, "");
        assert_eq!(Sign::of::<()>(Err(&told)), Sign::Answer);
    }
}
