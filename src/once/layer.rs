use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{
    key::Key,
    service::{Kept, Once},
};
use crate::{
    call::ToolCall,
    config::{ConfigError, refuse_if},
    key::DEFAULT_MAX_KEYS,
    kit::{
        fingerprint::Seed,
        flights::Flights,
        inert::Inert,
        principal::Principal,
        reuse::{MAX_TTL, Store},
    },
};

/// Layer that runs a repeated call once. See the [module docs](super) for an example.
///
/// The keys live in the layer value: services made from it, or from its clones, share them.
#[derive(Clone)]
#[must_use]
pub struct OnceLayer {
    pub(super) rules: Arc<Rules>,
}

/// Shared by all of a layer value.
pub(super) struct Rules {
    /// Calls with keys of their callers.
    pub(super) keyed: Arc<Flights<Key, Kept>>,
    /// Calls without, by their arguments. The oldest are forgotten if there is no room.
    pub(super) repeats: Arc<Flights<Key, Kept>>,
    pub(super) store: Store,
    pub(super) seed: Seed,
    pub(super) ttl: Duration,
    pub(super) within: Duration,
    pub(super) inert: Inert,
}

impl OnceLayer {
    /// A layer with the default settings: callers' keys count for 24 hours, equal arguments for ten minutes.
    pub fn new() -> Self {
        OnceBuilder::new().build_checked()
    }

    /// A builder with the default settings.
    pub fn builder() -> OnceBuilder {
        OnceBuilder::new()
    }

    /// The number of keys, those of running calls included, and those that have ended, until others come.
    pub fn len(&self) -> usize {
        self.rules.keyed.len() + self.rules.repeats.len()
    }

    /// Returns how many calls had no principal, and were compared with each other. The first one is the event
    /// `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.rules.inert.calls()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for OnceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for OnceLayer {
    type Service = Once<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Once::new(inner, Arc::clone(&self.rules))
    }
}

impl fmt::Debug for OnceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceLayer")
            .field("ttl", &self.rules.ttl)
            .field("repeat_within", &self.rules.within)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The settings of a [`OnceLayer`].
#[derive(Clone)]
#[must_use]
pub struct OnceBuilder {
    ttl: Duration,
    within: Duration,
    store: Store,
}

impl Default for OnceBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl OnceBuilder {
    /// The default settings; see [`OnceLayer::new`].
    pub fn new() -> Self {
        Self {
            ttl: Duration::from_secs(24 * 3600),
            within: Duration::from_secs(600),
            store: Store::new(Principal::Ids { narrow: false }, DEFAULT_MAX_KEYS),
        }
    }

    /// Sets how long the answer to a call with its caller's [key](ToolCall::with_once_key) is kept after the
    /// call has ended. Default 24 hours; at most 365 days.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets for how long after its end a call without a key of its own is not run again with the same
    /// arguments. Default ten minutes; at most 365 days.
    ///
    /// Zero turns that off: only calls with a [key](ToolCall::with_once_key) are then looked at.
    pub fn with_repeat_within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Sets how many callers' keys are kept at most, and how many calls without a key beside them. A
    /// principal has an eighth of each. Default 10,000; at most 16,777,216.
    ///
    /// Beyond that calls with new keys are refused, because no key is forgotten before its time. Of calls
    /// without a key the oldest are forgotten.
    pub fn with_max_keys(mut self, max: usize) -> Self {
        self.store.max_keys = max;
        self
    }

    /// Sets how many bytes an answer that is kept may have. Default 65,536; at most a principal's share of
    /// [`with_max_bytes`](Self::with_max_bytes). Of a larger one it is kept that the call has run.
    pub fn with_max_answer(mut self, bytes: u64) -> Self {
        self.store.size.max = bytes;
        self
    }

    /// Sets how many bytes the answers and errors of calls with callers' keys have together at most, and how
    /// many those of calls without a key beside them. Default 67,108,864 (64 MiB). A principal has an eighth
    /// of each, and all principals that were [not verified](ToolCall::with_unverified_ids) have half together.
    ///
    /// Beyond that the oldest answers go, of the principal or of all. Of these calls it is kept that they have
    /// run.
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.store.max_bytes = bytes;
        self
    }

    /// Sets how many bytes an answer of this type has. Default: the bytes of its JSON, if it is of one of the
    /// [usual types](crate::Answer::of_usual) or a result of MCP. Any other counts as many as
    /// [`with_max_answer`](Self::with_max_answer) allows.
    pub fn with_size<Res: 'static>(
        mut self,
        size: impl Fn(&Res) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.store.size.measure(size);
        self
    }

    /// Sets the principal of a call. Calls of different principals are not compared. A call for which the
    /// function returns `None` or an empty text has no principal: all such calls are compared with each
    /// other. Default: the subject, else the [agent id](ToolCall::agent_id), else the
    /// [session id](ToolCall::session_id).
    ///
    /// It has to be something that callers cannot choose, or choose for themselves only: who makes another's calls gets his answers.
    ///
    /// A closure that is bound to a variable first goes through [`principal_fn`](crate::key::principal_fn).
    pub fn with_principal(
        mut self,
        principal: impl Fn(&ToolCall) -> Option<&str> + Send + Sync + 'static,
    ) -> Self {
        self.store.principal = Principal::By(Arc::new(principal));
        self
    }

    /// Gives all calls one principal, which has the whole store: for a process that serves a single user.
    /// The layer then does not report calls without a principal.
    pub fn shared(mut self) -> Self {
        self.store.principal = Principal::Shared;
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// If a setting is zero, or beyond its bound. The error names it.
    pub fn build(self) -> Result<OnceLayer, ConfigError> {
        let times = [self.ttl; 2];
        self.store.check(times, "every call would run again")?;
        let long = format!("{:?} is longer than a year", self.within);
        refuse_if(self.within > MAX_TTL, "repeat_within", long)?;
        Ok(self.build_checked())
    }

    fn build_checked(self) -> OnceLayer {
        OnceLayer {
            rules: Arc::new(Rules {
                keyed: self.store.flights(false),
                repeats: self.store.flights(true),
                store: self.store,
                seed: Seed::default(),
                ttl: self.ttl,
                within: self.within,
                inert: Inert::new("once"),
            }),
        }
    }
}

crate::text::debug_fields! {
    {} |this| OnceBuilder {
        ttl: this.ttl,
        repeat_within: this.within,
        max_keys: this.store.max_keys,
        max_answer: this.store.size.max,
        max_bytes: this.store.max_bytes,
        principal: this.store.principal,
        ..
    }
}
