//! Classes of bytes, and moving along a text by them.

use std::ops::Range;

/// Bytes that runs are made of. Those beyond ASCII are decided by their character.
static RUN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = b >= 0x80
            || b.is_ascii_alphanumeric()
            || matches!(b, b'_' | b'-' | b'.' | b'+' | b'/' | b'~');
        byte += 1;
    }
    table
};

/// Whether a character belongs to runs: names, keys, paths and tokens are made of them.
pub(super) fn is_run(c: char) -> bool {
    match u8::try_from(c) {
        Ok(b) if b.is_ascii() => RUN[usize::from(b)],
        _ => c.is_alphanumeric() || is_invisible(c),
    }
}

/// Characters without a width, which part nothing.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{300}'..='\u{36f}')
}

/// The next run from `at` on.
pub(super) fn next_run(text: &str, at: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = at;
    loop {
        at += bytes.get(at..)?.iter().position(|b| RUN[usize::from(*b)])?;
        let end = run_end(text, at);
        if end > at {
            return Some(at..end);
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
}

/// Where the run at `at` ends.
pub(super) fn run_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut i = at;
    while let Some(b) = bytes.get(i) {
        if b.is_ascii() {
            if !RUN[usize::from(*b)] {
                break;
            }
            i += 1;
        } else {
            match text[i..].chars().next() {
                Some(c) if is_run(c) => i += c.len_utf8(),
                _ => break,
            }
        }
    }
    i
}

/// The first place from `at` on whose character is not skipped.
pub(super) fn skip(text: &str, at: usize, skipped: impl Fn(char) -> bool) -> usize {
    text[at..]
        .find(|c: char| !skipped(c))
        .map_or(text.len(), |i| at + i)
}

/// The first place from `at` on that is no blank; a line's end is none.
pub(super) fn skip_blanks(text: &str, at: usize) -> usize {
    skip(text, at, |c| c.is_whitespace() && c != '\n' && c != '\r')
}

/// The text from `at` on, `len` bytes of it at most.
pub(super) fn ahead(text: &str, at: usize, len: usize) -> &str {
    &text[at..crate::text::floor(text, at + len)]
}

/// The text up to `at`, `len` bytes of it at most.
pub(super) fn behind(text: &str, at: usize, len: usize) -> &str {
    &text[crate::text::floor(text, at.saturating_sub(len))..at]
}

/// `text` without `prefix`, whatever its case.
pub(super) fn strip_ignore_case<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (head, rest) = (text.get(..prefix.len())?, text.get(prefix.len()..)?);
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Whether one of `words` is `word`, whatever its case.
pub(super) fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|w| w.eq_ignore_ascii_case(word))
}

/// The last line of `text`, without its end.
pub(super) fn last_line(text: &str) -> &str {
    &text[text.rfind('\n').map_or(0, |i| i + 1)..]
}

/// How many blanks `line` begins with.
pub(super) fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}
