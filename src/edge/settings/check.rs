//! Checks of the settings as a whole.
//!
//! Waits are taken at their shortest: only what can never work is refused.

use std::{borrow::Cow, time::Duration};

use super::{KeyBy, Settings, base::Explicit, duration::show, names::in_section, tools};
use crate::{
    circuit_breaker::MAX_PERIOD,
    config::{ConfigError, refuse_if},
    edge::names::check as check_name,
    identity::Identity,
    kit::{glob::Glob, per_tool::Name},
};

type Checked = Result<(), ConfigError>;

/// Errors, or warnings.
type Errors = Vec<ConfigError>;

const DAY: (Duration, &str) = (Duration::from_secs(24 * 3600), "a day");
const YEAR: (Duration, &str) = (MAX_PERIOD, "a year");

const COOLDOWN: &str = "rate_limit.default_cooldown";

/// Returns all errors. They name keys, and so do their reasons, in backticks: `Names` puts
/// variables in their place.
pub(super) fn whole(settings: &Settings) -> Errors {
    let mut all = Errors::new();
    all.extend(names(settings).err());
    all.extend(heading(settings).err());
    spans(settings, &mut all);
    layers(settings, &mut all);
    all.extend(Whole::of(settings).check());
    all
}

/// Returns one error of several, without those about a setting that has one already.
pub(super) fn joined(errors: impl IntoIterator<Item = ConfigError>) -> Checked {
    let mut all = Errors::new();
    for error in errors {
        let is_about =
            |field: &str| field == error.field() || error.reason().contains(&format!("`{field}`"));
        if !all.iter().any(|other| is_about(other.field())) {
            all.push(error);
        }
    }
    let Some((first, others)) = all.split_first() else {
        return Ok(());
    };
    let reason = others
        .iter()
        .fold(first.reason().to_owned(), |text, error| {
            format!("{text}; and {error}")
        });
    Err(ConfigError::new(first.field().to_owned(), reason))
}

/// The settings that have an effect and look wrong.
pub(super) fn warnings(settings: &Settings) -> Errors {
    Whole::of(settings).warnings()
}

