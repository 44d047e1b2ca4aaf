use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{KeyBy, Settings, duration};
use crate::{
    kit::registry::DEFAULT_MAX_KEYS,
    rate_limit::{RateLimitBackoffBuilder, RateLimitBackoffLayer},
};

/// What happens after a rate limit: `[rate_limit]`. See [`RateLimitBackoffLayer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RateLimitSettings {
    /// Whether the layer is there. Default: yes. Without it the retry layer still waits after a rate limit,
    /// each call for itself.
    pub enabled: bool,
    /// How long to wait after a rate limit that came without a hint, for the retry layer as well; at most a day.
    /// Default 30 s.
    #[serde(with = "duration")]
    pub default_cooldown: Duration,
    /// The longest wait; a server that asks for more is not obeyed, and not hurried either. Default 300 s. Where the
    /// retry layer repeats a call, it is for each of its waits; else for all waits of a call together.
    #[serde(with = "duration")]
    pub max_wait: Duration,
    /// The longest cooldown that calls share, at most a day; the call that met a longer one still comes back no earlier than
    /// the server asked. Default 300 s.
    #[serde(with = "duration")]
    pub max_cooldown: Duration,
    /// Whether a limit that is known by an error's text alone holds other calls back as well, for `default_cooldown` at most.
    /// Default: no; it delays its own call.
    pub text_limits: bool,
    /// How often a call is sent at most that meets the limit itself, where no retry layer repeats it. Default 3.
    pub attempts: u32,
    /// Whether calls of a cooling key are refused at once and do not wait. Nobody repeats a call that met the limit then,
    /// the retry layer neither. Default: no.
    pub fail_fast: bool,
    /// Which calls share a limit: `tool`, `tool_name` or `server`. Default: `tool`.
    pub key: KeyBy,
    /// How many keys are kept. Default 10,000.
    pub max_keys: usize,
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            default_cooldown: Duration::from_secs(30),
            max_wait: Duration::from_secs(300),
            max_cooldown: Duration::from_secs(300),
            text_limits: false,
            attempts: 3,
            fail_fast: false,
            key: KeyBy::Tool,
            max_keys: DEFAULT_MAX_KEYS,
        }
    }
}

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
