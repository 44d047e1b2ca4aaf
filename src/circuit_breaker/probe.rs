//! The evidence that a tool works again, for a half-open breaker.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use crate::call::CallInfo;

/// The evidence that the tool works again, for a half-open breaker. See
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

    /// The next call that may run twice: its [replay safety](crate::ToolCall::replay_safety) is
    /// [`Safe`](crate::ReplaySafety::Safe), as an [identity layer](crate::identity) or the caller
    /// has written it on the call (what a retry policy alone knows is not seen). Others are refused
    /// meanwhile, and take no probe's place.
    ///
    /// A breaker whose calls are all of another kind is not open for ever: if no safe call has
    /// closed it within another open period, any call may be the probe. So a tool that cannot run
    /// twice, such as a payment, is refused for two periods instead of one.
    pub fn safe_calls() -> Self {
        Self(Kind::SafeCalls)
    }

    /// A ping instead of a call. The call that would be the probe has `ping` run first, in its own
    /// future: if that succeeds within `limit`, it counts as a successful probe, and the call goes
    /// on if the breaker is then closed. Else the call pings again, or is refused while the pings
    /// of other calls take all places. If it fails or is late, it counts as a failed probe, and the
    /// call is refused. Other calls are refused meanwhile, so at most
    /// [`with_probes`](super::CircuitBreakerBuilder::with_probes) pings run at a time, by
    /// default 1.
    ///
    /// No task is spawned: a breaker that is not called is not pinged. If the call is dropped,
    /// cancelled, or its deadline passes, its ping is dropped without a verdict, and the next call
    /// pings. After five pings without a verdict in a row, calls pass without one, as after [other
    /// probes](super#cancel-safety). A panic of `ping` is the call's, without a verdict.
    ///
    /// `ping` gets the names of the call, to know which server or tool it is about, and must not
    /// block. Its result alone matters: every error is a failure. Choose one that fails only if the
    /// tool cannot be called. `limit` is at most the
    /// [lease](super::CircuitBreakerBuilder::with_probe_lease) of a probe.
    pub fn ping<F, Fut, T, E>(limit: Duration, ping: F) -> Self
    where
        F: Fn(&CallInfo) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let send = Arc::new(move |call: &CallInfo| -> BoxFuture<'static, bool> {
            let sent = ping(call);
            Box::pin(async move { sent.await.is_ok() })
        });
        Self(Kind::Ping(Ping { send, limit }))
    }
}

type PingFn = dyn Fn(&CallInfo) -> BoxFuture<'static, bool> + Send + Sync;

/// The user's ping.
#[derive(Clone)]
pub(super) struct Ping {
    /// True if the tool can be called.
    pub(super) send: Arc<PingFn>,
    pub(super) limit: Duration,
}

crate::text::debug_fields! { {} |_| Ping { limit, .. } }
