use std::{num::NonZeroUsize, time::Duration};

use tokio::time::Instant;
use tower_service::Service;

use super::{
    completions::{Completions, Plan},
    running::Running,
};
use crate::{
    call::ToolCall,
    config::ConfigError,
    error::ToolError,
    event::{Listen, Listener},
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
    /// A stack with a [`ToolResultLayer`](crate::result::ToolResultLayer) makes results itself and does not compile here.
    pub fn new(service: S) -> Self {
        Self {
            service,
            plan: Plan {
                limit: usize::MAX,
                budget: None,
                deadline: None,
                reserve: None,
                listener: Listener::default(),
            },
            classifier: ByError,
        }
    }
}

impl<S, C> Parallel<S, C> {
    /// Sets the classifier that decides whether an answer is an error result. Default: it is a success, unless the leaf has
    /// [reported](crate::Record::set_reported) an error, as `McpService` does (`isError`). That holds with any classifier.
    pub fn with_classifier<D>(self, classifier: D) -> Parallel<S, D> {
        Parallel {
            service: self.service,
            plan: self.plan,
            classifier,
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

impl<S, C> Parallel<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response> + Clone,
{
    /// Runs the calls; the future gives their results in the order of the calls. The budget begins now, the calls
    /// when it is polled.
    pub fn run(&self, calls: impl IntoIterator<Item = ToolCall>) -> Running<S, C> {
        Running::new(self.stream(calls))
    }

    /// The same, with the results as they come.
    pub fn stream(&self, calls: impl IntoIterator<Item = ToolCall>) -> Completions<S, C> {
        let calls = calls.into_iter().collect();
        Completions::new(
            self.service.clone(),
            &self.plan,
            self.classifier.clone(),
            calls,
        )
    }
}

crate::text::debug_fields! { {S, C} |this| Parallel<S, C> { plan: this.plan, .. } }
