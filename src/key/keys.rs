use std::collections::HashSet;

use super::Key;
use crate::{
    call::ToolCall,
    config::{ConfigError, refuse_if},
};

/// The default of [`Keys::at_most`].
pub(crate) const DEFAULT_MAX_KEYS: usize = 10_000;

/// The largest bound on a number of keys.
pub(crate) const MOST_KEYS: usize = 1 << 24;

/// The keys under which a layer keeps state: which calls share one, how many are kept, and which
/// are known.
///
/// Every keyed layer takes this value by its `with_keys`. A [`Key`] alone is one, too. A part that
/// a value does not set stays as it was.
///
/// ```
/// use tower_toolcall::{Key, Keys, circuit_breaker::CircuitBreakerLayer};
///
/// # fn main() -> Result<(), tower_toolcall::ConfigError> {
/// let breaker = CircuitBreakerLayer::builder().with_keys(Key::Server).build()?;
///
/// let keys = Keys::by(Key::Tool).at_most(1_000).known(["docs__search", "pay"]);
/// let breaker = CircuitBreakerLayer::builder().with_keys(keys).build()?;
/// # let _ = breaker; Ok(()) }
/// ```
///
/// # Eviction
///
/// A key is *known* if it was [declared](Self::known), or once a call with it has succeeded. A
/// layer without a classifier takes every `Ok` for a success. Keys that are not known have at most
/// half of the places, and displace a known one only if that has no state to lose. So names that
/// untrusted callers invent take neither all places nor the state of a real one.
///
/// Threads look keys up in up to 32 tables. Each that has used a key takes about 70 bytes for it.
///
/// - [`circuit_breaker`](crate::circuit_breaker) keeps a key while the breaker is not closed, until
///   its open period has been over for an hour. Beyond the bound calls pass without a breaker.
/// - [`rate_limit`](crate::rate_limit) keeps a key while it cools down. Beyond the bound calls
///   pass.
/// - [`quota`](crate::quota) keeps a key while units are used up, if there is another key to evict.
///   Beyond the bound calls pass.
/// - [`concurrency_limit`](crate::concurrency_limit) keeps a key while calls run or wait. Beyond
///   the bound calls pass.
/// - [`repeat_guard`](crate::repeat_guard) keeps a key while a failure is recent, if there is
///   another key to evict. Beyond the bound calls are not compared.
/// - [`retry`](crate::retry), for budgets keeps a key while retries were made lately. Beyond the
///   bound keys share one budget.
///
/// A key is also kept as long as a call with it is in flight.
///
/// # Errors
///
/// The layer's `build` returns the error.
///
/// - `max_keys`: the bound is zero or more than 16,777,216, or there are more known keys
/// - `known_keys`: a known call has no session, or the function of the key picks an empty text for
///   it; or the key is per principal, and names are declared
/// - `key`: single tools have limits, and tools share a key
#[derive(Clone, Default)]
#[must_use]
pub struct Keys {
    key: Option<Key>,
    max: Option<usize>,
    names: Vec<Box<str>>,
    calls: Vec<ToolCall>,
}

impl Keys {
    /// Returns keys by which calls share state. Default: [`Key::Tool`], and of the repeat guard
    /// [`Key::Session`].
    pub fn by(key: Key) -> Self {
        Self {
            key: Some(key),
            ..Self::default()
        }
    }

    /// Sets how many keys are kept at most. Default 10,000; at most 16,777,216.
    pub fn at_most(mut self, max: usize) -> Self {
        self.max = Some(max);
        self
    }

    /// Declares keys by name, which are never evicted: servers for [`Key::Server`], else tools.
    /// Default: none.
    ///
    /// A flat name (`docs__search`) declares the tool of the server, too, and takes two places. A
    /// name is not a key [per principal](Key::per_principal): for these declare
    /// [calls](Self::known_calls).
    pub fn known<N: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Declares the keys of calls, which are never evicted. Only the parts of a call that make the
    /// key matter.
    pub fn known_calls(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.calls.extend(calls);
        self
    }

    /// Sets the parts that `keys` has.
    pub(crate) fn set(&mut self, keys: impl Into<Self>) {
        let keys = keys.into();
        self.key = keys.key.or(self.key.take());
        self.max = keys.max.or(self.max);
        self.names.extend(keys.names);
        self.calls.extend(keys.calls);
    }

    pub(crate) fn key(&self) -> &Key {
        self.key.as_ref().unwrap_or(&Key::Tool)
    }

    pub(crate) fn max(&self) -> usize {
        self.max.unwrap_or(DEFAULT_MAX_KEYS)
    }

    /// Returns calls with the known keys.
    pub(crate) fn declared(&self) -> impl Iterator<Item = ToolCall> {
        let names = self.names.iter().flat_map(|name| match self.key() {
            Key::Server => [Some(ToolCall::new("").with_server(&**name)), None],
            _ => named(name),
        });
        names.flatten().chain(self.calls.iter().cloned())
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let has_names = matches!(self.key(), Key::PerPrincipal(_)) && !self.names.is_empty();
        let reason = "a name is not a key per principal: declare calls with their principals";
        refuse_if(has_names, "known_keys", reason)?;
        let hashes: HashSet<u64> = self
            .declared()
            .map(|c| self.key().hash(&c.info()))
            .collect();
        let reason =
            "a known call has no key: its session is missing, or the function picks an empty text";
        let has_none = self
            .key()
            .of_none()
            .is_some_and(|none| hashes.contains(&none));
        refuse_if(has_none, "known_keys", reason)?;
        let (max, known) = (self.max(), hashes.len());
        let reason = format!("{max} is less than the {known} keys that are known");
        refuse_if(max > 0 && known > max, "max_keys", reason)?;
        check_max("max_keys", max)
    }
}

impl From<Key> for Keys {
    fn from(key: Key) -> Self {
        Self::by(key)
    }
}

crate::text::debug_fields! { {} |this| Keys { key: this.key(), at_most: this.max(), .. } }

/// Returns calls of the tool with this name: by the name itself, and by a flat name's server and
/// tool.
pub(crate) fn named(name: &str) -> [Option<ToolCall>; 2] {
    let of_server = name.split_once("__");
    let of_server = of_server.map(|(server, tool)| ToolCall::new(tool).with_server(server));
    [Some(ToolCall::new(name)), of_server]
}

/// Checks a bound on a number of keys.
pub(crate) fn check_max(field: &'static str, max: usize) -> Result<(), ConfigError> {
    let reason = format!("{max} is not between 1 and {MOST_KEYS}");
    refuse_if(!(1..=MOST_KEYS).contains(&max), field, reason)
}
