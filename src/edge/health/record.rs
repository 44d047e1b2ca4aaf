//! What watchers see of one server, and whether its calls are to be refused. Pure: `now` is an argument.

use std::sync::Arc;

use tokio::time::Instant;

use super::ServerHealth;
use crate::{
    event::availability::{Availability, AvailabilityChange, Reason},
    kit::registry::Keep,
};

/// How long after its last failure an unavailable server may not be forgotten, in seconds.
const FORGOTTEN: u64 = 3600;

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) availability: Availability,
    pub(super) reason: Option<Reason>,
    /// Failures in a row.
    pub(super) failures: u32,
    pub(super) since: Instant,
    failed_at: Instant,
    /// How often the availability has changed.
    generation: u64,
    scope: Scope,
}

/// What the failures since the last answer are evidence against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Nothing,
    /// Timeouts of this tool alone; `None` if its name was in no list.
    Tool(Option<u64>),
    Server,
}

impl Record {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            availability: Availability::Available,
            reason: None,
            failures: 0,
            since: now,
            failed_at: now,
            generation: 0,
            scope: Scope::Nothing,
        }
    }

    /// The record after an answer.
    pub(super) fn answered(self, now: Instant) -> Self {
        Self {
            reason: None,
            failures: 0,
            scope: Scope::Nothing,
            ..self.turned(Availability::Available, now)
        }
    }

    /// The record after a failure of a call of this tool.
    pub(super) fn failed(
        self,
        reason: Reason,
        tool: Option<u64>,
        is_only_tool: bool,
        threshold: u32,
        now: Instant,
    ) -> Self {
        let failures = self.failures.saturating_add(1);
        let availability = match failures >= threshold {
            true => Availability::Unavailable,
            false => Availability::Degraded,
        };
        let is_of_one_tool = reason == Reason::Timeout && !is_only_tool;
        let scope = match self.scope {
            Scope::Nothing if is_of_one_tool => Scope::Tool(tool),
            Scope::Tool(known)
                if is_of_one_tool && (known == tool || known.is_none() || tool.is_none()) =>
            {
                Scope::Tool(tool.or(known))
            }
            _ => Scope::Server,
        };
        Self {
            reason: Some(reason),
            failures,
            failed_at: now,
            scope,
            ..self.turned(availability, now)
        }
    }

    fn turned(self, availability: Availability, now: Instant) -> Self {
        let changes = availability != self.availability;
        Self {
            availability,
            since: if changes { now } else { self.since },
            generation: self.generation + u64::from(changes),
            ..self
        }
    }

    /// Whether there is evidence against the server, not only against one of its tools.
    pub(super) fn is_to_be_refused(&self) -> bool {
        self.availability == Availability::Unavailable && self.scope == Scope::Server
    }

    /// Whether watchers are notified.
    pub(super) fn is_news_after(&self, before: &Self) -> bool {
        (self.availability, self.reason) != (before.availability, before.reason)
    }

    /// What has changed since this earlier record.
    pub(super) fn change_since(
        &self,
        before: &Self,
        server: Option<&Arc<str>>,
    ) -> Option<AvailabilityChange> {
        (self.availability != before.availability).then(|| AvailabilityChange {
            server: server.cloned(),
            from: before.availability,
            to: self.availability,
            reason: self.reason,
            failures: self.failures.max(before.failures),
            generation: self.generation,
        })
    }

    pub(super) fn read(&self, server: Option<Arc<str>>, probe_at: Option<Instant>) -> ServerHealth {
        ServerHealth {
            server,
            state: self.availability,
            reason: self.reason,
            failures: self.failures,
            since: self.since,
            probe_at,
        }
    }

    pub(super) fn keep(&self, now: Instant) -> Keep {
        let recent = now.saturating_duration_since(self.failed_at).as_secs() < FORGOTTEN;
        match self.availability {
            Availability::Available => Keep::IfUsed,
            Availability::Unavailable if recent => Keep::Always,
            _ => Keep::IfPossible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Reason::{ConnectionFailed, Timeout};

    fn fail(record: Record, failures: &[(Reason, u64)], is_only_tool: bool) -> Record {
        failures.iter().fold(record, |record, &(reason, tool)| {
            record.failed(reason, Some(tool), is_only_tool, 3, record.since)
        })
    }

    fn fresh() -> Record {
        Record::new(Instant::now())
    }

    /// V5: one tool's timeouts are no evidence against its server, unless it is its only one.
    #[test]
    fn what_is_evidence_against_a_server() {
        let slow = (Timeout, 1);
        for (failures, refused) in [
            (vec![slow; 3], false),
            (vec![slow; 100], false),
            (vec![slow, slow, (Timeout, 2)], true),
            (vec![(Timeout, 2), slow, slow], true),
            (vec![slow, slow, (ConnectionFailed, 1)], true),
            (vec![(ConnectionFailed, 1), slow, slow], true),
            (vec![(ConnectionFailed, 1); 2], false),
        ] {
            let record = fail(fresh(), &failures, false);
            assert_eq!(record.is_to_be_refused(), refused, "{failures:?}");
            let is_marked = record.availability == Availability::Unavailable;
            assert_eq!(is_marked, failures.len() >= 3);
            let of_one_tool = fail(fresh(), &failures, true);
            assert_eq!(of_one_tool.is_to_be_refused(), is_marked);
        }
    }

    /// V5: a tool has no name of its own while its server's list is unread.
    #[test]
    fn a_tool_is_the_same_once_its_list_is_read() {
        let calls = [None, Some(1), Some(1), None, Some(1)];
        let fail = |record: Record, tool: &Option<u64>| {
            record.failed(Timeout, *tool, false, 3, record.since)
        };
        let one = calls.iter().fold(fresh(), fail);
        assert_eq!(one.availability, Availability::Unavailable);
        assert!(!one.is_to_be_refused());
        assert!(fail(one, &Some(2)).is_to_be_refused());
    }

    /// V5: evidence is collected anew after each answer.
    #[test]
    fn an_answer_ends_the_evidence() {
        let before = fail(fresh(), &[(Timeout, 1), (ConnectionFailed, 1)], false);
        let after = fail(before.answered(Instant::now()), &[(Timeout, 2); 3], false);
        assert_eq!(after.availability, Availability::Unavailable);
        assert!(!after.is_to_be_refused());
    }

    #[test]
    fn failures_do_not_overflow() {
        let full = Record {
            failures: u32::MAX,
            ..fresh()
        };
        let next = fail(full, &[(Timeout, 1)], false);
        assert_eq!(next.failures, u32::MAX);
        assert_eq!(next.availability, Availability::Unavailable);
    }
}
