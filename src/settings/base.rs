//! The settings that were set over a preset, and the defaults that give way to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Settings, check::COOLDOWN};
use crate::circuit_breaker::MAX_PERIOD;

impl Settings {
    /// The keys that were set: by a file, by a variable, or in code to another value than the
    /// preset's.
    pub(super) fn keys_set(&self) -> BTreeSet<&'static str> {
        Self::from(self.to_file()).origin.keys
    }

    /// Returns whether a setting was set: by a file, by a variable, or in code to another value
    /// than the preset's. `key` is its section and name: `http.max_bytes`.
    pub fn is_set(&self, key: &str) -> bool {
        self.keys_set().contains(key)
    }

    /// Returns the settings in force: defaults, those of a preset too, give way to settings that
    /// were set. Timeouts and budgets do not, as callers rely on them; nor do settings that were
    /// set themselves, which [`check`](Self::check) refuses. For crates that make layers of a
    /// section of these settings.
    pub fn in_force(&self) -> Self {
        self.give_way().0
    }

    /// Returns the settings in force, and the keys of the defaults that gave way, each with the key
    /// of the setting that it contradicted.
    pub(super) fn give_way(&self) -> (Self, BTreeMap<&'static str, String>) {
        let set = self.keys_set();
        let is_set = |key| set.contains(key);
        let (mut s, mut gave_way) = (self.clone(), BTreeMap::new());
        let mut give_way = |key, to: &str, is: Duration, value: &mut Duration| {
            if !set.contains(key) && *value != is {
                *value = is;
                gave_way.insert(key, to.to_owned());
            }
        };
        let poll = &mut s.poll;
        let least = poll.cap.max(poll.interval);
        give_way("poll.cap", "poll.interval", least, &mut poll.cap);
        let retry = &mut s.retry;
        let least = retry.cap.max(retry.base);
        give_way("retry.cap", "retry.base", least, &mut retry.cap);
        let limit = &mut s.rate_limit;
        let (cooldown, wait) = (limit.default_cooldown, &mut limit.max_wait);
        let longest = &mut limit.max_cooldown;
        if is_set(COOLDOWN) {
            give_way("rate_limit.max_wait", COOLDOWN, cooldown.max(*wait), wait);
            let least = cooldown.max(*longest);
            give_way("rate_limit.max_cooldown", COOLDOWN, least, longest);
        } else if !longest.is_zero() {
            let (key, most) = ("rate_limit.max_cooldown", cooldown.min(*longest));
            give_way(COOLDOWN, key, most, &mut limit.default_cooldown);
        }
        let is = s.sequence.reserve_in_force();
        let reserve = &mut s.sequence.reserve;
        give_way("sequence.reserve", "sequence.budget", is, reserve);
        let reserve = &mut s.deadline.reserve;
        if let Some(budget) = s.parallel.budget.filter(|budget| budget <= reserve) {
            let is = budget / 10;
            give_way("deadline.reserve", "parallel.budget", is, reserve);
        }
        // With a user's own token the upstream counts per user; ids of users are not for a store.
        if s.rate_limit.per_principal.is_none()
            && s.token.endpoint.is_some()
            && s.shared.url.is_none()
        {
            s.rate_limit.per_principal = Some(true);
            gave_way.insert("rate_limit.per_principal", "token.endpoint".to_owned());
        }
        let window = s.window_in_force();
        if !is_set("circuit_breaker.window") && window != s.circuit_breaker.window {
            s.circuit_breaker.window = window;
            let longest = s.longest_attempt().0;
            let to = match s.circuit_breaker.window_calls {
                Some(_) => "circuit_breaker.window_calls".to_owned(),
                None if longest.starts_with("tools.") || is_set(&longest) => longest,
                None => "circuit_breaker.threshold".to_owned(),
            };
            gave_way.insert("circuit_breaker.window", to);
        }
        s.fit_answers(&set, &mut gave_way);
        (s, gave_way)
    }

    /// Answers that are kept fit into a principal's share of the bytes.
    fn fit_answers(
        &mut self,
        set: &BTreeSet<&'static str>,
        gave_way: &mut BTreeMap<&'static str, String>,
    ) {
        let (once, cache) = (&mut self.once, &mut self.cache);
        for (key, answer, to, bytes) in [
            (
                "once.max_answer",
                &mut once.max_answer,
                "once.max_bytes",
                once.max_bytes,
            ),
            (
                "cache.max_answer",
                &mut cache.max_answer,
                "cache.max_bytes",
                cache.max_bytes,
            ),
        ] {
            let share = bytes.div_ceil(8);
            if !set.contains(key) && *answer > share {
                *answer = share;
                gave_way.insert(key, to.to_owned());
            }
        }
    }

    /// Returns the window of the breakers, if it was not set: so long that timeouts one after the
    /// other open them, as far as a window can be.
    fn window_in_force(&self) -> Option<Duration> {
        let (_, longest) = self.longest_attempt();
        let breaker = &self.circuit_breaker;
        let threshold = breaker.threshold.max(2);
        // From the end of the first timeout to that of the last, one after the other.
        let row = longest.saturating_mul(threshold - 1);
        match breaker.window {
            _ if breaker.window_calls.is_some() => None,
            Some(window) if window <= row && !breaker.opens_at_once() => {
                let all = longest.saturating_mul(threshold);
                Some(all.min(MAX_PERIOD)).filter(|window| *window > row)
            }
            window => window,
        }
    }
}
