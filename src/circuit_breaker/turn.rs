//! The waits of a call at its breaker.

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    breaker::{Breaker, Permit},
    circuit::Circuit,
    probe::{Ping, PingFuture},
    window::Verdict,
};
use crate::{
    call::{CallInfo, ToolCall},
    kit::timer::Timer,
};

/// The waits of a call before it is sent.
#[derive(Default)]
pub(super) struct Turn {
    /// The end of the waits for verdicts, once one has begun.
    pub(super) latest: Option<Instant>,
    pub(super) wait: Option<Wait>,
}

pub(super) enum Wait {
    /// For the ping that is sent in its place.
    Ping(Pinging),
    /// For the verdict of a probe.
    Verdict(Pin<Box<dyn Future<Output = ()> + Send + Sync>>),
}

impl Wait {
    /// Waits until a half-open breaker may admit the call, or has another state; `latest` at most.
    pub(super) fn verdict(breaker: Breaker, may_probe: bool, latest: Instant) -> Self {
        Self::Verdict(Box::pin(async move {
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
                _ = tokio::time::timeout_at(until, verdict).await;
            }
        }))
    }
}

impl Turn {
    /// Ready once the call asks again whether it is admitted.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, info: &CallInfo) -> Poll<()> {
        ready!(match &mut self.wait {
            Some(Wait::Ping(pinging)) => pinging.poll(cx, info),
            Some(Wait::Verdict(ended)) => ended.as_mut().poll(cx),
            None => Poll::Ready(()),
        });
        self.wait = None;
        Poll::Ready(())
    }
}

/// A ping, in the future of the call that waits for it. Dropped unfinished, it gives the probe's
/// place back.
pub(super) struct Pinging {
    // In a mutex that is never locked, so that the future of the call is `Sync` although the ping
    // need not be.
    ping: Mutex<PingFuture>,
    limit: Duration,
    timer: Timer,
    permit: Permit,
}

impl Pinging {
    #[cold]
    pub(super) fn new(ping: &Ping, permit: Permit, call: &ToolCall) -> Self {
        Self {
            ping: Mutex::new((ping.send)(&call.info())),
            limit: ping.limit,
            timer: Timer::default(),
            permit,
        }
    }

    /// Ready once the ping has counted.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, info: &CallInfo) -> Poll<()> {
        let ping = self.ping.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The ping first: a tie is a success.
        let verdict = match ping.as_mut().poll(cx) {
            Poll::Ready(true) => Verdict::SUCCESS,
            Poll::Ready(false) => Verdict::FAILURE,
            Poll::Pending => {
                let limit = self.limit;
                ready!(self.timer.poll(cx, || Instant::now().checked_add(limit)));
                Verdict::FAILURE
            }
        };
        self.permit.end_ping(verdict, info);
        Poll::Ready(())
    }
}
