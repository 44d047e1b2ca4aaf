//! The operations of breakers for a health registry.

use std::{
    mem,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::sync::watch;

use super::{
    breaker::Breaker,
    cell::Kept,
    state::{Machine, Pass, SERVER},
    window::Verdict,
};
use crate::{
    call::CallInfo,
    error::Outage,
    event::{
        Event,
        availability::{Availability, AvailabilityChange, Reason, ServerHealth},
        transition::{BreakerState, TransitionReason},
    },
};

/// In place of the hash of a tool: its server's list was not read.
const UNLISTED: u64 = 0;
/// In place of the hash of a tool: more than one is known.
const SEVERAL: u64 = u64::MAX;

/// The effect of a call's end on the availability of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Answer,
    Failure(Reason),
    Nothing,
}

impl Breaker {
    /// Returns whether the keys beyond the bound share this breaker.
    pub(crate) fn is_overflow(&self) -> bool {
        self.0.is_overflow()
    }

    /// Returns when to come back, if a call would be refused. Admits nothing.
    #[inline]
    pub(crate) fn refuses(&self) -> Option<Duration> {
        let refused = self.circuit().refuses(None, || true);
        refused.map(|refused| refused.retry_after)
    }

    /// Admits a call, or returns when to come back.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Pass, Duration> {
        let passes = self.admit_call(None);
        passes.map_or_else(|refused| Err(refused.retry_after), |it| Ok(it.pass))
    }

    /// Records that a call has succeeded: there is the server, and this tool of it. Returns whether
    /// that changes nothing else.
    #[inline]
    pub(crate) fn succeeded(&self, pass: Pass, call: &CallInfo) -> bool {
        self.0.prove(call);
        let circuit = self.circuit();
        let tool = circuit.tool.load(Relaxed);
        if tool != SEVERAL && tool != call.tool_hash() {
            self.learn(call);
        }
        circuit.cell.ignores(pass, Some(Verdict::SUCCESS))
    }

    #[cold]
    fn learn(&self, call: &CallInfo) {
        let (known, tool) = (&self.circuit().tool, call.tool_hash());
        match known.load(Relaxed) {
            _ if call.listed_tool().is_none() => {}
            0 => known.store(tool, Relaxed),
            first if first == tool => {}
            _ => known.store(SEVERAL, Relaxed),
        }
    }

    /// Returns what a timeout of this call is evidence against: the tool, or the server if no other
    /// tool of it is known.
    pub(crate) fn suspect(&self, call: &CallInfo, has_more: bool) -> u64 {
        let (known, tool) = (self.circuit().tool.load(Relaxed), call.tool_hash());
        match call.listed_tool() {
            None => UNLISTED,
            Some(_) if !has_more && (known == 0 || known == tool) => SERVER,
            Some(_) => tool,
        }
    }

    /// Records the end of a call. A failure is evidence against a tool, or [`SERVER`]; if against
    /// nothing, it marks the server and never opens the breaker. Returns whether there is news for
    /// watchers of all servers.
    pub(crate) fn end_visit(
        &self,
        (pass, call): (Pass, &CallInfo),
        sign: Sign,
        against: Option<u64>,
        outage: Option<&Outage>,
    ) -> bool {
        let (change, has_changed) = self.circuit().with(|kept| {
            let machine = &mut kept.machine;
            // The time of a probe changes when one ends, or when calls begin to be refused.
            let news = |machine: &Machine| (machine.failed_with, machine.probe_at().is_some());
            let ((from, before), known) = (machine.availability(), news(machine));
            match sign {
                Sign::Answer => machine.answered(),
                Sign::Failure(reason) if pass.generation == machine.generation => {
                    let kept = (machine.blamed, machine.failed_with, machine.failures);
                    machine.blame(against.unwrap_or(UNLISTED));
                    machine.failed_with = Some(reason);
                    machine.record(pass, Some(Verdict::FAILURE), outage);
                    if machine.failures == kept.2 {
                        // Part of an outage that has counted.
                        (machine.blamed, machine.failed_with) = (kept.0, kept.1);
                    }
                }
                Sign::Failure(_) => {}
                Sign::Nothing => _ = machine.record(pass, None, None),
            }
            let (to, failures) = machine.availability();
            let has_changed = from != to || pass.is_probe() || known != news(machine);
            let change = (from != to).then(|| {
                machine.changes += 1;
                machine.since = machine.now;
                AvailabilityChange {
                    server: self.server().map(Arc::from),
                    from,
                    to,
                    reason: machine.failed_with,
                    failures: failures.max(before),
                    generation: machine.changes,
                }
            });
            (change, has_changed)
        });
        if let Some(change) = &change {
            let listener = &self.circuit().shared.listener;
            listener.tell(&Event::Health { change, call });
        }
        has_changed
    }

    /// Watches the health of the server, which is not evicted as long as it is watched.
    pub(crate) fn watch(&self) -> watch::Receiver<ServerHealth> {
        let make = || watch::Sender::new(self.health());
        let watchers = self.circuit().watchers.get_or_init(make);
        self.publish();
        watchers.subscribe()
    }

    /// Notifies the watchers. The value is read under the sender's lock, so that the last one sent
    /// is the latest. Sending waits for receivers that borrow the value, and wakes tasks: no lock
    /// may be held.
    pub(crate) fn publish(&self) {
        if let Some(watchers) = self.circuit().watchers.get() {
            watchers.send_if_modified(|seen| {
                let before = mem::replace(seen, self.health());
                before.news() != seen.news()
            });
        }
    }

    /// Returns the health of the server. Makes no machine.
    pub(crate) fn health(&self) -> ServerHealth {
        let origin = self.circuit().shared.origin;
        let seen = self.circuit().peek(|Kept { machine, .. }| {
            let probe_at = machine.probe_at();
            let (reason, since) = (machine.failed_with, machine.since);
            (machine.availability(), reason, since, probe_at)
        });
        let ((state, failures), reason, since, probe_at) = seen.unwrap_or_default();
        ServerHealth {
            server: self.server().map(Arc::from),
            state,
            reason,
            failures,
            since: origin + since,
            probe_at: probe_at.and_then(|at| origin.checked_add(at)),
        }
    }
}

