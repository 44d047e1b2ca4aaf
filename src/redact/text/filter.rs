//! The next run, and whether any detector has to look at it: most words of prose are of no interest to
//! any, which their letters, their length and what stands beside them tell.

use super::{
    bytes::{RUN, colour_end, looked_at, run_end},
    command::COMMANDS,
    scheme::CAREFUL,
    vendors::may_begin,
};
use crate::redact::filter::suspicious_run;

/// A run of characters, and whether it is plain: neither a secret nor a word that announces one.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) plain: bool,
}

/// Longer words may be tokens.
const SHORT: usize = 12;

/// Words of this length may be keys that are told by their make.
const LONG: usize = 32;

/// Further words at which detectors look that the filter of names does not know.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "bearer", "identified", "input_value", "tcp", "tcp6", "unix", "udp", "htpasswd", "code", "codes", "phrase", "echo",
    "printf", "net", "sha", "ssha", "md5", "smd5", "crypt", "value", "-value", "--value", "state",
];

/// For a length: the first and last letters of such words, of schemes and of commands, mixed to a bit each.
static ENDS: [u64; SHORT] = {
    let mut table = with(with([0; SHORT], WORDS), CAREFUL);
    let mut i = 0;
    while i < COMMANDS.len() {
        table = with(table, COMMANDS[i].1);
        i += 1;
    }
    table
};

const fn with(mut table: [u64; SHORT], words: &[&str]) -> [u64; SHORT] {
    let mut i = 0;
    while i < words.len() {
        let word = words[i].as_bytes();
        if word.len() < SHORT {
            table[word.len()] |= ends(word);
        }
        i += 1;
    }
    table
}

/// The bit of the first and the last letter of a word, whatever their case.
const fn ends(word: &[u8]) -> u64 {
    let (first, last) = (word[0] & 31, word[word.len() - 1] & 31);
    1 << (first.wrapping_mul(11).wrapping_add(last) & 63)
}

/// Whether a word may be one of those at which detectors look: false is certain.
pub(super) fn may_trigger(word: &[u8]) -> bool {
    let set = ENDS.get(word.len()).copied().unwrap_or(u64::MAX);
    !word.is_empty() && set & ends(word) != 0
}

/// The next run from `at` on.
pub(super) fn next_run(text: &str, at: usize) -> Option<Seen> {
    let bytes = text.as_bytes();
    let mut at = at;
    loop {
        at += bytes
            .get(at..)?
            .iter()
            .position(|b| RUN[usize::from(*b)] || *b == 0x1b)?;
        if bytes[at] == 0x1b {
            at = colour_end(text, at).max(at + 1);
            continue;
        }
        if let Some((end, suspicious)) = suspicious_run(bytes, at, &RUN) {
            looked_at(end - at);
            let plain = !suspicious && is_plain(bytes, at, end);
            return Some(Seen { at, end, plain });
        }
        let end = run_end(text, at);
        if end > at {
            let plain = false;
            return Some(Seen { at, end, plain });
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
}

fn is_plain(text: &[u8], at: usize, end: usize) -> bool {
    let word = &text[at..end];
    // The full stop of a sentence is a part of its last run.
    let word = word
        .strip_suffix(b".")
        .filter(|w| !w.is_empty())
        .unwrap_or(word);
    let (first, last) = (word[0], word[word.len() - 1]);
    if matches!(first, b'-' | b'+') || last == b'-' {
        return false;
    }
    if word.len() >= SHORT {
        if word.len() >= LONG || is_token(word) || word.ends_with(b"SecureString") {
            return false;
        }
    } else if may_trigger(word) {
        return false;
    }
    let beside = match text.get(end..) {
        Some([b':', next, ..]) => !next.is_ascii_whitespace(),
        Some([b'(' | b'%' | b'$' | b'@', ..]) => true,
        _ => false,
    };
    let escaped = at > 0 && matches!(text[at - 1], b'\\' | b';');
    !beside && !escaped && !word.contains(&b'/')
}

/// Whether a token may begin in a word that is not [`LONG`].
fn is_token(word: &[u8]) -> bool {
    let mut before = b' ';
    word.windows(2).any(|pair| {
        let starts = !before.is_ascii_alphanumeric();
        before = pair[0];
        starts && (may_begin(pair) || pair == b"ey")
    })
}
