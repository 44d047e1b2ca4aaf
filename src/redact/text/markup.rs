//! XML: `<password>x</password>`, and property lists.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, skip},
    look::{is_placeholder, looks_secret},
};

/// The content of an element with a sensitive name.
pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let before = scan.before(run);
    let name = scan.word(run);
    let (open, close) = if is_open(before) {
        ("<", ">")
    } else if before.ends_with("&lt;") {
        ("&lt;", "&gt;")
    } else {
        return None;
    };
    if name.starts_with('/') || !scan.rules.announces(name) {
        return None;
    }
    let text = scan.text;
    let head = ahead(text, run.end, 256);
    if !head.starts_with([' ', '>', ':', '\n', '&', '\t']) {
        return None;
    }
    let start = run.end + head.find(close)? + close.len();
    let head = &head[..start - run.end];
    if head.contains(open) || head.ends_with("/>") {
        return None;
    }
    let content = &text[start..];
    if let Some(data) = content.trim_start().strip_prefix("<![CDATA[") {
        let from = text.len() - data.len();
        return Some(from..from + data.find("]]>").unwrap_or(data.len()));
    }
    let end = start + content.find(open)?;
    let closes = text[end + open.len()..].starts_with('/');
    let value = &text[start..end];
    if !closes || value.trim().is_empty() || is_placeholder(value.trim()) {
        return None;
    }
    if name == "key" {
        return property(scan, start, end);
    }
    Some(start..end)
}

/// `<`, or `<` with a namespace.
fn is_open(before: &str) -> bool {
    let rest = before.strip_suffix(':').map_or(before, |rest| {
        rest.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '-')
    });
    rest.ends_with('<')
}

/// `<key>ApiKey</key><string>x</string>`: the key of a property list holds the name.
fn property(scan: &Scan<'_>, start: usize, end: usize) -> Option<Range<usize>> {
    let (text, name) = (scan.text, &scan.text[start..end]);
    let rest = text[end..].strip_prefix("</key>");
    if let Some(rest) = rest
        && scan.rules.announces(name)
    {
        let at = skip(text, text.len() - rest.len(), char::is_whitespace);
        let from = ["<string>", "<data>"]
            .iter()
            .find_map(|tag| text[at..].strip_prefix(tag))?;
        let from = text.len() - from.len();
        return Some(from..from + text[from..].find('<').unwrap_or(text.len() - from));
    }
    looks_secret(name).then_some(start..end)
}
