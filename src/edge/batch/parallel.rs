use std::{convert::Infallible, fmt, num::NonZeroUsize, time::Duration};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    completions::{Completions, Plan},
    running::Running,
};
use crate::{
    call::ToolCall,
    config::ConfigError,
    event::{Listen, Listener},
    result::{ToolResult, ToolResultLayer, ToolResultService},
};

/// Runs calls side by side (X1). See the [module docs](super) for an example.
///
/// By default all of them at once, each for as long as its own timeout and deadline let it.
#[derive(Clone)]
#[must_use]
pub struct Parallel<S> {
    service: S,
    plan: Plan,
}

impl<S> Parallel<ToolResultService<S>> {
    /// Calls of a stack, or of a bare tool, that may fail.
    pub fn new(service: S) -> Self {
        Self::with_plan(ToolResultLayer::new().layer(service))
    }
}

impl<S> Parallel<S> {
    fn with_plan(service: S) -> Self {
        Self {
            service,
            plan: Plan {
                limit: usize::MAX,
                budget: None,
                reserve: None,
                listener: Listener::default(),
            },
        }
    }

    /// Sets how many calls may run at a time. Default: all.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn with_limit(self, limit: usize) -> Result<Self, ConfigError> {
        match NonZeroUsize::new(limit) {
            Some(limit) => Ok(self.limited_to(limit)),
            None => Err(ConfigError::new(
                "limit",
                "it is zero: no call would ever run",
            )),
        }
    }

    pub(crate) fn limited_to(mut self, limit: NonZeroUsize) -> Self {
        self.plan.limit = limit.get();
        self
    }

    /// Sets the time that the calls have together, from [`run`](Self::run) on. Default: no limit but their own
    /// timeouts and deadlines. [`Duration::MAX`] is none.
    pub fn with_budget(mut self, budget: Duration) -> Self {
        self.plan.budget = Some(budget);
        self
    }

    /// Sets who hears of calls that were not started. Default: nobody; the events are emitted either way.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.plan.listener = Listener::new(listen);
        self
    }
}

impl<S, T> Parallel<S>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Infallible> + Clone,
{
    /// Calls of a stack that makes results itself: one with a [`ToolResultLayer`].
    pub fn of_results(service: S) -> Self {
        Self::with_plan(service)
    }

    /// Runs the calls; the future gives their results in the order of the calls. The budget begins now, the calls
    /// when it is polled.
    pub fn run(&self, calls: impl IntoIterator<Item = ToolCall>) -> Running<S> {
        Running::new(self.stream(calls))
    }

    /// The same, with the results as they come.
    pub fn stream(&self, calls: impl IntoIterator<Item = ToolCall>) -> Completions<S> {
        let calls = calls.into_iter().collect();
        Completions::new(self.service.clone(), &self.plan, calls)
    }
}

impl<S> fmt::Debug for Parallel<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parallel")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
