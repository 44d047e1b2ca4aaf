//! The part of a future that few calls have.

/// A box that few futures have. Its drop is outlined, or the drop of each future would call a
/// function for it.
#[derive(Debug)]
pub(crate) struct Cold<T>(pub(crate) Option<Box<T>>);

impl<T> Cold<T> {
    #[cold]
    pub(crate) fn new(value: T) -> Self {
        Self(Some(Box::new(value)))
    }
}

impl<T> Default for Cold<T> {
    #[inline]
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Drop for Cold<T> {
    #[inline]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn end<T>(value: Box<T>) {
            drop(value);
        }
        if let Some(value) = self.0.take() {
            end(value);
        }
    }
}