fn names(s: &Settings) -> Checked {
    refuse_if(s.tools.contains_key(""), r#"tools."""#, "a tool has a name")?;
    match s.tools.iter().find(|(_, tool)| tool.timeout_ms.is_some()) {
        Some((name, _)) => Err(ConfigError::new(
            tools::key(name, "timeout_ms"),
            format!("`{}` is set too", tools::key(name, "timeout")),
        )),
        None => Ok(()),
    }
}

/// Each name or pattern of the settings matches one of these tools.
pub(super) fn names_match(s: &Settings, known: &[Identity]) -> Checked {
    for (key, patterns) in s.policy.lists() {
        for pattern in patterns {
            check_name(key, &Name::new(Glob::new(pattern), None), known)?;
        }
    }
    let exact = |name: &str| Name::new(Glob::exact(name), None);
    let mut cached = s.cache.tools.iter();
    cached.try_for_each(|name| check_name("cache.tools", &exact(name), known))?;
    let mut own = s.tools.keys();
    own.try_for_each(|name| check_name(tools::of(name), &exact(name), known))
}

fn heading(s: &Settings) -> Checked {
    let is_empty = s.validate.heading.as_deref() == Some("");
    refuse_if(is_empty, "validate.heading", "it is empty")
}

/// No budget is zero, and no time is longer than its bound.
fn spans(s: &Settings, all: &mut Errors) {
    let budgets = [
        ("timeout.default", Some(s.timeout.default)),
        ("deadline.budget", s.deadline.budget),
        ("sequence.budget", s.sequence.budget),
        ("parallel.budget", s.parallel.budget),
        ("poll.budget", s.poll.budget),
        ("token.timeout", Some(s.token.timeout)),
    ];
    let budgets = budgets.map(|(key, time)| (key.to_owned(), time));
    let tools = s.tools.iter();
    let tools = tools.map(|(name, tool)| (tools::key(name, "timeout"), tool.timeout));
    for (key, time) in budgets.into_iter().chain(tools) {
        if time.is_some_and(|time| time.is_zero()) {
            all.push(ConfigError::new(key, "it is zero: no call would have time"));
        } else {
            all.extend(within(key, time, YEAR).err());
        }
    }
    let a_day = [COOLDOWN, "rate_limit.max_cooldown", "repeat_guard.window"];
    all.extend(s.durations().into_iter().filter_map(|(key, time)| {
        let most = if a_day.contains(&key) { DAY } else { YEAR };
        within(key, time, most).err()
    }));
}

fn within(
    key: impl Into<Cow<'static, str>>,
    time: Option<Duration>,
    (most, name): (Duration, &str),
) -> Checked {
    match time {
        Some(time) if time > most => {
            let reason = format!("{} is longer than {name}", show(time));
            Err(ConfigError::new(key, reason))
        }
        _ => Ok(()),
    }
}

/// The checks of each layer itself, switched off or not.
fn layers(s: &Settings, all: &mut Errors) {
    let breaker = s.circuit_breaker_builder().and_then(|breaker| {
        let layer = breaker.build().map(drop);
        layer.map_err(in_section("circuit_breaker"))
    });
    let checks = [
        s.redaction_rules().map(drop),
        s.timeout_layer().map(drop),
        s.retry_policy().map(drop),
        s.poll_layer(()).map(drop),
        s.policy_layer().map(drop),
        s.once_layer().map(drop),
        s.cache_layer().map(drop),
        s.check_token(),
        s.check_shared(),
        refuse_if(
            s.fit.max_chars < 1_000,
            "fit.max_chars",
            "is less than 1000: there would be little room beside the mark",
        ),
        refuse_if(s.http.max_bytes == 0, "http.max_bytes", "is not above 0"),
        tool_limits(s).and_then(|()| shared_limits(s)),
        s.rate_limit_builder()
            .build()
            .map(drop)
            .map_err(in_section("rate_limit")),
        s.repeat_guard_builder()
            .build()
            .map(drop)
            .map_err(in_section("repeat_guard")),
        s.health_builder()
            .build()
            .map(drop)
            .map_err(in_section("health")),
        breaker,
    ];
    all.extend(checks.into_iter().filter_map(Result::err));
}

fn shared_limits(s: &Settings) -> Checked {
    if let Some(quota) = s.quota_builder()? {
        quota.build().map(drop).map_err(in_section("quota"))?;
    }
    let limit = s.concurrency_limit_builder().map(|limit| limit.build());
    let limit = limit.transpose().map(drop);
    limit.map_err(in_section("concurrency"))
}

/// How many calls of a key run, and what tools have of their own.
fn tool_limits(s: &Settings) -> Checked {
    let zero = "it is zero: every call would be refused";
    refuse_if(s.concurrency.max == Some(0), "concurrency.max", zero)?;
    let (shares_limit, shares_quota) =
        (s.concurrency.key != KeyBy::Tool, s.quota.key != KeyBy::Tool);
    let has_quota = s.quota.tokens.is_some();
    for (name, tool) in &s.tools {
        let check = |field, own: bool, is_bad: bool, reason: &str| match own && is_bad {
            true => Err(ConfigError::new(tools::key(name, field), reason.to_owned())),
            false => Ok(()),
        };
        let own = tool.concurrency.is_some();
        check("concurrency", own, tool.concurrency == Some(0), zero)?;
        let shared = "`concurrency.key` is not `tool`: tools share their limit";
        check("concurrency", own, shares_limit, shared)?;

        let nothing = "without `quota.tokens` it means nothing";
        let own = tool.quota_tokens.is_some();
        check("quota_tokens", own, !has_quota, nothing)?;
        let shared = "`quota.key` is not `tool`: tools share their units";
        check("quota_tokens", own, shares_quota, shared)?;

        let own = tool.quota_cost.is_some();
        check("quota_cost", own, !has_quota, nothing)?;
        let burst = tool.quota_tokens.or(s.quota.burst).or(s.quota.tokens);
        let (cost, burst) = (tool.quota_cost.unwrap_or(1), burst.unwrap_or_default());
        let dear = format!("{cost} is more than the {burst} units of the largest burst");
        check("quota_cost", own, cost > burst, &dear)?;
    }
    Ok(())
}

/// The contradictions between settings that were set. A layer that is off contradicts nothing.
struct Whole {
    settings: Settings,
    set: Explicit,
}

impl Whole {
    fn of(settings: &Settings) -> Self {
        Self {
            settings: settings.in_force(),
            set: settings.keys_set(),
        }
    }

    fn check(&self) -> Errors {
        let checks = [self.reserves(), self.cap(), self.cooldown(), self.waits()];
        checks.into_iter().filter_map(Result::err).collect()
    }

    /// A call may bring a longer timeout of its own, and failures that are no timeouts are quicker.
    fn warnings(&self) -> Errors {
        let checks = [
            self.idle(),
            self.slow_call(),
            self.window(),
            self.probe_wait(),
        ];
        let found = checks.into_iter().filter_map(Result::err);
        self.own().into_iter().chain(found).collect()
    }

    /// Settings of single tools that mean nothing.
    fn own(&self) -> Errors {
        let (s, mut all) = (&self.settings, Errors::new());
        let off = |is_on: bool, key: &str| (!is_on).then(|| key.to_owned());
        for (name, tool) in &s.tools {
            let checks = match tool.validate {
                Some(is_on) => off(is_on, &tools::key(name, "validate")),
                None => off(s.validate.enabled, "validate.enabled"),
            };
            let guard = off(s.repeat_guard.enabled, "repeat_guard.enabled");
            let retry = off(s.retry.enabled, "retry.enabled");
            for (field, is_set, off) in [
                ("attempts", tool.attempts.is_some(), retry),
                ("repair", tool.repair == Some(true), checks),
                ("repeat_guard", tool.repeat_guard == Some(true), guard),
            ] {
                if let Some(off) = off.filter(|_| is_set) {
                    let reason = format!("`{off}` is false, so it means nothing");
                    all.push(ConfigError::new(tools::key(name, field), reason));
                }
            }
        }
        all
    }

    fn reserves(&self) -> Checked {
        let s = &self.settings;
        let (run, reserve) = (s.sequence.budget, s.sequence.reserve);
        if let Some(budget) = run.filter(|budget| reserve >= *budget) {
            let is = ("sequence.reserve", reserve);
            let why = "no call would have time; shorten it";
            return refused(is, "not less than", ("sequence.budget", budget), why);
        }
        let reserve = ("deadline.reserve", s.deadline.reserve);
        match s.parallel.budget.filter(|budget| *budget <= reserve.1) {
            Some(budget) if self.set.0.contains("parallel.budget") => {
                let why = "every call of a batch would be skipped; lengthen it";
                refused(("parallel.budget", budget), "not more than", reserve, why)
            }
            Some(budget) => {
                let why = "every call of a batch would be skipped; shorten it";
                refused(reserve, "not less than", ("parallel.budget", budget), why)
            }
            None => Ok(()),
        }
    }

    fn idle(&self) -> Checked {
        let (key, longest) = self.settings.longest_attempt();
        match self.settings.timeout.idle_timeout {
            Some(idle) if idle >= longest => {
                let is = ("timeout.idle_timeout", idle);
                let why = "it would never matter; shorten it";
                refused(is, "not less than", (&key, longest), why)
            }
            _ => Ok(()),
        }
    }

    fn slow_call(&self) -> Checked {
        let breaker = &self.settings.circuit_breaker;
        let (key, longest) = self.settings.longest_attempt();
        match breaker.slow_call {
            Some(slow) if breaker.enabled && slow > longest => {
                let is = ("circuit_breaker.slow_call", slow);
                let why = "no call is ever that slow; shorten it";
                refused(is, "more than", (&key, longest), why)
            }
            _ => Ok(()),
        }
    }

    fn window(&self) -> Checked {
        let breaker = &self.settings.circuit_breaker;
        let is_watched = breaker.enabled && !breaker.opens_at_once();
        let (key, longest) = self.settings.longest_attempt();
        match breaker.window {
            Some(window) if is_watched && window <= longest => {
                let (window, longest) = (show(window), show(longest));
                let reason = format!(
                    "window ({window}) must be longer than the longest timeout \
                     (`{key}`, {longest}), or two timeouts never fall into one window"
                );
                Err(ConfigError::new("circuit_breaker.window", reason))
            }
            _ => Ok(()),
        }
    }

    /// The limit is outside the breaker.
    fn probe_wait(&self) -> Checked {
        let breaker = &self.settings.circuit_breaker;
        match (breaker.probe_wait, self.settings.concurrency.max) {
            (Some(wait), Some(max)) if breaker.enabled && !wait.is_zero() => {
                let reason = format!(
                    "calls wait up to {} for a probe with a permit of `concurrency.max` ({max}), \
                     and other calls of its key wait behind them; shorten it",
                    show(wait)
                );
                Err(ConfigError::new("circuit_breaker.probe_wait", reason))
            }
            _ => Ok(()),
        }
    }

    fn cap(&self) -> Checked {
        let retry = &self.settings.retry;
        if !retry.enabled || retry.cap >= retry.base || !self.set.0.contains("retry.base") {
            return Ok(());
        }
        let is = ("retry.cap", retry.cap);
        refused(is, "less than", ("retry.base", retry.base), "raise it")
    }

    /// Returns whether a layer waits out rate limits.
    fn waits_out_limits(&self) -> bool {
        let limit = &self.settings.rate_limit;
        match limit.enabled {
            true => !limit.fail_fast,
            false => self.settings.retries(),
        }
    }

    fn cooldown(&self) -> Checked {
        let limit = &self.settings.rate_limit;
        let is_set = self.set.0.contains(COOLDOWN);
        if !is_set || !self.waits_out_limits() || limit.default_cooldown <= limit.max_wait {
            return Ok(());
        }
        let is = (COOLDOWN, limit.default_cooldown);
        let why = "no call would wait until it ends; raise the other, or shorten it";
        refused(
            is,
            "more than",
            ("rate_limit.max_wait", limit.max_wait),
            why,
        )
    }

    /// The time that each budget leaves to a call at most.
    fn budgets(&self) -> impl Iterator<Item = (&'static str, Duration)> + use<> {
        let s = &self.settings;
        let all = [
            ("deadline.budget", s.deadline.budget, Duration::ZERO),
            ("sequence.budget", s.sequence.budget, s.sequence.reserve),
            ("parallel.budget", s.parallel.budget, s.deadline.reserve),
        ];
        let left = |(key, budget, reserve)| Some((key, Duration::saturating_sub(budget?, reserve)));
        all.into_iter().filter_map(left)
    }

    /// A wait that was set and cannot end in time is never begun: the layer would be there for
    /// nothing. Nothing is sent at the deadline itself.
    fn waits(&self) -> Checked {
        let (s, cooldown) = (&self.settings, self.settings.rate_limit.default_cooldown);
        let waits = |key| self.set.0.contains(key);
        let first = s
            .retry
            .first_delay()
            .filter(|_| s.retries() && waits("retry.base"));
        let waits_out = self.waits_out_limits() && waits(COOLDOWN);
        for (budget, time) in self.budgets() {
            if first.is_some_and(|delay| delay >= time) {
                return too_late("retry.base", s.retry.base, budget, time);
            }
            if waits_out && cooldown >= time {
                return too_late(COOLDOWN, cooldown, budget, time);
            }
        }
        Ok(())
    }
}

/// The error of a setting that contradicts another one.
fn refused(
    (key, is): (&'static str, Duration),
    relation: &str,
    (other_key, other): (&str, Duration),
    why: &str,
) -> Checked {
    let (is, other) = (show(is), show(other));
    let reason = format!("{is} is {relation} `{other_key}` ({other}): {why}");
    Err(ConfigError::new(key, reason))
}

fn too_late(key: &'static str, wait: Duration, budget: &str, time: Duration) -> Checked {
    let (wait, time) = (show(wait), show(time));
    let why = "no call would wait for its end; raise the budget, or shorten it";
    let reason = format!("{wait} is too long for the {time} that `{budget}` leaves: {why}");
    Err(ConfigError::new(key, reason))
}
