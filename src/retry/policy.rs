use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::budget::{Budgets, RetryBudget};
use crate::{
    call::{CallExt, CallInfo, Claim, ReplaySafety, ToolCall},
    config::ConfigError,
    error::{NORMALIZE, ToolError},
    event::{Event, InertReason, Listen, Listener, RetryRefusal},
    key::Keys,
    kit::{
        attempts::check,
        backoff::{Backoff, Random},
        inert::Inert,
        per_tool::{PerTool, ToolNames},
    },
    outcome::{ByError, Classify, Outcome},
};

/// The rules for when a call is repeated. See the [module docs](super).
///
/// It keeps no state of a call, so it is a [`tower::retry::Policy`] as well (feature `tower`).
#[derive(Clone)]
#[must_use]
pub struct RetryPolicy<C = ByError> {
    settings: Arc<Settings>,
    classifier: C,
}

#[derive(Clone)]
struct Settings {
    default: Schedule,
    tools: PerTool<Schedule>,
    max_delay: Duration,
    rate_limit_delay: Duration,
    repeats_rate_limits: bool,
    budgets: Option<Budgets>,
    rule: Option<Rule>,
    assumes_safe: bool,
    listener: Listener,
    inert: Arc<Inert>,
    random: Arc<Random>,
}

/// The attempts and their delays.
#[derive(Clone, Copy)]
struct Schedule {
    attempts: u32,
    backoff: Backoff,
}

/// Decides whether a call may run twice that is not marked itself.
type Rule = Arc<dyn Fn(&ToolCall) -> ReplaySafety + Send + Sync>;

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl RetryPolicy {
    /// Makes a policy of at most 3 attempts in all, after 1 s and 2 s plus a random share, within
    /// the default [`RetryBudget`]; after a rate limit without a hint 30 s.
    pub fn new() -> Self {
        Self {
            settings: Arc::new(Settings {
                default: Schedule {
                    attempts: 3,
                    backoff: Backoff::default(),
                },
                tools: PerTool::new("retry"),
                max_delay: Duration::from_secs(300),
                rate_limit_delay: Duration::from_secs(30),
                repeats_rate_limits: true,
                budgets: Some(Budgets::new(RetryBudget::default(), Keys::default())),
                rule: None,
                assumes_safe: false,
                listener: Listener::default(),
                inert: Arc::new(Inert::new("retry")),
                random: Arc::default(),
            }),
            classifier: ByError,
        }
    }
}

impl<C> RetryPolicy<C> {
    /// Sets how many attempts are made at most, the first one included. Default 3; 1 means no
    /// retry.
    ///
    /// # Errors
    ///
    /// If it is zero, or more than 65,535.
    pub fn with_attempts(self, attempts: u32) -> Result<Self, ConfigError> {
        check(attempts)?;
        Ok(self.edit(|s| s.default.attempts = attempts))
    }

