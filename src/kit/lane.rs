//! Shards per thread, so that threads do not write to the same cache line.

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

/// Returns the number of lanes: a power of two above the number of the machine's threads, at most
/// 32. Further threads share them.
pub(crate) fn lanes() -> usize {
    static LANES: LazyLock<usize> = LazyLock::new(|| {
        let threads = thread::available_parallelism().map_or(4, usize::from);
        (threads + 1).clamp(4, 32).next_power_of_two()
    });
    *LANES
}

/// Returns the number of this thread. Threads are numbered from 1.
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

/// Returns the lane of this thread. The number of lanes is a power of two.
#[inline]
pub(crate) fn here<T>(lanes: &[T]) -> &T {
    &lanes[thread_number() & (lanes.len() - 1)]
}

/// A value with a reference count per lane, so that calls on several threads can keep a reference
/// without writing to the same cache line.
pub struct Spread<T>(Arc<[Arc<Kept<T>>]>);

/// The reference count of one lane.
#[repr(align(64))]
pub(crate) struct Kept<T>(Arc<T>);

impl<T> Spread<T> {
    pub(crate) fn new(value: T) -> Self {
        let value = Arc::new(value);
        let kept = |_| Arc::new(Kept(Arc::clone(&value)));
        Self((0..lanes()).map(kept).collect())
    }

    /// Returns a reference for a call to keep.
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
