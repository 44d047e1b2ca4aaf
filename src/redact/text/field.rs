//! Names that are values themselves: `"name": "X-Api-Key", "value": "x"`, `["Authorization", "x"]`,
//! `<add key="ApiKey" value="x"/>`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{after_last, ahead, behind, is_one_of, run_end, skip},
    look::{is_composed, is_date, is_mixed, looks_secret},
    name::{is_header, is_name},
    value::{self, Style},
};
use crate::redact::{
    keys::Strength,
    pairs::{NAME_FIELDS, VALUE_FIELDS},
};

/// How far from the name its value's field may begin.
const NEAR: usize = 256;

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

/// A quoted name that stands as a value, or as an element of an array.
pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let close = scan.after(run).trim_start_matches('\\');
    if close.starts_with(['\n', '\r', ',', ' ']) {
        return setting(scan, run);
    }
    if !close.starts_with(is_quote) || !is_name(scan, scan.word(run)) {
        return None;
    }
    if close[1..].trim_start().starts_with('{') {
        // `variable "db_password" { default = "x" }`
        return value_field(scan, run.end);
    }
    let before = behind(scan.text, run.at, 64);
    let open = before.trim_end_matches('\\').strip_suffix(is_quote)?;
    let before = open.trim_end_matches(['\\', ' ', '\n', '\t']);
    if let Some(head) = before.strip_suffix([':', '=']) {
        let field = last_name(head);
        let strong = scan.rules.strength(scan.word(run)) == Strength::Strong;
        let named = is_one_of(field, NAME_FIELDS) || strong && field.eq_ignore_ascii_case("type");
        let value = || form_part(scan, run).or_else(|| value_field(scan, run.end));
        return named.then(|| value().or_else(|| field_before(scan, run)))?;
    }
    let first = before.trim_end_matches('b').ends_with(['[', '(']);
    element(scan, run, first)
}

/// `- name: API_KEY` with `value: x` in the next line.
fn setting(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let before = behind(scan.text, run.at, 64);
    let head = before
        .strip_suffix(": ")
        .or_else(|| before.strip_suffix('='))?;
    let named = is_one_of(last_name(head), NAME_FIELDS) && is_name(scan, scan.word(run));
    named.then(|| value_field(scan, run.end))?
}

/// `name="password"`, an empty line, and the value: a part of a form.
fn form_part(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    const LINES: &[(&str, &str)] = &[("\"\r\n\r\n", "\r\n--"), ("\"\n\n", "\n--")];
    let rest = scan.after(run);
    let (body, close) = LINES
        .iter()
        .find_map(|(open, close)| Some((rest.strip_prefix(open)?, close)))?;
    let start = scan.text.len() - body.len();
    Some(start..start + body.find(close).unwrap_or(body.len()))
}

/// `value="x" name="password"`: the value stands before the name.
fn field_before(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let near = behind(scan.text, run.at, NEAR);
    let from = run.at - near.len() + near.rfind(['<', '{'])? + 1;
    let value = field_in(&scan.text[..run.at], from, run.at)?;
    (value.end <= run.at).then_some(value)
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
    after_last(text, |c| !c.is_alphanumeric() && c != '_' && c != '-')
}

/// `"value": "x"`, `value="x"` after `from`, in the same object or element.
fn value_field(scan: &Scan<'_>, from: usize) -> Option<Range<usize>> {
    field_in(scan.text, from, crate::text::floor(scan.text, from + NEAR))
}

/// The same in `from..to`.
fn field_in(text: &str, from: usize, to: usize) -> Option<Range<usize>> {
    let near = &text[from..to];
    let mut at = 0;
    loop {
        at += near[at..].find(|c: char| c.is_alphanumeric() || matches!(c, '}' | '<' | '>'))?;
        if near[at..].starts_with('>') {
            return content(text, from + at + 1);
        }
        let end = run_end(near, at);
        if end == at {
            return None;
        }
        let name = &near[at..end];
        let mark = skip(near, end, |c| is_quote(c) || matches!(c, '\\' | ' '));
        if near[mark..].starts_with([':', '=']) {
            if is_one_of(name, VALUE_FIELDS) {
                let start = skip(text, from + mark + 1, char::is_whitespace);
                return Some(value::extent(text, start, Style::Plain));
            }
            if near[mark..].starts_with(':') && is_one_of(name, &["name", "key"]) {
                // Another one begins.
                return None;
            }
        }
        at = end;
    }
}

/// `<entry key="password">x</entry>`, `<setting name="password"><value>x</value>`
fn content(text: &str, start: usize) -> Option<Range<usize>> {
    let inner = skip(text, start, char::is_whitespace);
    let start = match text[inner..].strip_prefix("<value>") {
        Some(_) => inner + "<value>".len(),
        None => start,
    };
    let end = start + ahead(text, start, 4096).find('<')?;
    (!text[start..end].trim().is_empty()).then_some(start..end)
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
    let secret = value::glance(text, start, Style::Plain);
    let value = &text[secret.clone()];
    let whole = |secret| value::whole(text, start, Style::Plain, secret);
    if name.starts_with('-') {
        return (!value.starts_with("--")).then(|| whole(secret));
    }
    // Two elements are a pair; in longer lists of names (`required`) a value has to look like one.
    let end = skip(text, secret.end, |c| {
        is_quote(c) || matches!(c, '\\' | ' ' | '\n')
    });
    let pair = first && text[end..].starts_with([']', ')']);
    // `setProperty("password", "x", ...)`
    let pair = pair || first && sets(scan, run);
    let pair = pair && (scan.rules.strength(name) == Strength::Strong || is_header(name));
    let looks = (looks_secret(value) || is_mixed(value)) && !is_composed(value);
    (pair && !is_date(value) || looks).then(|| whole(secret))
}

/// Whether the list that the run is the first of are the arguments of a function that sets something.
fn sets(scan: &Scan<'_>, run: Run) -> bool {
    let before = behind(scan.text, run.at, 64)
        .trim_end_matches(|c: char| is_quote(c) || c == '\\' || c == ' ');
    let name = before
        .strip_suffix('(')
        .map(|name| after_last(name, |c| !c.is_alphanumeric() && c != '_'));
    let name = name.unwrap_or_default().to_ascii_lowercase();
    ["set", "put", "add", "append", "insert", "header"]
        .iter()
        .any(|verb| name.starts_with(verb))
}
