use std::sync::{Mutex, PoisonError};

use http::Extensions;

/// What a leaf, or a layer, leaves about one attempt for observers above that know its type. Nothing is allocated before
/// the first value.
#[derive(Default)]
pub(super) struct AttemptExtensions(Mutex<Option<Box<OfAttempt>>>);

struct OfAttempt {
    recording: u32,
    attempt: u32,
    values: Extensions,
}

impl OfAttempt {
    fn is_of(&self, recording: u32, attempt: u32) -> bool {
        (self.recording, self.attempt) == (recording, attempt)
    }
}

impl AttemptExtensions {
    /// Values of another attempt go.
    pub(super) fn insert<T>(&self, recording: u32, attempt: u32, value: T)
    where
        T: Clone + Send + Sync + 'static,
    {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let current = slot.take().filter(|e| e.is_of(recording, attempt));
        let mut current = current.unwrap_or_else(|| {
            Box::new(OfAttempt {
                recording,
                attempt,
                values: Extensions::new(),
            })
        });
        current.values.insert(value);
        *slot = Some(current);
    }

    pub(super) fn get<T>(&self, recording: u32, attempt: u32) -> Option<T>
    where
        T: Clone + Send + Sync + 'static,
    {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let current = slot.as_ref().filter(|e| e.is_of(recording, attempt))?;
        current.values.get().cloned()
    }
}

crate::text::opaque_debug!({} AttemptExtensions);
