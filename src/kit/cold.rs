//! The part of a future that few calls have.

/// A pointer that few futures have. Its drop is outlined, or the drop of each future would call a
/// function for it.
#[derive(Debug)]
pub(crate) struct Cold<P>(pub(crate) Option<P>);

impl<T> Cold<Box<T>> {
    #[cold]
    pub(crate) fn new(value: T) -> Self {
        Self(Some(Box::new(value)))
    }
}

impl<P> Default for Cold<P> {
    #[inline]
    fn default() -> Self {
        Self(None)
    }
}

impl<P> Drop for Cold<P> {
    #[inline]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn end<P>(pointer: P) {
            drop(pointer);
        }
        if let Some(pointer) = self.0.take() {
            end(pointer);
        }
    }
}
