use std::time::Duration;

use tokio::time::Instant;
use tower_layer::Layer;

use super::bounded::Deadline;
use crate::call::{CallExt, Claim, ToolCall};
use crate::config::ConfigError;

/// Layer that ends calls at their deadline. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct DeadlineLayer {
    pub(super) settings: Settings,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) budget: Option<Duration>,
    reserve: Duration,
    pub(super) drain: Option<Duration>,
}

impl Settings {
    /// Returns the moment by which a call that comes `now` must have ended. `None`: no limit that a
    /// clock reaches.
    #[inline]
    pub(super) fn limit(&self, now: Instant, call: &mut ToolCall) -> Option<Instant> {
        let own = self.budget.and_then(|budget| now.checked_add(budget));
        if call.deadline().is_some() {
            self.inherited(own, now, call);
        } else if let Some(at) = own {
            call.tighten(at);
        }
        call.deadline()
    }

    /// Tightens the deadline that a call brings along.
    #[inline(never)]
    fn inherited(&self, own: Option<Instant>, now: Instant, call: &mut ToolCall) {
        // The owner of a drained deadline ends the call itself, so a reserve would only cut it
        // short.
        let is_ours = !self.reserve.is_zero() && !call.is_claimed(Claim::Drain);
        // A layer without a reserve leaves this to the next one.
        if is_ours && !call.take_reserved() {
            call.reserve(self.reserve, now);
        }
        if let Some(own) = own {
            call.tighten(own);
        }
    }
}

impl DeadlineLayer {
    /// Makes a layer that gives each call `budget` for the inner layers and the tool.
    ///
    /// A zero budget starts no call; [`Duration::MAX`] means no budget.
    pub fn new(budget: Duration) -> Self {
        Self::with_budget(Some(budget))
    }

    /// Makes a layer without its own budget: it enforces the deadline that a call brings along, and
    /// watches the caller's token. The [reserve](Self::with_reserve) is kept as well: with the
    /// default reserve, a call is not started if its deadline, set in this process, is at most 500
    /// ms away.
    pub fn inherited() -> Self {
        Self::with_budget(None)
    }

    fn with_budget(budget: Option<Duration>) -> Self {
        Self {
            settings: Settings {
                budget,
                reserve: Duration::from_millis(500),
                drain: None,
            },
        }
    }

    /// Sets the reserve that is kept back from an outer deadline, so that its owner can finish in
    /// time. Default 500 ms.
    ///
    /// From a deadline that came from a remote caller
    /// ([`CallExt::tighten_remote`](crate::flow::CallExt::tighten_remote)) at most a tenth of the
    /// remaining time is kept back: of 300 ms a call gets 270 ms.
    ///
    /// Inside a layer that drains its deadline (`with_drain`), no reserve is kept.
    pub fn with_reserve(mut self, reserve: Duration) -> Self {
        self.settings.reserve = reserve;
        self
    }

    /// Cancels the call's token when it has to end, and waits at most this long for the tool,
    /// instead of dropping its future immediately. Default: no wait. Each call then allocates, for
    /// its own token. See the [module docs](super#a-tool-that-is-told-to-stop).
    ///
    /// # Errors
    ///
    /// If it is zero or longer than an hour.
    pub fn with_drain(mut self, time: Duration) -> Result<Self, ConfigError> {
        self.settings.drain = Some(crate::kit::drain::check(time)?);
        Ok(self)
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadline::new(inner, self.clone())
    }
}
