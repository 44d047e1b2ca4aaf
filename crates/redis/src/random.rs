use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// A random number: each `RandomState` has keys of its own.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// A part of a duration, from zero to just below all of it.
pub(crate) fn part(of: Duration, random: u64) -> Duration {
    // 53 bits, as many as a float has.
    of.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}
