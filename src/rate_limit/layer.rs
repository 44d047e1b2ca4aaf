use std::{sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{
    handle::RateLimitHandle,
    keyed::{KeyGate, Settings, Shared},
    turn::RateLimitBackoff,
};
use crate::{
    config::ConfigError,
    kit::{
        backoff::Jitter,
        keyed::{Classified, KeyedBuilder},
    },
    outcome::ByError,
};

/// Layer that waits out rate limits, for all calls of a key together. See the [module docs](super)
/// for an example.
///
/// The cooldowns live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct RateLimitBackoffLayer<C = ByError> {
    pub(super) gates: RateLimitHandle,
    pub(super) classifier: C,
}

impl RateLimitBackoffLayer {
    /// Makes a layer with the default settings.
    pub fn new() -> Self {
        RateLimitBackoffBuilder::new().build_checked()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> RateLimitBackoffBuilder {
        RateLimitBackoffBuilder::new()
    }
}

impl Default for RateLimitBackoffLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> RateLimitBackoffLayer<C> {
    /// Returns a handle that reads the cooldowns of this layer, ends them and begins others.
    pub fn handle(&self) -> RateLimitHandle {
        self.gates.clone()
    }
}

impl<S: Clone, C: Clone> Layer<S> for RateLimitBackoffLayer<C> {
    type Service = RateLimitBackoff<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimitBackoff::new(inner, self.clone())
    }
}

crate::text::debug_fields! {
    {C} |this| RateLimitBackoffLayer<C> { settings: this.gates.shared.settings, .. }
}

/// The settings of a [`RateLimitBackoffLayer`].
pub type RateLimitBackoffBuilder<C = ByError> = KeyedBuilder<Settings, C>;

impl Classified for Settings {}

impl<C> RateLimitBackoffBuilder<C> {
    /// Sets how many attempts are made at a call that meets the limit itself, the first one
    /// included. Default 3. Under a retry layer, which repeats calls itself, this one only holds
    /// them back.
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = attempts;
        self
    }

    /// Refuses calls immediately while their key cools down, with the time to come back, instead of
    /// letting them wait. Never repeats a call; nor does an inner retry layer repeat a rate limit
    /// then. An outer retry layer never repeats such a refusal; it repeats the call that met the
    /// limit, unless its policy is [without rate
    /// limits](crate::retry::RetryPolicy::without_rate_limits).
    pub fn with_fail_fast(mut self) -> Self {
        self.settings.waits = false;
        self
    }

    /// Sets the cooldown after a rate limit that came without a hint. Default 30 s, or the
    /// [longest cooldown](Self::with_max_cooldown) if that is shorter; at most that.
    pub fn with_default_cooldown(mut self, cooldown: Duration) -> Self {
        self.settings.default_cooldown = Some(cooldown);
        self
    }

    /// Sets the longest time that a call waits for its turns, all of them together. One that would
    /// have to wait longer, or beyond its deadline, is refused immediately, with the full time.
    /// Default 300 s. The random addition to a delay, at most one second, does not count.
    pub fn with_max_wait(mut self, max: Duration) -> Self {
        self.settings.max_wait = max;
        self
    }

    /// Sets the longest cooldown that calls share. Default 300 s, or the [default
    /// cooldown](Self::with_default_cooldown) if that is longer; at most a day.
    ///
    /// The call that met a longer one is not sent again earlier than the server asked, and its
    /// error carries the whole time. Other calls return one by one after this time.
    pub fn with_max_cooldown(mut self, max: Duration) -> Self {
        self.settings.max_cooldown = Some(max);
        self
    }

    /// Lets a limit that is known by text alone hold other calls back too, for the default cooldown
    /// at most.
    ///
    /// Default: it does not. The text may be an answer that the tool repeats, or report a limit
    /// that a step of its own work met. It delays only the call that met it, if that call may be
    /// sent again. A limit always begins a cooldown if the tool or its service reports it by its
    /// own [`ToolError`](crate::ToolError) or by a status on its own connection, or if a
    /// [classifier](Self::with_classifier) finds it.
    pub fn with_text_limits(mut self) -> Self {
        self.settings.text_limits = true;
        self
    }

    /// Sets whether cooldowns are randomised. With [`Jitter::None`] a cooldown is as long as the
    /// server, or the default, says. With any other a random part of at most a tenth, and of one
    /// second, is added. Default: [`Jitter::Upwards`].
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.settings.jitter = jitter;
        self
    }

    /// Makes the random addition to a cooldown the same in each run, for tests.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// If a setting is zero that cannot be, or beyond its bound. The error names it.
    pub fn build(self) -> Result<RateLimitBackoffLayer<C>, ConfigError> {
        self.settings.check()?;
        self.keys.check()?;
        Ok(self.build_checked())
    }

    fn build_checked(mut self) -> RateLimitBackoffLayer<C> {
        // A layer that fails fast does not wait, so it does not repeat.
        if !self.settings.waits {
            (self.settings.attempts, self.settings.max_wait) = (1, Duration::ZERO);
        }
        let shared = Arc::new(Shared::new(self.settings, self.listener.clone()));
        let (overflow, make) = (KeyGate::new(&shared), |_: &_| KeyGate::new(&shared));
        let registry = self
            .keys
            .registry("rate_limit", self.listener, overflow, make);
        RateLimitBackoffLayer {
            gates: RateLimitHandle { registry, shared },
            classifier: self.classifier,
        }
    }
}
