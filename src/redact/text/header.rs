//! Headers whose value is a secret as a whole.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, is_one_of, skip, skip_blanks},
    look::{first_word, is_placeholder, is_prose},
    value::SCHEMES,
};

/// The value of a header: to the end of its line and of those folded under it, or to the quote that was
/// opened before the header.
pub(super) fn header(scan: &Scan<'_>, run: Run, start: usize) -> Option<Range<usize>> {
    let text = scan.text;
    let first = first_word(ahead(text, start, 64));
    let second = skip_blanks(text, start + first.len());
    let shown = if is_one_of(first, SCHEMES) {
        first_word(ahead(text, second, 64))
    } else {
        first
    };
    let shown = shown.trim_end_matches(['"', '\'', ',']);
    if is_prose(first) && !is_one_of(first, SCHEMES) || is_placeholder(shown) && !shown.is_empty() {
        return None;
    }
    let quote = scan
        .before(run)
        .chars()
        .next_back()
        .filter(|c| matches!(c, '"' | '\'' | '`'));
    if let Some(quote) = quote {
        let end = text[start..].find([quote, '\n', '\r']);
        let end = end.map_or(text.len(), |i| start + i);
        return Some(start..end - usize::from(text[start..end].ends_with('\\')));
    }
    Some(start..header_end(text, start))
}

/// The end of a header's lines.
fn header_end(text: &str, start: usize) -> usize {
    let mut at = start;
    loop {
        at = skip(text, at, |c| !matches!(c, '\n' | '\r' | '\\' | '"'));
        let rest = &text[at..];
        let folded = ["\n ", "\n\t", "\r\n ", "\r\n\t"]
            .iter()
            .any(|fold| rest.starts_with(fold));
        if folded {
            at += 2;
        } else if rest.starts_with('"') && (text[..at].ends_with('=') || at == start) {
            // `response="x"`
            at = rest[1..]
                .find(['"', '\n'])
                .map_or(text.len(), |i| at + 1 + i);
            at += usize::from(text[at..].starts_with('"'));
        } else if rest.starts_with('\\') && !rest[1..].starts_with(['n', 'r', '"']) {
            // A line's end may be escaped: the text stands in a string of another.
            at += 1;
        } else {
            return at;
        }
    }
}
