//! The settings that were set over a preset, and the defaults that give way to them.

use std::{collections::BTreeSet, time::Duration};

use super::Settings;
use crate::circuit_breaker::MAX_PERIOD;

impl Settings {
    /// The keys that were set: by a file, by a variable, or in code to another value than the
    /// preset's.
    pub(super) fn keys_set(&self) -> BTreeSet<&'static str> {
        Self::from(self.to_file()).origin.keys
    }

    /// The settings in force: defaults, those of a preset too, give way to settings that were set.
    /// Timeouts and budgets do not, as callers rely on them; nor do settings that were set
    /// themselves, which the [check](super::check) refuses.
    pub(super) fn in_force(&self) -> Self {
        let set = self.keys_set();
        let is_set = |key| set.contains(key);
        let mut s = self.clone();
        let raise = |key, value: &mut Duration, least: Duration| {
            if !set.contains(key) {
                *value = least.max(*value);
            }
        };
        raise("poll.cap", &mut s.poll.cap, s.poll.interval);
        raise("retry.cap", &mut s.retry.cap, s.retry.base);
        let limit = &mut s.rate_limit;
        if is_set("rate_limit.default_cooldown") {
            let least = limit.default_cooldown;
            raise("rate_limit.max_wait", &mut limit.max_wait, least);
            raise("rate_limit.max_cooldown", &mut limit.max_cooldown, least);
        } else if !limit.max_cooldown.is_zero() {
            limit.default_cooldown = limit.default_cooldown.min(limit.max_cooldown);
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
