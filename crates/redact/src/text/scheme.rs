//! Credentials after the name of their scheme (`Bearer x`, `Basic x`), and headers with a secret as
//! the whole value.

use super::{prelude::*, value::bracket_end};

/// Schemes that count only if the credential looks like a secret.
pub(super) const CAREFUL: &str =
    "basic digest negotiate apikey ssws dpop ntlm splunk genie-key api-key";

pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let (text, name) = (run.text, run.word());
    // All are of 4 to 9 letters.
    if !(4..=9).contains(&name.len()) {
        return None;
    }
    let bearer = name.eq_ignore_ascii_case("bearer");
    let path = run.after().starts_with("::") || run.before().ends_with("::");
    if path || !bearer && !is_one_of(name, CAREFUL) {
        return None;
    }
    // `Bearer: x`, but `apiKey = x` is a pair, and `Digest: sha256:x` another header.
    let pair = bearer || name.eq_ignore_ascii_case("basic");
    let mark = |c| "\"'\\+<%".contains(c) || pair && matches!(c, ':' | '=');
    let start = run.after().find(|c: char| !c.is_whitespace() && !mark(c));
    let start = start.map_or(text.len(), |i| run.end + i);
    looked_at(start - run.end);
    // `</Bearer>`, `cm:Bearer</Method>`, `"Basic " + encode(x)`
    let end = bare_end(text, start);
    let (word, rest) = (&text[start..end], &text[end..]);
    let called = text[run.end..start].has_of("+") && rest.starts_with('(');
    if start == run.end || run.after().starts_with("</") || called {
        return None;
    }
    let bracketed = text[..start].ends_with('<') && rest.starts_with('>');
    let variable = bracketed && is_placeholder(&text[start - 1..=end]);
    // `Bearer realm="x"`
    let parameter = word.strip_suffix('=').is_some_and(|name| {
        let plain = |b: u8| b.is_ascii_lowercase() || matches!(b, b'_' | b'-');
        rest.trim_start_of("\\").starts_with('"') && name.bytes().all(plain)
    });
    if variable || parameter || word.len() < 3 || is_prose(word) || is_placeholder(word) {
        return None;
    }
    let secret = looks_secret(word) && has_secret(word)
        || match bearer {
            true => shape::of(word) != Shape::Code && is_credential(name, word, rest),
            // Base64, and not prose (`Basic Authentication`).
            false => word.ends_with('=') && word.len() >= 8,
        };
    secret.then_some(start..end)
}

/// Returns whether the word after `Bearer` is a credential, and not prose (`bearer of bad news`).
fn is_credential(scheme: &str, word: &str, rest: &str) -> bool {
    let letters = word.trim_end_of(".,");
    let plain = is_letters(letters);
    let rest = rest.trim_start_of(" ,");
    let more = rest.starts_with(|c: char| c.is_ascii_lowercase());
    is_mixed(word)
        || scheme.starts_with('B') && !(plain && (more || word.starts_with(char::is_uppercase)))
        || !plain && word.len() >= 16
}

/// The value of a header: to the end of its line and of those folded under it, or to the quote that
/// was opened before the header.
pub(super) fn header(run: &Run<'_>, start: usize) -> Option<Range<usize>> {
    let text = run.text;
    // The beginning decides: a value to be left alone is not read to its end.
    let near = &text[..floor(text, start + GLANCE)];
    let value = &near[start..value_end(run, near, start)];
    let first = first_word(value);
    let scheme = SCHEMES.has(first);
    let behind = first_word(value[first.len()..].trim_start());
    let shown = if scheme { behind } else { first };
    let absent = is_placeholder(shown.trim_end_of("\"',"));
    // `cookie: reject cookies with control bytes`
    let cookie = ends_with_one_of(run.word(), "cookie")
        && !value.has_of("=;")
        && first.bytes().all(|b| b.is_ascii_lowercase());
    let sentence = cookie && value.split_of(" ").skip(2).any(is_prose);
    let secret = !absent && !sentence && (scheme || !is_prose(first));
    secret.then(|| start..value_end(run, text, start))
}

/// Where the value of a header ends that begins at `start`.
fn value_end(run: &Run<'_>, text: &str, start: usize) -> usize {
    if text[start..].starts_with('[') {
        // As Go prints its headers: `map[Cookie:[a=b; c=d] Host:[h]]`.
        return bracket_end(text, start);
    }
    let outer = Quote::before(text, run.at).and_then(|quote| quote.close(text, start));
    // `"Authorization: Digest username="ada""`
    let outer = outer.filter(|close| ends_value(&text[close.end..]));
    let limit = outer.as_ref().map_or(text.len(), |close| close.start);
    header_end(&text[..limit], start, outer.is_some())
}

/// The end of a header's lines. Unless `text` ends with the string around the header (`bounded`),
/// the first quote that opens no string inside ends it.
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
            let begins = at == start || text[..at].ends_of("= :,{[(");
            let opens = begins && quote.opens(text, at);
            if !opens && !bounded && ends_value(&text[inner..]) {
                return at;
            }
            let close = quote.close(text, inner).filter(|_| opens);
            at = close.map_or(inner, |close| close.end);
        } else if at == text.len() {
            return at;
        } else {
            at = skip(text, at, |c| c == '\\').max(at + 1);
        }
    }
}

/// Returns whether a line is the continuation of the one before.
fn is_folded(line: &str) -> bool {
    let escaped = line.trim_start_of("\\");
    line.starts_of(" \t") || escaped.len() < line.len() && escaped.starts_with('t')
}
