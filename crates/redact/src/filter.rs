//! A quick look at a key: most keys hold none of the three-letter sequences that sensitive ones
//! hold.

use super::words::{DISGUISED, TRIGRAMS};

/// For each byte: the number of a letter, in any case. Digits have the number of the letter that
/// they stand for, or of no letter.
static CODES: [u8; 256] = {
    let mut codes = [SKIPPED; 256];
    let mut byte = 0;
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            codes[byte] = if byte < 64 { 31 } else { byte as u8 & 31 };
        } else if byte >= 128 {
            codes[byte] = FOREIGN;
        }
        byte += 1;
    }
    let mut i = 0;
    while i < DISGUISED[0].len() {
        codes[DISGUISED[0][i] as usize] = DISGUISED[1][i] & 31;
        i += 1;
    }
    codes
};

/// Separators.
const SKIPPED: u8 = 0xfe;
/// Bytes beyond ASCII.
const FOREIGN: u8 = 0xff;

/// A bit for each three letters: set if a sensitive key may hold them.
static KNOWN: [u64; 512] = {
    let mut known = [0; 512];
    let mut i = 0;
    while i < TRIGRAMS.len() {
        let [a, b, c] = *TRIGRAMS[i].as_bytes() else {
            panic!("not three letters")
        };
        let place = (a as usize & 31) << 10 | (b as usize & 31) << 5 | (c as usize & 31);
        known[place >> 6] |= 1 << (place & 63);
        i += 1;
    }
    // The word `pw`, behind any letter or none.
    let mut first = 0;
    while first < 32 {
        let place = first << 10 | (b'p' as usize & 31) << 5 | (b'w' as usize & 31);
        known[place >> 6] |= 1 << (place & 63);
        first += 1;
    }
    known
};

/// The end of the bytes from `at` on for which `belongs` holds, and whether they may be sensitive
/// by the built-in words: false is certain. `None` if some of them are beyond ASCII.
pub(super) fn suspicious_run(
    text: &[u8],
    at: usize,
    belongs: &[bool; 256],
) -> Option<(usize, bool)> {
    let (mut last, mut found, mut end) = (0, 0, at);
    while let Some(byte) = text.get(end)
        && belongs[usize::from(*byte)]
    {
        match CODES[usize::from(*byte)] {
            FOREIGN => return None,
            SKIPPED => {}
            code => {
                last = (last << 5 | usize::from(code)) & 0x7fff;
                found |= KNOWN[last >> 6] >> (last & 63) & 1;
            }
        }
        end += 1;
    }
    Some((end, found != 0))
}

/// Returns whether `key` may be sensitive by the built-in words: false is certain.
pub(super) fn suspicious(key: &str) -> bool {
    suspicious_run(key.as_bytes(), 0, &[true; 256]).is_none_or(|(_, found)| found)
}
