//! Names that are values themselves: `"name": "X-Api-Key", "value": "x"`, `["Authorization", "x"]`,
//! `<add key="ApiKey" value="x"/>`.

use super::{name::*, prelude::*};
use crate::pairs::{NAME_FIELDS, VALUE_FIELDS, lists_names};

/// How far from the name its value's field may begin.
const NEAR: usize = 256;

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

/// Of quotes, their escapes and blanks.
fn is_padding(c: char) -> bool {
    is_quote(c) || c == '\\' || c == ' '
}

/// A quoted name that stands as a value, or as an element of an array.
pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let close = run.after().trim_start_of("\\");
    let unquoted = close.starts_of("\n\r, ");
    if !unquoted && !close.starts_with(is_quote) || !is_name(run, run.word()) {
        return None;
    }
    let before = run.behind(64);
    let value = || value_field(run.text, run.end, run.word());
    if unquoted && close.starts_with(',') && before.ends_with('{') {
        // `{password, <<"x">>}` of Erlang.
        return element(run, true);
    }
    if unquoted {
        // `- name: API_KEY` with `value: x` in the next line.
        let assigned = before.trim_end_of(" ").strip_suffix('=');
        let head = before.strip_suffix(": ").or(assigned)?;
        let name = last_name(without_colour(head.trim_end_of(" ")));
        return NAME_FIELDS.has(name).then(value)?;
    }
    if close[1..].trim_start().starts_with('{') {
        // `variable "db_password" { default = "x" }`
        return value();
    }
    let open = before.trim_end_of("\\").strip_suffix(is_quote)?;
    let before = open.trim_end_of("\\ \n\t");
    if let Some(head) = before.strip_suffix([':', '=']) {
        let field = last_name(head);
        let typed = || field.eq_ignore_ascii_case("type") && run.is_strong(run.word());
        let named = NAME_FIELDS.has(field) || typed();
        return named.then(|| form_part(run).or_else(value).or_else(|| field_before(run)))?;
    }
    element(run, before.trim_end_of("b").ends_of("[("))
}

/// `name="password"`, an empty line, and the value: a part of a form.
fn form_part(run: &Run<'_>) -> Option<Range<usize>> {
    const LINES: &[(&str, &str)] = &[("\"\r\n\r\n", "\r\n--"), ("\"\n\n", "\n--")];
    let mut lines = LINES.iter();
    let (open, close) = lines.find(|(open, _)| run.after().starts_with(open))?;
    let start = run.end + open.len();
    let body = &run.text[start..];
    Some(start..start + body.find_str(close).unwrap_or(body.len()))
}

/// `value="x" name="password"`: the value stands before the name.
fn field_before(run: &Run<'_>) -> Option<Range<usize>> {
    let near = run.behind(NEAR);
    let from = run.at - near.len() + near.rfind(['<', '{'])? + 1;
    let value = field_in(run.before(), from, run.at, run.word())?;
    (value.end <= run.at).then_some(value)
}

/// The value that the name in `name` (the value of the pair of `run`) announces.
pub(super) fn announced(run: &Run<'_>, name: &Range<usize>) -> Option<Range<usize>> {
    let named = &run.text[name.clone()];
    let names = NAME_FIELDS.has(run.word()) && is_name(run, named);
    let value = names.then(|| value_field(run.text, name.end, named))?;
    value.filter(|value| !value.is_empty())
}

/// A text without the colour that it ends with.
fn without_colour(text: &str) -> &str {
    match text.rfind('\x1b') {
        Some(at) if colour_end(text, at) == text.len() => &text[..at],
        _ => text,
    }
}

/// The last run of `text`, quotes and blanks after it aside.
fn last_name(text: &str) -> &str {
    let text = text.trim_end_matches(is_padding);
    let name = after_last(text, |c| !c.is_alphanumeric() && c != '_' && c != '-');
    // `\x1b[33mname`
    let coloured = text[..text.len() - name.len()].ends_with("\x1b[");
    let rest = name.cut("m").filter(|_| coloured);
    rest.map_or(name, |(_, name)| name)
}

/// `"value": "x"`, `value="x"` after `from`, in the same object or element, if it may be a secret
/// with this name.
fn value_field(text: &str, from: usize, named: &str) -> Option<Range<usize>> {
    field_in(text, from, floor(text, from + NEAR), named)
}

