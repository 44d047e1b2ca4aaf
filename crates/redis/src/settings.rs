use tower_toolcall::{
    ConfigError,
    settings::{Settings, StackLayer},
};

use super::{RedisStore, SharedState};

impl SharedState<RedisStore> {
    /// Returns the mirror of a stack's breakers and rate limits, over the Redis server of
    /// `[shared]` in the settings that the stack was built of. `None` where `shared.url` is not
    /// set. Nothing is mirrored until [`run`](SharedState::run) is polled:
    ///
    /// ```
    /// use tower_toolcall::settings::Settings;
    /// use tower_toolcall_redis::SharedState;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_toolcall::BoxError> {
    /// let settings = Settings::default().with_env()?; // TOOLCALL_SHARED_URL, for example
    /// let stack = settings.stack().build()?;
    /// if let Some(shared) = SharedState::from_settings(&settings, &stack)? {
    ///     tokio::spawn(shared.run());
    /// }
    /// # fn of<S>(_: S) {} of(stack); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `shared.url`, `shared.namespace`, `shared.grace` or `shared.resync`: it cannot work, as
    /// [`RedisStore`] and [`SharedState`] have it; also where the URL is not set.
    /// `circuit_breaker.key`, `rate_limit.key`: it is `agent`, and ids of agents may be not for the
    /// store. `rate_limit.per_principal`: it is on. A setting that came from a variable is named by
    /// it.
    pub fn from_settings<C, O>(
        settings: &Settings,
        stack: &StackLayer<C, O>,
    ) -> Result<Option<Self>, ConfigError> {
        let section = &settings.shared;
        let url = section.url.as_ref();
        // Without a URL the others are checked all the same.
        let mut shared = RedisStore::new(url.map_or("redis://127.0.0.1", |url| url.expose()))
            .and_then(|store| store.with_namespace(&section.namespace))
            .and_then(|store| SharedState::new(store).with_grace(section.grace))
            .and_then(|state| state.with_resync(section.resync))
            .map_err(|error| settings.name_error("shared", error))?;
        if url.is_none() {
            return Ok(None);
        }
        let name = |section, key| {
            move |error: ConfigError| settings.name_error(section, error.with_field(key))
        };
        if settings.circuit_breaker.enabled {
            shared = shared
                .breakers("breakers", &stack.circuit_breaker())
                .map_err(name("circuit_breaker", "key"))?;
        }
        if let Some(limits) = stack.rate_limit() {
            let key = match settings.rate_limit.per_principal {
                Some(true) => "per_principal",
                _ => "key",
            };
            shared = shared
                .rate_limits("limits", &limits)
                .map_err(name("rate_limit", key))?;
        }
        Ok(Some(shared))
    }
}
