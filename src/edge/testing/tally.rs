//! What became of the calls of a scripted tool.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::MAX_CALLS;
use crate::call::ToolCall;

/// Nothing that is locked here can be left half-way by a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The first [`MAX_CALLS`], and when they came.
    pub(super) calls: Vec<(ToolCall, Instant)>,
    pub(super) count: u64,
    pub(super) in_flight: usize,
    pub(super) most_in_flight: usize,
    pub(super) cancelled: u64,
}

impl Tally {
    /// Which call it is, from 1.
    pub(super) fn record(&mut self, call: &ToolCall) -> u64 {
        self.count += 1;
        if self.calls.len() < MAX_CALLS {
            self.calls.push((call.copy(), Instant::now()));
        }
        self.count
    }
}

/// A response future, as long as it exists.
#[derive(Debug)]
pub(super) struct Running {
    tally: Arc<Mutex<Tally>>,
    has_ended: bool,
}

impl Running {
    pub(super) fn begin(tally: &Arc<Mutex<Tally>>) -> Self {
        let mut now = lock(tally);
        now.in_flight += 1;
        now.most_in_flight = now.most_in_flight.max(now.in_flight);
        drop(now);
        Self {
            tally: Arc::clone(tally),
            has_ended: false,
        }
    }

    /// The call has a result, or panics now: it is not cancelled.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut tally = lock(&self.tally);
        tally.in_flight -= 1;
        tally.cancelled += u64::from(!self.has_ended);
    }
}
