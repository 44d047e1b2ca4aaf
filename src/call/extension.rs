use std::sync::{Mutex, PoisonError};

use http::Extensions;

/// Values that a leaf, or a layer, leaves about one attempt for observers above that know their
/// types. Nothing is allocated before the first value.
#[derive(Default)]
pub(super) struct AttemptExtensions(Mutex<Option<Box<(Attempt, Extensions)>>>);

/// The numbers of a recording and of an attempt in it.
pub(super) type Attempt = (u32, u32);

impl AttemptExtensions {
    /// Values of another attempt go.
    pub(super) fn insert<T: Clone + Send + Sync + 'static>(&self, attempt: Attempt, value: T) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let current = slot.take().filter(|current| current.0 == attempt);
        let mut current = current.unwrap_or_else(|| Box::new((attempt, Extensions::new())));
        current.1.insert(value);
        *slot = Some(current);
    }

    pub(super) fn get<T: Clone + Send + Sync + 'static>(&self, attempt: Attempt) -> Option<T> {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let current = slot.as_ref().filter(|current| current.0 == attempt)?;
        current.1.get().cloned()
    }
}

crate::text::opaque_debug!({} AttemptExtensions);
