//! C8: circuit breakers whose states are shared between processes, here several fleets' worth of
//! them in one.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod fleet;
mod limits;
mod operators;
mod schedules;
#[cfg(feature = "settings")]
mod settings;
mod store;

use std::time::Duration;

use tokio::task::JoinHandle;
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    circuit_breaker::{Breaker, BreakerState, CircuitBreakerHandle, CircuitBreakerLayer},
    rate_limit::{RateLimitBackoffLayer, RateLimitHandle},
};
use tower_toolcall_redis::{SharedHandle, SharedState};

use store::Link;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Time for every process to hear of what was written.
async fn settle() {
    tokio::time::sleep(millis(50)).await;
}

/// A process of a fleet.
struct Process {
    breakers: CircuitBreakerHandle,
    limits: RateLimitHandle,
    layer: RateLimitBackoffLayer,
    shared: SharedHandle,
    link: Link,
    mirror: JoinHandle<()>,
}

impl Process {
    /// Its breakers open for 60 s after five failures.
    fn start(link: Link) -> Self {
        Self::with(link, &CircuitBreakerLayer::new())
    }

    fn with(link: Link, breakers: &CircuitBreakerLayer) -> Self {
        Self::with_resync(link, breakers, secs(1))
    }

    fn with_resync(link: Link, breakers: &CircuitBreakerLayer, resync: Duration) -> Self {
        let breakers = breakers.handle();
        let layer = RateLimitBackoffLayer::new();
        let limits = layer.handle();
        let shared = SharedState::new(link.clone())
            .with_resync(resync)
            .and_then(|shared| shared.breakers("tools", &breakers))
            .and_then(|shared| shared.rate_limits("limits", &limits))
            .unwrap();
        let handle = shared.handle();
        Self {
            breakers,
            limits,
            layer,
            shared: handle,
            link,
            mirror: tokio::spawn(shared.run()),
        }
    }

    fn breaker(&self, tool: &str) -> Breaker {
        self.breakers.breaker(&ToolCall::new(tool).with_server("s"))
    }

    fn fails(&self, tool: &str) {
        for _ in 0..5 {
            self.breaker(tool).record_failure();
        }
    }

    /// Whether a call is let through; its result, if it is.
    fn calls(&self, tool: &str, succeeds: bool) -> bool {
        match self.breaker(tool).admit() {
            Ok(permit) if succeeds => permit.success(),
            Ok(permit) => drop(permit.failure()),
            Err(_) => return false,
        }
        true
    }

    fn state(&self, tool: &str) -> BreakerState {
        self.breaker(tool).state()
    }

    fn left(&self, tool: &str) -> Duration {
        self.breaker(tool)
            .snapshot()
            .retry_after
            .unwrap_or_default()
    }

    /// It ends without a word, as if it were killed.
    fn killed(self) {
        self.mirror.abort();
    }
}

/// A fleet of processes on one store that all know of each other.
async fn fleet<const N: usize>() -> [Process; N] {
    let store = Link::new();
    let fleet = std::array::from_fn(|_| Process::start(store.another()));
    settle().await;
    tokio::time::sleep(secs(1)).await;
    fleet
}

fn refused() -> ToolError {
    ToolError::new(ErrorKind::ConnectionFailed, "the store is gone")
}
