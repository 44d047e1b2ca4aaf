//! Headers whose value is a secret as a whole.

use std::ops::Range;

use super::{
    Run,
    bytes::{is_one_of, line_end, skip},
    look::{first_word, is_placeholder, is_prose},
    quote::{Quote, ends_value},
    value::{SCHEMES, bracket_end},
};

/// The value of a header: to the end of its line and of those folded under it, or to the quote that was
/// opened before the header.
pub(super) fn header(run: Run<'_>, start: usize) -> Option<Range<usize>> {
    let text = run.text;
    let end = if text[start..].starts_with('[') {
        // As Go prints its headers: `map[Cookie:[a=b; c=d] Host:[h]]`.
        bracket_end(text, start)
    } else {
        let outer = Quote::before(text, run.at).and_then(|quote| quote.close(text, start));
        let limit = outer.as_ref().map_or(text.len(), |close| close.start);
        header_end(&text[..limit], start, outer.is_some())
    };
    let value = &text[start..end];
    let first = first_word(value);
    let scheme = is_one_of(first, SCHEMES);
    let shown = match scheme {
        true => first_word(value[first.len()..].trim_start()),
        false => first,
    };
    let absent = is_placeholder(shown.trim_end_matches(['"', '\'', ',']));
    (!absent && (scheme || !is_prose(first))).then_some(start..end)
}

/// The end of a header's lines. If the string around it is not known to end with `text`, the first quote that opens
/// none inside ends it.
fn header_end(text: &str, start: usize, bounded: bool) -> usize {
    let mut at = start;
    loop {
        at = skip(text, at, |c| !"\n\r\\\"'`".contains(c));
        let line = line_end(text, at);
        if line > at {
            if !is_folded(&text[line..]) {
                return at;
            }
            at = line;
        } else if let Some(quote) = Quote::at(text, at) {
            let inner = at + quote.len();
            let begins = at == start || text[..at].ends_with(['=', ' ', ':', ',', '{', '[', '(']);
            let opens = begins && quote.opens(text, at);
            if !opens && !bounded && ends_value(&text[inner..]) {
                return at;
            }
            let close = quote.close(text, inner).filter(|_| opens);
            at = close.map_or(inner, |close| close.end);
        } else if at < text.len() {
            at = skip(text, at, |c| c == '\\').max(at + 1);
        } else {
            return at;
        }
    }
}

/// Whether a line is the continuation of the one before.
fn is_folded(line: &str) -> bool {
    let escaped = line.trim_start_matches('\\');
    line.starts_with([' ', '\t']) || escaped.len() < line.len() && escaped.starts_with('t')
}
