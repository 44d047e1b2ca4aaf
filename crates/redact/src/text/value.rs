//! Where a value ends.

use super::{block, prelude::*};
use crate::REDACTED;

/// Schemes that stand before a credential.
pub(crate) static SCHEMES: Words = Words::of(
    "bearer basic digest negotiate apikey token ssws dpop hawk ntlm api-key key oauth \
    sharedkey sharedaccesssignature aws4-hmac-sha256 genie-key jwt splunk",
);

/// How much of a value is read before it is known to be a secret, in bytes: otherwise a hostile
/// text would be read again and again.
pub(super) const GLANCE: usize = 512;

/// Finds the value that begins at a place: [`extent`] or [`encoded`].
pub(super) type Extent = fn(&str, usize) -> Range<usize>;

/// The value that begins at `start`: without its quotes if it is one quoted text.
pub(super) fn extent(text: &str, start: usize) -> Range<usize> {
    one_quoted(text, start).unwrap_or_else(|| start..pieces_end(text, start))
}

/// The value that begins at `start` within the first [`GLANCE`] bytes: enough for the decision.
/// [`whole`] gives the secret.
pub(super) fn glance(extent: Extent, text: &str, start: usize) -> Range<usize> {
    extent(&text[..floor(text, start + GLANCE)], start)
}

/// The whole secret from `start` on, of which a [`glance`] has `seen` the beginning.
pub(super) fn whole(extent: Extent, text: &str, start: usize, seen: Range<usize>) -> Range<usize> {
    if seen.end < floor(text, start + GLANCE) || seen.end == text.len() {
        return seen;
    }
    let whole = extent(text, start);
    whole.start..whole.end.max(seen.end)
}

/// The value that begins at `start`, if a glance at it shows that it is a secret.
pub(super) fn secret(
    text: &str,
    start: usize,
    is_secret: impl FnOnce(&str) -> bool,
) -> Option<Range<usize>> {
    let seen = glance(extent, text, start);
    is_secret(&text[seen.clone()]).then(|| whole(extent, text, start, seen))
}

/// The inside of a quoted text that is the whole value.
fn one_quoted(text: &str, start: usize) -> Option<Range<usize>> {
    let quote = Quote::at(text, start)?;
    let inner = start + quote.len();
    let close = quote.close(text, inner)?;
    let more = text[close.end..].starts_with(|c: char| c.is_alphanumeric() || c == '+')
        || Quote::at(text, close.end)
            .is_some_and(|next| next.opens_beside(&quote, text, close.end));
    (!more).then_some(inner..close.start)
}

/// The end of a value that is put together of quoted texts, brackets and words.
fn pieces_end(text: &str, start: usize) -> usize {
    let mut at = start;
    let mut first = None;
    while at < text.len() {
        let rest = &text[at..];
        let block = rest.starts_with("-----BEGIN");
        if let Some(end) = block.then(|| block::end(text, at)).flatten() {
            at = end;
        } else if rest.starts_with(REDACTED) {
            at += REDACTED.len();
        } else if let Some(quote) = Quote::at(text, at) {
            // A quote that opened before the value ends it.
            let beside = quote.opens_beside(first.get_or_insert(quote), text, at);
            if at > start && !continues(&text[start..at], beside) {
                return at;
            }
            at = Quote::string_end(text, at).unwrap_or(text.len());
            at = next_attribute(text, at, start).unwrap_or(at);
        } else if rest.starts_of("[{(") {
            at = bracket_end(text, at);
        } else {
            let from = at;
            at = bare_end(text, from);
            if at == from {
                return at;
            }
            let (word, next) = (&text[start..at], skip_blanks(text, at));
            let apart = next == at + 1;
            // `token=Bearer x`: the scheme goes with what it announces.
            let own = || apart && is_own_scheme(word, ahead(text, next, 64));
            let scheme = next > at && (SCHEMES.has(word) || own());
            // `Password { inner: "x" }`
            if scheme || apart && text[next..].starts_with('{') && starts_upper(word) {
                at = next;
            }
        }
    }
    text.len()
}

/// Returns whether a quote after `word` belongs to the same value: `Some("x")`, `b'x'`, `"a"'b'`,
/// `id="a"`.
fn continues(word: &str, beside: bool) -> bool {
    const PREFIXES: &str = "b r f u rb br l n e @ $";
    beside && word.ends_of("\"'`=") || is_one_of(word, PREFIXES) || SCHEMES.has(word.trim_end())
}

