use std::{
    ptr,
    sync::{
        OnceLock, Weak,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use crate::event::Listen;

/// The most listeners that the record of a call can have.
const MAX_LISTENERS: usize = 4;

/// The listeners on the record of a call.
///
/// A place keeps its listener, so that clones that are sent one after the other fill it once. The
/// listener receives events while its bit is set.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    places: [OnceLock<Weak<dyn Listen>>; MAX_LISTENERS],
    present: AtomicU8,
}

impl Listeners {
    /// Adds a listener. Returns its bit, or 0 if it was there; `None` if there is no place.
    #[inline]
    pub(super) fn add(&self, listen: &Weak<dyn Listen>) -> Option<u8> {
        let is_it = |place: &OnceLock<_>| {
            let kept = place.get_or_init(|| Weak::clone(listen));
            ptr::addr_eq(kept.as_ptr(), listen.as_ptr())
        };
        let bit = 1 << self.places.iter().position(is_it)?;
        Some(bit & !self.present.fetch_or(bit, Relaxed))
    }

    #[inline]
    pub(super) fn remove(&self, bit: u8) {
        self.present.fetch_and(!bit, Relaxed);
    }

    #[inline]
    pub(super) fn clear(&self) {
        self.present.store(0, Relaxed);
    }

    /// Returns whether every place has its listener, present or not.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.places[MAX_LISTENERS - 1].get().is_some()
    }

    /// Returns a number of the present listeners together, which others have not; 0 for none.
    #[inline]
    pub(crate) fn together(&self) -> usize {
        match self.present.load(Relaxed) {
            0 => 0,
            _ => self
                .iter()
                .fold(0, |all, listen| all.rotate_left(1) ^ listen.as_ptr().addr()),
        }
    }

    /// The listeners that are present.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Weak<dyn Listen>> {
        let present = self.present.load(Relaxed);
        let is_present = move |n: &usize| present & 1 << *n != 0;
        let places = (0..MAX_LISTENERS).filter(is_present);
        places.filter_map(|n| self.places[n].get())
    }
}
