//! What stands between a name and its value.

use super::{
    bytes::{ahead, colour_end, skip, skip_blanks},
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
#[rustfmt::skip]
const MARKS: &[(&str, Style)] = &[
    ("===", Style::Plain), ("!==", Style::Plain), ("==", Style::Plain), ("!=", Style::Plain), (":=", Style::Plain), ("=>", Style::Plain),
    ("=~", Style::Plain), ("+=", Style::Plain), ("?=", Style::Plain), ("||=", Style::Plain), ("->", Style::Plain), ("=", Style::Plain), (":", Style::Plain),
    ("%3D", Style::Encoded), ("%3d", Style::Encoded), ("%253D", Style::Encoded), ("%253d", Style::Encoded),
    ("%3A", Style::Encoded), ("%3a", Style::Encoded),
    ("&#61;", Style::Plain), ("\u{ff1d}", Style::Plain), ("\u{ff1a}", Style::Plain),
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

impl Mark {
    /// The mark after a name that ends at `end`.
    pub(super) fn after(text: &str, end: usize) -> Option<Self> {
        let first = *text.as_bytes().get(end)?;
        let near = matches!(
            first,
            b'"' | b'\''
                | b'`'
                | b'\\'
                | b']'
                | b' '
                | b'\t'
                | b'='
                | b':'
                | b'%'
                | b'&'
                | b'?'
                | b'|'
                | b'!'
                | b'*'
                | 0x1b
        );
        if !near && first.is_ascii() {
            return None;
        }
        let end = skip_colours(text, end);
        let mut at = skip(text, end, |c| matches!(c, '"' | '\'' | '`' | '\\' | ']'));
        // Each of them is a run of its own, so that more of them would be looked at again and again.
        for _ in 0..4 {
            if let Some(closer) = CLOSERS.iter().find(|c| text[at..].starts_with(**c)) {
                at += closer.len();
            }
        }
        // `headers["x"] = y`, `user[password]=x`, but `[name]: https://h` and `` `name`: bool `` tell of names.
        let closer = &text[end..at];
        let prose = (closer == "]" || closer == "`")
            && text[at..].trim_start_matches(' ').starts_with(": ");
        let quoted = at > end && !prose;
        let index = closer == "]" && text[at..].starts_with(" = ");
        // `password?: string`
        at += usize::from(text[at..].starts_with("?:"));
        // `**Password**: x`
        at = skip_colours(text, skip(text, at, |c| c == '*'));
        at = skip_blanks(text, at);
        if text[at..].starts_with('(')
            && let Some(i) = ahead(text, at, 24).find(')')
        {
            // `password (old): x`
            at = skip_blanks(text, at + i + 1);
        }
        // `Secret Access Key [None]: x`
        if text[at..].starts_with('[')
            && let Some(i) = ahead(text, at, 24).find("]:")
        {
            at += i + 1;
        }
        let rest = &text[at..];
        let (mark, style) = MARKS.iter().find(|(mark, _)| rest.starts_with(mark))?;
        let after = &rest[mark.len()..];
        let colon = mark.starts_with(':') && mark.len() == 1 || *mark == "\u{ff1a}";
        // A path (`auth::login`), a URL.
        // `userPassword:: x`: LDIF has Base64 after two colons.
        let twice = colon && at == end && after.starts_with(": ");
        if colon && !twice && (after.starts_with(':') || after.starts_with("//")) {
            return None;
        }
        Some(Self {
            quoted,
            index,
            colon,
            compares: mark.contains("==") || *mark == "!=",
            style: *style,
            end: at + mark.len() + usize::from(twice),
        })
    }
}
