//! Names in text, and the marks between a name and its value.

use std::borrow::Cow;

use super::prelude::*;
use crate::escapes::{self, Escapes};

/// The mark between a name and its value.
pub(super) struct Mark {
    /// A quote or a bracket closes the name.
    pub(super) quoted: bool,
    pub(super) colon: bool,
    /// The name is an index of code: `headers[key] = x`.
    pub(super) index: bool,
    /// The mark compares: `==`, `!=`.
    pub(super) compares: bool,
    /// The mark is percent-encoded, and so is the value: `token%3Dx%26q%3D1`.
    pub(super) encoded: bool,
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

/// The first place behind the colours at `at`, of which at most four are skipped.
pub(super) fn skip_colours(text: &str, at: usize) -> usize {
    (0..4).fold(at, |at, _| colour_end(text, at))
}

/// Returns the beginning of the value after a mark that ends at `at`: behind colours, and behind
/// the stars of bold text (`**Password:** x`).
pub(super) fn value_start(text: &str, at: usize) -> usize {
    let stars = skip(text, at, |c| matches!(c, '*' | '_'));
    let bold = (1..=3).contains(&(stars - at)) && text[stars..].starts_with(' ');
    let at = php_value(text, skip_blanks(text, if bold { stars } else { at }));
    (0..2).fold(at, |at, _| skip_blanks(text, skip_colours(text, at)))
}

/// Returns the beginning of a value in the line below its name, behind its type, as PHP dumps it:
/// `["password"]=>`, `string(8) "x"`. Else `at`.
fn php_value(text: &str, at: usize) -> usize {
    if !text[..at].ends_with("=>") {
        return at;
    }
    let start = skip(text, at, char::is_whitespace);
    let typed = ahead(text, start, 24).cut(") ");
    let typed = typed.filter(|(head, _)| head.starts_with("string("));
    typed.map_or(at, |(head, _)| start + head.len() + 2)
}

/// Returns the end of a name with its last run up to `end`: behind the quotes and brackets that
/// close it.
fn closers_end(text: &str, end: usize) -> usize {
    let mut at = skip(text, end, |c| "\"'`\\]".contains(c));
    // Each of them is a run of its own: with no limit they would be read again and again.
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
    let mut at = skip_colours(text, skip_blanks(text, at));
    // `password (old): x`
    if text[at..].starts_with('(')
        && let Some(i) = ahead(text, at, 24).find_of(")")
    {
        at = skip_blanks(text, at + i + 1);
    }
    // `Secret Access Key [None]: x`
    if text[at..].starts_with('[')
        && let Some(i) = ahead(text, at, 24).find_str("]:")
    {
        at += i + 1;
    }
    number_end(text, at)
}

/// Where a number before a colon ends, or `at`: `Unseal Key 1: x`, `Secret #2: x`.
fn number_end(text: &str, at: usize) -> usize {
    let digits = at + usize::from(text[at..].starts_with('#'));
    let end = skip(ahead(text, digits, 4), 0, |c| c.is_ascii_digit()) + digits;
    let between = text[..at].ends_with(' ') && text[end..].starts_with(": ");
    let fits = between && (1..=3).contains(&(end - digits));
    if fits { end } else { at }
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
        // `headers["x"] = y`, `user[password]=x`, but `[name]: https://h` and `` `name`: bool ``
        // show names.
        let (closer, rest) = (&text[end..closed], &text[closed..]);
        let prose =
            matches!(closer, "]" | "`" | "`]" | "``") && rest.trim_start_of(" ").starts_with(": ");
        // `[Authorization]: https://h`
        if rest.starts_with(": http") && closer.ends_with(']') {
            return None;
        }
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
            compares: mark.holds("==") || mark == "!=",
            encoded: mark.starts_with('%'),
            end: at + mark.len() + usize::from(twice),
        })
    }
}

