//! The keys by which layers keep state for calls.

pub(crate) mod keys;
mod text;

use std::sync::Arc;

pub use self::keys::Keys;
pub(crate) use self::keys::{DEFAULT_MAX_KEYS, check_max};
use crate::call::{CallInfo, ToolCall, Whose, hash_of};

/// Which calls share one state: one breaker, one cooldown. Looking a key up does not allocate.
///
/// Keys are made of the names that calls have: inside an [`IdentityLayer`](crate::identity) those
/// of existing tools, outside it and without it whatever callers write. Until the list of a server
/// was read, its tools share a key under `Tool` and `ToolName`.
///
/// ```
/// use tower_toolcall::Key;
///
/// let per_tool = Key::default();
/// let per_session = Key::by(|call| call.session_id().unwrap_or(""));
/// # let _ = (per_tool, per_session);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Key {
    /// (server, tool). The default: one bad tool never affects another.
    #[default]
    Tool,
    /// The tool's name alone, where names are unique over all servers.
    ToolName,
    /// The server; of a call without one, its tool.
    Server,
    /// The caller's session; of a call without one, its agent. Ids that were
    /// [not verified](crate::ToolCall::with_unverified_ids) are other keys than verified ones.
    Session,
    /// A part of the call that a function picks out; see [`Key::by`].
    By(KeyFn),
    /// A hash that a function makes; see [`Key::hashed`].
    Hashed(HashFn),
    /// Another key, with a state for each principal; see [`Key::per_principal`].
    PerPrincipal(Arc<Self>),
}

/// The function of [`Key::hashed`].
#[derive(Clone)]
pub struct HashFn(Arc<dyn Fn(&CallInfo) -> u64 + Send + Sync>);

crate::text::debug_fields! { {} |_| HashFn { .. } }

/// The function of [`Key::by`].
#[derive(Clone)]
pub struct KeyFn(Arc<dyn Fn(&CallInfo) -> &str + Send + Sync>);

crate::text::debug_fields! { {} |_| KeyFn { .. } }

impl Key {
    /// Makes a key of a part of the call, by a function: a session id, an agent id, a prefix of the
    /// tool's name. It is asked once per call and layer, and again where the key is new.
    ///
    /// Calls for which it picks an empty text share one state. The first of them is the event
    /// `tool.inert`, and the layer's handle counts them.
    ///
    /// A closure that is bound to a variable first goes through [`key_fn`].
    pub fn by(f: impl Fn(&CallInfo) -> &str + Send + Sync + 'static) -> Self {
        Self::By(KeyFn(Arc::new(f)))
    }

    /// Makes a key of a hash of something that must not be kept as text, such as a credential.
    /// Calls with the same hash share one state, so the hash should distinguish credentials.
    ///
    /// ```
    /// use std::hash::{BuildHasher, RandomState};
    /// use tower_toolcall::Key;
    ///
    /// let seed = RandomState::new();
    /// let token_of = |agent: Option<&str>| format!("the token of {agent:?}");
    /// let per_credential = Key::hashed(move |call| seed.hash_one(token_of(call.agent_id())));
    /// # let _ = per_credential;
    /// ```
    pub fn hashed(f: impl Fn(&CallInfo) -> u64 + Send + Sync + 'static) -> Self {
        Self::Hashed(HashFn(Arc::new(f)))
    }

    /// Returns this key, with a separate state for each principal: the subject, else the agent,
    /// else the session. Calls without a principal share one. For upstreams with a limit per user.
    ///
    /// ```
    /// use tower_toolcall::{Key, rate_limit::RateLimitBackoffLayer};
    ///
    /// # fn main() -> Result<(), tower_toolcall::ConfigError> {
    /// let limits = RateLimitBackoffLayer::builder()
    ///     .with_keys(Key::Server.per_principal())
    ///     .build()?;
    /// # let _ = limits; Ok(()) }
    /// ```
    #[must_use]
    pub fn per_principal(self) -> Self {
        Self::PerPrincipal(Arc::new(self))
    }

