//! What only the settings as a whole can show (rule 7 of the design).
//!
//! Waits are taken at their shortest: only what can never work is refused.

use std::time::Duration;

use super::{Settings, base::Explicit, duration::show, names::in_section, tools};
use crate::{circuit_breaker::MAX_PERIOD, config::ConfigError};

type Checked = Result<(), ConfigError>;

const DAY: Duration = Duration::from_secs(24 * 3600);

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

/// No time is zero that must not be, nor longer than a year.
fn spans(s: &Settings) -> Checked {
    let positive = [
        ("timeout.default", Some(s.timeout.default)),
        ("deadline.budget", s.deadline.budget),
        ("sequence.budget", s.sequence.budget),
        ("parallel.budget", s.parallel.budget),
    ];
    let tools = s
        .tools
        .iter()
        .filter_map(|(name, tool)| Some((tools::key(name, "timeout"), tool.timeout?)));
    let positive = positive
        .into_iter()
        .filter_map(|(key, time)| Some((key.to_owned(), time?)))
        .chain(tools);
    for (key, time) in positive {
        if time.is_zero() {
            return Err(ConfigError::new(key, "it is zero: no call would have time"));
        }
        within(key, time, MAX_PERIOD, "a year")?;
    }
    let others = [
        ("deadline.reserve", Some(s.deadline.reserve)),
        ("sequence.reserve", Some(s.sequence.reserve)),
        ("retry.base", Some(s.retry.base)),
        ("retry.cap", Some(s.retry.cap)),
        ("rate_limit.max_wait", Some(s.rate_limit.max_wait)),
        ("health.probe_period", Some(s.health.probe_period)),
        ("circuit_breaker.window", s.circuit_breaker.window),
        ("circuit_breaker.open_for", Some(s.circuit_breaker.open_for)),
        ("circuit_breaker.slow_call", s.circuit_breaker.slow_call),
    ];
    for (key, time) in others {
        within(key, time.unwrap_or_default(), MAX_PERIOD, "a year")?;
    }
    within(
        "rate_limit.max_cooldown",
        s.rate_limit.max_cooldown,
        DAY,
        "a day",
    )?;
    within(
        "rate_limit.default_cooldown",
        s.rate_limit.default_cooldown,
        DAY,
        "a day",
    )
}

fn within(key: impl Into<String>, time: Duration, most: Duration, called: &str) -> Checked {
    if time > most {
        let reason = format!("{} is longer than {called}", show(time));
        return Err(ConfigError::new(key.into(), reason));
    }
    Ok(())
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

    /// Whether anybody waits out a rate limit.
    fn waits_out_limits(&self) -> bool {
        let limit = &self.settings.rate_limit;
        match limit.enabled {
            true => !limit.fail_fast,
            false => self.settings.retries(),
        }
    }

    fn cooldown(&self) -> Checked {
        let limit = &self.settings.rate_limit;
        let is_set = self.set.contains("rate_limit.default_cooldown");
        if !is_set || !self.waits_out_limits() || limit.default_cooldown <= limit.max_wait {
            return Ok(());
        }
        let most = called("rate_limit.max_wait", limit.max_wait);
        let wrong = format!("more than {most}");
        let why = "nobody would wait for its end; raise the other, or shorten it";
        Err(refused(
            "rate_limit.default_cooldown",
            limit.default_cooldown,
            &wrong,
            why,
        ))
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
        let waits_out = self.waits_out_limits() && waits("rate_limit.default_cooldown");
        for (budget, time) in self.budgets() {
            if first.is_some_and(|delay| delay >= time) {
                return Err(too_late("retry.base", s.retry.base, budget, time));
            }
            if waits_out && cooldown >= time {
                return Err(too_late(
                    "rate_limit.default_cooldown",
                    cooldown,
                    budget,
                    time,
                ));
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
