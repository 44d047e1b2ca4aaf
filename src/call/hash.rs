//! Hashes of the names by which keyed layers tell calls apart.

use std::{
    hash::{BuildHasher as _, RandomState},
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
/// [SipHash-1-3](https://www.aumasson.jp/siphash/siphash.pdf) of both parts and their lengths, as
/// the standard library has it. Here each part is read in whole words, which its `Hasher` cannot
/// do: 183 instructions for `docs` and `search`, of 315.
#[cold]
pub(crate) fn hash_of(server: Option<&str>, name: Option<&str>) -> u64 {
    static SEED: LazyLock<[u64; 2]> = LazyLock::new(|| {
        let random = RandomState::new();
        [0_u64, 1].map(|n| random.hash_one(n))
    });
    let mut hasher = SipHash::new(*SEED);
    // The lengths tell where the one ends and the other begins, and which is missing.
    let mut lengths = 0;
    for part in [server, name] {
        lengths <<= 32;
        if let Some(part) = part {
            hasher.write(part.as_bytes());
            lengths |= part.len() as u64 + 1;
        }
    }
    hasher.write_word(lengths);
    // 0 is kept for "not made yet".
    hasher.finish().max(1)
}

/// The four words of the state, by the names that the paper gives them.
struct SipHash {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl SipHash {
    fn new([k0, k1]: [u64; 2]) -> Self {
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline(always)]
    fn round(&mut self) {
        let Self { v0, v1, v2, v3 } = self;
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32).wrapping_add(*v3);
        *v2 = v2.wrapping_add(*v1);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }

    #[inline(always)]
    fn write_word(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    /// A last word is filled up with zeros: who hashes several texts writes their lengths as well.
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.write_word(last(rest));
        }
    }

    #[inline(always)]
    fn finish(mut self) -> u64 {
        self.v2 ^= 0xff;
        for _ in 0..3 {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }
}

/// A word of less than eight bytes: four of them, two and one, as far as there are.
#[inline(always)]
fn last(mut bytes: &[u8]) -> u64 {
    let (mut word, mut bits) = (0, 0);
    if let Some((four, rest)) = bytes.split_first_chunk() {
        word = u64::from(u32::from_le_bytes(*four));
        (bytes, bits) = (rest, 32);
    }
    if let Some((two, rest)) = bytes.split_first_chunk() {
        word |= u64::from(u16::from_le_bytes(*two)) << bits;
        (bytes, bits) = (rest, bits + 16);
    }
    match bytes {
        [one, ..] => word | u64::from(*one) << bits,
        [] => word,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        hash::{DefaultHasher, Hasher as _},
    };

    use super::*;

    #[test]
    fn texts_of_all_lengths_that_differ_in_one_bit_have_other_hashes() {
        for len in 0..600 {
            let text = "a".repeat(len);
            let hashes: HashSet<u64> = (0..len)
                .map(|at| {
                    let mut other = text.clone();
                    other.replace_range(at..=at, "c");
                    hash_of(None, Some(&other))
                })
                .chain([hash_of(None, Some(&text))])
                .collect();
            assert_eq!(hashes.len(), len + 1);
        }
    }

    #[test]
    fn zeros_of_all_lengths_have_hashes_of_their_own() {
        let zeros = "\0".repeat(600);
        let hashes = (0..600).map(|len| hash_of(Some(&zeros[..len]), None));
        assert_eq!(hashes.collect::<HashSet<u64>>().len(), 600);
    }

    /// The standard library's `DefaultHasher` is that with zeros for a seed, and ends with the
    /// length in its highest byte.
    #[test]
    fn words_have_the_hash_of_the_standard_library() {
        let text =
            "the words of a text, eight bytes each, all of them hashed by two implementations";
        for words in 0..=text.len() / 8 {
            let mut standard = DefaultHasher::new();
            standard.write(&text.as_bytes()[..8 * words]);
            let mut ours = SipHash::new([0, 0]);
            for word in text.as_bytes().as_chunks().0.iter().take(words) {
                ours.write_word(u64::from_le_bytes(*word));
            }
            ours.write_word((8 * words as u64) << 56);
            assert_eq!(ours.finish(), standard.finish(), "{words} words");
        }
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
