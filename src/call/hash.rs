//! Hashes of the names by which keyed layers tell calls apart.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The hash of (server, name) and that of the server alone: which of them is needed depends on the
/// [`Key`](crate::Key) of a layer.
#[derive(Clone, Default)]
pub(super) struct Hashes {
    tool: Hash,
    server: Hash,
}

impl Hashes {
    #[inline]
    pub(super) fn tool(&self, server: Option<&str>, tool: Option<&str>) -> u64 {
        self.tool.get(|| hash_of(server, tool))
    }

    #[inline]
    pub(super) fn server(&self, server: Option<&str>) -> u64 {
        self.server.get(|| hash_of(server, None))
    }

    /// Takes over what another value of the same names has computed.
    pub(super) fn adopt(&self, known: &Self) {
        let hash = known.tool.0.load(Relaxed);
        if hash != 0 {
            self.tool.0.store(hash, Relaxed);
        }
    }
}

/// A hash that is made when a keyed layer first asks; 0 until then.
#[derive(Default)]
struct Hash(AtomicU64);

impl Hash {
    #[inline]
    fn get(&self, make: impl FnOnce() -> u64) -> u64 {
        match self.0.load(Relaxed) {
            0 => {
                let hash = make();
                self.0.store(hash, Relaxed);
                hash
            }
            hash => hash,
        }
    }
}

impl Clone for Hash {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Relaxed)))
    }
}

/// Hashes a key with the process's own random seed, so that a caller cannot choose names that
/// collide.
///
/// The first word holds the length of the server, and which part is missing.
#[cold]
pub(crate) fn hash_of(server: Option<&str>, name: Option<&str>) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = SEED.build_hasher();
    let server_len = server.map_or(0, |server| server.len() as u64 + 1);
    hasher.write_u64(server_len << 1 | u64::from(name.is_some()));
    for part in [server, name].into_iter().flatten() {
        hasher.write(part.as_bytes());
    }
    // 0 is kept for "not made yet".
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_part_has_its_place_in_the_hash() {
        let pairs = [
            (None, None),
            (None, Some("")),
            (Some(""), None),
            (Some(""), Some("")),
            (None, Some("ab")),
            (Some("a"), Some("b")),
            (Some("ab"), None),
            (Some("ab"), Some("")),
            (Some("ab"), Some("\0")),
        ];
        let hashes = pairs.map(|(server, name)| hash_of(server, name));
        assert_eq!(HashSet::from(hashes).len(), pairs.len());
    }

    /// A table chooses a slot by the lowest bits.
    #[test]
    fn the_hashes_of_names_that_count_are_spread_over_all_bits() {
        const NAMES: usize = 1 << 14;
        for shift in [0, 20, 50] {
            let mut taken = vec![0; NAMES];
            for n in 0..NAMES {
                let hash = hash_of(Some("docs"), Some(&format!("tool_{n}")));
                taken[(hash >> shift) as usize % NAMES] += 1;
            }
            // Of random numbers 37 % leave a place empty, and some 7 have the fullest one.
            let empty = taken.iter().filter(|n| **n == 0).count();
            assert!(
                (0.33..0.41).contains(&(empty as f64 / NAMES as f64)),
                "{empty}"
            );
            assert!(taken.iter().all(|n| *n < 14));
        }
    }
}
