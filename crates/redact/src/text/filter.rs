//! The next run, and whether it is plain: most words of prose need no detector, as their letters,
//! their length and the characters beside them show.

use std::ops::Range;

use super::{bytes::*, command::COMMANDS, scheme::CAREFUL, vendors::may_begin};
use crate::filter::suspicious_run;

/// Longer words may be tokens.
const SHORT: usize = 12;

/// Words of this length may be keys without a prefix.
const LONG: usize = 32;

/// The longest word of a list has fewer letters.
const LENGTHS: usize = 24;

/// Further words that detectors look for and the filter of names does not know.
const WORDS: &str = "bearer identified input_value tcp tcp6 unix udp htpasswd code codes phrase echo printf net obscure sha \
    ssha md5 smd5 crypt value -value --value state";

/// For a length: the first and last letters of such words, of schemes and of commands, hashed to a
/// bit each.
pub(super) static TRIGGERS: Words = {
    let mut table = with(with([0; LENGTHS], WORDS), CAREFUL);
    let mut i = 0;
    while i < COMMANDS.len() {
        table = with(table, COMMANDS[i].names);
        i += 1;
    }
    Words("", table)
};

const fn with(mut table: [u64; LENGTHS], words: &str) -> [u64; LENGTHS] {
    let words = words.as_bytes();
    let (mut start, mut end) = (0, 0);
    while end <= words.len() {
        if end == words.len() || words[end] == b' ' {
            table[end - start] |= ends(words[start], words[end - 1]);
            start = end + 1;
        }
        end += 1;
    }
    table
}

/// The bit of the first and the last letter of a word, in any case.
const fn ends(first: u8, last: u8) -> u64 {
    1 << ((first & 31).wrapping_mul(11).wrapping_add(last & 31) & 63)
}

/// A list of words with blanks between them, which most words are not compared with.
#[derive(Debug)]
pub(crate) struct Words(pub(crate) &'static str, [u64; LENGTHS]);

impl Words {
    pub(crate) const fn of(words: &'static str) -> Self {
        Self(words, with([0; LENGTHS], words))
    }

    /// Returns whether a word may be one of the list: false is certain.
    pub(super) fn may_have(&self, word: &[u8]) -> bool {
        let set = self.1.get(word.len()).copied().unwrap_or_default();
        !word.is_empty() && set & ends(word[0], word[word.len() - 1]) != 0
    }

    /// Returns whether a word is one of the list, in any case.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.may_have(word.as_bytes()) && is_one_of(word, self.0)
    }
}

/// The next run of characters from `at` on, and whether it is plain: neither a secret nor a word
/// that announces one.
pub(super) fn next_run(text: &str, at: usize) -> Option<(Range<usize>, bool)> {
    let bytes = text.as_bytes();
    let mut at = at;
    loop {
        let mut rest = bytes.get(at..)?.iter();
        at += rest.position(|b| RUN[usize::from(*b)] || matches!(*b, 0x1b | b'\\'))?;
        if matches!(bytes[at], 0x1b | b'\\') {
            at = colour_end(text, at).max(at + 1);
            continue;
        }
        if let Some((end, suspicious)) = suspicious_run(bytes, at, &RUN) {
            looked_at(end - at);
            return Some((at..end, !suspicious && is_plain(bytes, at, end)));
        }
        let end = run_end(text, at);
        if end > at {
            return Some((at..end, false));
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
}

/// Returns whether a text is one word without a token. No other secret has one word.
pub(crate) fn is_one_word(text: &str) -> bool {
    let word = text.as_bytes();
    let letters = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/');
    word.len() < LONG && word.iter().all(letters) && (word.len() < SHORT || !is_token(word))
}

fn is_plain(text: &[u8], at: usize, end: usize) -> bool {
    // The full stop of a sentence is a part of its last run.
    let word = match &text[at..end] {
        [head @ .., b'.'] if !head.is_empty() => head,
        word => word,
    };
    if matches!(word, [b'-' | b'+', ..] | [.., b'-']) {
        return false;
    }
    let detected = match word.len() {
        ..SHORT => TRIGGERS.may_have(word),
        SHORT..LONG => is_token(word) || word.ends_with(b"SecureString"),
        LONG.. => true,
    };
    let beside = match text.get(end..) {
        // A line of cookies.txt.
        Some([b'\t', b'T' | b'F', ..] | [b'(' | b'%' | b'$' | b'@', ..]) => true,
        Some([b':', next, ..]) => !next.is_ascii_whitespace(),
        _ => false,
    };
    let escaped = at > 0 && matches!(text[at - 1], b'\\' | b';');
    !detected && !beside && !escaped && !word.contains(&b'/')
}

/// Returns whether a token may begin in a word that is not [`LONG`].
fn is_token(word: &[u8]) -> bool {
    let mut before = b' ';
    word.windows(2).any(|pair| {
        let starts = !before.is_ascii_alphanumeric();
        before = pair[0];
        starts && (may_begin(pair) || pair == b"ey")
    })
}
