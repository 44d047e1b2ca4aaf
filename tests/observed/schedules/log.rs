//! What happens, in its order.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use tower_toolcall::{ErrorKind, Execution, retry::RetryRefusal};

/// Of a call, by its number; of an operator there is none.
pub(crate) type Call = Option<usize>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    Answered,
    /// With an answer that is an error in the tool's own words.
    Reported,
    Failed(ErrorKind),
    /// The tool's server turned it away, and asks to wait.
    TurnedAway(Duration),
    Panicked,
    Dropped,
}

#[allow(dead_code, reason = "some of it is only printed")]
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A caller has made a call.
    Begun,
    /// It has passed the quota, or the gate of the rate limit.
    PassedQuota,
    PassedGate,
    /// The tool is called.
    Run {
        run: u64,
        attempt: u32,
        /// The time that the tool has.
        until: Option<Duration>,
    },
    /// The tool has done what it does.
    Effect,
    Ended {
        run: u64,
        how: How,
    },
    /// The tool has failed to become ready; and a call has met that.
    NotReady,
    Unready,
    Retry,
    RetryRefused(RetryRefusal),
    Breaker {
        from: String,
        to: String,
        reason: String,
    },
    /// An operator has a breaker begin afresh.
    Reset,
    /// Or a gate closed, or opened.
    Cooled(Duration),
    Cleared,
    Cancelled,
    Jumped(Duration),
    Answer(u64),
    Error {
        kind: ErrorKind,
        code: String,
        execution: Execution,
        attempts: u32,
    },
    /// So many attempts are reported by the result, the error or the span of a call.
    Attempts(&'static str, u32),
    /// The caller has dropped the call.
    Dropped,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) call: Call,
    pub(crate) tool: &'static str,
    pub(crate) what: What,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call.map_or("-".to_owned(), |call| call.to_string());
        let at = self.at.as_secs_f64();
        write!(f, "{at:>9.3} {call:>3} {:9} {:?}", self.tool, self.what)
    }
}

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    since: Option<Instant>,
    entries: Vec<Entry>,
}

impl Log {
    pub(crate) fn add(&self, call: Call, tool: &str, what: What) {
        let tool = super::plan::TOOLS.iter().find(|known| **known == tool);
        let mut inner = self.0.lock().unwrap();
        let now = Instant::now();
        let at = now - *inner.since.get_or_insert(now);
        inner.entries.push(Entry {
            at,
            call,
            tool: tool.copied().unwrap_or("-"),
            what,
        });
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.0.lock().unwrap().entries.clone()
    }

    /// The time of a moment.
    pub(crate) fn at(&self, moment: Instant) -> Duration {
        let since = self.0.lock().unwrap().since;
        since.map_or(Duration::ZERO, |since| moment - since)
    }
}