    /// Returns the hash of the call's key under this rule. It stands for the key: callers cannot
    /// choose names for their hashes, so of a million keys two collide once in 40 million
    /// processes.
    #[inline]
    pub(crate) fn hash(&self, call: &CallInfo) -> u64 {
        match self {
            Self::Tool => call.tool_hash(),
            _ => self.other_hash(call),
        }
    }

    #[inline(never)]
    fn other_hash(&self, call: &CallInfo) -> u64 {
        match self {
            Self::Server if call.server().is_some() => call.server_hash(),
            Self::Tool | Self::Server => call.tool_hash(),
            Self::ToolName if call.listed_tool().is_none() => call.tool_hash(),
            Self::ToolName => hash_of(None, Some(call.tool())),
            Self::Session => hash_of_session(call),
            Self::By(KeyFn(f)) => hash_of(None, Some(f(call))),
            Self::Hashed(HashFn(f)) => f(call),
            Self::PerPrincipal(_) => {
                let principal = call.principal_hash().unwrap_or_default();
                self.base().hash(call) ^ principal.rotate_left(32)
            }
        }
    }

    /// Returns the hash of calls that have no key, if this rule finds none for some.
    pub(crate) fn of_none(&self) -> Option<u64> {
        matches!(self.base(), Self::By(_) | Self::Session).then(|| hash_of(None, Some("")))
    }

    /// Returns the key that each principal has of its own, or this one.
    pub(crate) fn base(&self) -> &Self {
        match self {
            Self::PerPrincipal(key) => key.base(),
            _ => self,
        }
    }

    /// Returns whether it may be made of the ids of callers, and not of names of tools alone.
    pub fn is_of_ids(&self) -> bool {
        !matches!(self, Self::Tool | Self::ToolName | Self::Server)
    }

    /// Returns whether the caller may have invented the key.
    pub(crate) fn may_be_invented(&self, call: &CallInfo) -> bool {
        match self {
            Self::Session => session_of(call).is_some_and(|whose| call.is_unverified(whose)),
            Self::By(_) | Self::Hashed(_) => call.has_unverified_principal(),
            Self::PerPrincipal(key) => call.has_unverified_principal() || key.may_be_invented(call),
            Self::Tool | Self::ToolName | Self::Server => false,
        }
    }

    /// Returns the server and the name in it, as far as it has them.
    pub(crate) fn parts<'a>(&self, call: &'a CallInfo) -> (Option<&'a str>, Option<&'a str>) {
        match self {
            Self::Tool => (call.server(), call.listed_tool()),
            Self::Server if call.server().is_none() => (None, call.listed_tool()),
            Self::Server => (call.server(), None),
            Self::ToolName if call.listed_tool().is_none() => (call.server(), None),
            Self::ToolName => (None, Some(call.tool())),
            Self::By(KeyFn(f)) => (None, Some(f(call))),
            Self::Session | Self::Hashed(_) => (None, None),
            Self::PerPrincipal(key) => key.parts(call),
        }
    }
}

/// The id that [`Key::Session`] takes.
fn session_of(call: &CallInfo) -> Option<Whose<'_>> {
    let given = |id: &&str| !id.is_empty();
    let session = call.session_id().filter(given).map(Whose::Session);
    session.or_else(|| call.agent_id().filter(given).map(Whose::Agent))
}

fn hash_of_session(call: &CallInfo) -> u64 {
    let whose = session_of(call);
    let hash = match whose {
        Some(Whose::Session(id)) => hash_of(Some(id), None),
        Some(Whose::Agent(id)) => hash_of(None, Some(id)),
        Some(Whose::Subject(_)) | None => hash_of(None, Some("")),
    };
    // An id that was not verified never has the key of a verified one.
    match whose.is_some_and(|whose| call.is_unverified(whose)) {
        true => !hash,
        false => hash,
    }
}

