//! The settings of where answers are kept.

use std::sync::Arc;

use super::{
    principal::{Principal, PrincipalFn},
    reuse::Store,
};
use crate::call::ToolCall;

/// The settings of an [`OnceLayer`](crate::once::OnceLayer) or a
/// [`CacheLayer`](crate::cache::CacheLayer).
///
/// Both keep answers by principal, tool and arguments. They differ in what happens if a store is
/// full, and in how long an answer is kept.
#[derive(Clone, Debug)]
#[must_use]
pub struct StoreBuilder<R> {
    pub(crate) rules: R,
    pub(crate) store: Store,
}

impl<R> StoreBuilder<R> {
    /// Sets how many keys are kept at most, those of running calls included. A principal has an
    /// eighth. Default 10,000 for `once`, 1,000 for `cache`; at most 16,777,216.
    ///
    /// Beyond that `once` refuses calls with new keys of their callers, because no key is evicted
    /// before its time. It keeps as many calls without a key beside them, and evicts the oldest.
    /// `cache` evicts the eighth that is stale first, of all or of the principal.
    pub fn with_max_keys(mut self, max: usize) -> Self {
        self.store.max_keys = max;
        self
    }

    /// Sets how many bytes an answer that is kept may have, at most a principal's share of
    /// [`with_max_bytes`](Self::with_max_bytes). Default 65,536, or that share if it is less.
    ///
    /// Of a larger one `once` keeps that the call has run. `cache` keeps nothing of it.
    pub fn with_max_answer(mut self, bytes: u64) -> Self {
        self.store.max_answer = Some(bytes);
        self
    }

    /// Sets how many bytes the answers have together at most. Default 67,108,864 (64 MiB). A
    /// principal has an eighth, and all principals that were [not
    /// verified](ToolCall::with_unverified_ids) have half together.
    ///
    /// Beyond that `cache` evicts the answers that are stale first, of all or of the principal.
    /// `once` drops the oldest answers, and keeps that their calls have run. Its calls without a
    /// key of their callers have as many bytes beside the others.
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.store.max_bytes = bytes;
        self
    }

    /// Sets how many bytes an answer of this type has. Default: the bytes of its JSON, if it is of
    /// one of the [usual types](crate::Answer::of_usual) or a result of MCP. Any other counts as
    /// many as [`with_max_answer`](Self::with_max_answer) allows.
    pub fn with_size<Res: 'static>(
        mut self,
        size: impl Fn(&Res) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.store.size.measure(size);
        self
    }

    /// Sets the principal of a call. Default: the subject, else the [agent id](ToolCall::agent_id),
    /// else for `once` the [session id](ToolCall::session_id). For `cache` the session is part of
    /// the principal.
    ///
    /// Callers with one principal share answers. Choose a value that callers cannot forge.
    ///
    /// A call for which the function returns `None` or an empty text has no principal. `once`
    /// compares all such calls with each other, and `cache` keeps nothing of them.
    ///
    /// A closure that is bound to a variable first goes through
    /// [`principal_fn`](crate::key::principal_fn).
    pub fn with_principal(
        mut self,
        principal: impl Fn(&ToolCall) -> Option<&str> + Send + Sync + 'static,
    ) -> Self {
        self.store.principal = Principal::By(PrincipalFn(Arc::new(principal)));
        self
    }

    /// Gives all calls one principal, which has the whole store: for a process that serves a single
    /// user, and for tools that answer all callers alike.
    pub fn shared(mut self) -> Self {
        self.store.principal = Principal::Shared;
        self
    }
}
