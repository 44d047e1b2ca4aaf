use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::{
    call::ToolCall,
    kit::{flights::FlightKey, reuse::Request},
};

/// The caller's own key: an extension.
#[derive(Clone)]
struct OnceKey(Arc<str>);

impl ToolCall {
    /// Names the effect of the call: a [`OnceLayer`](crate::once::OnceLayer) runs calls with one
    /// key once.
    ///
    /// Default: none. The layer then compares principal, tool and arguments for ten minutes. An
    /// empty key is none.
    ///
    /// Use the same key when the same effect is wanted again, and another key for another effect:
    /// two equal payments that are both meant need two keys. A key has at most 1 KiB. It is not
    /// sent to the tool.
    pub fn with_once_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.extensions_mut().insert(OnceKey(key.into()));
        self
    }

    /// Returns the caller's own key: see [`with_once_key`](Self::with_once_key).
    pub fn once_key(&self) -> Option<&str> {
        let OnceKey(key) = self.extensions().get()?;
        Some(&**key).filter(|key| !key.is_empty())
    }
}

/// The key of a principal's call.
#[derive(Clone)]
pub struct Key {
    pub(super) owner: Arc<str>,
    /// The caller's own key. Without one the request itself is the key.
    pub(super) id: Option<Box<str>>,
    pub(super) request: Request,
}

crate::text::debug_fields! { {} |_| Key { .. } }

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (&self.owner, &self.id) == (&other.owner, &other.id)
            && (self.id.is_some() || self.request == other.request)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.owner, &self.id).hash(hasher);
        if self.id.is_none() {
            self.request.hash(hasher);
        }
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
