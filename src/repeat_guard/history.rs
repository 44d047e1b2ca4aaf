//! The last calls of one principal, and how they ended. Pure: hashes and the time are arguments.

use std::time::Duration;

/// How many different calls are remembered.
pub(super) const MEMORY: usize = 8;

/// From when on a call that fails is refused, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How often in a row.
    pub(super) failures: u32,
    pub(super) window: Duration,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With this hash of the answer; 0 if it is not compared.
    Success(u64),
    /// With this hash of the error.
    Failure(u64),
}

/// One call, as often as it was made.
#[derive(Debug)]
struct Past {
    call: u64,
    ending: Ending,
    /// How often it ended so in a row; 0 once something else has succeeded since.
    times: u32,
    /// When it last ended, or was let through although it had failed too often.
    at: Duration,
    /// Why it failed, for the model: of a call that is refused now.
    why: Option<Box<str>>,
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    /// How often it has failed.
    pub(super) times: u32,
    /// The time after which it is let through again.
    pub(super) wait: Duration,
    pub(super) why: Option<Box<str>>,
}

/// The last different calls, the latest first.
#[derive(Debug, Default)]
pub(super) struct History(Vec<Past>);

impl Past {
    fn fails_too_often(&self, limits: Limits) -> bool {
        self.times >= limits.failures && self.has_failed()
    }

    fn has_failed(&self) -> bool {
        matches!(self.ending, Ending::Failure(_))
    }

    /// Returns the rest of its window.
    fn left(&self, now: Duration, limits: Limits) -> Option<Duration> {
        let left = (self.at + limits.window).saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }
}

impl History {
    fn position(&self, call: u64) -> Option<usize> {
        self.0.iter().position(|past| past.call == call)
    }

    /// Lets the call through, or refuses it. The clock is read only if the call is known. Changes
    /// nothing unless the call `is_sent`.
    ///
    /// Of a call that has failed too often one is let through in each window, however many are
    /// asked for.
    pub(super) fn admit(
        &mut self,
        call: u64,
        now: impl FnOnce() -> Duration,
        limits: Limits,
        is_sent: bool,
    ) -> Result<(), Repeated> {
        let Some(at) = self.position(call) else {
            return Ok(());
        };
        let (past, now) = (&mut self.0[at], now());
        match (past.left(now, limits), past.fails_too_often(limits)) {
            (Some(wait), true) => {
                let (times, why) = (past.times, past.why.clone());
                return Err(Repeated { times, wait, why });
            }
            (None, true) if is_sent => past.at = now,
            // Too long ago to be repeated.
            (None, false) if is_sent => drop(self.0.remove(at)),
            _ => {}
        }
        Ok(())
    }

    /// Records the end of a call. Returns how often it ended so in a row, and whether that is
    /// another end than the last known one.
    fn record(&mut self, call: u64, ending: Ending, now: Duration) -> (&mut Past, bool) {
        let known = self.position(call).map(|at| self.0.remove(at));
        let same = known.filter(|past| past.ending == ending);
        let differs = same.is_none();
        let fresh = Past {
            call,
            ending,
            times: 0,
            at: now,
            why: None,
        };
        self.0.truncate(MEMORY - 1);
        self.0.insert(0, same.unwrap_or(fresh));
        let past = &mut self.0[0];
        past.at = now;
        past.times = past.times.saturating_add(1);
        (past, differs)
    }

    /// The call has failed. `why` is asked for once it is refused.
    pub(super) fn failed(
        &mut self,
        call: u64,
        error: u64,
        now: Duration,
        limits: Limits,
        why: impl FnOnce() -> Option<Box<str>>,
    ) {
        let (past, _) = self.record(call, Ending::Failure(error), now);
        if past.fails_too_often(limits) {
            past.why = why();
        }
    }

    /// The call has succeeded. Returns how often in a row, whenever that is another multiple of the
    /// limit.
    ///
    /// A success that is news, of a call that is not known or did not end with this answer the last
    /// time, may have changed what all others depend on, or shows that it has changed: they are
    /// counted anew.
    pub(super) fn succeeded(
        &mut self,
        call: u64,
        answer: u64,
        now: Duration,
        limits: Limits,
    ) -> Option<u32> {
        let (past, is_news) = self.record(call, Ending::Success(answer), now);
        let times = past.times;
        if is_news {
            for other in &mut self.0[1..] {
                (other.times, other.why) = (0, None);
            }
        }
        (limits.failures > 1 && times.is_multiple_of(limits.failures)).then_some(times)
    }

    /// Returns whether it would be a loss to forget it: a call has failed of late.
    pub(super) fn matters(&self, now: Duration, limits: Limits) -> bool {
        let matters =
            |past: &Past| past.has_failed() && past.times > 0 && past.left(now, limits).is_some();
        self.0.iter().any(matters)
    }
}

#[cfg(test)]
mod tests;
