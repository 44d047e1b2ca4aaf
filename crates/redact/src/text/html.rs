//! Tables and lists of HTML: `<th>Password</th>` at the head of a column or of a row, `<dt>API
//! token</dt><dd>x</dd>`.

use super::{prelude::*, table::*};

/// Elements that hold the value beside a name.
const VALUES: &str = "td dd span code b strong div p";
/// Elements that end the one before them in a table or a list.
const PARTS: &str = "td th tr thead tbody table dd dt dl li ul label div p";

pub(super) fn find(run: &Run<'_>) -> Option<Found> {
    let text = run.text;
    // `<th><b>Password</b></th>`
    let mut close = skip(text, run.end, |c| c == ':');
    let (tag, end) = loop {
        match tag_at(text, close)? {
            (tag, end) if is_one_of(tag, PARTS) => break (tag, end),
            (_, end) => close = end,
        }
    };
    let name = behind(text, run.end, 64).cut_last(">")?.1;
    let names = text[close..].starts_with("</") && is_one_of(tag, "th td dt label");
    if !names || !run.rules.announces(name) {
        return None;
    }
    let next = skip(text, end, char::is_whitespace);
    if !tag_at(text, next).is_some_and(|(tag, _)| is_one_of(tag, VALUES)) {
        return column(run);
    }
    let value = content(text, next)?;
    // A sentence describes the field.
    let shown = &text[value.clone()];
    let secret = is_secret(shown, run.is_strong(name) && !shown.has_of(" "));
    secret.then(|| (vec![value.clone()], value.end))
}

/// The secrets below a run that stands in the head of a column.
fn column(run: &Run<'_>) -> Option<Found> {
    let text = run.text;
    let near = run.behind(HEAD);
    let row = run.at - near.len() + tags(near, "tr").last()?;
    let (heads, mut at) = cells(&text[..floor(text, row + HEAD)], row, "th");
    // A row of data is not a head.
    if heads.is_empty() {
        return None;
    }
    let close = tags(&text[row..], "/table").next();
    let limit = close.map_or(text.len(), |i| row + i);
    looked_at(limit - row);
    let columns = Columns::of(run, &heads);
    let mut found = Vec::new();
    while let Some(i) = text.get(at..limit).and_then(|rows| tags(rows, "tr").next()) {
        let (values, end) = cells(&text[..limit], at + i, "td");
        found.extend(columns.secrets(text, &values, (0, 0)));
        at = end;
    }
    Some((found, limit))
}

/// The contents of the cells of the row at `at`, and where it ends.
fn cells(text: &str, at: usize, tag: &str) -> (Vec<Range<usize>>, usize) {
    let close = tags(&text[at..], "/tr").next();
    let end = close.map_or(text.len(), |i| at + i);
    looked_at(end - at);
    let cells = tags(&text[at..end], tag).filter_map(|i| content(text, at + i));
    (cells.collect(), end)
}

/// Where the tags of an element are, in any case.
fn tags<'t>(text: &'t str, tag: &'t str) -> impl Iterator<Item = usize> {
    let marks = text.match_indices('<').map(|(at, _)| at);
    marks.filter(move |at| name_at(text, *at).eq_ignore_ascii_case(tag))
}

/// The name of the tag that begins at `at`, with its slash.
fn name_at(text: &str, at: usize) -> &str {
    let tag = &text[at + 1..];
    let name = tag.strip_prefix('/').unwrap_or(tag);
    let rest = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    &tag[..tag.len() - rest.len()]
}

/// The name of the tag at `at`, and where the tag ends.
fn tag_at(text: &str, at: usize) -> Option<(&str, usize)> {
    if !text[at..].starts_with('<') {
        return None;
    }
    let end = ahead(text, at, HEAD).find_of(">")?;
    Some((name_at(text, at).trim_start_of("/"), at + end + 1))
}

/// Returns the content of the element that opens at `at`, without tags that enclose all of it:
/// `<td><code>x</code></td>`.
fn content(text: &str, at: usize) -> Option<Range<usize>> {
    let (tag, mut start) = tag_at(text, at)?;
    while text[start..].starts_with('<') && !text[start..].starts_with("</") {
        let (inner, end) = tag_at(text, start)?;
        if is_one_of(inner, PARTS) {
            break;
        }
        start = end;
    }
    let inner = &text[start..];
    let end = inner.match_indices('<').map(|(i, _)| i).find(|i| {
        let name = name_at(inner, *i).trim_start_of("/");
        is_one_of(name, PARTS) || name.eq_ignore_ascii_case(tag)
    });
    let mut value = inner[..end.unwrap_or(inner.len())].trim_end();
    looked_at(value.len());
    while let Some((head, tail)) = value.cut_last("</")
        && tail.ends_with('>')
        && !tail.has_of("<")
    {
        value = head.trim_end();
    }
    Some(start..start + value.len())
}
