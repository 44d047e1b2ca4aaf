//! `[shared]`: the mirror that it makes, and a URL that may have a password.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

#[cfg(feature = "redis")]
use {
    super::{Settings, StackLayer, names::in_section},
    crate::{
        config::ConfigError,
        edge::shared::{RedisStore, SharedState},
    },
};

/// The URL of a server. It may have a password, so `Debug` shows, and a file that is written has,
/// neither a user nor what stands behind a question mark.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// All of it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ServerUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", ""));
        // A password may have any of these characters, unescaped by mistake.
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let host = host.split(['?', '#']).next().unwrap_or_default();
        match host.starts_with(|c: char| c.is_alphanumeric() || "/[".contains(c)) {
            true => write!(f, "{scheme}://{host}"),
            false => f.write_str("..."),
        }
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "redis")]
impl Settings {
    /// The mirror of a stack's breakers and rate limits, over the Redis server of `[shared]`.
    /// `None` where `shared.url` is not set. Nothing is mirrored until its
    /// [`run`](SharedState::run) is polled:
    ///
    /// ```
    /// use tower_toolcall::settings::Settings;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower_toolcall::BoxError> {
    /// let settings = Settings::default().with_env()?; // TOOLCALL_SHARED_URL, for example
    /// let stack = settings.stack().build()?;
    /// if let Some(shared) = settings.shared(&stack)? {
    ///     tokio::spawn(shared.run());
    /// }
    /// # fn of<S>(_: S) {} of(stack); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `shared.url`, `shared.namespace`, `shared.grace` or `shared.resync`: it cannot work, as
    /// [`RedisStore`] and [`SharedState`] have it. `circuit_breaker.key`, `rate_limit.key`: it is
    /// `agent`, and ids of agents may be not for the store.
    pub fn shared<C, O>(
        &self,
        stack: &StackLayer<C, O>,
    ) -> Result<Option<SharedState<RedisStore>>, ConfigError> {
        let mut shared = self.mirror()?;
        if self.shared.url.is_none() {
            return Ok(None);
        }
        if self.circuit_breaker.enabled {
            shared = shared
                .breakers("breakers", &stack.circuit_breaker())
                .map_err(|error| error.with_field("circuit_breaker.key"))?;
        }
        if let Some(limits) = stack.rate_limit() {
            shared = shared
                .rate_limits("limits", &limits)
                .map_err(|error| error.with_field("rate_limit.key"))?;
        }
        Ok(Some(shared))
    }

    /// Without layers, and over any server if none is set: the other settings are checked all the
    /// same.
    pub(super) fn mirror(&self) -> Result<SharedState<RedisStore>, ConfigError> {
        let shared = &self.shared;
        let url = shared.url.as_ref();
        RedisStore::new(url.map_or("redis://127.0.0.1", ServerUrl::expose))
            .and_then(|store| store.with_namespace(&shared.namespace))
            .and_then(|store| SharedState::new(store).with_grace(shared.grace))
            .and_then(|state| state.with_resync(shared.resync))
            .map_err(in_section("shared"))
    }
}
