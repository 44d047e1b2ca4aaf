//! What shows a half-open breaker whether a tool works again.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    handle::{Breaker, Permit},
    window::Verdict,
};
use crate::{
    call::{CallInfo, ToolCall},
    kit::timer::Timer,
};

/// What shows a half-open breaker whether the tool works again. See
/// [`with_probe`](super::CircuitBreakerBuilder::with_probe).
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceExt, service_fn};
/// use tower_toolcall::{
///     AnyError, ToolCall,
///     circuit_breaker::{CircuitBreakerLayer, Probe},
/// };
///
/// # fn main() -> Result<(), tower_toolcall::ConfigError> {
/// // A payment is no probe.
/// let safe = CircuitBreakerLayer::builder().with_probe(Probe::safe_calls()).build()?;
///
/// // Any service can be the ping: an HTTP client, a tool that does nothing.
/// let health = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("pong") });
/// let ping =
///     Probe::ping(Duration::from_secs(5), move |_call| health.oneshot(ToolCall::new("health")));
/// let pinged = CircuitBreakerLayer::builder().with_probe(ping).build()?;
/// # let _ = (safe, pinged); Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Probe(pub(super) Kind);

#[derive(Clone, Debug, Default)]
pub(super) enum Kind {
    #[default]
    AnyCall,
    SafeCalls,
    Ping(Ping),
}

impl Probe {
    /// The next call, whatever it is. The default.
    pub fn any_call() -> Self {
        Self(Kind::AnyCall)
    }

    /// The next call that may run twice: its [replay safety](ToolCall::replay_safety) is
    /// [`Safe`](crate::ReplaySafety::Safe), as an [identity layer](crate::identity) or the caller has written it on the call
    /// (what a retry policy alone knows is not seen). Others are refused meanwhile, and take no probe's place.
    ///
    /// A breaker whose calls are all of another kind is not open for ever: if no safe call has closed it within another open
    /// period, any call may be the probe. So a tool that cannot run twice, such as a payment, is refused for two periods instead
    /// of one.
    pub fn safe_calls() -> Self {
        Self(Kind::SafeCalls)
    }

    /// A ping instead of a call. The call that would be the probe has `ping` run first, in its own future: if that succeeds
    /// within `limit`, it counts as a successful probe, and the call goes on if the breaker is then closed. Else the call pings
    /// again, or is refused while the pings of other calls take all places. If it fails or is late, it counts as a failed probe, and the call is refused. Other calls are refused meanwhile,
    /// so at most [`with_probes`](super::CircuitBreakerBuilder::with_probes) pings run at a time, by default 1.
    ///
    /// No task is spawned: a breaker that is not called is not pinged. If the call is dropped, cancelled, or
    /// its deadline passes, its ping is dropped without a verdict, and the next call pings. After five pings without a verdict in
    /// a row, calls pass without one, as after [other probes](super#cancel-safety). A panic of `ping` is the call's, without a verdict.
    ///
    /// `ping` gets the names of the call, to know which server or tool it is about, and must not block. Its result alone matters:
    /// every error is a failure. Choose one that fails only if the tool cannot be called. `limit` is at most the
    /// [lease](super::CircuitBreakerBuilder::with_probe_lease) of a probe.
    pub fn ping<F, Fut, T, E>(limit: Duration, ping: F) -> Self
    where
        F: Fn(&CallInfo) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let send = Arc::new(move |call: &CallInfo| -> PingFuture {
            let sent = ping(call);
            Box::pin(async move { sent.await.is_ok() })
        });
        Self(Kind::Ping(Ping { send, limit }))
    }
}

/// True if the tool can be called.
type PingFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

/// The user's ping.
#[derive(Clone)]
pub(super) struct Ping {
    send: Arc<dyn Fn(&CallInfo) -> PingFuture + Send + Sync>,
    pub(super) limit: Duration,
}

impl fmt::Debug for Ping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ping")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

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