impl Machine {
    /// Returns the availability of a server, and its failures in a row.
    fn availability(&mut self) -> (Availability, u32) {
        match self.state {
            BreakerState::Open | BreakerState::HalfOpen => (
                Availability::Unavailable,
                self.tripped.failures.saturating_add(self.failed_probes),
            ),
            _ => match self.window.tally(self.now).failures {
                0 => (Availability::Available, 0),
                failures if self.is_overdue() => (Availability::Unavailable, failures),
                failures => (Availability::Degraded, failures),
            },
        }
    }

    /// Returns whether it would be open if its failures were evidence against the server.
    pub(super) fn is_overdue(&mut self) -> bool {
        let is_spared = self.blamed.is_some_and(|blamed| blamed != SERVER);
        is_spared && self.window.verdict(&self.rules.trip, self.now).is_some()
    }

    /// Closes the breaker after an answer, whenever its call began. Failures of calls that began
    /// before are stale.
    fn answered(&mut self) {
        if !self.is_as_new() {
            self.force(BreakerState::Closed, TransitionReason::Forced);
        }
    }

    /// Adds to what the failures since the last answer are evidence against.
    fn blame(&mut self, tool: u64) {
        self.blamed = match (self.blamed, tool) {
            (None | Some(UNLISTED), tool) => Some(tool),
            (known, UNLISTED) => known,
            (Some(known), tool) if known == tool => Some(tool),
            _ => Some(SERVER),
        };
    }
}

#[cfg(all(test, not(toolcall_loom)))]
mod tests {
    use super::*;

    /// V5: the timeouts of one tool are evidence against the tool alone. A tool has no name of its
    /// own while the list of its server was not read.
    #[test]
    fn failures_are_evidence_against_the_server_or_one_tool() {
        for (blamed, expected) in [
            (&[1, 1, 1][..], 1),
            (&[UNLISTED, 1, UNLISTED, 1], 1),
            (&[UNLISTED, UNLISTED], UNLISTED),
            (&[1, 1, 2], SERVER),
            (&[1, SERVER, 1], SERVER),
            (&[SERVER, UNLISTED], SERVER),
        ] {
            let mut machine = Machine::new(BreakerState::Closed, &Arc::default());
            blamed.iter().for_each(|tool| machine.blame(*tool));
            assert_eq!(machine.blamed, Some(expected), "{blamed:?}");
        }
    }
}
