//! Tables and lists of HTML: `<th>Password</th>` at the head of a column or of a row, `<dt>API token</dt><dd>x</dd>`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, is_one_of, looked_at, skip},
    table::{Found, HEAD, columns, is_secret},
};
use crate::{redact::keys::Strength, text::floor};

/// Elements that hold the value beside a name.
const VALUES: &[&str] = &["td", "dd", "span", "code", "b", "strong", "div", "p"];
/// Elements that end what stands before them in a table or a list.
#[rustfmt::skip]
const PARTS: &[&str] = &["td", "th", "tr", "thead", "tbody", "table", "dd", "dt", "dl", "li", "ul", "label", "div", "p"];

pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Found> {
    let text = scan.text;
    // `<th><b>Password</b></th>`
    let mut close = skip(text, run.end, |c| c == ':');
    while name_of(text, close).is_some_and(|(tag, _)| !is_one_of(tag, PARTS)) {
        close = name_of(text, close)?.1;
    }
    let (tag, end) = name_of(text, close)?;
    let name = behind(text, run.end, 64).rsplit_once('>')?.1;
    let names = text[close..].starts_with("</") && is_one_of(tag, &["th", "td", "dt", "label"]);
    if !names || !scan.rules.announces(name) {
        return None;
    }
    let sure = scan.rules.strength(name) == Strength::Strong;
    let next = skip(text, end, char::is_whitespace);
    if name_of(text, next).is_some_and(|(tag, _)| is_one_of(tag, VALUES)) {
        let value = content(text, next)?;
        // A sentence tells what the field is for.
        let shown = &text[value.clone()];
        let secret = is_secret(shown, sure && !shown.contains(' '));
        return secret.then(|| (vec![value.clone()], value.end));
    }
    let near = behind(text, run.at, HEAD);
    let row = run.at - near.len() + tags(near, "tr").last()?;
    let (heads, mut at) = cells(text, row..floor(text, row + HEAD), "th");
    let heads: Vec<_> = heads.into_iter().map(|head| &text[head]).collect();
    // A row of data is no head.
    if heads.is_empty() {
        return None;
    }
    let limit = tags(&text[row..], "/table").next();
    let limit = limit.map_or(text.len(), |i| row + i);
    looked_at(limit - row);
    let columns = columns(scan, &heads);
    let mut found = Vec::new();
    while let Some(i) = text.get(at..limit).and_then(|rows| tags(rows, "tr").next()) {
        let (values, end) = cells(text, at + i..limit, "td");
        for (index, value) in values.into_iter().enumerate() {
            let column = columns.iter().find(|column| column.index == index);
            if column.is_some_and(|column| column.hides(&text[value.clone()], true)) {
                found.push(value);
            }
        }
        at = end;
    }
    Some((found, limit))
}

/// The contents of the cells of the row that begins `within`, and where it ends.
fn cells(text: &str, within: Range<usize>, tag: &str) -> (Vec<Range<usize>>, usize) {
    let near = &text[within.clone()];
    let end = tags(near, "/tr").next().unwrap_or(near.len());
    looked_at(end);
    let cells = tags(&near[..end], tag);
    let cells = cells.filter_map(|i| content(text, within.start + i));
    (cells.collect(), within.start + end)
}

/// Where the tags of an element are, of whatever case.
fn tags<'t>(text: &'t str, tag: &'t str) -> impl Iterator<Item = usize> {
    let is_tag = move |at: usize| name_at(text, at).eq_ignore_ascii_case(tag);
    text.match_indices('<')
        .map(|(at, _)| at)
        .filter(move |at| is_tag(*at))
}

/// The name of the tag that begins at `at`, with its slash.
fn name_at(text: &str, at: usize) -> &str {
    let tag = &text.as_bytes()[at + 1..];
    let slash = usize::from(tag.starts_with(b"/"));
    let len = tag[slash..]
        .iter()
        .take_while(|b| b.is_ascii_alphanumeric())
        .count();
    &text[at + 1..at + 1 + slash + len]
}

/// The name of the tag at `at`, and where the tag ends.
fn name_of(text: &str, at: usize) -> Option<(&str, usize)> {
    if !text[at..].starts_with('<') {
        return None;
    }
    let end = ahead(text, at, HEAD).find('>')?;
    Some((name_at(text, at).trim_start_matches('/'), at + end + 1))
}

/// The content of the element whose tag opens at `at`, without tags around all of it: `<td><code>x</code></td>`.
fn content(text: &str, at: usize) -> Option<Range<usize>> {
    let (tag, mut start) = name_of(text, at)?;
    while text[start..].starts_with('<') && !text[start..].starts_with("</") {
        let (inner, end) = name_of(text, start)?;
        if is_one_of(inner, PARTS) {
            break;
        }
        start = end;
    }
    let ends = |i: &usize| {
        let name = name_at(text, start + i).trim_start_matches('/');
        is_one_of(name, PARTS) || name.eq_ignore_ascii_case(tag)
    };
    let inner = &text[start..];
    let end = inner.match_indices('<').map(|(i, _)| i).find(ends);
    let mut value = inner[..end.unwrap_or(inner.len())].trim_end();
    looked_at(value.len());
    while let Some((head, tail)) = value.rsplit_once("</")
        && tail.ends_with('>')
        && !tail.contains('<')
    {
        value = head.trim_end();
    }
    Some(start..start + value.len())
}
