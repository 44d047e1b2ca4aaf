use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// What a leaf leaves for the hooks of its own kind, with the recording and the attempt that it is about.
#[derive(Default)]
pub(super) struct Note(Mutex<Option<About>>);

struct About {
    recording: u32,
    attempt: u32,
    what: Arc<dyn Any + Send + Sync>,
}

impl Note {
    pub(super) fn leave(&self, recording: u32, attempt: u32, what: Arc<dyn Any + Send + Sync>) {
        let about = About {
            recording,
            attempt,
            what,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(about);
    }

    /// None if it is about another attempt.
    pub(super) fn read<T: Any + Send + Sync>(
        &self,
        recording: u32,
        attempt: u32,
    ) -> Option<Arc<T>> {
        let note = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let about = note.as_ref()?;
        let fits = (about.recording, about.attempt) == (recording, attempt);
        let what = fits.then(|| Arc::clone(&about.what))?;
        what.downcast().ok()
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Note").finish_non_exhaustive()
    }
}
