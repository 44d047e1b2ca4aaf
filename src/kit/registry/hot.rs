//! Keys of which several calls are in flight at once, as one lane has them.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use super::Entry;

/// Places of a lane, a power of two. A key has one of them, by its hash.
pub(super) const PLACES: usize = 16;

/// How many calls find the place of their key taken before it is theirs.
pub(super) const PATIENCE: u32 = 1000;

/// How many of them one call of the key that has it makes up for: keys that are as hot do not take
/// it from each other, which allocates, and one that is seldom called does not keep it from one
/// that is hot.
pub(super) const WORTH: u32 = 8;

/// The hot keys of a lane: all of them are in its table. Without one it is nothing but a pointer.
#[derive(Debug)]
pub(super) struct Hot<V>(Option<Box<[Place<V>; PLACES]>>);

#[derive(Debug)]
struct Place<V> {
    /// What stands for the entry that has this place.
    kept: Option<Arc<Entry<V>>>,
    /// Calls that found it taken, less those for which others made up that found what they looked
    /// for.
    in_vain: AtomicU32,
}

impl<V> Hot<V> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What stands for an entry, if it has its place.
    #[inline]
    pub(super) fn keep(&self, entry: &Arc<Entry<V>>) -> Option<Arc<Entry<V>>> {
        let place = &self.0.as_ref()?[place(entry)];
        let kept = place.kept.as_ref()?;
        if !kept.is_of(entry) {
            return None;
        }
        let in_vain = place.in_vain.load(Relaxed);
        if in_vain != 0 {
            let in_vain = in_vain.saturating_sub(WORTH);
            place.in_vain.store(in_vain, Relaxed);
        }
        Some(Arc::clone(kept))
    }

    /// Returns whether an entry may take its place. Calls that ask at the same moment may count as
    /// one.
    pub(super) fn has_place_for(&self, entry: &Entry<V>) -> bool {
        let Some(places) = &self.0 else {
            return true;
        };
        let place = &places[place(entry)];
        let in_vain = place.in_vain.load(Relaxed) + 1;
        if place.kept.is_none() || in_vain > PATIENCE {
            return true;
        }
        place.in_vain.store(in_vain, Relaxed);
        false
    }

    /// Gives an entry of the lane's table its place. Of what had it before that table has the
    /// value.
    pub(super) fn put(&mut self, entry: &Arc<Entry<V>>) -> Arc<Entry<V>> {
        let empty = || Place {
            kept: None,
            in_vain: AtomicU32::new(0),
        };
        let make = || Box::new(std::array::from_fn(|_| empty()));
        let place = &mut self.0.get_or_insert_with(make)[place(entry)];
        *place.in_vain.get_mut() = 0;
        match &place.kept {
            Some(kept) if kept.is_of(entry) => Arc::clone(kept),
            _ => {
                let kept = Entry::of(entry);
                Arc::clone(place.kept.insert(kept))
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let places = self.0.iter().flat_map(|places| places.iter());
        places.filter(|place| place.kept.is_some()).count()
    }
}

/// By all bits of the hash: a user's function may make small numbers.
#[inline]
pub(super) fn place<V>(entry: &Entry<V>) -> usize {
    let mixed = entry.hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}
