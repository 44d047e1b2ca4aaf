use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many listeners the record of a call holds at a time.
pub(crate) const MAX_LISTENERS: usize = 4;

/// The number of a [registered](crate::event::Listening) listener. No other listener of the process
/// ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u64);

/// Up to `N` registered listeners.
#[derive(Debug)]
pub(crate) struct ListenerIds<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for ListenerIds<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> ListenerIds<N> {
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = ListenerId> {
        let ids = self.0.iter().map(|id| id.load(Relaxed));
        ids.filter(|id| *id != 0).map(ListenerId)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|id| id.load(Relaxed) == 0)
    }

    pub(crate) fn ids(&self) -> [Option<ListenerId>; N] {
        let present = |id: &AtomicU64| Some(id.load(Relaxed)).filter(|id| *id != 0);
        self.0.each_ref().map(|id| present(id).map(ListenerId))
    }

    #[inline]
    pub(crate) fn contains(&self, id: ListenerId) -> bool {
        self.0.iter().any(|known| known.load(Relaxed) == id.0)
    }

    /// Takes a free place; `None` if there is none.
    #[inline]
    pub(crate) fn add(&self, id: ListenerId) -> Option<usize> {
        let free = |place: &AtomicU64| {
            place.load(Relaxed) == 0 && place.compare_exchange(0, id.0, Relaxed, Relaxed).is_ok()
        };
        self.0.iter().position(free)
    }

    #[inline]
    pub(crate) fn remove(&self, place: usize) {
        self.0[place].store(0, Relaxed);
    }

    #[inline]
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|place| place.store(0, Relaxed));
    }

    /// Puts it first; the one that was first the longest time ago makes room.
    pub(crate) fn put_first(&self, id: ListenerId) {
        let mut moved = id.0;
        for place in &self.0 {
            moved = place.swap(moved, Relaxed);
        }
    }
}
