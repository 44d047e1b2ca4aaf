//! What only the settings as a whole can show (rule 7 of the design).
//!
//! Waits are taken at their shortest: only what can never work is refused.

use std::{borrow::Cow, time::Duration};

use super::{Settings, base::Explicit, duration::show, names::in_section, tools};
use crate::{circuit_breaker::MAX_PERIOD, config::ConfigError};

type Checked = Result<(), ConfigError>;

const DAY: (Duration, &str) = (Duration::from_secs(24 * 3600), "a day");
const YEAR: (Duration, &str) = (MAX_PERIOD, "a year");

const COOLDOWN: &str = "rate_limit.default_cooldown";

/// Errors name keys, and so do their reasons, in backticks: `Names` puts variables in their place.
pub(super) fn whole(settings: &Settings) -> Checked {
    names(settings)?;
    spans(settings)?;
    layers(settings)?;
    let whole = Whole {
        settings: &settings.in_force(),
        set: settings.keys_set(),
    };
    whole.check()
}

fn names(s: &Settings) -> Checked {
    match s.tools.contains_key("") {
        true => Err(ConfigError::new(r#"tools."""#, "a tool has a name")),
        false => Ok(()),
    }
}

/// No budget is zero, and no time is longer than its bound.
fn spans(s: &Settings) -> Checked {
    let budgets = [
        ("timeout.default", Some(s.timeout.default)),
        ("deadline.budget", s.deadline.budget),
        ("sequence.budget", s.sequence.budget),
        ("parallel.budget", s.parallel.budget),
    ];
    let budgets = budgets.map(|(key, time)| (key.to_owned(), time));
    let tools = s.tools.iter();
    let tools = tools.map(|(name, tool)| (tools::key(name, "timeout"), tool.timeout));
    for (key, time) in budgets.into_iter().chain(tools) {
        if time.is_some_and(|time| time.is_zero()) {
            return Err(ConfigError::new(key, "it is zero: no call would have time"));
        }
        within(key, time, YEAR)?;
    }
    let (limit, breaker) = (&s.rate_limit, &s.circuit_breaker);
    let others = [
        ("deadline.reserve", Some(s.deadline.reserve), YEAR),
        ("sequence.reserve", Some(s.sequence.reserve), YEAR),
        ("retry.base", Some(s.retry.base), YEAR),
        ("retry.cap", Some(s.retry.cap), YEAR),
        ("rate_limit.max_wait", Some(limit.max_wait), YEAR),
        ("rate_limit.max_cooldown", Some(limit.max_cooldown), DAY),
        (COOLDOWN, Some(limit.default_cooldown), DAY),
        ("health.probe_period", Some(s.health.probe_period), YEAR),
        ("circuit_breaker.window", breaker.window, YEAR),
        ("circuit_breaker.open_for", Some(breaker.open_for), YEAR),
        ("circuit_breaker.slow_call", breaker.slow_call, YEAR),
    ];
    others
        .into_iter()
        .try_for_each(|(key, time, most)| within(key, time, most))
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

/// What each layer can see itself, switched off or not.
fn layers(s: &Settings) -> Checked {
    s.redaction_rules()?;
    s.timeout_layer().map(drop)?;
    s.retry_policy().map(drop)?;
    let limit = s.rate_limit_builder().build();
    limit.map(drop).map_err(in_section("rate_limit"))?;
    let registry = s.health_builder().build();
    registry.map(drop).map_err(in_section("health"))?;
    let breaker = s.circuit_breaker_builder()?.build();
    breaker.map(drop).map_err(in_section("circuit_breaker"))
}

/// The contradictions between settings that were set. Those of a layer that is off are none.
struct Whole<'a> {
    settings: &'a Settings,
    set: Explicit,
}

impl Whole<'_> {
    fn check(&self) -> Checked {
        self.attempts()?;
        self.reserves()?;
        self.idle()?;
        self.breaker()?;
        self.cap()?;
        self.cooldown()?;
        self.waits()
    }

    fn attempts(&self) -> Checked {
        let Settings { tools, retry, .. } = self.settings;
        match tools.iter().find(|(_, tool)| tool.attempts.is_some()) {
            Some((name, _)) if !retry.enabled => Err(ConfigError::new(
                tools::key(name, "attempts"),
                "`retry.enabled` is false, so it means nothing",
            )),
            _ => Ok(()),
        }
    }

    fn reserves(&self) -> Checked {
        let s = self.settings;
        let (run, reserve) = (s.sequence.budget, s.sequence.reserve);
        if let Some(budget) = run.filter(|budget| reserve >= *budget) {
            let wrong = format!("not less than {}", called("sequence.budget", budget));
            let why = "no call would have time; shorten it";
            return Err(refused("sequence.reserve", reserve, &wrong, why));
        }
        let (batch, reserve) = (s.parallel.budget, s.deadline.reserve);
        if let Some(budget) = batch.filter(|budget| *budget <= reserve) {
            let why = "every call of a batch would be skipped";
            if !self.set.contains("parallel.budget") {
                let wrong = format!("not less than {}", called("parallel.budget", budget));
                let why = format!("{why}; shorten it");
                return Err(refused("deadline.reserve", reserve, &wrong, &why));
            }
            let wrong = format!("not more than {}", called("deadline.reserve", reserve));
            let why = format!("{why}; lengthen it");
            return Err(refused("parallel.budget", budget, &wrong, &why));
        }
        Ok(())
    }

    fn idle(&self) -> Checked {
        let (key, longest) = self.settings.longest_attempt();
        match self.settings.timeout.idle_timeout {
            Some(idle) if idle >= longest => {
                let wrong = format!("not less than {}", called(&key, longest));
                let why = "it would never matter; shorten it";
                Err(refused("timeout.idle_timeout", idle, &wrong, why))
            }
            _ => Ok(()),
        }
    }

    fn breaker(&self) -> Checked {
        let breaker = &self.settings.circuit_breaker;
        if !breaker.enabled {
            return Ok(());
        }
        let (key, longest) = self.settings.longest_attempt();
        let longest_is = called(&key, longest);
        if let Some(slow) = breaker.slow_call.filter(|slow| *slow > longest) {
            let wrong = format!("more than {longest_is}");
            let why = "no call is ever that slow; shorten it";
            return Err(refused("circuit_breaker.slow_call", slow, &wrong, why));
        }
        match breaker.window {
            Some(window) if window <= longest && !breaker.opens_at_once() => {
                let wrong = format!("not more than {longest_is}");
                let why = "of timeouts one after the other it would never see two; lengthen it";
                Err(refused("circuit_breaker.window", window, &wrong, why))
            }
            _ => Ok(()),
        }
    }

    fn cap(&self) -> Checked {
        let retry = &self.settings.retry;
        if !retry.enabled || retry.cap >= retry.base || !self.set.contains("retry.base") {
            return Ok(());
        }
        let wrong = format!("less than {}", called("retry.base", retry.base));
        Err(refused("retry.cap", retry.cap, &wrong, "raise it"))
    }

    /// Whether a layer waits out rate limits.
    fn waits_out_limits(&self) -> bool {
        let limit = &self.settings.rate_limit;
        match limit.enabled {
            true => !limit.fail_fast,
            false => self.settings.retries(),
        }
    }

    fn cooldown(&self) -> Checked {
        let limit = &self.settings.rate_limit;
        let is_set = self.set.contains(COOLDOWN);
        if !is_set || !self.waits_out_limits() || limit.default_cooldown <= limit.max_wait {
            return Ok(());
        }
        let most = called("rate_limit.max_wait", limit.max_wait);
        let wrong = format!("more than {most}");
        let why = "no call would wait until it ends; raise the other, or shorten it";
        Err(refused(COOLDOWN, limit.default_cooldown, &wrong, why))
    }

    /// The time that each budget leaves to a call at most.
    fn budgets(&self) -> impl Iterator<Item = (&'static str, Duration)> + use<> {
        let s = self.settings;
        let sequence = s
            .sequence
            .budget
            .map(|b| b.saturating_sub(s.sequence.reserve));
        let parallel = s
            .parallel
            .budget
            .map(|b| b.saturating_sub(s.deadline.reserve));
        let all = [
            ("deadline.budget", s.deadline.budget),
            ("sequence.budget", sequence),
            ("parallel.budget", parallel),
        ];
        all.into_iter().filter_map(|(key, time)| Some((key, time?)))
    }

    /// A wait that was set and cannot end in time is never begun: the layer would be there for nothing. Nothing is sent at the
    /// deadline itself.
    fn waits(&self) -> Checked {
        let (s, cooldown) = (self.settings, self.settings.rate_limit.default_cooldown);
        let waits = |key| self.set.contains(key);
        let first = s
            .retry
            .first_delay()
            .filter(|_| s.retries() && waits("retry.base"));
        let waits_out = self.waits_out_limits() && waits(COOLDOWN);
        for (budget, time) in self.budgets() {
            if first.is_some_and(|delay| delay >= time) {
                return Err(too_late("retry.base", s.retry.base, budget, time));
            }
            if waits_out && cooldown >= time {
                return Err(too_late(COOLDOWN, cooldown, budget, time));
            }
        }
        Ok(())
    }
}

fn called(key: &str, time: Duration) -> String {
    format!("`{key}` ({})", show(time))
}

fn refused(key: &'static str, is: Duration, wrong: &str, why: &str) -> ConfigError {
    ConfigError::new(key, format!("{} is {wrong}: {why}", show(is)))
}

fn too_late(key: &'static str, wait: Duration, budget: &str, time: Duration) -> ConfigError {
    let wrong = format!("too long for the {} that `{budget}` leaves", show(time));
    let why = "no call would wait for its end; raise the budget, or shorten it";
    refused(key, wait, &wrong, why)
}
