//! The next run, and which rules may find a secret there: most words of prose need none, as their
//! letters, their length and the characters beside them show.

use std::{ops::Range, sync::LazyLock};

use super::{bytes::*, command::COMMANDS, scheme::CAREFUL, vendors::BY_PREFIX};
use crate::{filter::suspicious_run, words::Index};

/// Longer words may be tokens.
const SHORT: usize = 12;

/// Words of this length may be keys without a prefix, or texts in Base64.
pub(super) const LONG: usize = 24;

/// Further words that rules look for and the filter of names does not know.
const WORDS: &str = "bearer identified input_value tcp tcp6 unix udp htpasswd code codes phrase seed seedwords seed_words echo \
    printf net obscure sha ssha md5 smd5 crypt sha256 ssha256 sha512 ssha512 state ConvertTo-SecureString \
    setuser community assword assphrase wifi login identify";

/// These words, schemes and commands.
pub(super) static TRIGGERS: LazyLock<Index<()>> = LazyLock::new(|| {
    let lists = COMMANDS.iter().map(|command| command.names);
    let lists = lists.chain([WORDS, CAREFUL]);
    Index::new(lists.flat_map(|list| list.split_whitespace().map(|word| (word, ()))))
});

/// The properties of a run that say which rules may find a secret there, a bit each.
pub(crate) type Signs = u16;

/// The run may hold the name of a secret.
pub(crate) const NAMED: Signs = 1 << 0;
/// The run is one of [`TRIGGERS`].
pub(crate) const WORD: Signs = 1 << 1;
/// A vendor's token may begin in it.
pub(crate) const TOKEN: Signs = 1 << 2;
/// The run is [`LONG`].
pub(crate) const KEY: Signs = 1 << 3;
/// The run has a slash.
pub(crate) const PATH: Signs = 1 << 4;
/// The run begins or ends with a dash, or begins with a plus.
pub(crate) const DASH: Signs = 1 << 5;
/// A colon and no blank follow it.
pub(crate) const COLON: Signs = 1 << 6;
/// Brackets follow it.
pub(crate) const CALL: Signs = 1 << 7;
/// `%`, `$` or `@` follows it.
pub(crate) const MARK: Signs = 1 << 8;
/// The second field of a line of cookies.txt follows it.
pub(crate) const COOKIE: Signs = 1 << 9;

/// The next run of characters from `at` on, and its signs: most runs have none.
pub(super) fn next_run(text: &str, at: usize) -> Option<(Range<usize>, Signs)> {
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
            let named = if suspicious { NAMED } else { 0 };
            return Some((at..end, named | signs(text, at, end)));
        }
        let end = run_end(text, at);
        if end > at {
            return Some((at..end, Signs::MAX));
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

/// Returns whether a text is printable ASCII without escapes, objects and runs that have signs: no
/// rule looks at it.
pub(crate) fn are_plain_words(text: &str) -> bool {
    let mut at = 0;
    let mut runs = std::iter::from_fn(|| {
        let (run, signs) = next_run(text, at)?;
        at = run.end;
        Some(signs)
    });
    let plain = |b| matches!(b, b' '..=b'~') && !matches!(b, b'\\' | b'{');
    text.bytes().all(plain) && runs.all(|signs| signs == 0)
}

/// The signs of the run at `at` but [`NAMED`].
fn signs(text: &str, at: usize, end: usize) -> Signs {
    // The full stop of a sentence is a part of its last run.
    let word = match text[at..end].strip_suffix('.') {
        Some(word) if !word.is_empty() => word,
        _ => &text[at..end],
    };
    let bytes = word.as_bytes();
    let of = |sign, holds| if holds { sign } else { 0 };
    let beside = match &text.as_bytes()[end..] {
        [b'\t', b'T' | b'F', ..] => COOKIE,
        [b'(', ..] => CALL,
        [b'%' | b'$' | b'@', ..] => MARK,
        [b':', next, ..] => of(COLON, !next.is_ascii_whitespace()),
        _ => 0,
    };
    let escaped = at > 0 && matches!(text.as_bytes()[at - 1], b'\\' | b';');
    // A line of a private key may have a mark in front: `//-----BEGIN`.
    let ends_mark = bytes.ends_with(b"-BEGIN") || bytes.ends_with(b"-END");
    let dash = matches!(bytes, [b'-' | b'+', ..] | [.., b'-']) || ends_mark;
    beside
        | of(NAMED, escaped)
        | of(WORD, TRIGGERS.has(word))
        | of(TOKEN, bytes.len() >= SHORT && is_token(bytes))
        | of(KEY, bytes.len() >= LONG)
        | of(PATH, bytes.contains(&b'/'))
        | of(DASH, dash)
}

/// Returns whether a token may begin in a word.
fn is_token(word: &[u8]) -> bool {
    let mut before = b' ';
    word.windows(2).any(|pair| {
        let starts = !before.is_ascii_alphanumeric();
        before = pair[0];
        starts && (BY_PREFIX.may_begin(pair) || pair == b"ey")
    })
}
