//! Names that are values themselves: `"name": "X-Api-Key", "value": "x"`, `["Authorization", "x"]`,
//! `<add key="ApiKey" value="x"/>`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, is_one_of, run_end, skip},
    look::{is_mixed, looks_secret},
    pair::is_name,
    value::{self, Style},
};
use crate::redact::pairs::{NAME_FIELDS, VALUE_FIELDS};

/// How far from the name its value's field may begin.
const NEAR: usize = 256;

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

/// A quoted name that stands as a value, or as an element of an array.
pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let close = scan.after(run).trim_start_matches('\\');
    if !close.starts_with(is_quote) || !is_name(scan, scan.word(run)) {
        return None;
    }
    let before = behind(scan.text, run.at, 64);
    let open = before.trim_end_matches('\\').strip_suffix(is_quote)?;
    let before = open.trim_end_matches(['\\', ' ', '\n', '\t']);
    if let Some(head) = before.strip_suffix([':', '=']) {
        let field = last_name(head);
        let input = before.ends_with('=') && field.eq_ignore_ascii_case("type");
        return (input || is_one_of(field, NAME_FIELDS)).then(|| value_field(scan, run.end))?;
    }
    let first = before.ends_with(['[', '(']);
    element(scan, run, first)
}

/// The value that the name in `name` (the value of the pair of `run`) announces.
pub(super) fn announced(scan: &Scan<'_>, run: Run, name: &Range<usize>) -> Option<Range<usize>> {
    let field = scan.word(run);
    if !is_one_of(field, NAME_FIELDS) || !is_name(scan, &scan.text[name.clone()]) {
        return None;
    }
    value_field(scan, name.end)
}

/// The last run of `text`, quotes and blanks after it aside.
fn last_name(text: &str) -> &str {
    let text = text.trim_end_matches(|c: char| is_quote(c) || c == '\\' || c == ' ');
    let start = text
        .rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
        .map_or(0, |i| i + 1);
    text.get(start..).unwrap_or_default()
}

/// `"value": "x"`, `value="x"` after `from`, in the same object or element.
fn value_field(scan: &Scan<'_>, from: usize) -> Option<Range<usize>> {
    let near = ahead(scan.text, from, NEAR);
    let mut at = 0;
    loop {
        at += near[at..].find(|c: char| c.is_alphanumeric() || matches!(c, '}' | '<' | '>'))?;
        if near[at..].starts_with('>') {
            // `<entry key="password">x</entry>`
            let start = from + at + 1;
            let end = start + scan.text[start..].find('<')?;
            return (!scan.text[start..end].trim().is_empty()).then_some(start..end);
        }
        let end = run_end(near, at);
        if end == at {
            return None;
        }
        let name = &near[at..end];
        let mark = skip(near, end, |c| is_quote(c) || matches!(c, '\\' | ' '));
        if is_one_of(name, VALUE_FIELDS) && near[mark..].starts_with([':', '=']) {
            let start = skip(scan.text, from + mark + 1, char::is_whitespace);
            return Some(value::extent(scan.text, start, Style::Plain));
        }
        at = end;
    }
}

/// `"Authorization", "x"` as elements; `first` in their array.
fn element(scan: &Scan<'_>, run: Run, first: bool) -> Option<Range<usize>> {
    let (text, name) = (scan.text, scan.word(run));
    let mark = skip(text, run.end, |c| is_quote(c) || c == '\\');
    let mark = skip(text, mark, char::is_whitespace);
    let after = text[mark..].strip_prefix(',')?;
    let start = skip(text, text.len() - after.len(), char::is_whitespace);
    let quoted = text[start..]
        .trim_start_matches(['\\', 'b'])
        .starts_with(is_quote);
    if !quoted {
        return None;
    }
    let secret = value::extent(text, start, Style::Plain);
    let value = &text[secret.clone()];
    if name.starts_with('-') {
        return (!value.starts_with("--")).then_some(secret);
    }
    // Two elements are a pair; in longer lists of names (`required`) a value has to look like one.
    let end = skip(text, secret.end, |c| {
        is_quote(c) || matches!(c, '\\' | ' ' | '\n')
    });
    let pair = first && text[end..].starts_with([']', ')']);
    (pair || looks_secret(value) || is_mixed(value)).then_some(secret)
}
