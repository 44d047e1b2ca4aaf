//! What stands between a name and its value.

use super::{
    bytes::{ahead, colour_end, prefix_of, skip, skip_blanks},
    value::Style,
};

/// What stands between a name and its value.
pub(super) struct Mark {
    /// A quote or a bracket closes the name.
    pub(super) quoted: bool,
    pub(super) colon: bool,
    /// The name is an index of code: `headers[key] = x`.
    pub(super) index: bool,
    /// The mark compares: `==`, `!=`.
    pub(super) compares: bool,
    pub(super) style: Style,
    /// Where the mark ends.
    pub(super) end: usize,
}

/// Longest first where one begins with another.
const MARKS: &[&str] = &[
    "===", "!==", "==", "!=", ":=", "=>", "=~", "+=", "?=", "||=", "->", "=", ":", "&#61;",
    "\u{ff1d}", "\u{ff1a}", "%3D", "%3d", "%253D", "%253d", "%3A", "%3a",
];

const CLOSERS: &[&str] = &[
    "%22", "%27", "%5D", "%5d", "%5B", "%5b", "%255D", "&quot;", "&#34;", "&#39;", "\u{201d}",
    "\u{2019}",
];

/// The first place from `at` on that is no colour; a few follow each other at most.
fn skip_colours(text: &str, at: usize) -> usize {
    (0..4).fold(at, |at, _| colour_end(text, at))
}

/// Where the value begins after a mark that ends at `at`: behind colours, and behind the stars that end what
/// is bold (`**Password:** x`).
pub(super) fn value_start(text: &str, at: usize) -> usize {
    let stars = skip(text, at, |c| matches!(c, '*' | '_'));
    let bold = (1..=3).contains(&(stars - at)) && text[stars..].starts_with(' ');
    let at = skip_blanks(text, if bold { stars } else { at });
    skip_blanks(text, skip_colours(text, at))
}

/// Where the name ends whose last run ends at `end`: behind the quotes and brackets that close it.
fn closers_end(text: &str, end: usize) -> usize {
    let mut at = skip(text, end, |c| "\"'`\\]".contains(c));
    // Each of them is a run of its own, so that more of them would be looked at again and again.
    for _ in 0..4 {
        at += prefix_of(&text[at..], CLOSERS).map_or(0, str::len);
    }
    at
}

/// Where the mark begins after a name that ends at `at`, behind what belongs to the name.
fn mark_start(text: &str, at: usize) -> usize {
    // `password?: string`
    let at = at + usize::from(text[at..].starts_with("?:"));
    // `**Password**: x`
    let at = skip_colours(text, skip(text, at, |c| c == '*'));
    let mut at = skip_blanks(text, at);
    // `password (old): x`
    if text[at..].starts_with('(')
        && let Some(i) = ahead(text, at, 24).find(')')
    {
        at = skip_blanks(text, at + i + 1);
    }
    // `Secret Access Key [None]: x`
    if text[at..].starts_with('[')
        && let Some(i) = ahead(text, at, 24).find("]:")
    {
        at += i + 1;
    }
    at
}

impl Mark {
    /// The mark after a name that ends at `end`.
    pub(super) fn after(text: &str, end: usize) -> Option<Self> {
        let first = *text.as_bytes().get(end)?;
        if first.is_ascii() && !b"\"'`\\] \t=:%&?|!*\x1b".contains(&first) {
            return None;
        }
        let end = skip_colours(text, end);
        let closed = closers_end(text, end);
        // `headers["x"] = y`, `user[password]=x`, but `[name]: https://h` and `` `name`: bool `` show names.
        let (closer, rest) = (&text[end..closed], &text[closed..]);
        let prose =
            (closer == "]" || closer == "`") && rest.trim_start_matches(' ').starts_with(": ");
        let at = mark_start(text, closed);
        let mark = prefix_of(&text[at..], MARKS)?;
        let after = &text[at + mark.len()..];
        let colon = matches!(mark, ":" | "\u{ff1a}");
        // `userPassword:: x`: LDIF has Base64 after two colons.
        let twice = colon && at == end && after.starts_with(": ");
        // A path (`auth::login`), a URL.
        if colon && !twice && (after.starts_with(':') || after.starts_with("//")) {
            return None;
        }
        Some(Self {
            quoted: closed > end && !prose,
            index: closer == "]" && rest.starts_with(" = "),
            colon,
            compares: mark.contains("==") || mark == "!=",
            style: match mark.starts_with('%') {
                true => Style::Encoded,
                false => Style::Plain,
            },
            end: at + mark.len() + usize::from(twice),
        })
    }
}
