//! What only the settings as a whole can show (rule 7 of the design).

use std::time::Duration;

use super::{Settings, circuit_breaker, duration::show, names::Names, rate_limit, tools};
use crate::{circuit_breaker::MAX_PERIOD, config::ConfigError};

type Checked = Result<(), ConfigError>;

/// Errors name keys; their reasons name other settings by `names`.
pub(super) fn whole(settings: &Settings, names: &Names) -> Checked {
    spans(settings)?;
    layers(settings)?;
    Whole { settings, names }.check()
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
        .filter_map(|(name, tool)| Some((tools::key(name, "timeout_ms"), tool.timeout()?)));
    let positive = positive
        .into_iter()
        .filter_map(|(key, time)| Some((key.to_owned(), time?)))
        .chain(tools);
    for (key, time) in positive {
        if time.is_zero() {
            return Err(ConfigError::new(key, "it is zero: no call would have time"));
        }
        within_a_year(key, time)?;
    }
    let others = [
        ("deadline.reserve", s.deadline.reserve),
        ("sequence.reserve", s.sequence.reserve),
        ("retry.cap", s.retry.cap),
        ("rate_limit.max_wait", s.rate_limit.max_wait),
        ("timeout.idle", s.timeout.idle.unwrap_or_default()),
    ];
    others
        .into_iter()
        .try_for_each(|(key, time)| within_a_year(key, time))
}

fn within_a_year(key: impl Into<String>, time: Duration) -> Checked {
    if time > MAX_PERIOD {
        let reason = format!("{} is longer than a year", show(time));
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
    limit.map(drop).map_err(rate_limit::named)?;
    let breaker = s.circuit_breaker_builder()?.build();
    breaker
        .map(drop)
        .map_err(|e| circuit_breaker::named(e, &s.circuit_breaker))
}

/// The contradictions between settings.
struct Whole<'a> {
    settings: &'a Settings,
    names: &'a Names,
}

impl Whole<'_> {
    fn check(&self) -> Checked {
        self.reserves()?;
        self.timeouts()?;
        self.cap()?;
        self.cooldown()?;
        self.waits()?;
        self.breaker()
    }

    /// Refuses `key` if what it says is not less than what `other` says.
    fn less(&self, key: &str, is: Duration, other: &str, than: Duration, why: &str) -> Checked {
        if is < than {
            return Ok(());
        }
        Err(self.refused(
            key,
            is,
            &format!("not less than {}", self.called(other, than)),
            why,
        ))
    }

    fn refused(&self, key: &str, is: Duration, wrong: &str, why: &str) -> ConfigError {
        ConfigError::new(key.to_owned(), format!("{} is {wrong}: {why}", show(is)))
    }

    fn called(&self, key: &str, time: Duration) -> String {
        format!("`{}` ({})", self.names.of(key), show(time))
    }

    fn reserves(&self) -> Checked {
        let s = self.settings;
        let why = "no call would have time; shorten the reserve";
        let of_calls = s
            .deadline
            .budget
            .map(|b| ("deadline", s.deadline.reserve, b));
        let of_runs = s
            .sequence
            .budget
            .map(|b| ("sequence", s.sequence.reserve, b));
        for (section, reserve, budget) in of_calls.into_iter().chain(of_runs) {
            let (key, other) = (format!("{section}.reserve"), format!("{section}.budget"));
            self.less(&key, reserve, &other, budget, why)?;
        }
        Ok(())
    }

    fn timeouts(&self) -> Checked {
        let s = self.settings;
        let (longest, timeout) = s.longest_timeout();
        if let Some(idle) = s.timeout.idle {
            let why = "it would never matter; shorten it";
            self.less("timeout.idle", idle, &longest, timeout, why)?;
        }
        match s.circuit_breaker.slow_call {
            Some(slow) if slow > timeout => {
                let wrong = format!("more than {}", self.called(&longest, timeout));
                let why = "no call is ever that slow; shorten it";
                Err(self.refused("circuit_breaker.slow_call", slow, &wrong, why))
            }
            _ => Ok(()),
        }
    }

    fn cap(&self) -> Checked {
        let retry = &self.settings.retry;
        if retry.cap >= retry.base {
            return Ok(());
        }
        let wrong = format!("less than {}", self.called("retry.base", retry.base));
        Err(self.refused("retry.cap", retry.cap, &wrong, "raise it"))
    }

    fn cooldown(&self) -> Checked {
        let limit = &self.settings.rate_limit;
        if limit.longest_cooldown() <= limit.max_wait {
            return Ok(());
        }
        let wrong = format!(
            "with its jitter of up to 1s more than {}",
            self.called("rate_limit.max_wait", limit.max_wait)
        );
        let why = "nobody would wait for its end; shorten it, or raise the other";
        Err(self.refused("rate_limit.cooldown", limit.cooldown, &wrong, why))
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

    /// A wait that cannot end in time is never begun: the layer would be there for nothing.
    fn waits(&self) -> Checked {
        let (s, limit) = (self.settings, &self.settings.rate_limit);
        for (budget, time) in self.budgets() {
            let delay = s.retry.first_delay();
            if s.retries() && delay >= time {
                return Err(self.too_late("retry.base", s.retry.base, budget, time));
            }
            let waits = s.retries() || (limit.enabled && !limit.fail_fast);
            if waits && limit.longest_wait() >= time {
                return Err(self.too_late("rate_limit.cooldown", limit.cooldown, budget, time));
            }
        }
        Ok(())
    }

    fn too_late(&self, key: &str, wait: Duration, budget: &str, time: Duration) -> ConfigError {
        let wrong = format!(
            "too long, with its jitter, for the {} that `{}` leaves",
            show(time),
            self.names.of(budget)
        );
        let why = "no call would wait for its end; shorten it, or raise the budget";
        self.refused(key, wait, &wrong, why)
    }

    fn breaker(&self) -> Checked {
        let breaker = &self.settings.circuit_breaker;
        let (longest, timeout) = self.settings.longest_timeout();
        match breaker.window {
            Some(window) if breaker.enabled && window < timeout => {
                let wrong = format!("less than {}", self.called(&longest, timeout));
                let why = "of timeouts one after the other it would never see two; lengthen it";
                Err(self.refused("circuit_breaker.window", window, &wrong, why))
            }
            _ => Ok(()),
        }
    }
}
