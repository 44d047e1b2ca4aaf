//! Strings with escapes (of debug output and JSON) and JSON objects inside a text: each is
//! unescaped or parsed, so that a secret in it is found as in any other text.

use std::{borrow::Cow, fmt::Write as _};

use serde_json::Value;

use crate::escapes::{Escapes, unescaped};
use crate::shown::{self, MAX_NESTED};
use crate::text::{bytes::*, quote::Quote, value::bracket_end};
use crate::{hidden::is_hidden, pairs::tells, rules::Rules};

/// How many times its length of a text is parsed as JSON at most: nested brackets would be parsed
/// again and again.
const EFFORT: usize = 4;

/// Redacts the strings and objects inside `text`, which is itself `nested` levels inside another
/// text.
pub(super) fn redacted<'t>(rules: &Rules, text: &'t str, nested: usize) -> Cow<'t, str> {
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    let mut effort = text.len().saturating_mul(EFFORT);
    // Most texts have neither.
    if nested >= MAX_NESTED || !text.bytes().any(|b| matches!(b, b'\\' | b'{')) {
        return Cow::Borrowed(text);
    }
    let opens = |b| matches!(b, b'"' | b'\'' | b'{');
    while let Some(i) = text[at..].bytes().position(opens) {
        looked_at(i);
        at += i;
        let found = match text.as_bytes()[at] {
            b'{' => json(rules, text, at, nested, &mut effort),
            _ => string(rules, text, at, nested),
        };
        let (end, inner) = found.unwrap_or((at + 1, None));
        if let Some(inner) = inner {
            out += &text[copied..at];
            out += &inner;
            copied = end;
        }
        at = end;
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(out + &text[copied..]),
    }
}

/// The end of something inside a text, and how it looks without its secrets if it has any.
type Inside = Option<(usize, Option<String>)>;

/// The object of JSON that begins at `at`, if its members tell of a secret: what names alone tell
/// is found in the text.
fn json(rules: &Rules, text: &str, at: usize, nested: usize, effort: &mut usize) -> Inside {
    if !text[at + 1..].trim_ascii_start().starts_with('"') || *effort == 0 {
        return None;
    }
    let end = bracket_end(text, at);
    *effort = effort.saturating_sub(end - at);
    let value: Value = serde_json::from_str(&text[at..end]).ok()?;
    let view = tells(rules, &value).then(|| shown::json(rules, &text[at..end], nested))?;
    view.map(|view| (end, Some(view)))
}

/// Reads the string that opens at `at`. Its escapes may hide secrets.
fn string(rules: &Rules, text: &str, at: usize, nested: usize) -> Inside {
    let word = |c: char| c.is_alphanumeric() || c == '\\';
    if text[..at].ends_with(word) && !text[..at].ends_of("bfru") {
        return None;
    }
    let quote = Quote::at(text, at)?;
    let start = at + quote.len();
    let close = quote.close(text, start).unwrap_or(text.len()..text.len());
    let (inner, end) = (&text[start..close.start], close.end);
    if !inner.has_of("\\") {
        // A text in quotes is one; a quote that is none may stand before others.
        let closes = text[end..].starts_of(",}]):");
        return closes.then_some((end, None));
    }
    let (plain, places) = unescaped(inner, Escapes::Strings);
    if plain == inner {
        return Some((end, None));
    }
    let shown = shown::redacted(rules, &plain, nested + 1);
    if shown == plain {
        return Some((end, None));
    }
    // The parts that are equal at both ends stay as they are written.
    let head = same(plain.chars().zip(shown.chars()));
    let ends = plain[head..].chars().rev().zip(shown[head..].chars().rev());
    let tail = same(ends);
    let changed = escaped(&shown[head..shown.len() - tail], quote.mark());
    let (first, last) = (places[head], places[plain.len() - tail]);
    let parts = [&text[at..start + first], &changed, &text[start + last..end]];
    Some((end, Some(parts.concat())))
}

/// The length of the characters that are equal, up to the first that are not.
fn same(pairs: impl Iterator<Item = (char, char)>) -> usize {
    let equal = pairs.take_while(|(a, b)| a == b);
    equal.map(|(c, _)| c.len_utf8()).sum()
}

/// The first character of a text that is not empty, without its escape, and the length of both.
pub(super) fn first(text: &str) -> (char, usize) {
    let mut chars = text.chars();
    match (chars.next().unwrap_or_default(), chars.next()) {
        ('\\', Some('n')) => ('\n', 2),
        ('\\', Some('r')) => ('\r', 2),
        ('\\', Some('t')) => ('\t', 2),
        ('\\', Some(c @ ('"' | '\'' | '\\' | '/'))) => (c, 2),
        ('\\', Some('u')) => code(&text[2..]).map_or(('\\', 1), |(c, len)| (c, len + 2)),
        (c, _) => (c, c.len_utf8()),
    }
}

/// The character of `0077` or `{77}`, and the length of that.
fn code(text: &str) -> Option<(char, usize)> {
    let (digits, len) = match text.strip_prefix('{') {
        Some(rest) => {
            let end = rest.bytes().take(7).position(|b| b == b'}')?;
            (&rest[..end], end + 2)
        }
        None => (text.get(..4)?, 4),
    };
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    match (number(digits)?, text.get(4..10)) {
        // A character beyond 16 bits is two codes: RFC 8259, section 7.
        (high @ 0xd800..0xdc00, Some(next)) => {
            let low = number(next.strip_prefix("\\u")?)?.checked_sub(0xdc00)?;
            let c = char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)?;
            Some((c, 10)).filter(|_| low < 0x400)
        }
        (code, _) => Some((char::from_u32(code)?, len)),
    }
}

/// A text with escapes, to stand between quotes.
fn escaped(text: &str, mark: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // A `String` takes all that is written.
        let _ = match c {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            c if c == '\\' || mark.starts_with(c) => write!(out, "\\{c}"),
            c if !is_hidden(c) => out.write_char(c),
            c => match u32::from(c) {
                c @ ..=0xffff => write!(out, "\\u{c:04x}"),
                c => write!(out, "\\u{{{c:x}}}"),
            },
        };
    }
    out
}
