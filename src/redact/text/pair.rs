//! A name and its value: `name=value`, `"name": "value"`, `Header: value`, `--name value`, YAML, INI.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{is_one_of, skip},
    code::{is_assignment, is_environment, is_expression, typed},
    field,
    header::header,
    lines::{is_indented, lines_below, untagged, whole_line},
    look::{
        first_word, is_composed, is_mixed, is_null, is_opaque, is_placeholder, is_prose, is_random,
        looks_secret,
    },
    mark::{Mark, value_start},
    name::{
        follows_kind, holds_password, in_query, is_failure, is_header, is_resource, is_signature,
        is_type, is_weak_word, is_working_directory, name,
    },
    quote::Quote,
    value::{self, SCHEMES, Style},
};
use crate::redact::keys::{self, Strength};

pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let text = scan.text;
    let mark = Mark::after(text, run.end)?;
    let name = &*name(scan, run, &mark);
    let strength = scan.rules.strength(name);
    let connection = strength <= Strength::Described && keys::is_connection(name);
    if strength <= Strength::Described && !is_signature(name, &mark) && !connection {
        return None;
    }
    if is_resource(scan, run) || is_type(scan, run) {
        return None;
    }
    if is_working_directory(name, &text[mark.end..]) {
        return None;
    }
    let mut start = value_start(text, mark.end);
    if mark.colon && !mark.quoted {
        start = text.len() - untagged(&text[start..]).len();
    }
    let bare = !mark.quoted && !is_quoted(text, start);
    if is_header(name) && bare {
        return header(scan, run, start);
    }
    if let Some(lines) = lines_below(scan, run, start, strength, &mark) {
        return Some(lines);
    }
    // `read -p "Password: "`: the name ends what is quoted.
    if !mark.quoted && Quote::at(text, start).is_some_and(|quote| quote.closes_line(text, start)) {
        return None;
    }
    let secret = value::glance(text, start, mark.style);
    if connection {
        return is_opaque(&text[secret.clone()]).then_some(secret);
    }
    let found = judge(scan, run, name, strength, &mark, start, secret)?;
    Some(changed(text, value::whole(text, start, mark.style, found)))
}

/// What stands behind a scheme: `Bearer {token}`, `f"Bearer {token}"`. A scheme alone is a placeholder of nothing.
fn without_scheme(value: &str) -> &str {
    let inner = value
        .trim_start_matches(['f', 'b'])
        .trim_matches(['"', '\'', '`']);
    let scheme = first_word(inner);
    match inner[scheme.len()..].trim() {
        "" if is_one_of(scheme, SCHEMES) => "...",
        rest if is_one_of(scheme, SCHEMES) => rest,
        _ => value,
    }
}

/// Whether a value is quoted, or begins with an escape.
fn is_quoted(text: &str, start: usize) -> bool {
    text[start..].starts_with('\\') || Quote::at(text, start).is_some()
}

/// A value with the one that it is changed to: `"a" -> "b"`.
fn changed(text: &str, old: Range<usize>) -> Range<usize> {
    let quote = skip(text, old.end, |c| matches!(c, '"' | '\'' | '\\'));
    let arrow = [" -> ", " => "]
        .iter()
        .find(|arrow| text[quote..].starts_with(**arrow));
    match arrow {
        Some(arrow) if quote > old.end => {
            let start = quote + arrow.len();
            let new = Quote::at(text, start).map(|_| value::extent(text, start, Style::Plain));
            old.start..new.map_or(old.end, |new| new.end)
        }
        _ => old,
    }
}