/// Returns the beginning of the next attribute's value, after an attribute that ends at `at`:
/// `id="a", mac="b"`.
fn next_attribute(text: &str, at: usize, start: usize) -> Option<usize> {
    if !text[start..at].has_of("=") || !text[at..].starts_of(",;") {
        return None;
    }
    let name = skip_blanks(text, at + 1);
    let end = name + run_end(ahead(text, name, 64), 0);
    let sign = text[end..].starts_with('=');
    (sign && Quote::at(text, end + 1).is_some()).then_some(end + 1)
}

/// Returns whether a word is a scheme that a vendor has for itself, and a token follows: `FlyV1 x`.
fn is_own_scheme(word: &str, rest: &str) -> bool {
    let name = word.trim_end_of(DIGITS);
    let letters = name.bytes().all(|b| b.is_ascii_alphabetic());
    let token = first_word(rest).trim_end_of("\"'`");
    let plain = is_made_of(token, "_-.,+/");
    word.len() <= 10 && starts_upper(word) && letters && plain && looks_secret(token)
}

fn starts_upper(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric)
}

/// Where a bare word ends: at a blank, a quote, a bracket, or a mark that separates fields and is
/// not followed by more of the value.
pub(super) fn bare_end(text: &str, start: usize) -> usize {
    let mut at = start;
    loop {
        at = skip(text, at, |c| !is_delimiter(c));
        let Some(mark @ ..=b'\x7f') = text.as_bytes().get(at).filter(|_| at > start) else {
            return at;
        };
        let rest = &text[at + 1..];
        let follows = |rest: &str| rest.starts_with(char::is_alphanumeric);
        at += match mark {
            b',' | b';' | b'&' if follows(rest) && !begins_field(rest) => 1,
            b')' | b']' | b'}' | b'>' if follows(rest) => 1,
            // A line of a shell that goes on in the next.
            b'\\' if rest.strip_prefix('\n').is_some_and(follows) => 2,
            b'\\' if !rest.starts_of("nrtu\"'\\/`") => 1,
            _ => return at,
        };
    }
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"'`&,;(){}[]<>\\".contains(c)
}

/// Returns whether a field of its own begins here: `name=`, `"name":`, `amp;`, or a word too long
/// to decide.
fn begins_field(rest: &str) -> bool {
    let near = ahead(rest, 0, 64);
    let end = skip(near, run_end(near, 0), |c| "[] %5D".contains(c));
    near[end..].starts_of("=:") || near.starts_with("amp;")
}

/// The percent-encoded value that begins at `start`: `hunter2%26q%3D1`.
pub(super) fn encoded(text: &str, start: usize) -> Range<usize> {
    const OPEN: &[&str] = &["%22", "%27", "%20", "%5B", "+"];
    #[rustfmt::skip]
    const ENDS: &[&str] = &[
        "%26", "%2526", "%22", "%27", "%2C", "%2c", "%7D", "%7d", "%3B", "%3b", "%0A", "%0a", "%23",
    ];
    let mut from = start;
    while let Some(open) = prefix_of(&text[from..], OPEN) {
        from += open.len();
    }
    let value = &text[from..bare_end(text, from)];
    let mut marks = value.match_indices('%').map(|(i, _)| i);
    let end = marks.find(|i| prefix_of(&value[*i..], ENDS).is_some());
    from..from + end.unwrap_or(value.len())
}

/// The end of the bracketed text at `at`, its closing bracket included; the whole if there is none.
pub(crate) fn bracket_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut i) = (0_usize, at);
    while let Some(b) = bytes.get(i) {
        looked_at(1);
        match b {
            b'"' | b'\\' => {
                let double = Quote::at(text, i).is_some_and(|quote| quote.mark() == "\"");
                i = match Quote::string_end(text, i).filter(|_| double) {
                    Some(end) => end,
                    None => skip(text, i, |c| c == '\\').max(i + 1),
                };
                continue;
            }
            b'[' | b'{' | b'(' => depth += 1,
            // A bracket among the letters of a value is a part of it, except for that of a type:
            // `[]string{"x"}`.
            b']' | b'}' | b')'
                if bytes[i - 1] == b'[' || !text[i + 1..].starts_with(char::is_alphanumeric) =>
            {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
        i += 1;
    }
    text.len()
}
