//! The waits of a call at its breaker.

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    breaker::{Breaker, Permit},
    circuit::Circuit,
    probe::PingFuture,
    window::Verdict,
};
use crate::call::CallInfo;

/// The waits of a call before it is sent.
#[derive(Default)]
pub(super) struct Turn {
    /// The end of the waits for verdicts, once one has begun.
    pub(super) latest: Option<Instant>,
    // In a mutex that is never locked, so that the future of the call is `Sync` although a ping
    // need not be.
    wait: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Turn {
    /// Begins a wait. Dropped unfinished, a ping gives the probe's place back.
    pub(super) fn begin(&mut self, wait: impl Future<Output = ()> + Send + 'static) {
        self.wait = Mutex::new(Some(Box::pin(wait)));
    }

    /// Ready once the call asks again whether it is admitted.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wait = self.wait.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(waits) = wait {
            ready!(waits.as_mut().poll(cx));
            *wait = None;
        }
        Poll::Ready(())
    }
}

/// Waits until a half-open breaker may admit the call, or has another state; `latest` at most.
pub(super) async fn verdict(breaker: Breaker, may_probe: bool, latest: Instant) {
    let Circuit { cell, shared, .. } = breaker.circuit();
    let next = || {
        let (now, rules) = (shared.now(), shared.rules());
        cell.peek(|kept| kept.machine.next_verdict(now, may_probe, rules))
    };
    while let Some(Some((verdict, rest))) = next() {
        let now = Instant::now();
        if now >= latest {
            return;
        }
        let until = now.checked_add(rest).map_or(latest, |at| at.min(latest));
        _ = timeout_at(until, verdict).await;
    }
}

/// Waits for the ping that is sent in place of a call, and counts its end.
pub(super) async fn ping(sent: PingFuture, limit: Duration, mut permit: Permit, call: CallInfo) {
    // A tie is a success.
    let verdict = match timeout(limit, sent).await {
        Ok(true) => Verdict::SUCCESS,
        _ => Verdict::FAILURE,
    };
    permit.end_ping(verdict, &call);
}
