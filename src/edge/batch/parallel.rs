use std::num::NonZeroUsize;

use tower_service::Service;

use super::{
    completions::{Completions, Plan, settings},
    running::Running,
};
use crate::{
    call::ToolCall,
    config::ConfigError,
    error::ToolError,
    outcome::{ByError, Classify},
};

/// Runs calls side by side. See the [module docs](super) for an example.
///
/// By default all of them at once, each for as long as its own timeout and deadline let it.
#[derive(Clone)]
#[must_use]
pub struct Parallel<S, C = ByError> {
    service: S,
    plan: Plan,
    classifier: C,
}

impl<S> Parallel<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    /// Calls of a stack, or of a bare tool: each answer and each error becomes a result.
    ///
    /// A stack with a [`ToolResultLayer`](crate::result::ToolResultLayer) makes results itself and
    /// does not compile here.
    pub fn new(service: S) -> Self {
        Self {
            service,
            plan: Plan::new(usize::MAX, None),
            classifier: ByError,
        }
    }
}

settings!(Parallel);

impl<S, C> Parallel<S, C> {
    /// Sets how many calls may run at a time. Default: all. A call that only waits, for a cooldown,
    /// a backoff or its turn at a limit, leaves its place to others.
    ///
    /// The limit holds for calls that begin. A call that has waited goes on without a free place,
    /// because it may hold what others wait for. More calls than the limit can run then, and no
    /// other begins until fewer do. For a strict bound put a
    /// [concurrency limit](crate::concurrency_limit) into the stack, below the layers that wait.
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
}

impl<S, C> Parallel<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response> + Clone,
{
    /// Runs the calls; the future gives their results in the order of the calls. The budget begins
    /// now, the calls when it is polled.
    pub fn run(&self, calls: impl IntoIterator<Item = ToolCall>) -> Running<S, C> {
        Running::new(self.stream(calls))
    }

    /// The same, with the results as they come.
    pub fn stream(&self, calls: impl IntoIterator<Item = ToolCall>) -> Completions<S, C> {
        let calls = self.plan.map.collect(calls);
        self.completions(calls)
    }
}
