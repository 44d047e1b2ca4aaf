use std::{
    any::TypeId,
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::{
    call::ToolCall,
    kit::{fingerprint::Fingerprint, flights::FlightKey},
};

/// The caller's own key: an extension.
#[derive(Clone)]
struct OnceKey(Arc<str>);

impl ToolCall {
    /// Names what the call does: a call with the same key and the same arguments does not do it again below a
    /// [`OnceLayer`](crate::once::OnceLayer). Default: the session id and the call id together, if there are both. An empty key is none.
    ///
    /// It is another key for another thing to be done, and the same one when the same thing is asked for again; at most 1 KiB. It is
    /// not sent to the tool.
    #[must_use]
    pub fn with_once_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.extensions_mut().insert(OnceKey(key.into()));
        self
    }

    /// The caller's own key: see [`with_once_key`](Self::with_once_key).
    pub fn once_key(&self) -> Option<&str> {
        let OnceKey(key) = self.extensions().get()?;
        Some(&**key).filter(|key| !key.is_empty())
    }
}

/// A key of a principal, and for what it was used first.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) owner: Arc<str>,
    pub(super) id: Box<str>,
    pub(super) request: Request,
}

/// What has to be equal in all calls with one key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) server: Option<Arc<str>>,
    pub(super) tool: Arc<str>,
    pub(super) arguments: Fingerprint,
    /// The type of the answer: services of several types may share a layer.
    pub(super) answer: TypeId,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (&self.owner, &self.id) == (&other.owner, &other.id)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.owner, &self.id).hash(hasher);
    }
}

impl FlightKey for Key {
    fn owner(&self) -> Option<&Arc<str>> {
        Some(&self.owner)
    }

    fn share_owner(&mut self, owner: Arc<str>) {
        self.owner = owner;
    }

    fn is_same(&self, other: &Self) -> bool {
        self.request == other.request
    }
}

/// The text of a call's key.
pub(super) fn id(call: &ToolCall) -> Option<Box<str>> {
    if let Some(key) = call.once_key() {
        return Some(format!("key:{key}").into());
    }
    let given = |id: &&str| !id.is_empty();
    let session = call.session_id().filter(given)?;
    let id = call.id().filter(given)?;
    Some(format!("call:{}:{session}:{id}", session.len()).into())
}
