//! The settings that were set over a preset, and the defaults that give way to them.

use std::collections::BTreeSet;

use super::Settings;
use crate::circuit_breaker::MAX_PERIOD;

/// The keys that a file or a variable has set, be it to the value of the preset.
#[derive(Clone, Debug, Default)]
pub(super) struct Explicit(pub(super) BTreeSet<&'static str>);

/// Settings are equal if their values are.
impl PartialEq for Explicit {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Settings {
    /// The keys that were set: by a file, by a variable, or in code to another value than the
    /// preset's.
    pub(super) fn keys_set(&self) -> Explicit {
        Self::from(self.to_file()).explicit
    }

    /// The settings in force: defaults, those of a preset too, give way to settings that were set.
    /// Timeouts and budgets do not, as callers rely on them; nor do settings that were set
    /// themselves, which the [check](super::check) refuses.
    pub(super) fn in_force(&self) -> Self {
        let set = self.keys_set();
        let is_set = |key| set.0.contains(key);
        let mut s = self.clone();
        if !is_set("poll.cap") {
            s.poll.cap = s.poll.cap.max(s.poll.interval);
        }
        if !is_set("retry.cap") {
            s.retry.cap = s.retry.cap.max(s.retry.base);
        }
        if is_set("rate_limit.default_cooldown") {
            let limit = &mut s.rate_limit;
            if !is_set("rate_limit.max_wait") {
                limit.max_wait = limit.max_wait.max(limit.default_cooldown);
            }
            if !is_set("rate_limit.max_cooldown") {
                limit.max_cooldown = limit.max_cooldown.max(limit.default_cooldown);
            }
        } else if !s.rate_limit.max_cooldown.is_zero() {
            s.rate_limit.default_cooldown =
                s.rate_limit.default_cooldown.min(s.rate_limit.max_cooldown);
        }
        // With a user's own token the upstream counts per user; ids of users are not for a store.
        if s.rate_limit.per_principal.is_none()
            && s.token.endpoint.is_some()
            && s.shared.url.is_none()
        {
            s.rate_limit.per_principal = Some(true);
        }
        if !is_set("sequence.reserve") {
            s.sequence.reserve = s.sequence.reserve_in_force();
        }
        if let Some(budget) = s.parallel.budget
            && budget <= s.deadline.reserve
            && !is_set("deadline.reserve")
        {
            s.deadline.reserve = budget / 10;
        }
        let (_, longest) = s.longest_attempt();
        let breaker = &mut s.circuit_breaker;
        if !is_set("circuit_breaker.window") {
            let threshold = breaker.threshold.max(2);
            // From the end of the first timeout to that of the last, one after the other.
            let row = longest.saturating_mul(threshold - 1);
            breaker.window = match breaker.window {
                _ if breaker.window_calls.is_some() => None,
                Some(window) if window <= row && !breaker.opens_at_once() => {
                    let all = longest.saturating_mul(threshold);
                    Some(all.min(MAX_PERIOD)).filter(|window| *window > row)
                }
                window => window,
            };
        }
        s
    }
}