    /// Sets the delays. Default: 1 s, 2 s, 4 s and so on up to 30 s, plus a random share.
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        self.edit(|s| s.default.backoff = backoff)
    }

    /// Gives one tool its own number of attempts and its own delays.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`),
    /// which goes first, and the tool's own (`charge`), which holds for the tools of this name of
    /// all servers.
    ///
    /// # Errors
    ///
    /// If the number of attempts is zero, or more than 65,535.
    pub fn with_tool(
        self,
        name: impl Into<Box<str>>,
        attempts: u32,
        backoff: Backoff,
    ) -> Result<Self, ConfigError> {
        check(attempts)?;
        let schedule = Schedule { attempts, backoff };
        Ok(self.edit(|s| s.tools.set(name.into(), schedule)))
    }

    /// Sets the longest delay that is obeyed if a server asks for it. If it asks for more, the call
    /// is not repeated: the error is returned immediately, with its `retry_after`. Default 300 s.
    pub fn with_max_delay(self, max: Duration) -> Self {
        self.edit(|s| s.max_delay = max)
    }

    /// Sets the delay after a rate limit that came without a hint. Default 30 s.
    pub fn with_rate_limit_delay(self, delay: Duration) -> Self {
        self.edit(|s| s.rate_limit_delay = delay)
    }

    /// Leaves rate limits to other layers: a result that the classifier takes for a rate limit is
    /// never repeated, but returned immediately, with its `retry_after`. For a stack with an inner
    /// rate-limit layer that [fails
    /// fast](crate::rate_limit::RateLimitBackoffBuilder::with_fail_fast), so that the call that
    /// meets the limit fails as fast as those after it. (Refusals of that layer are never
    /// repeated.) Default: rate limits are repeated, unless an outer rate-limit layer waits them
    /// out.
    ///
    /// ```
    /// use tower::ServiceBuilder;
    /// use tower_toolcall::{rate_limit::RateLimitBackoffLayer, retry::{RetryLayer, RetryPolicy}};
    ///
    /// # fn main() -> Result<(), tower_toolcall::ConfigError> {
    /// let stack = ServiceBuilder::new()
    ///     .layer(RetryLayer::new(RetryPolicy::new().without_rate_limits()))
    ///     .layer(RateLimitBackoffLayer::builder().with_fail_fast().build()?);
    /// # let _ = stack; Ok(()) }
    /// ```
    pub fn without_rate_limits(self) -> Self {
        self.edit(|s| s.repeats_rate_limits = false)
    }

    /// Sets the size of the budgets that bound retries. Each key has one of its own, so that a tool
    /// that fails uses up no other's. Default: [`RetryBudget::default`].
    ///
    /// Only the ratio and the minimum are taken: the calls and retries of other policies with a
    /// clone of `budget` do not count. Nor do the calls of a key before it first asks for a retry;
    /// until calls have come after that, the minimum bounds its retries.
    ///
    /// Each key has its minimum: if 50 tools of a server fail together, they may send up to 500
    /// retries in 20 s. [`with_total_budget`](Self::with_total_budget) bounds the sum.
    pub fn with_budget(self, budget: RetryBudget) -> Self {
        self.edit_budgets(|budgets| *budgets = budgets.unused(Some(budget), Keys::default()))
    }

    /// Sets a budget for the retries of all keys together, beside their own. Default: none.
    ///
    /// A retry is made, and counted, if both budgets grant it. Policies that have clones of one
    /// budget share it.
    pub fn with_total_budget(self, budget: RetryBudget) -> Self {
        self.edit_budgets(|budgets| budgets.total = Some(budget))
    }

    /// Sets which calls share a budget, how many keys are kept, and which are known. See [`Keys`].
    /// Default: one for each tool of each server; 10,000 are kept, and those beyond share one.
    ///
    /// # Errors
    ///
    /// Those of [`Keys`].
    pub fn with_budget_keys(self, keys: impl Into<Keys>) -> Result<Self, ConfigError> {
        let mut all = Keys::default();
        all.set(keys);
        all.check()?;
        Ok(self.edit_budgets(|budgets| *budgets = budgets.unused(None, all)))
    }

    /// Removes the budgets: each call is retried as often as its attempts allow, whatever the state
    /// of the server.
    pub fn without_budget(self) -> Self {
        self.edit(|s| s.budgets = None)
    }

    /// Sets a function that decides whether a call may run twice if its caller has not marked it,
    /// by the tool's name ([`ToolCall::is_named`]) or by a catalog of trusted tools. Default: none.
    /// If it returns [`ReplaySafety::Unknown`], the table of an [identity layer](crate::identity)
    /// decides; without one the call is treated as unsafe.
    ///
    /// [`once`](crate::once) does not see this rule: it reads [`ToolCall::with_replay_safety`] and
    /// the identity layer.
    pub fn with_replay_safety(
        self,
        decide: impl Fn(&ToolCall) -> ReplaySafety + Send + Sync + 'static,
    ) -> Self {
        self.edit(|s| s.rule = Some(Arc::new(decide)))
    }

    /// Treats every call as safe to run twice, unless its caller or the
    /// [rule](Self::with_replay_safety) has marked it as unsafe. [`once`](crate::once) does not see
    /// it.
    pub fn assume_replay_safe(self) -> Self {
        self.edit(|s| s.assumes_safe = true)
    }

    /// Returns the names of tools that have settings of their own, and whether calls have matched
    /// them.
    pub fn tool_names(&self) -> ToolNames {
        self.settings.tools.names()
    }

    /// Returns how many calls were not repeated because it is not known whether their tool may run
    /// twice. The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.settings.inert.calls()
    }

    /// Sets the listener for retries and refused retries. Default: none. The events are emitted
    /// through `tracing` in any case.
    pub fn with_listener(self, listen: impl Listen + 'static) -> Self {
        self.edit(|s| s.listener = Listener::new(listen))
    }

    /// Makes the jitter the same in each run, for tests.
    pub fn with_seed(self, seed: u64) -> Self {
        self.edit(|s| s.random = Arc::new(Random::seeded(seed)))
    }

    /// Sets the classifier of results. Default: [`ByError`].
    pub fn with_classifier<D>(self, classifier: D) -> RetryPolicy<D> {
        RetryPolicy {
            settings: self.settings,
            classifier,
        }
    }

    /// Sets a closure as the classifier; its argument types are inferred.
    pub fn classify_fn<Res, F>(self, classify: F) -> RetryPolicy<F>
    where
        F: Fn(Result<&Res, &ToolError>) -> Outcome,
    {
        self.with_classifier(classify)
    }

    fn edit_budgets(self, change: impl FnOnce(&mut Budgets)) -> Self {
        self.edit(|s| {
            let default = || Budgets::new(RetryBudget::default(), Keys::default());
            change(s.budgets.get_or_insert_with(default));
        })
    }

    fn edit(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Returns how many attempts it grants to a call, if more than one.
    pub(crate) fn grants(&self, call: &ToolCall) -> Option<u32> {
        Some(self.settings.of(call).attempts).filter(|attempts| *attempts != 1)
    }

    /// Begins a call that was [claimed](Claim::Retry) for its retries.
    pub(crate) fn deposit(&self, call: &ToolCall) {
        if let Some(budgets) = &self.settings.budgets {
            budgets.deposit(call);
        }
    }

    /// Returns when the call is sent again; `None`: this result is the last, and an error says why
    /// it is if that can be helped. On success only the classifier is called. A refusal of this
    /// side is never repeated, whatever a classifier says.
    #[inline]
    pub(crate) fn decide<Res>(
        &self,
        call: &ToolCall,
        result: Result<&Res, &mut ToolError>,
    ) -> Option<Instant>
    where
        C: Classify<Res>,
    {
        if result.as_ref().err().is_some_and(|e| e.is_own_refusal()) {
            return None;
        }
        let shared = match &result {
            Ok(answer) => Ok(*answer),
            Err(error) => Err(&**error),
        };
        let outcome = self.classifier.classify(shared);
        if !outcome.is_retryable() {
            return None;
        }
        self.settings.consider(call, &outcome, result.err())
    }
}

