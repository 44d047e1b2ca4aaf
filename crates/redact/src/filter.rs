//! A quick look at a key: most keys hold none of the three-letter sequences that sensitive ones
//! hold.

use super::words::{DISGUISED, TRIGRAMS};

/// For an ASCII byte: the trigrams (one bit each) that have it in their first, second, third place.
type Places = [[u64; 3]; 128];

/// The bit of the word `pw`, which no trigram uses.
const PW: u64 = 1 << 63;

static PLACES: Places = {
    assert!(TRIGRAMS.len() <= 63);
    let mut places = [[0; 3]; 128];
    let mut i = 0;
    while i < TRIGRAMS.len() {
        let part = TRIGRAMS[i].as_bytes();
        assert!(part.len() == 3);
        let mut nth = 0;
        while nth < 3 {
            add(&mut places, part[nth], nth, 1 << i);
            nth += 1;
        }
        i += 1;
    }
    let mut i = 0;
    while i < DISGUISED[0].len() {
        let [_, second, third] = places[DISGUISED[1][i] as usize];
        places[DISGUISED[0][i] as usize] = [0, second, third];
        i += 1;
    }
    add(&mut places, b'p', 0, PW);
    add(&mut places, b'w', 1, PW);
    places
};

/// Adds the `nth` place of a letter of either case.
const fn add(places: &mut Places, letter: u8, nth: usize, bit: u64) {
    places[letter as usize][nth] |= bit;
    places[letter.to_ascii_uppercase() as usize][nth] |= bit;
}

/// The end of the run of bytes at `at` for which `belongs` holds, and whether it may be sensitive
/// by the built-in words: false is certain. `None` if it has bytes beyond ASCII.
pub(super) fn suspicious_run(
    text: &[u8],
    at: usize,
    belongs: &[bool; 256],
) -> Option<(usize, bool)> {
    let (mut one, mut two, mut found) = (0, 0, 0);
    let mut end = at;
    while let Some(byte) = text.get(end)
        && belongs[usize::from(*byte)]
    {
        let [first, second, third] = PLACES.get(usize::from(*byte))?;
        // Separators are skipped.
        if byte.is_ascii_alphanumeric() {
            found |= two & third | one & second & PW;
            (one, two) = (*first, one & second);
        }
        end += 1;
    }
    Some((end, found != 0))
}

/// Returns whether `key` may be sensitive by the built-in words: false is certain.
pub(super) fn suspicious(key: &str) -> bool {
    suspicious_run(key.as_bytes(), 0, &[true; 256]).is_none_or(|(_, found)| found)
}
