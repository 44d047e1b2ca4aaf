use std::time::Duration;

use super::{
    RetrySettings, Settings,
    layers::{by, when},
    names::in_section,
    tools,
};
use crate::{
    config::ConfigError,
    kit::backoff::{Backoff, Jitter},
    retry::{RetryBudget, RetryPolicy},
};

impl RetrySettings {
    fn backoff(&self) -> Result<Backoff, ConfigError> {
        let backoff = Backoff::exponential(self.base, self.factor).map_err(in_section("retry"))?;
        Ok(backoff.with_cap(self.cap).with_jitter(self.jitter))
    }

    fn budget(&self, key: &'static str, ratio: f64) -> Result<RetryBudget, ConfigError> {
        let budget = RetryBudget::new(ratio, self.budget_minimum);
        budget.map_err(|e| {
            let reason = e.reason().replace("`minimum`", "`retry.budget_minimum`");
            ConfigError::new(key, reason)
        })
    }

    /// The shortest first delay; `None`: it may be none at all.
    pub(super) fn first_delay(&self) -> Option<Duration> {
        match self.jitter {
            Jitter::None | Jitter::Upwards => Some(self.base),
            Jitter::Equal => Some(self.base / 2),
            Jitter::Full => None,
        }
    }
}

impl Settings {
    /// Returns the retry layer's policy alone, whether the layer is enabled or not. After a rate
    /// limit without a hint it waits for `rate_limit.default_cooldown`, and it obeys hints up to
    /// `rate_limit.max_wait`. With `rate_limit.fail_fast`, where that layer is enabled, it leaves
    /// rate limits alone.
    ///
    /// # Errors
    ///
    /// If one of its settings cannot work.
    pub fn retry_policy(&self) -> Result<RetryPolicy, ConfigError> {
        let s = self.in_force();
        let backoff = s.retry.backoff()?;
        let policy = RetryPolicy::new()
            .with_attempts(s.retry.attempts)
            .map_err(in_section("retry"))?
            .with_backoff(backoff)
            .with_budget(s.retry.budget("retry.budget_ratio", s.retry.budget_ratio)?)
            .with_rate_limit_delay(s.rate_limit.default_cooldown)
            .with_max_delay(s.rate_limit.max_wait);
        let ratio = s.retry.total_budget_ratio;
        let total = ratio.map(|ratio| s.retry.budget("retry.total_budget_ratio", ratio));
        let policy = by(total.transpose()?, policy, RetryPolicy::with_total_budget);
        let fails = s.rate_limit.enabled && s.rate_limit.fail_fast;
        let policy = when(fails, policy, RetryPolicy::without_rate_limits);
        let is_safe = s.retry.assume_replay_safe;
        let mut policy = when(is_safe, policy, RetryPolicy::assume_replay_safe);
        for (name, tool) in &self.tools {
            if let Some(attempts) = tool.attempts {
                policy = policy
                    .with_tool(name.as_str(), attempts, backoff)
                    .map_err(|e| e.with_field(tools::key(name, "attempts")))?;
            }
        }
        Ok(policy)
    }

    /// Returns whether calls are sent again by the retry layer.
    pub(super) fn retries(&self) -> bool {
        let own = self.tools.values().filter_map(|tool| tool.attempts);
        self.retry.enabled
            && own
                .chain([self.retry.attempts])
                .any(|attempts| attempts > 1)
    }
}
