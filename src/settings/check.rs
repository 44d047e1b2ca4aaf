//! Checks of the settings as a whole.
//!
//! Waits are taken at their shortest: only what can never work is refused.

use std::{collections::BTreeSet, time::Duration};

use super::{KeyBy, Settings, duration::show, stack::Parts, tools};
use crate::{
    circuit_breaker::MAX_PERIOD,
    config::{ConfigError, refuse_if},
    identity::Identity,
    kit::{glob::Glob, per_tool::Name},
    names::check as check_name,
};

type Checked = Result<(), ConfigError>;

/// Errors, or warnings.
type Errors = Vec<ConfigError>;

const DAY: (Duration, &str) = (Duration::from_secs(24 * 3600), "a day");
const YEAR: (Duration, &str) = (MAX_PERIOD, "a year");

pub(super) const COOLDOWN: &str = "rate_limit.default_cooldown";

/// Returns all errors, without those about a setting that has one already. They name keys, and so
/// do their reasons, in backticks: `Names` puts variables in their place.
pub(super) fn whole(settings: &Settings) -> Errors {
    let mut all = Errors::new();
    all.extend(names(settings).err());
    all.extend(heading(settings).err());
    all.extend(spans(settings));
    layers(settings, &mut all);
    all.extend(Whole::of(settings).check());
    let mut first = Errors::new();
    for error in all {
        let is_about =
            |field: &str| field == error.field() || error.reason().contains(&format!("`{field}`"));
        if !first.iter().any(|other| is_about(other.field())) {
            first.push(error);
        }
    }
    first
}

/// The longest text of several errors, in bytes.
const MAX_TEXT: usize = 3_000;

/// Returns one error of several, with the number of those that it has no room for.
pub(super) fn joined(errors: impl IntoIterator<Item = ConfigError>) -> Checked {
    let all = Errors::from_iter(errors);
    let Some((first, others)) = all.split_first() else {
        return Ok(());
    };
    let (mut reason, mut left) = (first.reason().to_owned(), 0);
    for error in others {
        let error = format!("; and {error}");
        match reason.len() + error.len() <= MAX_TEXT {
            true if reason.contains(&error) => {}
            true => reason += &error,
            false => left += 1,
        }
    }
    if left > 0 {
        reason += &format!("; and {left} more");
    }
    Err(ConfigError::new(first.field().to_owned(), reason))
}

/// The settings that have an effect and look wrong.
pub(super) fn warnings(settings: &Settings) -> Errors {
    Whole::of(settings).warnings()
}