impl<C> RetryPolicy<C> {
    /// Says so in the error of a call that the policy's own rule calls unsafe.
    pub(super) fn judge(&self, call: &ToolCall, error: &mut ToolError) {
        let rules = self.settings.rule.is_some();
        if rules && self.settings.replay_safety(call) == ReplaySafety::Unsafe {
            error.set_unsafe();
        }
    }
}

impl Settings {
    #[inline]
    fn of(&self, call: &ToolCall) -> &Schedule {
        match self.tools.is_empty() {
            true => &self.default,
            false => self.tools.get(call).unwrap_or(&self.default),
        }
    }

    #[cold]
    fn consider(
        &self,
        call: &ToolCall,
        outcome: &Outcome,
        error: Option<&mut ToolError>,
    ) -> Option<Instant> {
        // Another layer handles rate limits; and a caller who has cancelled wants no further
        // attempt.
        let is_theirs = !self.repeats_rate_limits || call.is_claimed(Claim::RateLimit);
        if (outcome.is_rate_limited() && is_theirs) || call.is_cancelled() {
            return None;
        }
        let (info, attempt) = (call.info(), call.attempt());
        match self.delay(call, outcome, error.as_deref()) {
            Ok((delay, at)) => {
                let safety = self.replay_safety(call);
                if !error
                    .as_ref()
                    .is_some_and(|e| e.is_surely_not_started(safety))
                {
                    call.set_ambiguous();
                }
                info.record(|r| r.add_wait(delay));
                self.listener.tell(&Event::Retry {
                    call: &info,
                    attempt,
                    delay,
                    hinted: outcome.is_hinted(error.as_deref()),
                    error: error.as_deref(),
                });
                Some(at)
            }
            Err(reason) => {
                info.record(|r| r.add_refusal());
                if reason == RetryRefusal::NotMarkedSafe {
                    self.lacks_safety(&info, error.as_deref());
                }
                self.listener.tell(&Event::RetryRefused {
                    call: &info,
                    attempt,
                    reason,
                    error: error.as_deref(),
                });
                if let Some(error) = error {
                    error.set_retry_refused(reason);
                }
                None
            }
        }
    }