/// Whether the value beside a sensitive name is a secret, and what of it.
fn judge(
    scan: &Scan<'_>,
    run: Run,
    name: &str,
    strength: Strength,
    mark: &Mark,
    start: usize,
    secret: Range<usize>,
) -> Option<Range<usize>> {
    let text = scan.text;
    let bare = !mark.quoted && !is_quoted(text, start);
    let word = first_word(&text[secret.clone()]);
    if mark.quoted || !bare {
        // `"key": "password", "value": "x"`: the name of what follows.
        if let Some(value) = field::announced(scan, run, &secret) {
            return Some(value);
        }
    }
    let value = &text[secret.clone()];
    let letter = value.chars().nth(1).is_none() && !holds_password(name);
    // `${PASSWORD:?is not set}`
    let message = value.starts_with('?') && scan.before(run).ends_with("${");
    if is_null(value) || is_placeholder(without_scheme(value)) || letter || message {
        return None;
    }
    let plain = !is_quoted(text, start);
    if plain && (mark.index || is_expression(text, name, &secret, strength)) {
        return None;
    }
    if mark.style == Style::Encoded || mark.quoted {
        return Some(secret);
    }
    // `"oauth:secret": "x"`: the name has two parts, and this is its first.
    let closed = text[secret.end..].starts_with(['"', '\'', '\\']);
    if bare && closed && Mark::after(text, secret.end).is_some_and(|mark| mark.quoted && mark.colon)
    {
        return None;
    }
    // `Cookie:"a=b; c=d"`
    if is_header(name) && !bare && !is_prose(word) {
        return Some(secret);
    }
    if mark.colon {
        return colon(scan, run, name, strength, secret, bare);
    }
    let simple = word.contains("::") || !looks_secret(word) && !is_mixed(word);
    if mark.compares && simple && (!holds_password(name) || word.contains('.')) {
        return None;
    }
    if bare && strength != Strength::Strong && is_assignment(text, name, &secret) {
        return None;
    }
    let small = word.len() <= 5 && word.bytes().all(|b| b.is_ascii_digit());
    if strength != Strength::Strong && is_weak_word(name) && (small || !in_query(scan, run)) {
        let tuple = text[start..].starts_with(['(', '[']) && name.eq_ignore_ascii_case("auth");
        return (tuple || (looks_secret(word) || is_mixed(word)) && !is_composed(word))
            .then(|| whole_line(text, run, secret));
    }
    Some(whole_line(text, run, secret))
}

/// `name: value`, which prose has as well.
fn colon(
    scan: &Scan<'_>,
    run: Run,
    name: &str,
    strength: Strength,
    secret: Range<usize>,
    bare: bool,
) -> Option<Range<usize>> {
    let text = scan.text;
    let value = &text[secret.clone()];
    let first = first_word(value);
    // What is secret in an address is found in it.
    if bare
        && (is_environment(value) || value.starts_with("http://") || value.starts_with("https://"))
    {
        return None;
    }
    if bare && let Some(typed) = typed(text, run, secret.start) {
        return Some(typed);
    }
    if bare && (is_prose(first) || first.is_empty()) && !is_one_of(first, SCHEMES) {
        return None;
    }
    let port = value.len() <= 5 && value.bytes().all(|b| b.is_ascii_digit());
    let place = secret.start == run.end + 1 && value.starts_with(|c: char| c.is_ascii_digit());
    let announces = match strength {
        Strength::Strong if name.eq_ignore_ascii_case("pass") => {
            is_random(first) || is_mixed(first) || !bare || is_indented(text, run)
        }
        Strength::Strong => !(port && place && (!holds_password(name) || is_file(name))),
        _ if follows_kind(text, run) => true,
        _ if value.starts_with(['{', '[']) => !is_weak_word(name),
        _ if value.contains(':') => false,
        _ => looks_secret(inside(value)) && !place && !is_failure(name),
    };
    announces.then(|| whole_line(text, run, secret))
}

/// Whether a name is that of a file of code, of which a line is told: `PasswordPolicy.java:12`.
fn is_file(name: &str) -> bool {
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    (1..=5).contains(&end.len()) && keys::strength(end, None) == Strength::Harmless
}

/// The text in `Some("x")`, over several lines or not.
fn inside(value: &str) -> &str {
    let open = value
        .find('(')
        .filter(|i| *i > 0 && value[..*i].bytes().all(|b| b.is_ascii_alphabetic()));
    let Some(open) = open else {
        return value;
    };
    let inner = value[open + 1..].trim_matches(|c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ',' | ')' | '(')
    });
    if value.contains('"') { inner } else { value }
}

/// `--password x`, `-token x`.
pub(super) fn flag(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let (text, word) = (scan.text, scan.word(run));
    let name = word.trim_start_matches('-');
    let quoted = skip(text, run.end, |c| matches!(c, '"' | '\'' | '\\' | ','));
    let start = skip(text, quoted, |c| {
        c.is_whitespace() || c == '\\' && text[run.end..].starts_with('\\')
    });
    if name.len() == word.len() || start == run.end || quoted == start && quoted == run.end {
        return None;
    }
    if name.is_empty() || name.ends_with("-stdin") || !scan.rules.announces(name) {
        return None;
    }
    let secret = value::glance(text, start, Style::Plain);
    let value = &text[secret.clone()];
    let prose = is_prose(value) || value.starts_with('-') || is_placeholder(value);
    (!prose).then(|| value::whole(text, start, Style::Plain, secret))
}