fn names(s: &Settings) -> Checked {
    refuse_if(s.tools.contains_key(""), r#"tools."""#, "a tool has a name")?;
    let twice = s.tools.iter().filter(|(_, tool)| tool.timeout_ms.is_some());
    joined(twice.map(|(name, _)| {
        let reason = format!("`{}` is set too", tools::key(name, "timeout"));
        ConfigError::new(tools::key(name, "timeout_ms"), reason)
    }))
}

/// Returns an error for each name or pattern of the settings that matches none of these tools.
pub(super) fn names_match(s: &Settings, known: &[Identity]) -> Errors {
    let mut all = Errors::new();
    for (key, patterns) in s.policy.lists() {
        let patterns = patterns.iter();
        let named = patterns.map(|pattern| Name::new(Glob::new(pattern), None));
        all.extend(named.filter_map(|name| check_name(key, &name, known).err()));
    }
    let exact = |name: &str| Name::new(Glob::exact(name), None);
    let cached = s.cache.tools.iter();
    all.extend(cached.filter_map(|name| check_name("cache.tools", &exact(name), known).err()));
    let own = s.tools.keys();
    all.extend(own.filter_map(|name| check_name(tools::of(name), &exact(name), known).err()));
    all
}

fn heading(s: &Settings) -> Checked {
    let is_empty = s.validate.heading.as_deref() == Some("");
    refuse_if(is_empty, "validate.heading", "it is empty")
}

/// The keys of the times without which no call can run, besides `tools.*.timeout`.
const BUDGETS: [&str; 6] = [
    "timeout.default",
    "deadline.budget",
    "sequence.budget",
    "parallel.budget",
    "poll.budget",
    "token.timeout",
];

/// No budget is zero, and no time is longer than its bound.
fn spans(s: &Settings) -> Errors {
    let all = s.durations().into_iter();
    let all = all.map(|(key, time)| (key.to_owned(), time));
    let tools = s.tools.iter();
    let tools = tools.map(|(name, tool)| (tools::key(name, "timeout"), tool.timeout));
    let wrong = all.chain(tools).filter_map(|(key, time)| {
        let is_budget = BUDGETS.contains(&&*key) || key.starts_with("tools.");
        let (most, name) = match &*key {
            COOLDOWN | "rate_limit.max_cooldown" | "repeat_guard.window" => DAY,
            _ => YEAR,
        };
        let reason = match time? {
            Duration::ZERO if is_budget => "it is zero: no call would have time".to_owned(),
            time if time > most => format!("{} is longer than {name}", show(time)),
            _ => return None,
        };
        Some(ConfigError::new(key, reason))
    });
    wrong.collect()
}

/// The checks of each layer itself, switched off or not.
fn layers(s: &Settings, all: &mut Errors) {
    let [limits, others @ ..] = Parts::checks(s);
    let checks = [
        s.redaction_rules().map(drop),
        s.timeout_layer().map(drop),
        s.retry_policy().map(drop),
        s.poll_layer(()).map(drop),
        s.policy_layer().map(drop),
        s.once_layer().map(drop),
        s.cache_layer().map(drop),
        s.check_token(),
        refuse_if(
            s.fit.max_chars < 1_000,
            "fit.max_chars",
            "is less than 1000: there would be little room beside the mark",
        ),
        refuse_if(s.http.max_bytes == 0, "http.max_bytes", "is not above 0"),
        tool_limits(s).and(limits),
    ];
    let checks = checks.into_iter().chain(others);
    all.extend(checks.filter_map(Result::err));
}

/// The limits of calls that run together, and those that tools have of their own.
fn tool_limits(s: &Settings) -> Checked {
    let zero = "it is zero: every call would be refused";
    refuse_if(s.concurrency.max == Some(0), "concurrency.max", zero)?;
    let shares_limit = s.concurrency.key != KeyBy::Tool;
    let (has_quota, shares_quota) = (s.quota.units.is_some(), s.quota.key != KeyBy::Tool);
    let nothing = "without `quota.units` it means nothing";
    let limit = "`concurrency.key` is not `tool`: tools share their limit";
    let units = "`quota.key` is not `tool`: tools share their units";
    let mut all = Errors::new();
    for (name, tool) in &s.tools {
        let own = tool.quota_units.is_some();
        let cost = tool.quota_cost.unwrap_or_default();
        let burst = tool.quota_units.or(s.quota.burst).or(s.quota.units);
        let burst = burst.unwrap_or_default();
        let dear = format!("{cost} is more than the {burst} units of the largest burst");
        for (field, is_bad, reason) in [
            ("concurrency", tool.concurrency == Some(0), zero),
            (
                "concurrency",
                tool.concurrency.is_some() && shares_limit,
                limit,
            ),
            ("quota_units", own && !has_quota, nothing),
            ("quota_units", own && shares_quota, units),
            (
                "quota_cost",
                tool.quota_cost.is_some() && !has_quota,
                nothing,
            ),
            ("quota_cost", cost > burst, &dear),
        ] {
            let key = tools::key(name, field);
            let has_one = all.last().is_some_and(|last| last.field() == key);
            if is_bad && !has_one {
                all.push(ConfigError::new(key, reason.to_owned()));
            }
        }
    }
    joined(all)
}

/// The contradictions between settings that were set. A layer that is off contradicts nothing.
struct Whole {
    settings: Settings,
    set: BTreeSet<&'static str>,
    longest: (String, Duration),
}

impl Whole {
    fn of(settings: &Settings) -> Self {
        let in_force = settings.in_force();
        Self {
            longest: in_force.longest_attempt(),
            settings: in_force,
            set: settings.keys_set(),
        }
    }

    fn check(&self) -> Errors {
        let checks = [self.reserves(), self.cap(), self.cooldown(), self.waits()];
        checks.into_iter().filter_map(Result::err).collect()
    }

    /// A call may bring a longer timeout of its own, and failures that are no timeouts are quicker.
    fn warnings(&self) -> Errors {
        let mut all = self.own();
        let checks = [
            self.idle(),
            self.slow_call(),
            self.window(),
            self.probe_wait(),
        ];
        all.extend(checks.into_iter().filter_map(Result::err));
        all
    }

    /// Settings of single tools that mean nothing.
    fn own(&self) -> Errors {
        let (s, mut all) = (&self.settings, Errors::new());
        for (name, tool) in &s.tools {
            let checks = match tool.validate {
                Some(is_on) => (is_on, tools::key(name, "validate")),
                None => (s.validate.enabled, "validate.enabled".to_owned()),
            };
            let guard = (s.repeat_guard.enabled, "repeat_guard.enabled".to_owned());
            let retry = (s.retry.enabled, "retry.enabled".to_owned());
            for (field, is_set, (is_on, switch)) in [
                ("attempts", tool.attempts.is_some(), retry),
                ("repair", tool.repair == Some(true), checks),
                ("repeat_guard", tool.repeat_guard == Some(true), guard),
            ] {
                if is_set && !is_on {
                    let reason = format!("`{switch}` is false, so it means nothing");
                    all.push(ConfigError::new(tools::key(name, field), reason));
                }
            }
        }
        all
    }

    fn reserves(&self) -> Checked {
        let s = &self.settings;
        let (sequence, batch) = (s.sequence.budget, s.parallel.budget);
        let is = ("sequence.reserve", s.sequence.reserve);
        let budget = ("sequence.budget", sequence.unwrap_or_default());
        let why = "no call would have time; shorten it";
        let is_late = sequence.is_some_and(|budget| is.1 >= budget);
        refuse(is_late, is, "not less than", budget, why)?;

        let is = ("deadline.reserve", s.deadline.reserve);
        let budget = ("parallel.budget", batch.unwrap_or_default());
        let is_late = batch.is_some_and(|budget| is.1 >= budget);
        let why = "every call of a batch would be skipped; lengthen it";
        let is_set = self.set.contains(budget.0);
        refuse(is_late && is_set, budget, "not more than", is, why)?;
        let why = "every call of a batch would be skipped; shorten it";
        refuse(is_late, is, "not less than", budget, why)
    }

    fn idle(&self) -> Checked {
        let (key, longest) = &self.longest;
        let idle = self.settings.timeout.idle_timeout;
        let is = ("timeout.idle_timeout", idle.unwrap_or_default());
        let is_late = idle.is_some_and(|idle| idle >= *longest);
        let why = "it would never matter; shorten it";
        refuse(is_late, is, "not less than", (key, *longest), why)
    }

    fn slow_call(&self) -> Checked {
        let (key, longest) = &self.longest;
        let breaker = &self.settings.circuit_breaker;
        let slow = breaker.slow_call.unwrap_or_default();
        let is = ("circuit_breaker.slow_call", slow);
        let why = "no call is ever that slow; shorten it";
        let is_late = breaker.enabled && slow > *longest;
        refuse(is_late, is, "more than", (key, *longest), why)
    }

    fn window(&self) -> Checked {
        let (key, longest) = &self.longest;
        let breaker = &self.settings.circuit_breaker;
        let is_watched = breaker.enabled && !breaker.opens_at_once();
        let is_short = breaker.window.is_some_and(|window| window <= *longest);
        let [window, longest] = [breaker.window.unwrap_or_default(), *longest].map(show);
        let reason = format!(
            "window ({window}) must be longer than the longest timeout (`{key}`, {longest}), or two \
             timeouts never fall into one window"
        );
        refuse_if(is_watched && is_short, "circuit_breaker.window", reason)
    }

    /// The limit is outside the breaker.
    fn probe_wait(&self) -> Checked {
        let breaker = &self.settings.circuit_breaker;
        let wait = breaker.probe_wait.unwrap_or_default();
        let max = self.settings.concurrency.max;
        let reason = format!(
            "calls wait up to {} for a probe with a permit of `concurrency.max` ({}), and other calls \
             of its key wait behind them; shorten it",
            show(wait),
            max.unwrap_or_default()
        );
        let waits = breaker.enabled && !wait.is_zero() && max.is_some();
        refuse_if(waits, "circuit_breaker.probe_wait", reason)
    }

    fn cap(&self) -> Checked {
        let retry = &self.settings.retry;
        let is_set = retry.enabled && self.set.contains("retry.base");
        let (is, base) = (("retry.cap", retry.cap), ("retry.base", retry.base));
        let is_short = is_set && retry.cap < retry.base;
        refuse(is_short, is, "less than", base, "raise it")
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
        let is_watched = self.set.contains(COOLDOWN) && self.waits_out_limits();
        let is_long = is_watched && limit.default_cooldown > limit.max_wait;
        let is = (COOLDOWN, limit.default_cooldown);
        let most = ("rate_limit.max_wait", limit.max_wait);
        let why = "no call would wait until it ends; raise the other, or shorten it";
        refuse(is_long, is, "more than", most, why)
    }

    /// A wait that was set and cannot end in time is never begun: the layer would be there for
    /// nothing. Nothing is sent at the deadline itself.
    fn waits(&self) -> Checked {
        let (s, cooldown) = (&self.settings, self.settings.rate_limit.default_cooldown);
        let retries = s.retries() && self.set.contains("retry.base");
        let first = s.retry.first_delay().filter(|_| retries);
        let waits_out = self.waits_out_limits() && self.set.contains(COOLDOWN);
        for (budget, time, reserve) in [
            ("deadline.budget", s.deadline.budget, Duration::ZERO),
            ("sequence.budget", s.sequence.budget, s.sequence.reserve),
            ("parallel.budget", s.parallel.budget, s.deadline.reserve),
        ] {
            let Some(time) = time.map(|time| time.saturating_sub(reserve)) else {
                continue;
            };
            for (key, wait, is_late) in [
                ("retry.base", s.retry.base, first.is_some_and(|d| d >= time)),
                (COOLDOWN, cooldown, waits_out && cooldown >= time),
            ] {
                let (wait, time) = (show(wait), show(time));
                let why = "no call would wait for its end; raise the budget, or shorten it";
                let reason =
                    format!("{wait} is too long for the {time} that `{budget}` leaves: {why}");
                refuse_if(is_late, key, reason)?;
            }
        }
        Ok(())
    }
}

/// Refuses a setting that contradicts another one, if it does.
fn refuse(
    contradicts: bool,
    (key, is): (&'static str, Duration),
    relation: &str,
    (other_key, other): (&str, Duration),
    why: &str,
) -> Checked {
    let (is, other) = (show(is), show(other));
    let reason = format!("{is} is {relation} `{other_key}` ({other}): {why}");
    refuse_if(contradicts, key, reason)
}