    fn lacks_safety(&self, info: &CallInfo, error: Option<&ToolError>) {
        let help = match error {
            Some(error) if error.is_shed() => NORMALIZE,
            _ => "set `replay_safe`/`with_replay_safety` or trust annotations",
        };
        let reason = InertReason::NotMarkedSafe;
        self.inert.pass(&self.listener, info, reason, help);
    }

    /// Returns the caller's mark first, then the rule's answer, then the table's.
    fn replay_safety(&self, call: &ToolCall) -> ReplaySafety {
        let known = call.replay_safety();
        let is_own = known != ReplaySafety::Unknown && !call.is_replay_safety_listed();
        match &self.rule {
            Some(rule) if !is_own => match rule(call) {
                ReplaySafety::Unknown => known,
                ruled => ruled,
            },
            _ => known,
        }
    }

    /// Returns the delay and its end, or why there is none. The budget comes last, so that a
    /// withdrawn retry is made.
    fn delay(
        &self,
        call: &ToolCall,
        outcome: &Outcome,
        error: Option<&ToolError>,
    ) -> Result<(Duration, Instant), RetryRefusal> {
        let schedule = self.of(call);
        let attempt = call.attempt();
        if call.attempt() >= schedule.attempts {
            return Err(RetryRefusal::Exhausted);
        }
        // An answer that is a rate limit means that the tool did not run; an error says so itself.
        let safety = self.replay_safety(call);
        let not_started = match error {
            Some(error) => error.is_surely_not_started(safety),
            None => outcome.is_rate_limited(),
        };
        let may_run_twice = match safety {
            ReplaySafety::Safe => true,
            ReplaySafety::Unsafe => false,
            ReplaySafety::Unknown => self.assumes_safe,
        };
        // If the attempt left a job, the next attempt waits for that job and starts nothing.
        if !not_started && !may_run_twice && call.job_after(error).is_none() {
            return Err(match safety {
                ReplaySafety::Unsafe => RetryRefusal::Unsafe,
                _ => RetryRefusal::NotMarkedSafe,
            });
        }
        let random = self.random.next();
        // A hint of zero gives no time, and all clients would come back together.
        let hint = outcome.retry_after().filter(|hint| !hint.is_zero());
        let delay = match hint {
            Some(hint) if hint > self.max_delay => return Err(RetryRefusal::TooLong),
            Some(hint) => schedule.backoff.after_hint(hint, random),
            None if outcome.is_rate_limited() && outcome.retry_after().is_none() => {
                schedule.backoff.after_hint(self.rate_limit_delay, random)
            }
            None => schedule.backoff.delay(attempt, random),
        };
        let now = Instant::now();
        let Some(end) = now.checked_add(delay) else {
            return Err(RetryRefusal::TooLong);
        };
        // A wait that cannot end in time is not begun (R5).
        if call.deadline().is_some_and(|deadline| end >= deadline) {
            return Err(RetryRefusal::Deadline);
        }
        match &self.budgets {
            Some(budgets) if !budgets.withdraw(&call.info(), now) => Err(RetryRefusal::Budget),
            _ => Ok((delay, end)),
        }
    }
}

crate::text::debug_fields! {
    {C} |this| RetryPolicy<C> {
        attempts: this.settings.default.attempts,
        backoff: this.settings.default.backoff,
        max_delay: this.settings.max_delay,
        budgets: this.settings.budgets,
        ..
    }
}
