//! Credentials after the name of their scheme: `Bearer x`, `Basic x`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{is_one_of, skip},
    look::{is_mixed, is_placeholder, is_prose, looks_secret},
    value::bare_end,
};

/// Schemes whose credential has to look like one.
const CAREFUL: &[&str] = &[
    "basic",
    "digest",
    "negotiate",
    "apikey",
    "ssws",
    "dpop",
    "ntlm",
    "splunk",
    "genie-key",
    "api-key",
];

pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let name = scan.word(run);
    // All are of 4 to 9 letters.
    if !(4..=9).contains(&name.len()) {
        return None;
    }
    if !matches!(
        name.as_bytes()[0] | 0x20,
        b'b' | b'd' | b'n' | b'a' | b's' | b'g'
    ) {
        return None;
    }
    let bearer = name.eq_ignore_ascii_case("bearer");
    if !bearer && !is_one_of(name, CAREFUL) {
        return None;
    }
    let text = scan.text;
    // `Bearer: x`, but `apiKey = x` is a pair, and `Digest: sha256:x` another header.
    let marks = if bearer || name.eq_ignore_ascii_case("basic") {
        ":=+<%"
    } else {
        "+<%"
    };
    let start = skip(text, run.end, |c| {
        c.is_whitespace() || matches!(c, '"' | '\'' | '\\') || marks.contains(c)
    });
    // `Bearer%20x`
    let start = start
        + if text[run.end..start].contains('%') && text[start..].starts_with("20") {
            2
        } else {
            0
        };
    if start == run.end {
        return None;
    }
    let end = bare_end(text, start);
    let word = &text[start..end];
    if text[..start].ends_with('<')
        && text[end..].starts_with('>')
        && is_placeholder(&text[start - 1..=end])
    {
        return None;
    }
    // `Bearer realm="x"`
    let parameter = word.strip_suffix('=').is_some_and(|name| {
        let plain = |b: u8| b.is_ascii_lowercase() || matches!(b, b'_' | b'-');
        text[end..].starts_with('"') && name.bytes().all(plain)
    });
    if parameter || word.len() < 3 || is_prose(word) || is_placeholder(word) {
        return None;
    }
    let secret = if bearer {
        is_credential(name, word, &text[end..])
    } else {
        is_encoded(word)
    };
    secret.then_some(start..end)
}

/// Whether the word after `Bearer` is a credential, and not prose (`bearer of bad news`).
fn is_credential(scheme: &str, word: &str, rest: &str) -> bool {
    if looks_secret(word) || is_mixed(word) {
        return true;
    }
    let plain = word
        .trim_end_matches(['.', ','])
        .bytes()
        .all(|b| b.is_ascii_alphabetic());
    let more = rest
        .trim_start_matches([' ', ','])
        .starts_with(|c: char| c.is_ascii_lowercase());
    scheme.starts_with('B') && !(plain && (more || word.starts_with(char::is_uppercase)))
        || !plain && word.len() >= 16
}

/// Whether a word looks like Base64 or a hash, and not like prose (`Basic Authentication`).
fn is_encoded(word: &str) -> bool {
    word.ends_with('=') && word.len() >= 8 || looks_secret(word)
}
