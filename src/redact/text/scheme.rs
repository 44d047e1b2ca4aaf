//! Credentials after the name of their scheme: `Bearer x`, `Basic x`.

use std::ops::Range;

use super::{
    Run,
    bytes::{is_one_of, skip},
    look::{is_mixed, is_placeholder, is_prose, looks_secret},
    value::bare_end,
};

/// Schemes whose credential has to look like one.
#[rustfmt::skip]
pub(super) const CAREFUL: &[&str] = &[
    "basic", "digest", "negotiate", "apikey", "ssws", "dpop", "ntlm", "splunk", "genie-key", "api-key",
];

pub(super) fn find(run: Run<'_>) -> Option<Range<usize>> {
    let (text, name) = (run.text, run.word());
    // All are of 4 to 9 letters.
    if !(4..=9).contains(&name.len()) {
        return None;
    }
    let bearer = name.eq_ignore_ascii_case("bearer");
    if !bearer && !is_one_of(name, CAREFUL) {
        return None;
    }
    // `Bearer: x`, but `apiKey = x` is a pair, and `Digest: sha256:x` another header.
    let marks = if bearer || name.eq_ignore_ascii_case("basic") {
        "\"'\\+<%:="
    } else {
        "\"'\\+<%"
    };
    let mut start = skip(text, run.end, |c| c.is_whitespace() || marks.contains(c));
    if start == run.end {
        return None;
    }
    // `Bearer%20x`
    if text[run.end..start].contains('%') && text[start..].starts_with("20") {
        start += 2;
    }
    let end = bare_end(text, start);
    let (word, rest) = (&text[start..end], &text[end..]);
    let bracketed = text[..start].ends_with('<') && rest.starts_with('>');
    if bracketed && is_placeholder(&text[start - 1..=end]) {
        return None;
    }
    // `Bearer realm="x"`
    let parameter = word.strip_suffix('=').is_some_and(|name| {
        let plain = |b: u8| b.is_ascii_lowercase() || matches!(b, b'_' | b'-');
        rest.starts_with('"') && name.bytes().all(plain)
    });
    if parameter || word.len() < 3 || is_prose(word) || is_placeholder(word) {
        return None;
    }
    let secret = looks_secret(word)
        || match bearer {
            true => is_credential(name, word, rest),
            // Base64, and not prose (`Basic Authentication`).
            false => word.ends_with('=') && word.len() >= 8,
        };
    secret.then_some(start..end)
}

/// Whether the word after `Bearer` is a credential, and not prose (`bearer of bad news`).
fn is_credential(scheme: &str, word: &str, rest: &str) -> bool {
    if is_mixed(word) {
        return true;
    }
    let letters = word.trim_end_matches(['.', ',']);
    let plain = letters.bytes().all(|b| b.is_ascii_alphabetic());
    let rest = rest.trim_start_matches([' ', ',']);
    let more = rest.starts_with(|c: char| c.is_ascii_lowercase());
    scheme.starts_with('B') && !(plain && (more || word.starts_with(char::is_uppercase)))
        || !plain && word.len() >= 16
}