/// The name in a run: the text behind its last slash, unescaped.
pub(super) fn name<'a>(run: &Run<'a>, mark: &Mark) -> Cow<'a, str> {
    let word = run.word();
    let before = run.before();
    let letter = mark.quoted && before.ends_with('\\') && word.starts_with('u');
    let entity = before.ends_with(';') && run.behind(8).has_of("#");
    if letter || entity || before.ends_with("\\u") {
        return Cow::Owned(unescaped(run));
    }
    let name = word.cut_last("/").map_or(word, |(_, name)| name);
    // `user[password]=x` has its name in the brackets; `headers["x"]` as well.
    Cow::Borrowed(name)
}

/// `pass\u0077ord`, `pass&#119;ord`, read from the quote or blank before it. The escapes may be
/// escaped.
fn unescaped(run: &Run<'_>) -> String {
    let near = behind(run.text, run.end, 256);
    let name = after_last(near, |c| matches!(c, '"' | '\'' | ' ' | '{' | ','));
    let once = |name: String, _| escapes::unescaped(&name, Escapes::All).0;
    (0..4).fold(name.to_owned(), once)
}

/// `PWD=/home/ada` of an environment.
pub(super) fn is_working_directory(name: &str, value: &str) -> bool {
    let value = value.trim_start_of("\"' ");
    matches!(name, "PWD" | "OLDPWD" | "pwd") && value.starts_of("/~")
}

/// The word before a run and one blank; empty if there is more between them.
fn word_before<'a>(run: &Run<'a>, len: usize) -> &'a str {
    let head = run.behind(len).strip_suffix(' ');
    after_last(head.unwrap_or_default(), |c| !c.is_alphanumeric())
}

/// Returns whether a type gets this name: `type AuthToken = string`, `type AuthToken=string`.
pub(super) fn is_type(run: &Run<'_>) -> bool {
    let declares = ["type", "typedef", "interface", "enum", "class", "struct"];
    let named = run.ahead(24).strip_prefix('=');
    declares.contains(&word_before(run, 16))
        && named.is_none_or(|kind| is_kind(until(kind, ";|,} \n")))
}

/// Returns whether a word is the kind of a value in JavaScript, as `typeof` gives it.
pub(super) fn is_kind(word: &str) -> bool {
    const KINDS: &str = "string function object undefined number boolean symbol bigint";
    is_one_of(word, KINDS)
}

/// Returns whether the run is a part of the name of something in AWS: `arn:aws:kms:eu:1:key/x`.
pub(super) fn is_resource(run: &Run<'_>) -> bool {
    let before = run.behind(128);
    let parts = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ',');
    let named = || prefix_of(after_last(before, parts), &["arn:", "{{resolve:"]).is_some();
    before.ends_with(':') && named() || before.ends_with("::")
}

pub(super) fn holds_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts = ["pass", "secret", "pin", "otp", "cv"];
    parts.iter().any(|part| name.holds(part))
}

/// `api key: x`, `access token: x`.
pub(super) fn follows_kind(run: &Run<'_>) -> bool {
    const KINDS: &str = "api access secret private auth session refresh client master encryption \
        signing bot license unseal recovery root";
    is_one_of(word_before(run, 24), KINDS)
}

/// Names that code uses for many other things.
pub(super) fn is_weak_word(name: &str) -> bool {
    let last = after_last(name, |c| c == '.' || c == '-');
    let last = last.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    is_one_of(last, "key keys auth")
}

/// `?key=x`, `&key=x`, `--key=x`.
pub(super) fn in_query(run: &Run<'_>) -> bool {
    let before = run.before();
    before.ends_of("?&#") && !before.ends_with("&&") || run.word().starts_with('-')
}

/// Returns whether the whole value of the header is a secret, its scheme included.
pub(super) fn is_header(name: &str) -> bool {
    ends_with_one_of(name, "authorization cookie cookie2")
}

/// Returns whether `name` is a whole string that announces a value.
pub(super) fn is_name(run: &Run<'_>, name: &str) -> bool {
    let name = strip_ignore_case(name, "env:").unwrap_or(name);
    name.len() <= 64 && !name.has_of(" ") && run.rules.announces(name)
}
