//! Layers of the stack alone, made of their sections.

use std::time::Duration;

use super::{
    DeadlineSettings, PolicySettings, SanitizeSettings, Settings, duration::show,
    names::in_section, tools,
};
#[cfg(feature = "validate")]
use crate::validate::{Schemas, ValidateLayer, Validation};
use crate::{
    cache::{CacheBuilder, CacheLayer},
    concurrency_limit::{ConcurrencyLimitBuilder, ConcurrencyLimitLayer},
    config::{ConfigError, refuse_if},
    deadline::DeadlineLayer,
    fit::FitLayer,
    health::{Health, HealthBuilder},
    key::{Key, Keys},
    kit::backoff::{Backoff, Jitter},
    once::{OnceBuilder, OnceLayer},
    policy::{PolicyLayer, Rule},
    poll::PollLayer,
    quota::{Quota, QuotaBuilder, QuotaLayer},
    rate_limit::{RateLimitBackoffBuilder, RateLimitBackoffLayer},
    redact::Rules,
    repeat_guard::{RepeatGuardBuilder, RepeatGuardLayer},
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

/// Changes a layer if a switch is on.
pub(super) fn when<T>(is_on: bool, layer: T, change: impl FnOnce(T) -> T) -> T {
    match is_on {
        true => change(layer),
        false => layer,
    }
}

/// Changes a layer by a value, if there is one.
pub(super) fn by<T, V>(value: Option<V>, layer: T, change: impl FnOnce(T, V) -> T) -> T {
    match value {
        Some(value) => change(layer, value),
        None => layer,
    }
}

impl PolicySettings {
    /// The patterns of tools, with their keys, in the order in which they decide.
    pub(super) fn lists(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        let lists: [(_, &[String]); 3] = [
            ("policy.deny", &self.deny),
            ("policy.ask", &self.ask),
            ("policy.allow", &self.allow),
        ];
        lists.into_iter()
    }
}

impl Settings {
    /// Returns the timeout layer alone, with the tools' own timeouts.
    ///
    /// # Errors
    ///
    /// If one of its settings cannot work.
    pub fn timeout_layer(&self) -> Result<TimeoutLayer, ConfigError> {
        let timeout = &self.timeout;
        let layer = TimeoutLayer::new(timeout.default).with_slow_fraction(timeout.slow_fraction);
        let layer = by(timeout.idle_timeout, layer, |layer, idle| {
            layer?.with_idle_timeout(idle)
        });
        let mut layer = layer.map_err(in_section("timeout"))?;
        for (name, tool) in &self.tools {
            if let Some(timeout) = tool.timeout {
                layer = layer.with_tool(name.as_str(), timeout);
            }
        }
        Ok(layer)
    }

    /// The longest that an attempt may take, and the key that says so.
    pub(super) fn longest_attempt(&self) -> (String, Duration) {
        match (self.longest_timeout(), self.deadline.budget) {
            ((_, timeout), Some(budget)) if budget < timeout => ("deadline.budget".into(), budget),
            (longest, _) => longest,
        }
    }

    /// The longest timeout of any tool, and its key.
    pub(super) fn longest_timeout(&self) -> (String, Duration) {
        let own = self.tools.iter();
        let own = own.filter_map(|(name, tool)| Some((name, tool.timeout?)));
        match own.max_by_key(|(_, timeout)| *timeout) {
            Some((name, timeout)) if timeout > self.timeout.default => {
                (tools::key(name, "timeout"), timeout)
            }
            _ => ("timeout.default".into(), self.timeout.default),
        }
    }

    /// Returns the layer that waits for jobs of this kind. It stands at
    /// [`Place::Call`](super::Place::Call), so that `deadline.budget` bounds single requests, and
    /// `poll.budget` the job:
    ///
    /// ```
    /// use tower_toolcall::settings::Settings;
    ///
    /// # fn main() -> Result<(), tower_toolcall::ConfigError> {
    /// # let job = ();
    /// let settings = Settings::default();
    /// let jobs = settings.poll_layer(job)?; // `McpTask` of `tower-toolcall-mcp`, for example
    /// // settings.stack().with_layer(Place::Call, jobs)
    /// # let _ = jobs; Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If one of its settings cannot work.
    pub fn poll_layer<J>(&self, job: J) -> Result<PollLayer<J>, ConfigError> {
        let poll = self.in_force().poll;
        let [cap, interval] = [poll.cap, poll.interval].map(show);
        let reason = format!("{cap} is shorter than `poll.interval` ({interval})");
        refuse_if(poll.cap < poll.interval, "poll.cap", reason)?;
        let interval =
            Backoff::exponential(poll.interval, poll.factor).map_err(|e| match e.field() {
                "base" => e.with_field("poll.interval"),
                _ => e.with_field("poll.factor"),
            })?;
        let interval = interval.with_cap(poll.cap).with_jitter(Jitter::None);
        let layer = PollLayer::new(job)
            .with_interval(interval)
            .and_then(|layer| layer.with_polls(poll.polls));
        let layer = by(poll.budget, layer, |layer, budget| {
            layer?.with_budget(budget)
        });
        let layer = layer.map_err(in_section("poll"))?;
        Ok(when(!poll.cancel, layer, PollLayer::without_cancel))
    }

    /// Returns the layer that checks arguments alone, with these schemas. If it is not enabled, it
    /// checks those of tools, and of single calls, of which it is said.
    #[cfg(feature = "validate")]
    pub fn validate_layer(&self, schemas: &Schemas) -> ValidateLayer {
        let of = |checks: bool, repairs: bool| match (checks, repairs) {
            (false, _) => Validation::Off,
            (true, true) => Validation::Repair,
            (true, false) => Validation::On,
        };
        let all = &self.validate;
        let layer = ValidateLayer::new(schemas).with_validation(of(all.enabled, all.repair));
        let layer = when(all.strict, layer, ValidateLayer::strict);
        let mut layer = by(all.heading.as_deref(), layer, ValidateLayer::with_heading);
        for (name, tool) in &self.tools {
            if tool.validate.is_some() || tool.repair.is_some() {
                let checks = tool.validate.unwrap_or(all.enabled);
                let validation = of(checks, tool.repair.unwrap_or(all.repair));
                layer = layer.with_tool(name.as_str(), validation);
            }
        }
        layer
    }

    /// Returns the repeat guard alone, to be completed and built, whether it is enabled or not.
    pub fn repeat_guard_builder(&self) -> RepeatGuardBuilder {
        let guard = &self.repeat_guard;
        let builder = RepeatGuardLayer::builder()
            .with_failures(guard.failures)
            .with_window(guard.window)
            .with_keys(Keys::default().at_most(guard.max_keys));
        let tools = self.tools.iter();
        let said = tools.filter_map(|(name, tool)| Some((name.as_str(), tool.repeat_guard?)));
        said.fold(builder, |builder, (name, is_watched)| {
            builder.with_tool(name, is_watched)
        })
    }

    /// Returns the layer that shortens answers, to be completed with a hook that keeps the whole:
    /// for [`Place::Call`](super::Place::Call). `None` unless it is enabled.
    pub fn fit_layer(&self) -> Option<FitLayer> {
        let fit = &self.fit;
        fit.enabled.then(|| FitLayer::new(fit.max_chars))
    }

    /// Returns the layer that runs repeated calls once: for
    /// [`Place::Allowed`](super::Place::Allowed). `None` unless it is enabled.
    ///
    /// # Errors
    ///
    /// If one of its settings cannot work.
    pub fn once_layer(&self) -> Result<Option<OnceLayer>, ConfigError> {
        let layer = self.once_builder().build();
        let layer = layer.map_err(in_section("once"))?;
        Ok(self.once.enabled.then_some(layer))
    }

    /// Returns it to be completed and built, whether it is enabled or not.
    pub fn once_builder(&self) -> OnceBuilder {
        let once = &self.in_force().once;
        OnceLayer::builder()
            .with_ttl(once.ttl)
            .with_repeat_within(once.repeat_within)
            .with_max_keys(once.max_keys)
            .with_max_answer(once.max_answer)
            .with_max_bytes(once.max_bytes)
    }

    /// Returns the layer that keeps answers, without a classifier: for
    /// [`Place::Allowed`](super::Place::Allowed). `None` if no tool is named.
    ///
    /// # Errors
    ///
    /// If one of its settings cannot work, or `cache.ttl` is missing.
    pub fn cache_layer(&self) -> Result<Option<CacheLayer>, ConfigError> {
        let layer = self.cache_builder()?.map(CacheBuilder::build);
        layer.transpose().map_err(in_section("cache"))
    }

    /// Returns it to be completed and built.
    ///
    /// # Errors
    ///
    /// If `cache.ttl` is missing.
    pub fn cache_builder(&self) -> Result<Option<CacheBuilder>, ConfigError> {
        let cache = &self.cache;
        if cache.tools.is_empty() {
            return Ok(None);
        }
        let missing = || ConfigError::new("cache.tools", "names tools, and `cache.ttl` is missing");
        let ttl = cache.ttl.ok_or_else(missing)?;
        let names = cache.tools.iter().map(String::as_str);
        let builder = CacheLayer::builder(ttl, names)
            .with_max_keys(cache.max_keys)
            .with_max_answer(self.in_force().cache.max_answer)
            .with_max_bytes(cache.max_bytes);
        Ok(Some(builder))
    }

    /// Returns the policy without an approver, so calls that need an approval are refused. `None`
    /// if `[policy]` is empty.
    ///
    /// # Errors
    ///
    /// If a pattern can never decide, or `policy.approval_timeout` is zero.
    pub fn policy_layer(&self) -> Result<Option<PolicyLayer>, ConfigError> {
        let policy = &self.policy;
        let layer = PolicyLayer::new()
            .with_approval_timeout(policy.approval_timeout)
            .map_err(in_section("policy"))?;
        let mut layer = when(policy.deny_by_default, layer, PolicyLayer::deny_by_default);
        let mut says = policy.deny_by_default;
        let rules: [fn(&str) -> Rule; 3] = [Rule::deny, Rule::ask, Rule::allow];
        for ((key, tools), rule) in policy.lists().zip(rules) {
            for tool in tools {
                says = true;
                let added = layer.try_rule(rule(tool));
                layer = added.map_err(|error| error.with_field(key))?;
            }
        }
        Ok(says.then_some(layer))
    }

    /// Returns the deadline layer alone.
    pub fn deadline_layer(&self) -> DeadlineLayer {
        let DeadlineSettings { budget, reserve } = self.in_force().deadline;
        let layer = budget.map_or_else(DeadlineLayer::inherited, DeadlineLayer::new);
        layer.with_reserve(reserve)
    }

    /// Returns the quota alone, to be completed and built. `None` without `quota.units`.
    ///
    /// # Errors
    ///
    /// If its numbers cannot work.
    pub fn quota_builder(&self) -> Result<Option<QuotaBuilder>, ConfigError> {
        let settings = &self.quota;
        let Some(units) = settings.units else {
            return Ok(None);
        };
        let quota = Quota::new(units, settings.period);
        let quota = by(settings.burst, quota, |quota, burst| {
            quota?.with_burst(burst)
        });
        let mut builder = QuotaLayer::builder(quota.map_err(in_section("quota"))?)
            .with_max_wait(settings.max_wait)
            .with_keys(self.keys(settings.key, settings.max_keys));
        for (name, tool) in &self.tools {
            if let Some(units) = tool.quota_units {
                let key = tools::key(name, "quota_units");
                let quota = Quota::new(units, settings.period).map_err(|e| e.with_field(key))?;
                builder = builder.with_tool(name.as_str(), quota);
            }
            if let Some(cost) = tool.quota_cost {
                builder = builder.with_tool_cost(name.as_str(), cost);
            }
        }
        let builder = when(settings.fail_fast, builder, QuotaBuilder::with_fail_fast);
        Ok(Some(builder))
    }

    /// Returns the concurrency limit alone, to be completed and built. `None` without
    /// `concurrency.max` and a tool with a limit of its own.
    pub fn concurrency_limit_builder(&self) -> Option<ConcurrencyLimitBuilder> {
        let settings = &self.concurrency;
        let own = self.tools.iter();
        let own = own.filter_map(|(name, tool)| Some((name.as_str(), tool.concurrency?)));
        let any = own.clone().next().map(|_| usize::MAX);
        let builder = ConcurrencyLimitLayer::builder(settings.max.or(any)?)
            .with_max_queue(settings.max_queue)
            .with_keys(self.keys(settings.key, settings.max_keys));
        Some(own.fold(builder, |builder, (name, max)| builder.with_tool(name, max)))
    }

    /// Returns the rate-limit layer alone, to be completed and built, whether it is enabled or not.
    pub fn rate_limit_builder(&self) -> RateLimitBackoffBuilder {
        let limit = &self.in_force().rate_limit;
        let keys = match limit.per_principal {
            Some(true) => Keys::by(Key::from(limit.key).per_principal()).at_most(limit.max_keys),
            _ => self.keys(limit.key, limit.max_keys),
        };
        let builder = RateLimitBackoffLayer::builder()
            .with_default_cooldown(limit.default_cooldown)
            .with_max_wait(limit.max_wait)
            .with_max_cooldown(limit.max_cooldown)
            .with_jitter(self.retry.jitter)
            .with_attempts(limit.attempts)
            .with_keys(keys);
        let change = RateLimitBackoffBuilder::with_text_limits;
        let builder = when(limit.text_limits, builder, change);
        let change = RateLimitBackoffBuilder::with_fail_fast;
        when(limit.fail_fast, builder, change)
    }

    /// Returns the health registry alone, to be completed and built, whether its layer is enabled
    /// or not.
    pub fn health_builder(&self) -> HealthBuilder {
        let health = &self.health;
        Health::builder()
            .with_threshold(health.threshold)
            .with_refusal(health.refusal)
            .with_probe_period(health.probe_period)
            .with_max_servers(health.max_servers)
    }

    /// Returns the rules of redaction.
    ///
    /// # Errors
    ///
    /// If a limit is beyond its bounds, or a word cannot be part of a key.
    pub fn redaction_rules(&self) -> Result<Rules, ConfigError> {
        let sanitize = &self.sanitize;
        // The built-in rules cost a call nothing.
        if *sanitize == SanitizeSettings::default() {
            return Ok(Rules::new());
        }
        let limited = || {
            Rules::new()
                .with_max_string(sanitize.max_string)?
                .with_max_depth(sanitize.max_depth)?
                .with_max_nodes(sanitize.max_nodes)
        };
        let mut rules = limited().map_err(in_section("sanitize"))?;
        for word in &sanitize.sensitive_keys {
            let added = rules.with_sensitive_key(word);
            rules = added.map_err(|e| e.with_field("sanitize.sensitive_keys"))?;
        }
        for word in &sanitize.harmless_keys {
            let added = rules.with_harmless_key(word);
            rules = added.map_err(|e| e.with_field("sanitize.harmless_keys"))?;
        }
        Ok(rules)
    }

    /// Returns the layer for the span of a call alone.
    pub fn trace_layer(&self) -> TraceLayer {
        TraceLayer::new()
            .with_arguments(self.trace.arguments)
            .with_output(self.trace.output)
    }
}
