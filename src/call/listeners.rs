use std::sync::{
    Mutex, Weak,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use crate::event::Listen;
use crate::lock::lock;

/// The most listeners that a call can have at a time.
const MAX_LISTENERS: usize = 4;

type Places = [Option<Weak<dyn Listen>>; MAX_LISTENERS];

/// The listeners on the record of a call.
///
/// A listener receives events while its bit is set. Its place then keeps it, until another listener
/// needs the place.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    places: Mutex<Places>,
    present: AtomicU8,
}

impl Listeners {
    /// Adds a listener. Returns its bit, 0 if it was there, or `None` if all places are taken.
    #[inline]
    pub(super) fn add(&self, listen: &Weak<dyn Listen>) -> Option<u8> {
        let mut places = lock(&self.places);
        let present = self.present.load(Relaxed);
        let is_it =
            |place: &Option<Weak<dyn Listen>>| place.as_ref().is_some_and(|it| it.ptr_eq(listen));
        let is_free = |n: &usize| present & 1 << *n == 0;
        let kept = places.iter().position(is_it);
        let n = kept.or_else(|| (0..MAX_LISTENERS).find(is_free))?;
        if kept.is_none() {
            places[n] = Some(Weak::clone(listen));
        }
        let bit = 1 << n;
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

    /// Returns a fingerprint of the listeners that are present; 0 for none.
    #[inline]
    pub(crate) fn together(&self) -> usize {
        match self.present.load(Relaxed) {
            0 => 0,
            present => of(&lock(&self.places), present)
                .fold(0, |all, listen| all.rotate_left(1) ^ listen.as_ptr().addr()),
        }
    }

    /// Copies the listeners that are present, so that none of them runs under the lock.
    pub(crate) fn copies(&self) -> [Option<Weak<dyn Listen>>; MAX_LISTENERS] {
        let mut copies = Places::default();
        let present = self.present.load(Relaxed);
        if present != 0 {
            for (copy, listen) in copies.iter_mut().zip(of(&lock(&self.places), present)) {
                *copy = Some(Weak::clone(listen));
            }
        }
        copies
    }
}

#[inline]
fn of(places: &Places, present: u8) -> impl Iterator<Item = &Weak<dyn Listen>> {
    let is_present = move |n: &usize| present & 1 << *n != 0;
    let places = (0..MAX_LISTENERS).filter(is_present).map(|n| &places[n]);
    places.flatten()
}
