use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_layer::Layer;

use super::{
    gate::MAX_COOLDOWN,
    keyed::{Gates, Keyed, Settings},
    service::{RateLimitBackoff, Shared},
};
use crate::{
    backoff::Random,
    config::ConfigError,
    error::ToolError,
    event::{Listen, Listener},
    key::Key,
    lane::Spread,
    outcome::{ByError, Classify, Outcome},
    registry::{DEFAULT_MAX_KEYS, Registry, check_max_keys},
    template::Template,
};

/// Layer that waits out rate limits, for all calls of a key together. See the [module docs](super) for
/// an example.
///
/// The gates live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct RateLimitBackoffLayer<C = ByError> {
    gates: Gates,
    settings: Arc<Settings>,
    classifier: C,
}

impl RateLimitBackoffLayer {
    /// A layer with the default settings.
    pub fn new() -> Self {
        RateLimitBackoffBuilder::new().build_checked()
    }

    /// The settings, to be changed.
    pub fn builder() -> RateLimitBackoffBuilder {
        RateLimitBackoffBuilder::new()
    }
}

impl Default for RateLimitBackoffLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone, C: Clone> Layer<S> for RateLimitBackoffLayer<C> {
    type Service = RateLimitBackoff<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimitBackoff::new(
            inner.clone(),
            Spread::new(Shared {
                template: Template::new(inner),
                gates: self.gates.clone(),
                settings: Arc::clone(&self.settings),
            }),
            self.classifier.clone(),
        )
    }
}

impl<C> fmt::Debug for RateLimitBackoffLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBackoffLayer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The settings of a [`RateLimitBackoffLayer`].
#[derive(Clone)]
#[must_use]
pub struct RateLimitBackoffBuilder<C = ByError> {
    key: Key,
    max_keys: usize,
    attempts: u32,
    waits: bool,
    default_cooldown: Duration,
    max_wait: Duration,
    listener: Listener,
    classifier: C,
}

impl Default for RateLimitBackoffBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RateLimitBackoffBuilder {
    /// The default settings.
    pub fn new() -> Self {
        Self {
            key: Key::default(),
            max_keys: DEFAULT_MAX_KEYS,
            attempts: 3,
            waits: true,
            default_cooldown: Duration::from_secs(30),
            max_wait: Duration::from_secs(300),
            listener: Listener::default(),
            classifier: ByError,
        }
    }
}

impl<C> RateLimitBackoffBuilder<C> {
    /// Sets what calls share a limit. Default: those of one tool of one server.
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// Sets how many keys are kept at most. Default 10,000; at most 16,777,216. A key that is cooling is
    /// not forgotten; if all are, calls of unknown keys pass.
    pub fn with_max_keys(mut self, max: usize) -> Self {
        self.max_keys = max;
        self
    }

    /// Sets how many attempts are made at a call that meets the limit itself, the first one included.
    /// Default 3. Under a retry layer, which repeats calls itself, this one only holds them back.
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Refuses calls of a cooling key at once, with the time to come back, in place of letting them
    /// wait; and repeats none. Nor does a retry layer below repeat a rate limit then. One above does, unless
    /// its policy is [without rate limits](crate::retry::RetryPolicy::without_rate_limits).
    pub fn fail_fast(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Sets the cooldown after a rate limit that came without a hint. Default 30 s (L1); at most a day.
    pub fn with_default_cooldown(mut self, cooldown: Duration) -> Self {
        self.default_cooldown = cooldown;
        self
    }

    /// Sets the longest time that a call waits for its turns, all of them together. One that would have to
    /// wait longer, or beyond its deadline, is refused at once, with the full time. Default 300 s (L2).
    pub fn with_max_wait(mut self, max: Duration) -> Self {
        self.max_wait = max;
        self
    }

    /// Sets who hears of rate limits and evictions. Default: nobody; the events are emitted either way.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.listener = Listener::new(listen);
        self
    }

    /// Sets what results mean. Default: [`ByError`]. It is cloned for each call: what is large in it belongs in an
    /// [`Arc`](std::sync::Arc).
    pub fn with_classifier<D>(self, classifier: D) -> RateLimitBackoffBuilder<D> {
        RateLimitBackoffBuilder {
            key: self.key,
            max_keys: self.max_keys,
            attempts: self.attempts,
            waits: self.waits,
            default_cooldown: self.default_cooldown,
            max_wait: self.max_wait,
            listener: self.listener,
            classifier,
        }
    }

    /// The same with a closure, its argument types inferred.
    pub fn classify_fn<Res, F>(self, classify: F) -> RateLimitBackoffBuilder<F>
    where
        F: Fn(Result<&Res, &ToolError>) -> Outcome,
        F: Classify<Res>,
    {
        self.with_classifier(classify)
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// If a setting is zero that cannot be, or beyond its bound. The error names it.
    pub fn build(self) -> Result<RateLimitBackoffLayer<C>, ConfigError> {
        if self.attempts == 0 {
            return Err(ConfigError::new("attempts", "it is zero: no call is made"));
        }
        check_max_keys(self.max_keys)?;
        if self.default_cooldown > MAX_COOLDOWN {
            let reason = format!("{:?} is longer than a day", self.default_cooldown);
            return Err(ConfigError::new("default_cooldown", reason));
        }
        if self.default_cooldown.is_zero() {
            return Err(ConfigError::new(
                "default_cooldown",
                "it is zero: the limit would be met again at once",
            ));
        }
        Ok(self.build_checked())
    }

    fn build_checked(self) -> RateLimitBackoffLayer<C> {
        let settings = Arc::new(Settings {
            attempts: self.attempts,
            waits: self.waits,
            default_cooldown: self.default_cooldown,
            max_wait: self.max_wait,
            listener: self.listener.clone(),
            random: Random::default(),
            origin: Instant::now(),
        });
        let overflow = Keyed::overflow(&settings);
        RateLimitBackoffLayer {
            gates: Registry::new(self.key, self.max_keys, overflow, self.listener),
            settings,
            classifier: self.classifier,
        }
    }
}

impl<C> fmt::Debug for RateLimitBackoffBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBackoffBuilder")
            .field("key", &self.key)
            .field("attempts", &self.attempts)
            .field("waits", &self.waits)
            .field("default_cooldown", &self.default_cooldown)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}
