use std::{marker::PhantomData, num::NonZeroUsize, sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_service::Service;

use super::{
    completions::Completions,
    running::{Account, Running, RunningSequence},
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
/// By default all of them concurrently, each until its own timeout and deadline.
pub type Parallel<S, C = ByError> = Batch<S, C, SideBySide>;

/// Runs calls one after the other, under one time budget. See the [module docs](super) for an
/// example.
///
/// A call that fails does not stop the others. With a budget, a call gets `min(its own timeout,
/// rest of the budget - reserve)`. If that is zero, it is not started, and its result says so:
/// `skipped`, with a duration of zero. The reserve is for the code that works with the results.
pub type Sequence<S, C = ByError> = Batch<S, C, OneByOne>;

/// Calls that run side by side.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SideBySide {}

/// Calls that run one after the other.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OneByOne {}

/// A service that runs several calls, as [`Parallel`] or as [`Sequence`].
#[derive(Clone)]
#[must_use]
pub struct Batch<S, C, K> {
    service: S,
    plan: Plan,
    classifier: C,
    kind: PhantomData<K>,
}

crate::text::debug_fields! {
    {S, C, K} |this| Batch<S, C, K> { limit: this.plan.limit, budget: this.plan.budget, .. }
}

/// How a batch is run.
#[derive(Clone)]
pub(super) struct Plan {
    /// How many calls at a time.
    pub(super) limit: usize,
    /// A call that only waits leaves its place to others; else the calls keep their order.
    pub(super) gives_way: bool,
    /// For all of them.
    budget: Option<Duration>,
    /// When all of them must have ended.
    deadline: Option<Instant>,
    /// The reserve, which is kept back from each call's time.
    pub(super) reserve: Option<Duration>,
    pub(super) listener: Listener,
    /// Changes each call before it begins.
    map: Option<Arc<dyn Fn(ToolCall) -> ToolCall + Send + Sync>>,
}

impl Plan {
    fn new(limit: usize, reserve: Option<Duration>) -> Self {
        Self {
            limit,
            gives_way: reserve.is_none(),
            budget: None,
            deadline: None,
            reserve,
            listener: Listener::default(),
            map: None,
        }
    }

    /// Returns the end of a batch that begins `now`. `None`: no clock reaches it.
    pub(super) fn end(&self, now: Instant) -> Option<Instant> {
        let budget = self.budget.and_then(|budget| now.checked_add(budget));
        budget.into_iter().chain(self.deadline).min()
    }
}

impl<S, C, K> Batch<S, C, K> {
    /// Sets the classifier that decides whether an answer is an error result. Default: it
    /// is a success, unless the tool service has [reported](crate::Record::set_reported) an
    /// error, as `McpService` does (`isError`). That holds with any classifier.
    pub fn with_classifier<D>(self, classifier: D) -> Batch<S, D, K> {
        Batch {
            service: self.service,
            plan: self.plan,
            classifier,
            kind: PhantomData,
        }
    }

    /// Sets the time that the calls have together, from [`run`](Self::run) on. Default: no
    /// limit but their own timeouts and deadlines.
    /// [`Duration::MAX`](std::time::Duration::MAX) is none.
    pub fn with_budget(mut self, budget: Duration) -> Self {
        self.plan.budget = Some(budget).filter(|budget| *budget != Duration::MAX);
        self
    }

    /// Sets the moment by which all calls must have ended. With a budget as well, the
    /// earlier end holds.
    pub fn with_deadline(mut self, at: Instant) -> Self {
        self.plan.deadline = Some(at);
        self
    }

    /// Sets a function that changes each call before it begins. Default: calls stay as they
    /// are.
    ///
    /// Sets the facts of the caller that layers of the stack need on all calls: a session, an
    /// agent, a trace id, a subject's token.
    ///
    /// ```
    /// # use tower::service_fn;
    /// # use tower_toolcall::{AnyError, ToolCall};
    /// use tower_toolcall::batch::Parallel;
    ///
    /// # let stack = service_fn(|_: ToolCall| async { Ok::<_, AnyError>(12) });
    /// let batch = Parallel::new(stack)
    ///     .map_calls(|call| call.with_session_id("chat 17").with_agent_id("concierge"));
    /// # let _ = batch;
    /// ```
    pub fn map_calls(mut self, map: impl Fn(ToolCall) -> ToolCall + Send + Sync + 'static) -> Self {
        self.plan.map = Some(Arc::new(map));
        self
    }

    /// Sets the listener for calls that were not started. Default: none; the events are
    /// emitted either way.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.plan.listener = Listener::new(listen);
        self
    }

    fn collect(&self, calls: impl IntoIterator<Item = ToolCall>) -> Vec<ToolCall> {
        let calls = calls.into_iter();
        match &self.plan.map {
            Some(map) => calls.map(|call| map(call)).collect(),
            None => calls.collect(),
        }
    }
}

impl<S, C, K> Batch<S, C, K>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Clone,
{
    fn completions(&self, calls: Vec<ToolCall>) -> Completions<S, C> {
        let (service, classifier) = (self.service.clone(), self.classifier.clone());
        Completions::new(service, self.plan.clone(), classifier, calls)
    }
}

impl<S, K> Batch<S, ByError, K>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    fn of(service: S, plan: Plan) -> Self {
        Self {
            service,
            plan,
            classifier: ByError,
            kind: PhantomData,
        }
    }
}

impl<S> Parallel<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    /// Makes a plan for a stack, or a bare tool: each answer and each error becomes a result.
    ///
    /// A stack with a [`ToolResultLayer`](crate::result::ToolResultLayer) makes results itself and
    /// does not compile here.
    pub fn new(service: S) -> Self {
        Self::of(service, Plan::new(usize::MAX, None))
    }
}

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

    /// Runs the calls, and gives each result when its call ends. The budget begins now, the calls
    /// when the stream is polled.
    pub fn stream(&self, calls: impl IntoIterator<Item = ToolCall>) -> Completions<S, C> {
        self.completions(self.collect(calls))
    }
}

impl<S> Sequence<S>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
{
    /// Makes a plan for a stack, or a bare tool: each answer and each error becomes a result.
    ///
    /// A stack with a [`ToolResultLayer`](crate::result::ToolResultLayer) makes results itself and
    /// does not compile here.
    pub fn new(service: S) -> Self {
        Self::of(service, Plan::new(1, Some(Duration::from_millis(500))))
    }
}

impl<S, C> Sequence<S, C> {
    /// Sets the reserve before the end of the budget, or before a call's own deadline if that is
    /// earlier. Default 500 ms; of a deadline from a remote caller at most a tenth. If only the
    /// reserve is left, the call is skipped.
    pub fn with_reserve(mut self, reserve: Duration) -> Self {
        self.plan.reserve = Some(reserve);
        self
    }
}

impl<S, C> Sequence<S, C>
where
    S: Service<ToolCall, Error: Into<ToolError>> + Clone,
    C: Classify<S::Response> + Clone,
{
    /// Runs the calls. The budget begins now, the first call when the future is polled.
    pub fn run(&self, calls: impl IntoIterator<Item = ToolCall>) -> RunningSequence<S, C> {
        let calls = self.collect(calls);
        let account = Account::new(&calls, self.plan.budget);
        RunningSequence::new(self.completions(calls), account)
    }
}
