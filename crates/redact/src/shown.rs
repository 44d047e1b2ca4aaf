//! Redacted and bounded text. A text that is JSON is redacted as JSON.

use std::{borrow::Cow, ops::Range};

use serde_json::Value;

use crate::rules::{Limits, Rules};
use crate::text::{self, bytes::*};
use crate::view::{Source, Walk};
use crate::{inside, pairs::Role};

/// A longer text, in bytes, is not parsed as JSON, but redacted as text.
const MAX_JSON: usize = 64 * 1024;

/// JSON inside a string inside JSON: deeper levels are redacted as text.
pub(super) const MAX_NESTED: usize = 4;

/// How far behind the last character that is shown the text is read, in bytes: a secret that begins
/// before the cut may be recognised only by what follows.
const LOOKAHEAD: usize = 1024;

/// `text` without its secrets; `nested` times already inside a string.
pub(super) fn redacted<'t>(rules: &Rules, text: &'t str, nested: usize) -> Cow<'t, str> {
    head(rules, text, usize::MAX, nested).0
}

/// The first `limit` bytes of a text that is not JSON as a whole, without its secrets.
fn looked_through<'t>(rules: &Rules, text: &'t str, limit: usize, nested: usize) -> Cow<'t, str> {
    let redacted = text::redact(rules, text, limit, nested);
    match inside::redacted(rules, &redacted, nested) {
        Cow::Owned(text) => {
            let again = text::redact(rules, &text, text.len(), nested);
            Cow::Owned(again.into_owned())
        }
        Cow::Borrowed(_) => redacted,
    }
}

/// The first `max` characters of that, and whether anything is missing.
pub(super) fn head<'t>(
    rules: &Rules,
    text: &'t str,
    max: usize,
    nested: usize,
) -> (Cow<'t, str>, bool) {
    let read = max.saturating_mul(4).saturating_add(LOOKAHEAD);
    let read = read.max(MAX_JSON).saturating_add(rules.1.longest());
    let seen = floor(text, read);
    // Whole values come first: a form may end within one.
    match rules.1.hide(&text[..seen]) {
        Cow::Borrowed(_) => head_by_form(rules, text, max, nested),
        Cow::Owned(hidden) => {
            let cut = seen < text.len();
            let halved = cut.then(|| rules.1.cut_at(&text[..seen])).flatten();
            let hidden = halved.map_or(hidden, |at| rules.1.hide(&text[..at]).into_owned());
            let (head, more) = head_by_form(rules, &hidden, max, nested);
            (Cow::Owned(head.into_owned()), more || cut)
        }
    }
}

/// Returns the beginning of a text, without secrets that have a name or a form.
fn head_by_form<'t>(
    rules: &Rules,
    text: &'t str,
    max: usize,
    nested: usize,
) -> (Cow<'t, str>, bool) {
    if let Some(view) = json(rules, text, nested) {
        let (head, cut) = prefix(&view, max);
        return (Cow::Owned(head.to_owned()), cut);
    }
    // Redaction shrinks text, so more is read than is shown; but all that is read is bounded.
    let limit = prefix(text, max.saturating_mul(4)).0.len();
    let seen = floor(text, limit.saturating_add(LOOKAHEAD));
    let mut redacted = looked_through(rules, &text[..seen], limit, nested);
    // What was no JSON because of a secret in it may be some now.
    if let Cow::Owned(whole) = &mut redacted
        && limit == text.len()
        && let Some(view) = json(rules, whole, nested)
    {
        *whole = view;
    }
    let end = prefix(&redacted, max).0.len();
    let cut = limit < text.len() || end < redacted.len();
    match &mut redacted {
        Cow::Borrowed(text) => *text = &text[..end],
        Cow::Owned(text) => text.truncate(end),
    }
    (redacted, cut)
}

/// The redacted view of a text that is JSON and has something to hide, with the white space around
/// it.
pub(super) fn json(rules: &Rules, text: &str, nested: usize) -> Option<String> {
    let inner = text.trim_ascii();
    let (first, last) = (inner.bytes().next()?, inner.bytes().next_back()?);
    let is_json = matches!((first, last), (b'{', b'}') | (b'[', b']') | (b'"', b'"'));
    if !is_json || inner.len() > MAX_JSON || nested >= MAX_NESTED {
        return None;
    }
    let value: Value = serde_json::from_str(&marked(inner)).ok()?;
    let walk = Walk::new(rules, Limits::NONE, nested + 1);
    let view = serde_json::to_string(&walk.node(Source::Value(&value), 0, Role::Plain)).ok()?;
    let start = text.len() - text.trim_ascii_start().len();
    let end = start + inner.len();
    let shown = || [&text[..start], &unmarked(&view), &text[end..]].concat();
    walk.found.get().then(shown)
}

/// The mark of a number that is a text while JSON is redacted, to stay as it is written.
const NUMBER: char = '\u{f8ff}';

/// Of numbers.
fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || "+-.eE".contains(c)
}

/// Returns JSON in which each number that would be written in another way is a marked text.
fn marked(json: &str) -> Cow<'_, str> {
    if json.contains(NUMBER) {
        return Cow::Borrowed(json);
    }
    let (mut out, mut copied) = (String::new(), 0);
    for place in numbers(json) {
        let number = &json[place.clone()];
        let same = |value: Value| format!("{value}") == number;
        if !serde_json::from_str(number).is_ok_and(same) {
            out.push_str(&json[copied..place.start]);
            out += &format!("\"{NUMBER}{number}\"");
            copied = place.end;
        }
    }
    match copied {
        0 => Cow::Borrowed(json),
        _ => Cow::Owned(out + &json[copied..]),
    }
}

/// Returns where the numbers of JSON stand.
pub(super) fn numbers(json: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at;
            let byte = *json.as_bytes().get(at)?;
            at += 1;
            if byte == b'"' {
                let mut escaped = false;
                let ends = |c| {
                    let before = escaped;
                    escaped = c == '\\' && !before;
                    c == '"' && !before
                };
                at += json[at..].find(ends).map_or(json.len() - at, |len| len + 1);
            } else if byte.is_ascii_digit() || byte == b'-' {
                at = skip(json, at, is_numeric);
                return Some(start..at);
            }
        }
    })
}

/// Returns JSON with its marked numbers as they were.
fn unmarked(json: &str) -> String {
    let mut parts = json.split(NUMBER);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_at(skip(part, 0, is_numeric));
        if let Some(rest) = rest.strip_prefix('"').filter(|_| out.ends_with('"')) {
            out.pop();
            out.extend([number, rest]);
        } else {
            out.push_str(part);
        }
    }
    out
}
