//! Tokens that are told by their own looks: vendors' prefixes, JWTs, keys with a mark inside.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::ahead,
    value::bare_end,
    vendors::{self, Tail, Vendor},
};

/// Tokens are longer than this.
const MIN: usize = 12;

pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let own = scan.rules.prefixes();
    let word = scan.word(run);
    if word.len() < MIN && own.is_empty() {
        return marked(scan, run);
    }
    let bytes = word.as_bytes();
    let mut before = b' ';
    let mut at = 0;
    while at < bytes.len() {
        let starts = !before.is_ascii_alphanumeric();
        before = bytes[at];
        if starts && before.is_ascii_alphanumeric() {
            let rest = &word[at..];
            if let Some(len) = length(rest, scan) {
                return Some(
                    run.at + at..(run.at + at + len).max(continued(scan.text, run.at + at + len)),
                );
            }
        }
        at += 1;
    }
    marked(scan, run)
}

/// Some tokens have marks in them at which a run ends.
fn continued(text: &str, end: usize) -> usize {
    let goes_on = text[end..].starts_with(['=', '%', '|']) && !text[end..].starts_with("%2");
    if goes_on { bare_end(text, end) } else { end }
}

/// The length of the token that `rest` begins with.
fn length(rest: &str, scan: &Scan<'_>) -> Option<usize> {
    let first = rest.as_bytes()[0];
    if rest.starts_with("eyJ") {
        return is_json_token(rest).then(|| tail(rest, 0));
    }
    if let Some(len) = azure(rest).or_else(|| airtable(rest)) {
        return Some(len);
    }
    let own = scan.rules.prefixes().iter().find_map(|prefix| {
        let after = rest.strip_prefix(&*prefix.text)?;
        let len = tail(after, 0);
        (len >= prefix.min_tail).then_some(prefix.text.len() + len)
    });
    own.or_else(|| {
        let long = rest.len() >= MIN;
        long.then(|| vendors::beginning_with(first).find_map(|vendor| fits(vendor, rest)))?
    })
}

fn fits(vendor: &Vendor, rest: &str) -> Option<usize> {
    if rest.len() < vendor.prefix.len() + vendor.min {
        return None;
    }
    let after = rest.strip_prefix(vendor.prefix)?;
    let near = ahead(after, 0, 160);
    let near = &near[..segment(near)];
    let fits = near.len() >= vendor.min
        && match vendor.tail {
            Tail::Any => true,
            Tail::Digit => near.bytes().any(|b| b.is_ascii_digit()) && !is_words(near),
            Tail::Hex => near.bytes().all(|b| b.is_ascii_hexdigit()),
            Tail::Upper => near
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()),
        };
    fits.then(|| vendor.prefix.len() + tail(after, 0))
}

/// Whether a tail is words with marks between them: `sk-learn-contrib-2024-edition`.
fn is_words(tail: &str) -> bool {
    let word = |s: &str| {
        s.bytes().all(|b| b.is_ascii_lowercase()) && s.len() <= 14
            || s.len() <= 4 && s.bytes().all(|b| b.is_ascii_digit())
    };
    tail.contains(['-', '_']) && tail.split(['-', '_']).all(word)
}

/// How many characters of a token `text` begins with, dots not counted.
fn segment(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
        .unwrap_or(text.len())
}

/// The same, dots counted unless they end it.
fn tail(text: &str, from: usize) -> usize {
    let part =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '~' | '/');
    let end = text[from..]
        .find(|c| !part(c))
        .map_or(text.len(), |i| from + i);
    text[..end].trim_end_matches(['.', '/']).len()
}

/// JWT and JWE (`eyJ`: Base64 of `{"`): parts with dots between them, or one long part.
fn is_json_token(rest: &str) -> bool {
    let near = ahead(rest, 0, 160);
    let first = segment(near);
    first >= 40 || first >= 10 && near[first..].starts_with('.') && near.len() >= 20
}

/// Client secrets of Azure: three characters, a digit, `Q~`, 34 characters.
fn azure(rest: &str) -> Option<usize> {
    let mark = rest.get(4..6)? == "Q~";
    let long = rest.len() >= 36 && rest.as_bytes()[3].is_ascii_digit();
    (mark && long).then(|| tail(rest, 0))
}

/// Personal tokens of Airtable: `pat`, 14 characters, a dot, 64 hexadecimal digits.
fn airtable(rest: &str) -> Option<usize> {
    let id = rest.strip_prefix("pat")?.get(..14)?;
    let secret = rest.get(18..82).filter(|_| rest.as_bytes()[17] == b'.')?;
    let fits = id.bytes().all(|b| b.is_ascii_alphanumeric())
        && secret.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| tail(rest, 0))
}

/// Keys with a mark at their end or inside: Mailchimp's `-us12`, Terraform's `.atlasv1.`.
fn marked(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    let end = word.trim_end_matches(['.', '/']);
    if end.len() < 32 {
        return None;
    }
    if let Some(i) = ahead(end, 0, 64).find(".atlasv1.") {
        let start = end[..i].rfind('/').map_or(0, |i| i + 1);
        return (i - start >= 10).then_some(run.at + start..run.end);
    }
    let (head, region) = end.rsplit_once("-us")?;
    let key = head.rsplit(['/', '.', '_']).next().unwrap_or(head);
    let hex = key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit());
    let numbered = (1..=2).contains(&region.len()) && region.bytes().all(|b| b.is_ascii_digit());
    let start = run.at + head.len() - key.len();
    (hex && numbered).then(|| start..run.at + end.len())
}
