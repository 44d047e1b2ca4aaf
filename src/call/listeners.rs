use std::sync::{
    Mutex, Weak,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::event::Listen;
use crate::lock::lock;

/// The most listeners that a call can have at a time.
const MAX_LISTENERS: usize = 4;

type Places = [Option<Weak<dyn Listen>>; MAX_LISTENERS];

/// The listeners on the record of a call.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    places: Mutex<Places>,
    /// How many there are. Most calls have none, and take no lock.
    present: AtomicUsize,
}

impl Listeners {
    /// Adds a listener. Returns its place; `u8::MAX`, which is never a place, if the listener was
    /// there; `None` if all places are taken.
    pub(super) fn add(&self, listen: &Weak<dyn Listen>) -> Option<u8> {
        let mut places = lock(&self.places);
        if places.iter().flatten().any(|it| it.ptr_eq(listen)) {
            return Some(u8::MAX);
        }
        let n = places.iter().position(Option::is_none)?;
        places[n] = Some(Weak::clone(listen));
        self.present.fetch_add(1, Relaxed);
        u8::try_from(n).ok()
    }

    pub(super) fn remove(&self, place: u8) {
        let mut places = lock(&self.places);
        if let Some(Some(_)) = places.get_mut(usize::from(place)).map(Option::take) {
            self.present.fetch_sub(1, Relaxed);
        }
    }

    #[inline]
    pub(super) fn clear(&self) {
        if self.present.load(Relaxed) > 0 {
            let mut places = lock(&self.places);
            *places = Places::default();
            self.present.store(0, Relaxed);
        }
    }

    /// Returns a fingerprint of the listeners that are present; 0 for none.
    #[inline]
    pub(crate) fn together(&self) -> usize {
        if self.present.load(Relaxed) == 0 {
            return 0;
        }
        let places = lock(&self.places);
        let addresses = places.iter().flatten().map(|it| it.as_ptr().addr());
        addresses.fold(0, |all, address| all.rotate_left(1) ^ address)
    }

    /// Copies the listeners that are present, so that none of them runs under the lock.
    pub(crate) fn copies(&self) -> [Option<Weak<dyn Listen>>; MAX_LISTENERS] {
        match self.present.load(Relaxed) {
            0 => Places::default(),
            _ => lock(&self.places).clone(),
        }
    }
}
