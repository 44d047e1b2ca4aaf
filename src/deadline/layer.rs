use std::time::Duration;

use tokio::time::Instant;
use tower_layer::Layer;

use super::service::Deadline;
use crate::call::ToolCall;

/// Layer that ends calls at their deadline. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct DeadlineLayer {
    settings: Settings,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) budget: Option<Duration>,
    reserve: Duration,
}

impl Settings {
    /// The moment by which a call that comes `now` must have ended (T5). `None`: no limit that a
    /// clock reaches.
    #[inline]
    pub(super) fn limit(&self, now: Instant, call: &mut ToolCall) -> Option<Instant> {
        let own = self.budget.and_then(|budget| now.checked_add(budget));
        if let Some(outer) = call.deadline() {
            return Some(self.inherited(own, outer, now, call));
        }
        if let Some(at) = own {
            call.tighten(at);
        }
        own
    }

    /// The same where the call brings a deadline along.
    #[inline(never)]
    fn inherited(
        &self,
        own: Option<Instant>,
        outer: Instant,
        now: Instant,
        call: &mut ToolCall,
    ) -> Instant {
        // Who keeps none leaves the word to the next layer.
        let kept = !self.reserve.is_zero() && call.take_reserved();
        let reserve = if kept { Duration::ZERO } else { self.reserve };
        // An outer deadline too early to hold the reserve leaves nothing.
        let outer = outer.checked_sub(reserve).map_or(now, |at| at.max(now));
        match own {
            Some(own) if own < outer => call.tighten(own),
            // It stays whose it was.
            _ if call.is_deadline_untrusted() => call.tighten_untrusted(outer),
            _ => call.tighten(outer),
        }
        own.map_or(outer, |own| own.min(outer))
    }
}

impl DeadlineLayer {
    /// A layer that gives each call `budget` for everything below.
    ///
    /// A zero budget starts no call; [`Duration::MAX`] is no budget.
    pub fn new(budget: Duration) -> Self {
        Self::with_budget(Some(budget))
    }

    /// A layer without a budget of its own: it enforces the deadline that a call brings along, and
    /// watches the caller's token. The [reserve](Self::with_reserve) is kept all the same: with the
    /// default one, a call whose deadline is 500 ms away or nearer is not started.
    pub fn inherited() -> Self {
        Self::with_budget(None)
    }

    fn with_budget(budget: Option<Duration>) -> Self {
        Self {
            settings: Settings {
                budget,
                reserve: Duration::from_millis(500),
            },
        }
    }

    /// Sets what is kept back from an outer deadline, so that its owner can finish in time.
    /// Default 500 ms (T5).
    pub fn with_reserve(mut self, reserve: Duration) -> Self {
        self.settings.reserve = reserve;
        self
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadline::new(inner, self.settings)
    }
}
