//! XML: `<password>x</password>`, and property lists.

use super::prelude::*;

/// The content of an element with a sensitive name.
pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let (text, name) = (run.text, run.word());
    let (open, close) = match run.before() {
        before if is_open(before) => ("<", ">"),
        before if before.ends_with("&lt;") => ("&lt;", "&gt;"),
        _ => return None,
    };
    let head = run.ahead(256);
    let (attributes, _) = head.cut(close)?;
    let ends = head.starts_of(" >:\n&\t") && !name.starts_with('/');
    if !ends || !run.rules.announces(name) {
        return None;
    }
    let start = run.end + attributes.len() + close.len();
    let content = &text[start..];
    if let Some(data) = content.trim_start().strip_prefix("<![CDATA[") {
        let from = text.len() - data.len();
        return Some(from..from + data.find_str("]]>").unwrap_or(data.len()));
    }
    let (value, tag) = content.cut(open)?;
    let shown = value.trim();
    let place = start..start + value.len();
    match shown.is_empty() || is_placeholder(shown) || !tag.starts_with('/') {
        true => None,
        false if name == "key" => property(run, place),
        false => Some(place),
    }
}

/// `<`, or `<` with a namespace.
fn is_open(before: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let space = before.strip_suffix(':');
    let name = space.map_or(before, |it| it.trim_end_matches(part));
    name.ends_with('<')
}

/// `<key>ApiKey</key><string>x</string>`: the key of a property list holds the name.
fn property(run: &Run<'_>, key: Range<usize>) -> Option<Range<usize>> {
    let (text, name) = (run.text, &run.text[key.clone()]);
    let close = "</key>";
    if text[key.end..].starts_with(close) && run.rules.announces(name) {
        let tag = skip(text, key.end + close.len(), char::is_whitespace);
        let start = tag + prefix_of(&text[tag..], &["<string>", "<data>"])?.len();
        return Some(start..skip(text, start, |c| c != '<'));
    }
    looks_secret(name).then_some(key)
}
