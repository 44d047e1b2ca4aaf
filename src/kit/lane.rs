//! Parts of a whole that threads have for themselves, so that they do not write to the same cache
//! line.

use std::{
    cell::Cell,
    fmt,
    ops::Deref,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// How many: a power of two, and more than the machine has threads, but 32 at most. Threads beyond
/// share them, and so may those that were started with many others in between.
pub(crate) fn lanes() -> usize {
    static LANES: LazyLock<usize> = LazyLock::new(|| {
        let threads = thread::available_parallelism().map_or(4, usize::from);
        (threads + 1).clamp(4, 32).next_power_of_two()
    });
    *LANES
}

/// A number for each thread, one after the other, from 1.
#[inline]
pub(crate) fn thread_number() -> usize {
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(0) });
    NUMBER.with(|number| match number.get() {
        0 => {
            number.set(next_number());
            number.get()
        }
        known => known,
    })
}

#[cold]
fn next_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// The one of a power of two of things that is this thread's.
#[inline]
pub(crate) fn here<T>(lanes: &[T]) -> &T {
    &lanes[thread_number() & (lanes.len() - 1)]
}

/// A value whose references are counted in each lane apart, so that calls on several threads can
/// keep one without writing to the same cache line.
pub struct Spread<T>(Arc<[Arc<Kept<T>>]>);

/// What the references of one lane are counted on.
#[repr(align(64))]
pub(crate) struct Kept<T>(Arc<T>);

impl<T> Spread<T> {
    pub(crate) fn new(value: T) -> Self {
        let value = Arc::new(value);
        let kept = |_| Arc::new(Kept(Arc::clone(&value)));
        Self((0..lanes()).map(kept).collect())
    }

    /// A reference for a call to keep.
    #[inline]
    pub(crate) fn keep(&self) -> Arc<Kept<T>> {
        Arc::clone(here(&self.0))
    }
}

impl<T> Clone for Spread<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Spread<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0[0]
    }
}

impl<T: fmt::Debug> fmt::Debug for Spread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_number_and_shares_it_with_nobody() {
        let mine = thread_number();
        assert_eq!(thread_number(), mine);
        let other = thread::spawn(thread_number).join().unwrap();
        assert_ne!(other, mine);
    }

    #[test]
    fn every_thread_has_one_of_the_lanes() {
        let lanes: Vec<usize> = (0..lanes()).collect();
        assert!(lanes.len().is_power_of_two());
        let of = |_| thread::scope(|scope| scope.spawn(|| *here(&lanes)).join().unwrap());
        let mut seen: Vec<usize> = (0..4 * lanes.len()).map(of).collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.iter().all(|lane| lanes.contains(lane)) && seen.len() > 1);
    }

    #[test]
    fn a_value_lives_as_long_as_somebody_keeps_a_reference() {
        let value = Arc::new(1);
        let spread = Spread::new(Arc::clone(&value));
        let kept = spread.keep();
        drop(spread);
        assert_eq!((**kept.0, Arc::strong_count(&value)), (1, 2));
        drop(kept);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
