//! A quick look at a key: most keys hold none of the three-letter sequences that sensitive ones hold.

use super::words::TRIGRAMS;

/// For a byte: the trigrams (one bit each) that have it in their first, second, third place.
#[derive(Clone, Copy)]
struct Places {
    first: u64,
    second: u64,
    third: u64,
    /// All bits for a separator, which is passed over.
    passed: u64,
}

/// `pw` is a word of its own; its bit is the one that no trigram has.
const PW: u64 = 1 << 63;

/// Of the ASCII bytes; a key with others is looked at closely.
static PLACES: [Places; 128] = {
    assert!(TRIGRAMS.len() <= 63);
    let mut places = [Places {
        first: 0,
        second: 0,
        third: 0,
        passed: 0,
    }; 128];
    let mut byte = 0;
    while byte < 128 {
        if !(byte as u8).is_ascii_alphanumeric() {
            places[byte].passed = u64::MAX;
        }
        byte += 1;
    }
    let mut i = 0;
    while i < TRIGRAMS.len() {
        let part = TRIGRAMS[i].as_bytes();
        assert!(part.len() == 3);
        let (a, b, c) = (part[0] as usize, part[1] as usize, part[2] as usize);
        places[a].first |= 1 << i;
        places[a - 32].first |= 1 << i;
        places[b].second |= 1 << i;
        places[b - 32].second |= 1 << i;
        places[c].third |= 1 << i;
        places[c - 32].third |= 1 << i;
        i += 1;
    }
    // Digits that stand for letters: `p4ssw0rd`.
    let disguised = *b"4a3e1i0o5s";
    let mut i = 0;
    while i < disguised.len() {
        let (digit, letter) = (disguised[i] as usize, disguised[i + 1] as usize);
        places[digit].second |= places[letter].second;
        places[digit].third |= places[letter].third;
        i += 2;
    }
    places[b'p' as usize].first |= PW;
    places[b'P' as usize].first |= PW;
    places[b'w' as usize].second |= PW;
    places[b'W' as usize].second |= PW;
    places
};

/// Whether the run at `at` of bytes for which `belongs` holds may be sensitive by the built-in words: false is certain.
/// Where it ends, too. None if it has others than ASCII.
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
        let place = PLACES.get(usize::from(*byte))?;
        found |= two & place.third;
        let second = one & place.second;
        found |= second & PW;
        two = (two & place.passed) | (second & !place.passed);
        one = (one & place.passed) | (place.first & !place.passed);
        end += 1;
    }
    Some((end, found != 0))
}

/// Whether `key` may be sensitive by the built-in words: false is certain.
pub(super) fn suspicious(key: &str) -> bool {
    suspicious_run(key.as_bytes(), 0, &[true; 256]).is_none_or(|(_, found)| found)
}
