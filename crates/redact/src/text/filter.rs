//! The next run, and whether it is plain: most words of prose need no detector, as their letters,
//! their length and the characters beside them show.

use std::ops::Range;

use super::{
    bytes::*,
    command::{ARGUMENTS, COMMANDS},
    scheme::CAREFUL,
    vendors::may_begin,
};
use crate::filter::suspicious_run;

/// Longer words may be tokens.
const SHORT: usize = 12;

/// Words of this length may be keys without a prefix.
const LONG: usize = 32;

/// The longest word of a list has fewer letters.
const LENGTHS: usize = 24;

/// Further words that detectors look for and the filter of names does not know.
const WORDS: &str = "bearer identified input_value tcp tcp6 unix udp code codes phrase echo printf sha \
    ssha md5 smd5 crypt value -value --value state";

/// For a length: two letters at either end of such words, of schemes and of commands, hashed to a
/// bit each.
type Ends = [[u64; 2]; LENGTHS];

static ENDS: Ends = {
    let mut table = with(with([[0; 2]; LENGTHS], WORDS), CAREFUL);
    let mut i = 0;
    while i < COMMANDS.len() {
        table = with(table, COMMANDS[i].names);
        i += 1;
    }
    i = 0;
    while i < ARGUMENTS.len() {
        table = with(table, ARGUMENTS[i].0);
        i += 1;
    }
    table
};

const fn with(mut table: Ends, words: &str) -> Ends {
    let words = words.as_bytes();
    let (mut start, mut end) = (0, 0);
    while end <= words.len() {
        if end == words.len() || words[end] == b' ' {
            table[end - start][0] |= outer(words, start, end);
            table[end - start][1] |= inner(words, start, end);
            start = end + 1;
        }
        end += 1;
    }
    table
}

/// The bit of the first, second and last letter of a word, in any case. Of the factors that were
/// tried, these mistake the fewest words of real files.
const fn outer(text: &[u8], start: usize, end: usize) -> u64 {
    let second = text[if start + 1 < end { start + 1 } else { start }];
    bit(
        text[start],
        23,
        (second & 31)
            .wrapping_mul(7)
            .wrapping_add((text[end - 1] & 31).wrapping_mul(5)),
    )
}

/// The bit of the second letter and the last but one.
const fn inner(text: &[u8], start: usize, end: usize) -> u64 {
    match end - start {
        1 => bit(text[start], 5, text[start] & 31),
        _ => bit(text[start + 1], 5, text[end - 2] & 31),
    }
}

const fn bit(letter: u8, factor: u8, more: u8) -> u64 {
    1 << ((letter & 31).wrapping_mul(factor).wrapping_add(more) & 63)
}

/// Returns whether a word may be one that detectors look for: false is certain.
pub(super) fn may_trigger(word: &[u8]) -> bool {
    may_be_in(&ENDS, word)
}

fn may_be_in(table: &Ends, word: &[u8]) -> bool {
    let bits = table.get(word.len()).filter(|_| !word.is_empty());
    bits.is_some_and(|bits| {
        bits[0] & outer(word, 0, word.len()) != 0 && bits[1] & inner(word, 0, word.len()) != 0
    })
}

/// A list of words with blanks between them, which most words are not compared with.
#[derive(Debug)]
pub(crate) struct Words(&'static str, Ends);

impl Words {
    pub(crate) const fn of(words: &'static str) -> Self {
        Self(words, with([[0; 2]; LENGTHS], words))
    }

    /// Returns whether a word is one of the list, in any case.
    pub(crate) fn has(&self, word: &str) -> bool {
        may_be_in(&self.1, word.as_bytes()) && is_one_of(word, self.0)
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

/// Returns whether a text is one word, in which there is no token. No other secret has one word.
pub(super) fn is_one_word(text: &str) -> bool {
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
        ..SHORT => may_trigger(word),
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