/// Infers the lifetimes of a closure that is bound to a variable, for [`Key::by`].
///
/// Without it the compiler takes the two lifetimes for different ones: "lifetime may not live long
/// enough".
///
/// ```
/// use tower_toolcall::{Key, key::key_fn};
///
/// let session = key_fn(|call| call.session_id().unwrap_or("none"));
/// let (breakers, quotas) = (Key::by(session), Key::by(session));
/// # let _ = (breakers, quotas);
/// ```
pub fn key_fn<F: Fn(&CallInfo) -> &str>(f: F) -> F {
    f
}

/// Infers the lifetimes of a closure that finds a principal, for the methods `with_principal`.
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall::{cache::CacheLayer, key::principal_fn, once::OnceLayer};
///
/// let agent = principal_fn(|call| call.agent_id());
/// let once = OnceLayer::builder().with_principal(agent);
/// let cache = CacheLayer::builder(Duration::from_secs(60), ["search"]).with_principal(agent);
/// # let _ = (once, cache);
/// ```
pub fn principal_fn<F: Fn(&ToolCall) -> Option<&str>>(f: F) -> F {
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(server: &str, name: &str) -> CallInfo {
        ToolCall::new(name).with_server(server).info()
    }

    #[test]
    fn the_default_key_tells_servers_and_tools_apart() {
        let key = Key::default();
        let (a, b, c) = (info("s", "x"), info("s", "y"), info("t", "x"));
        assert_eq!(key.hash(&a), key.hash(&info("s", "x")));
        assert_ne!(key.hash(&a), key.hash(&b));
        assert_ne!(key.hash(&a), key.hash(&c));
    }

    #[test]
    fn a_changed_server_changes_the_hash() {
        let call = ToolCall::new("x");
        let before = Key::Tool.hash(&call.info());
        let call = call.with_server("s");
        assert_ne!(Key::Tool.hash(&call.info()), before);
    }

    #[test]
    fn a_server_key_and_a_name_key_of_the_same_text_differ() {
        let call = info("x", "x");
        assert_ne!(Key::Server.hash(&call), Key::ToolName.hash(&call));
    }

    /// Only the hash distinguishes keys.
    #[test]
    fn where_the_server_ends_and_whether_there_is_one_changes_the_hash() {
        let key = Key::default();
        assert_ne!(key.hash(&info("ab", "c")), key.hash(&info("a", "bc")));
        let without = ToolCall::new("c").info();
        assert_ne!(key.hash(&info("", "c")), key.hash(&without));
        assert_ne!(Key::Server.hash(&info("", "c")), Key::Server.hash(&without));
    }

    #[test]
    fn a_changed_server_changes_the_hash_of_the_server_too() {
        let call = ToolCall::new("x").with_server("s");
        let before = Key::Server.hash(&call.info());
        let call = call.with_server("t");
        assert_ne!(Key::Server.hash(&call.info()), before);
    }

    /// E.1.4.
    #[test]
    fn a_call_without_a_server_has_the_key_of_its_tool() {
        let (a, b) = (ToolCall::new("a").info(), ToolCall::new("b").info());
        assert_eq!(Key::Server.hash(&a), Key::Tool.hash(&a));
        assert_ne!(Key::Server.hash(&a), Key::Server.hash(&b));
        assert_eq!(Key::Server.parts(&a), (None, Some("a")));
        assert_eq!(Key::Server.parts(&info("s", "a")), (Some("s"), None));
    }

    /// L3.
    #[test]
    fn a_hash_keeps_no_text() {
        let key = Key::hashed(|call| call.agent_id().map_or(0, |id| id.len() as u64));
        let of = |agent: &'static str| ToolCall::new("x").with_agent_id(agent).info();
        let (a, b, c) = (of("abc"), of("xyz"), of("longer"));
        assert_eq!(key.hash(&a), key.hash(&b));
        assert_ne!(key.hash(&a), key.hash(&c));
        assert_eq!(key.parts(&a), (None, None));
    }

    #[test]
    fn a_function_picks_a_part_of_the_call() {
        let key = Key::by(|call| call.session_id().unwrap_or(""));
        let call = ToolCall::new("x").with_session_id("s1").info();
        assert_eq!(key.parts(&call), (None, Some("s1")));
    }
}
