//! Values in files of settings, whose lines mean something.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, indent, last_line, looked_at},
    look::{is_mixed, looks_secret},
    mark::Mark,
    value::Style,
};
use crate::redact::keys::{self, Strength};

/// A value that stands in the lines below its name: a YAML block, mapping or list. Empty if
/// there is no value; none if this is another form.
pub(super) fn lines_below(
    scan: &Scan<'_>,
    run: Run,
    start: usize,
    strength: Strength,
    mark: &Mark,
) -> Option<Range<usize>> {
    let text = scan.text;
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
    // A block inside one that has no secret has none.
    let plain = &scan.plain[usize::from(strength == Strength::Strong)];
    if !block && first < plain.get() {
        return Some(start..start);
    }
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
    looked_at(at - first);
    match from {
        Some(from) if !block && tells_none(&text[from..end], strength) => {
            plain.set(end);
            Some(start..start)
        }
        Some(from) => Some(from..end),
        None if block => Some(start..start),
        // What is below a sentence is looked at elsewhere.
        None if mark.colon && is_config_line(text, run) => Some(start..start),
        None => None,
    }
}

/// Finds the `data` and `stringData` of the Kubernetes Secret whose `kind` the run is; they are kept in the scan. Whether
/// there are any.
pub(super) fn manifest(scan: &mut Scan<'_>, run: Run) -> bool {
    /// How far before its `kind` its data may begin.
    const NEAR: usize = 1024;
    let text = scan.text;
    let names: &[&str] = match scan.word(run) {
        "Secret" => &["data:", "stringData:"],
        "SecretList" => &["items:"],
        _ => return false,
    };
    let line = last_line(behind(text, run.at, 64));
    let kind = line[column(line)..].trim_end_matches(['"', '\'']);
    if kind != "kind: " || run.at < scan.manifest {
        return false;
    }
    let (own, begin) = (column(line), run.at - line.len());
    let dashed = |line: &str| column(line) == own && indent(line) < own;
    let part = |line: &str| {
        let member = column(line) == own && line.contains(':');
        line.trim().is_empty() || !line.starts_with("---") && (column(line) > own || member)
    };
    let mut from = begin;
    if !dashed(line) {
        for line in behind(text, begin, NEAR).split_inclusive('\n').rev() {
            if !part(line) {
                break;
            }
            from -= line.len();
            if dashed(line) {
                break;
            }
        }
    }
    let (mut at, mut found, mut open) = (from, Vec::<Range<usize>>::new(), None);
    for line in text[from..].split_inclusive('\n') {
        if at > begin && (dashed(line) || !part(line)) {
            break;
        }
        let end = at + line.trim_end().len();
        if !line.trim().is_empty() && column(line) == own {
            let value = names.iter().find_map(|name| line[own..].strip_prefix(name));
            let value = value.map(str::trim);
            // `data: {name: x}`
            let flow = value.filter(|value| !value.is_empty());
            found.extend(flow.map(|value| end - value.len()..end));
            open = value.filter(|value| value.is_empty()).map(|_| found.len());
        } else if !line.trim().is_empty()
            && let Some(block) = open
        {
            match found.get_mut(block) {
                Some(block) => block.end = end,
                None => found.push(at + indent(line)..end),
            }
        }
        at += line.len();
    }
    looked_at(at - from);
    scan.manifest = at;
    let any = !found.is_empty();
    scan.keep(found);
    any
}

/// Where the key of a line of YAML begins, the dash of a list's item aside.
fn column(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t', '-']).len()
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
