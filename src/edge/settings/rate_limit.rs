use super::Settings;
use crate::rate_limit::{RateLimitBackoffBuilder, RateLimitBackoffLayer};

impl Settings {
    /// The rate-limit layer alone, to be completed and built, whether it is enabled or not.
    pub fn rate_limit_builder(&self) -> RateLimitBackoffBuilder {
        let limit = &self.in_force().rate_limit;
        let builder = RateLimitBackoffLayer::builder()
            .with_default_cooldown(limit.default_cooldown)
            .with_max_wait(limit.max_wait)
            .with_max_cooldown(limit.max_cooldown)
            .with_attempts(limit.attempts)
            .with_key(limit.key.into())
            .with_known_keys(self.known_calls(limit.max_keys))
            .with_max_keys(limit.max_keys);
        let builder = match limit.text_limits {
            true => builder.with_text_limits(),
            false => builder,
        };
        match limit.fail_fast {
            true => builder.with_fail_fast(),
            false => builder,
        }
    }
}
