//! Parts of a future with an outlined drop.

use std::mem::ManuallyDrop;

/// A part that few futures have when they are dropped. Its drop is outlined, or the drop of each
/// future would call a function for it.
#[derive(Debug)]
pub(crate) struct Cold<P>(pub(crate) ManuallyDrop<Option<P>>);

impl<T> Cold<Box<T>> {
    #[cold]
    pub(crate) fn new(value: T) -> Self {
        Self::of(Box::new(value))
    }
}

impl<P> Cold<P> {
    #[inline]
    pub(crate) fn of(pointer: P) -> Self {
        Self(ManuallyDrop::new(Some(pointer)))
    }
}

impl<P> Default for Cold<P> {
    #[inline]
    fn default() -> Self {
        Self(ManuallyDrop::new(None))
    }
}

impl<P> Drop for Cold<P> {
    #[inline]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn end<P>(pointer: Option<P>) {
            drop(pointer);
        }
        // Taken only then: nothing is written for a pointer that is not there.
        if self.0.is_some() {
            end(self.0.take());
        }
    }
}
