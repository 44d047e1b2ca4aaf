//! Classes of bytes, and moving along a text by them.

pub(crate) use crate::chars::*;
use crate::hidden::is_format;
pub(super) use crate::words::Words;

/// Bytes that runs are made of. Beyond ASCII, [`is_run`] decides by the character.
pub(super) static RUN: [bool; 256] = {
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

#[cfg(test)]
std::thread_local! {
    /// How many bytes were read: the tests of limits compare the work by it.
    pub(crate) static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts bytes that were read, in tests.
pub(crate) fn looked_at(_bytes: usize) {
    #[cfg(test)]
    LOOKED_AT.set(LOOKED_AT.get() + _bytes);
}

/// The longest prefix of `text` that has at most `max` characters, and whether anything is missing.
pub(crate) fn prefix(text: &str, max: usize) -> (&str, bool) {
    let long = text.len() > max;
    let end = long.then(|| text.char_indices().nth(max)).flatten();
    end.map_or((text, false), |(end, _)| (&text[..end], true))
}

/// The highest boundary between characters up to `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    let mut ends = (0..=at.min(text.len())).rev();
    ends.find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns whether one of `words`, with blanks between them, is `word`, in any case.
#[inline(never)]
pub(crate) fn is_one_of(word: &str, words: &str) -> bool {
    let mut words = words.as_bytes().split(|b| *b == b' ');
    words.any(|w| w.len() == word.len() && w.eq_ignore_ascii_case(word.as_bytes()))
}

/// Returns whether a character belongs to runs: names, keys, paths and tokens are made of them.
pub(super) fn is_run(c: char) -> bool {
    match u8::try_from(c) {
        Ok(b) if b.is_ascii() => RUN[usize::from(b)],
        // Characters without a width do not separate words.
        _ => c.is_alphanumeric() || is_format(c) || matches!(c, '\u{300}'..='\u{36f}'),
    }
}

/// Where the run at `at` ends.
pub(super) fn run_end(text: &str, at: usize) -> usize {
    skip(text, at, is_run)
}

/// Returns the place of the first character from `at` on that is not skipped.
#[inline(never)]
pub(crate) fn skip(text: &str, at: usize, skipped: fn(char) -> bool) -> usize {
    let end = text[at..].find(|c: char| !skipped(c));
    let end = end.map_or(text.len(), |i| at + i);
    looked_at(end - at);
    end
}

/// Returns the first place from `at` on that is not a blank. Line ends are not blanks.
pub(super) fn skip_blanks(text: &str, at: usize) -> usize {
    skip(text, at, |c| c.is_whitespace() && c != '\n' && c != '\r')
}

/// Returns the beginning of the next line if a line ends at `at`, else `at`. Line ends may be
/// escaped, several times.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let sign = |at: usize, raw, letter| {
        let end = skip(text, at, |c| c == '\\');
        let sign = if end > at { letter } else { raw };
        text[end..].starts_with(sign).then_some(end + 1)
    };
    let first = sign(at, '\r', 'r');
    let from = first.unwrap_or(at);
    sign(from, '\n', 'n').unwrap_or(from)
}

/// The end of the sequence that sets a colour and begins at `at`, or `at`: `\x1b[1;32m`, as it is
/// or as a string of JSON, C, Rust or a shell has it.
pub(super) fn colour_end(text: &str, at: usize) -> usize {
    const ESCAPES: &[&str] = &[
        "\x1b[", "\\u001b[", "\\u001B[", "\\x1b[", "\\x1B[", "\\u{1b}[", "\\033[", "\\e[",
    ];
    if !text[at..].starts_of("\x1b\\") {
        return at;
    }
    let near = ahead(text, at, 24);
    let escape = prefix_of(near, ESCAPES).map_or(0, str::len);
    let end = skip(near, escape, |c| c.is_ascii_digit() || c == ';');
    let colour = escape > 0 && near[end..].starts_of("mK");
    at + if colour { end + 1 } else { 0 }
}

/// The text from `at` on, `len` bytes of it at most.
#[inline(never)]
pub(super) fn ahead(text: &str, at: usize, len: usize) -> &str {
    let near = &text[at..floor(text, at + len)];
    looked_at(near.len());
    near
}

/// The text up to `at`, `len` bytes of it at most.
#[inline(never)]
pub(super) fn behind(text: &str, at: usize, len: usize) -> &str {
    let near = &text[floor(text, at.saturating_sub(len))..at];
    looked_at(near.len());
    near
}

/// The text behind the last character for which `parts` is true; all of it if there is none.
#[inline(never)]
pub(super) fn after_last(text: &str, parts: fn(char) -> bool) -> &str {
    let end = text.char_indices().rfind(|(_, c)| parts(*c));
    &text[end.map_or(0, |(at, c)| at + c.len_utf8())..]
}

/// The text before the first of the characters `stops`; all of it if there is none.
pub(super) fn until<'t>(text: &'t str, stops: &str) -> &'t str {
    &text[..text.find_of(stops).unwrap_or(text.len())]
}

/// The first of `prefixes` that `text` begins with.
#[inline(never)]
pub(crate) fn prefix_of(text: &str, prefixes: &[&'static str]) -> Option<&'static str> {
    let first = text.bytes().next();
    let fits = |p: &&&str| p.bytes().next() == first && text.starts_with(**p);
    prefixes.iter().find(fits).copied()
}

/// `text` without `prefix`, in any case.
pub(super) fn strip_ignore_case<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Returns whether `text` ends with one of `ends`, with blanks between them, in any case.
#[inline(never)]
pub(crate) fn ends_with_one_of(text: &str, ends: &str) -> bool {
    let text = text.as_bytes();
    let last = text.last().map(u8::to_ascii_lowercase);
    ends.as_bytes().split(|b| *b == b' ').any(|end| {
        let at = text.len().checked_sub(end.len());
        let may_be = end.last().map(u8::to_ascii_lowercase) == last;
        may_be && at.is_some_and(|at| text[at..].eq_ignore_ascii_case(end))
    })
}

/// Returns whether there is nothing but digits.
pub(super) fn is_digits(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

/// Returns whether there is nothing but ASCII letters.
pub(super) fn is_letters(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_alphabetic())
}

/// Returns whether there is nothing but ASCII letters, digits and these marks.
#[inline(never)]
pub(crate) fn is_made_of(word: &str, marks: &str) -> bool {
    let marks = marks.as_bytes();
    word.bytes()
        .all(|b| b.is_ascii_alphanumeric() || marks.contains(&b))
}

/// Returns whether there is a digit.
pub(crate) fn has_digit(word: &str) -> bool {
    word.bytes().any(|b| b.is_ascii_digit())
}

/// Returns whether there is nothing but hexadecimal digits.
pub(super) fn is_hex(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The last line of `text`, without its end.
pub(super) fn last_line(text: &str) -> &str {
    let end = text.as_bytes().iter().rposition(|b| *b == b'\n');
    &text[end.map_or(0, |end| end + 1)..]
}

/// How many blanks `line` begins with.
pub(super) fn indent(line: &str) -> usize {
    line.len() - line.trim_start_of(" \t").len()
}
