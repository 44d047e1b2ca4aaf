//! XML: `<password>x</password>`, and property lists.

use std::ops::Range;

use super::{
    Run,
    bytes::{prefix_of, skip},
    look::{is_placeholder, looks_secret},
};

/// The content of an element with a sensitive name.
pub(super) fn find(run: Run<'_>) -> Option<Range<usize>> {
    let (text, name) = (run.text, run.word());
    let (open, close) = if is_open(run.before()) {
        ("<", ">")
    } else if run.before().ends_with("&lt;") {
        ("&lt;", "&gt;")
    } else {
        return None;
    };
    if name.starts_with('/') || !run.rules.announces(name) {
        return None;
    }
    let head = run.ahead(256);
    if !head.starts_with([' ', '>', ':', '\n', '&', '\t']) {
        return None;
    }
    let (attributes, _) = head.split_once(close)?;
    if attributes.contains(open) || attributes.ends_with('/') && close == ">" {
        return None;
    }
    let start = run.end + attributes.len() + close.len();
    let content = &text[start..];
    if let Some(data) = content.trim_start().strip_prefix("<![CDATA[") {
        let from = text.len() - data.len();
        return Some(from..from + data.find("]]>").unwrap_or(data.len()));
    }
    let (value, tag) = content.split_once(open)?;
    if !tag.starts_with('/') || value.trim().is_empty() || is_placeholder(value.trim()) {
        return None;
    }
    let value = start..start + value.len();
    if name == "key" {
        return property(run, value);
    }
    Some(value)
}

/// `<`, or `<` with a namespace.
fn is_open(before: &str) -> bool {
    let rest = before.strip_suffix(':').map_or(before, |rest| {
        rest.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '-')
    });
    rest.ends_with('<')
}

/// `<key>ApiKey</key><string>x</string>`: the key of a property list holds the name.
fn property(run: Run<'_>, key: Range<usize>) -> Option<Range<usize>> {
    let (text, name) = (run.text, &run.text[key.clone()]);
    let close = "</key>";
    if text[key.end..].starts_with(close) && run.rules.announces(name) {
        let tag = skip(text, key.end + close.len(), char::is_whitespace);
        let start = tag + prefix_of(&text[tag..], &["<string>", "<data>"])?.len();
        return Some(start..skip(text, start, |c| c != '<'));
    }
    looks_secret(name).then_some(key)
}
