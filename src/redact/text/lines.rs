//! Values in files of settings, whose lines mean something.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, indent, last_line},
    look::{is_mixed, looks_secret},
    mark::Mark,
    value::Style,
};
use crate::redact::{
    REDACTED,
    keys::{self, Strength},
};

/// A value that stands in the lines below its name: a YAML block, mapping or list. Empty if
/// there is no value; none if this is another form.
pub(super) fn lines_below(
    text: &str,
    run: Run,
    start: usize,
    strength: Strength,
    mark: &Mark,
) -> Option<Range<usize>> {
    let rest = ahead(text, start, 64);
    let head = &rest[..rest.find('\n')?];
    let sign = untagged(head.trim_end());
    let block = sign.starts_with(['|', '>'])
        && sign[1..]
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '+' | '-'));
    if !block && !sign.is_empty() || mark.style == Style::Encoded {
        return None;
    }
    if !block && !mark.quoted && !is_config_line(text, run) {
        return None;
    }
    let line = last_line(behind(text, run.at, 512));
    let own = indent(line)
        + if line.trim_start().starts_with("- ") {
            2
        } else {
            0
        };
    let first = start + head.len() + 1;
    let (mut from, mut at, mut end) = (None, first, first);
    for line in text[first..].split_inclusive('\n') {
        let blank = line.trim().is_empty();
        let item = !block && line.trim_start().starts_with("- ") && indent(line) >= own;
        if !blank && indent(line) <= own && !item {
            break;
        }
        if !blank {
            from = from.or(Some(at + indent(line)));
            end = at + line.trim_end().len();
        }
        at += line.len();
    }
    match from {
        Some(from) if !block && tells_none(&text[from..end], strength) => Some(start..start),
        Some(from) => Some(from..end),
        None if block => Some(start..start),
        // What is below a sentence is looked at elsewhere.
        None if mark.colon && is_config_line(text, run) => Some(start..start),
        None => None,
    }
}

/// The `data` or `stringData` of a Kubernetes Secret, before or behind its `kind`.
pub(super) fn manifest(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    const NEAR: usize = 1024;
    let text = scan.text;
    let kind = scan
        .before(run)
        .strip_suffix("kind: ")
        .filter(|_| scan.word(run) == "Secret")?;
    let own = indent(last_line(behind(kind, kind.len(), 64)));
    let before = behind(text, run.at, NEAR);
    let before = before.rfind("\n---").map_or(before, |i| &before[i + 1..]);
    let from = run.at - before.len();
    let after = ahead(text, run.end, NEAR);
    let to = run.end + after.find("\n---").unwrap_or(after.len());
    let (mut at, mut found) = (from, None);
    for line in text[from..to].split_inclusive('\n') {
        at += line.len();
        let name = line.trim_start();
        let value = ["data:", "stringData:"]
            .iter()
            .find_map(|key| name.strip_prefix(key));
        let Some(value) = value.filter(|_| indent(line) == own).map(str::trim) else {
            continue;
        };
        if !value.is_empty() && value != REDACTED {
            // `data: {name: x}`
            let end = at - (line.len() - line.trim_end().len());
            found = Some(end - value.len()..end);
            continue;
        }
        let rest = text[at..].split_inclusive('\n');
        let block: usize = rest
            .take_while(|line| line.trim().is_empty() || indent(line) > own)
            .map(str::len)
            .sum();
        let lines = text[at..at + block].trim_end();
        let secret = at + indent(lines)..at + lines.len();
        if !secret.is_empty() && &text[secret.clone()] != REDACTED {
            found = Some(secret);
        }
        if at > run.end && found.is_some() {
            break;
        }
    }
    found
}

/// Whether all lines of a mapping tell of a secret, and have none: `file: /run/db`, `secretName: tls`, `issuer: https://h`.
/// What is in the block of a weak name has to look like one.
fn tells_none(lines: &str, strength: Strength) -> bool {
    lines.lines().all(|line| {
        let Some((name, value)) = line.trim().split_once(':') else {
            return false;
        };
        let value = value.trim();
        let told = keys::describes(name.trim_start_matches("- ")) || value.is_empty();
        let weak = strength != Strength::Strong && !looks_secret(value) && !is_mixed(value);
        told || weak && !value.is_empty()
    })
}

/// Whether the run is the first thing in its line, a list's dash aside.
fn is_config_line(text: &str, run: Run) -> bool {
    let line = last_line(behind(text, run.at, 256));
    line.chars().all(|c| matches!(c, ' ' | '\t' | '-'))
}

/// Whether the run begins a line that is indented: of a file of settings.
pub(super) fn is_indented(text: &str, run: Run) -> bool {
    is_config_line(text, run) && last_line(behind(text, run.at, 256)).starts_with([' ', '\t'])
}

/// The value of a line in a file of settings: `password = correct horse`. In one line of prose only the
/// first word is the value.
pub(super) fn whole_line(text: &str, run: Run, secret: Range<usize>) -> Range<usize> {
    let line = last_line(behind(text, run.at, 256)).trim_start();
    let alone = line.is_empty() || line == "export " || line == "set ";
    let rest = ahead(text, secret.end, 256);
    let end = rest.find(['\n', '\r']).unwrap_or(rest.len());
    let among = behind(text, run.at, 256).contains('\n') || rest[end..].starts_with(['\n', '\r']);
    let tail = &rest[..end];
    let plain = tail.starts_with(' ')
        && !tail.contains(['=', ':', '"', '\'', '{', '}', '#', ';', '&', '|']);
    if alone && among && plain {
        secret.start..secret.end + tail.trim_end().len()
    } else {
        secret
    }
}

/// A value of YAML without the tag or anchor before it: `!vault |`, `&name x`.
pub(super) fn untagged(value: &str) -> &str {
    if !value.starts_with(['!', '&']) {
        return value;
    }
    match ahead(value, 0, 64).split_once(' ') {
        Some((tag, rest)) if !rest.starts_with('=') => &value[tag.len() + 1..],
        _ => value,
    }
}
