use std::{convert::Infallible, fmt, marker::PhantomData, num::NonZeroUsize, time::Duration};

use tokio::time::Instant;
use tower_service::Service;

use super::{
    completions::{Completions, Plan},
    ending::{Answers, Ending, Results},
    running::Running,
};
use crate::{
    call::ToolCall,
    config::ConfigError,
    error::ToolError,
    event::{Listen, Listener},
    result::ToolResult,
};

/// Runs calls side by side. See the [module docs](super) for an example.
///
/// By default all of them at once, each for as long as its own timeout and deadline let it.
#[must_use]
pub struct Parallel<S, E = Answers> {
    service: S,
    plan: Plan,
    ending: PhantomData<fn() -> E>,
}

impl<S> Parallel<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    /// Calls of a stack, or of a bare tool, that gives answers and errors: each becomes a result.
    ///
    /// For a stack with a [`ToolResultLayer`](crate::result::ToolResultLayer) take [`of_results`](Self::of_results): here,
    /// its results would be the answers, and every one a success.
    pub fn new(service: S) -> Self {
        Self::with_plan(service)
    }
}

impl<S, T> Parallel<S, Results>
where
    S: Service<ToolCall, Response = ToolResult<T>, Error = Infallible> + Clone,
{
    /// Calls of a stack that makes results itself: one with a [`ToolResultLayer`](crate::result::ToolResultLayer).
    pub fn of_results(service: S) -> Self {
        Self::with_plan(service)
    }
}

impl<S, E> Parallel<S, E> {
    fn with_plan(service: S) -> Self {
        Self {
            service,
            plan: Plan {
                limit: usize::MAX,
                budget: None,
                deadline: None,
                reserve: None,
                listener: Listener::default(),
            },
            ending: PhantomData,
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
        self.plan.set_budget(budget);
        self
    }

    /// Sets the moment by which all calls must have ended. With a budget as well, the earlier end holds.
    pub fn with_deadline(mut self, at: Instant) -> Self {
        self.plan.deadline = Some(at);
        self
    }

    /// Sets who hears of calls that were not started. Default: nobody; the events are emitted either way.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.plan.listener = Listener::new(listen);
        self
    }
}

impl<S, E> Parallel<S, E>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    E: Ending<S::Response>,
{
    /// Runs the calls; the future gives their results in the order of the calls. The budget begins now, the calls
    /// when it is polled.
    pub fn run(&self, calls: impl IntoIterator<Item = ToolCall>) -> Running<S, E> {
        Running::new(self.stream(calls))
    }

    /// The same, with the results as they come.
    pub fn stream(&self, calls: impl IntoIterator<Item = ToolCall>) -> Completions<S, E> {
        let calls = calls.into_iter().collect();
        Completions::new(self.service.clone(), &self.plan, calls)
    }
}

impl<S: Clone, E> Clone for Parallel<S, E> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            plan: self.plan.clone(),
            ending: PhantomData,
        }
    }
}

impl<S, E> fmt::Debug for Parallel<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parallel")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
