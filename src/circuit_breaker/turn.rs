//! The waits of a call at its breaker.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    breaker::{Breaker, Permit},
    probe::{Ping, PingFuture},
    window::Verdict,
};
use crate::{
    call::{CallInfo, ToolCall},
    kit::timer::Timer,
};

/// The wait of a call before it is sent.
pub(super) enum Turn {
    /// For the ping that is sent in its place.
    Ping(Pinging),
    /// For the verdict of a probe, until `latest`.
    Verdict {
        latest: Instant,
        woken: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    },
}

impl Turn {
    /// Waits until a breaker of the layer changes its state, or until the call should come back.
    pub(super) fn verdict(breaker: &Breaker, latest: Instant, retry_after: Duration) -> Self {
        let verdicts = Arc::clone(&breaker.circuit().shared.verdicts);
        let until = Instant::now().checked_add(retry_after);
        let until = until.map_or(latest, |until| until.min(latest));
        let woken = Box::pin(async move {
            let _ = tokio::time::timeout_at(until, verdicts.notified()).await;
        });
        Self::Verdict { latest, woken }
    }

    /// Ready once the call asks again whether it is admitted.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        breaker: &Breaker,
        info: &CallInfo,
    ) -> Poll<()> {
        match self {
            Self::Ping(pinging) => pinging.poll(cx, info),
            Self::Verdict { woken, .. } if breaker.is_waited_for() => woken.as_mut().poll(cx),
            Self::Verdict { .. } => Poll::Ready(()),
        }
    }
}

/// A ping, in the future of the call that waits for it. Dropped unfinished, it gives the probe's place back.
pub(super) struct Pinging {
    // In a mutex that is never locked, so that the future of the call is `Sync` although the ping need not be.
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

impl Breaker {
    /// The ping that this admission needs first, if it is that of a probe.
    #[inline]
    pub(super) fn ping_for(&self, is_probe: bool) -> Option<&Ping> {
        match is_probe {
            true => self.circuit().shared.ping.as_ref(),
            false => None,
        }
    }
}