/// Finds the field in `from..to`.
fn field_in(text: &str, from: usize, to: usize, named: &str) -> Option<Range<usize>> {
    let near = &text[from..to];
    let mut at = 0;
    loop {
        at += near[at..].find(|c: char| c.is_alphanumeric() || "}<>\x1b".contains(c))?;
        let colour = colour_end(near, at);
        let closes = near[at..].starts_with('>');
        // A line that a mail quotes.
        let quoted = closes && near[..at].trim_end_of("> ").ends_with('\n');
        if colour > at || quoted {
            at = colour.max(at + 1);
            continue;
        }
        let innocent = |value: &str| shape::is_innocent(value, named);
        if closes {
            // `=>`, `->`
            let arrow = near[..at].ends_of("=-");
            let content = (!arrow).then(|| content(text, from + at + 1))?;
            return content.filter(|value| !innocent(&text[value.clone()]));
        }
        let end = run_end(near, at);
        let name = &near[at..end];
        let mark = skip(near, skip_colours(near, end), is_padding);
        let rest = &near[mark..];
        if rest.starts_of(":=") && VALUE_FIELDS.has(name) {
            let start = skip(text, from + mark + 1, char::is_whitespace);
            return value::secret(text, skip_colours(text, start), |shown| !innocent(shown));
        }
        // Another one begins.
        if end == at || rest.starts_with(':') && is_one_of(name, "name key") {
            return None;
        }
        at = end;
    }
}

/// `<entry key="password">x</entry>`, `<setting name="password"><value>x</value>`
fn content(text: &str, start: usize) -> Option<Range<usize>> {
    let inner = skip(text, start, char::is_whitespace);
    let tag = text[inner..].starts_with("<value>");
    let start = if tag { inner + "<value>".len() } else { start };
    let (value, _) = ahead(text, start, 4096).cut("<")?;
    (!value.trim().is_empty()).then(|| start..start + value.len())
}

/// `"Authorization", "x"` as elements; `first` in their array.
fn element(run: &Run<'_>, first: bool) -> Option<Range<usize>> {
    let (text, name) = (run.text, run.word());
    let close = skip(text, run.end, |c| is_quote(c) || c == '\\');
    let comma = skip(text, close, char::is_whitespace);
    text[comma..].strip_prefix(',')?;
    let start = skip(text, comma + 1, |c| c.is_whitespace() || c == '<');
    let quoted = text[start..].trim_start_of("\\b");
    quoted.strip_prefix(is_quote)?;
    let seen = value::glance(value::extent, text, start);
    let value = &text[seen.clone()];
    // Two elements are a pair; in longer lists of names (`required`) a value has to look like one.
    let end = skip(text, seen.end, |c| is_padding(c) || c == '\n');
    let shape = shape::of(value);
    // `setProperty("password", "x", ...)`
    let binary = text[..start].ends_with("<<");
    let closers = if binary { ">" } else { "])" };
    let pair = first && (text[end..].starts_of(closers) || sets(run));
    let sure = run.is_sure(name) || is_header(name);
    let pair = pair && sure && !is_moment(value) && shape != Shape::Format;
    let loose = (first || sure) && (looks_secret(value) || is_mixed(value));
    let looks = loose || !first && !sure && is_random(value);
    let looks = looks && !is_composed(value) && shape == Shape::Secret;
    // `"authorization_code", "refresh_token"`
    let names = value.has_of("_") && shape != Shape::Secret && run.rules.announces(value);
    let flag = name.starts_with('-');
    let secret = flag && !value.starts_with("--") || !flag && (pair || looks) && !names;
    (secret && !in_names(run, value)).then(|| value::whole(value::extent, text, start, seen))
}

/// Returns whether the run, before the element `next`, stands in a list of names: `"required":
/// ["api_key", "city"]`.
fn in_names(run: &Run<'_>, next: &str) -> bool {
    let list = run.behind(NEAR).cut_last("[");
    let open = list.filter(|(_, items)| !items.has_of("]"));
    let name = open.and_then(|(list, _)| list.trim_end().strip_suffix([':', '=']));
    lists_names(last_name(name.unwrap_or_default()), next)
}

/// Returns whether the list that the run is the first of are the arguments of a function that sets
/// something.
fn sets(run: &Run<'_>) -> bool {
    const VERBS: &str = "set put add append insert header";
    let before = run.behind(64).trim_end_matches(is_padding);
    let head = before.strip_suffix('(').unwrap_or_default();
    let name = after_last(head, |c| !c.is_alphanumeric() && c != '_');
    let mut verbs = VERBS.split_of(" ");
    verbs.any(|verb| strip_ignore_case(name, verb).is_some())
}
