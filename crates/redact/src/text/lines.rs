//! Values in files of settings, where line ends and indents have a meaning.

use super::{MANIFEST, code::is_code_line, name::Mark, prelude::*};

/// A value that stands in the lines below its name: a YAML block, mapping or list. Empty without a
/// value; `None` if the text has another form.
pub(super) fn lines_below(
    run: &Run<'_>,
    start: usize,
    strength: Strength,
    mark: &Mark,
) -> Option<Range<usize>> {
    let text = run.text;
    let (head, _) = ahead(text, start, 64).cut("\n")?;
    let sign = untagged(head.trim_end());
    let modifier = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-');
    let block = sign.strip_prefix(['|', '>']);
    let block = block.is_some_and(|rest| rest.chars().all(modifier));
    let config = is_config_line(run);
    if !block && (!sign.is_empty() || !mark.quoted && !config) || mark.encoded {
        return None;
    }
    let first = start + head.len() + 1;
    let strong = strength == Strength::Strong;
    // A block inside a block without secrets has none.
    let plain = &run.scan.plain[usize::from(strong)];
    if !block && first < plain.get() {
        return Some(start..start);
    }
    let is_item = |line: &str| line.trim_start().starts_with("- ");
    let line = run.line_before(512);
    let own = indent(line) + if is_item(line) { 2 } else { 0 };
    let lines = lines_while(text, first, |line| {
        indent(line) > own || !block && is_item(line) && indent(line) == own
    });
    if lines.is_empty() {
        // Lines below a sentence are judged by other detectors.
        return (block || mark.colon && config).then_some(start..start);
    }
    let innocent = match shape::of(ahead(text, lines.start, lines.len().min(1024))) {
        Shape::Schema => true,
        Shape::Code => !strong || is_code_line(run) || !config,
        _ => false,
    };
    if !block && (innocent || tells_none(&text[lines.clone()], strong)) {
        plain.set(lines.end);
        return Some(start..start);
    }
    Some(lines)
}

/// The lines from `first` on that belong to a block, blank ones among them.
fn lines_while(text: &str, first: usize, belongs: impl Fn(&str) -> bool) -> Range<usize> {
    let (mut at, mut found) = (first, first..first);
    for line in text[first..].split_inclusive('\n') {
        if !line.trim().is_empty() {
            if !belongs(line) {
                break;
            }
            if found.is_empty() {
                found.start = at + indent(line);
            }
            found.end = at + line.trim_end().len();
        }
        at += line.len();
    }
    looked_at(at - first);
    found
}

/// Finds the `data` and `stringData` of a Kubernetes Secret by the run of its `kind`, and keeps
/// them in the scan. Returns whether it found any.
pub(super) fn manifest(run: &Run<'_>) -> bool {
    let text = run.text;
    let members: &[&'static str] = match run.word() {
        "Secret" => &["data:", "stringData:"],
        "SecretList" => &["items:"],
        _ => return false,
    };
    let line = run.line_before(64);
    let own = column(line);
    let kind = line[own..].trim_end_of("\"'");
    if kind != "kind: " || run.at < run.scan.manifest.get() {
        return false;
    }
    let begin = run.at - line.len();
    // The mapping begins at most this far before its `kind`.
    let (mut from, mut below) = (begin, line);
    for line in behind(text, begin, 1024).split_inclusive('\n').rev() {
        if is_item(below, own) || !is_inside(line, own) {
            break;
        }
        (from, below) = (from - line.len(), line);
    }
    let (mut at, mut found) = (from, Vec::new());
    for line in text[from..].split_inclusive('\n') {
        if at > begin && (is_item(line, own) || !is_inside(line, own)) {
            break;
        }
        let next = at + line.len();
        let member = (column(line) == own).then(|| prefix_of(&line[own..], members));
        if let Some(name) = member.flatten() {
            // `data: {name: x}`
            let flow = line[own + name.len()..].trim();
            let end = at + line.trim_end().len();
            let belongs = |line: &str| column(line) > own && !line.starts_with("---");
            found.push(match flow.is_empty() {
                true => lines_while(text, next, belongs),
                false => end - flow.len()..end,
            });
        }
        at = next;
    }
    found.retain(|block| !block.is_empty());
    looked_at(at - from);
    run.scan.manifest.set(at);
    run.scan.keep(MANIFEST, found)
}

/// Returns whether a line begins an item of a list, which is a mapping with its keys in column
/// `own`.
fn is_item(line: &str, own: usize) -> bool {
    column(line) == own && indent(line) < own
}

/// Returns whether a line belongs to a mapping with its keys in column `own`.
fn is_inside(line: &str, own: usize) -> bool {
    let member = column(line) == own && line.has_of(":");
    line.trim().is_empty() || !line.starts_with("---") && (column(line) > own || member)
}

/// Where the key of a line of YAML begins, the dash of a list's item aside.
fn column(line: &str) -> usize {
    line.len() - line.trim_start_of(" \t-").len()
}

/// Returns whether all lines of a mapping only describe a secret: `file: /run/db`, `secretName:
/// tls`, `issuer: https://h`. In the block of a weak name a value has to look like a secret.
fn tells_none(lines: &str, strong: bool) -> bool {
    let tells_none = |(name, value): (&str, &str)| {
        let value = value.trim();
        let weak = !strong && !looks_secret(value) && !is_mixed(value);
        weak || value.is_empty()
            || is_placeholder(value)
            || keys::describes(name.trim_start_matches("- "))
    };
    let mut members = lines.lines().map(|line| line.trim().cut(":"));
    members.all(|member| member.is_some_and(tells_none))
}

/// Returns whether the run is the first thing in its line, a list's dash aside.
fn is_config_line(run: &Run<'_>) -> bool {
    let line = run.line_before(256);
    line.chars().all(|c| matches!(c, ' ' | '\t' | '-'))
}

/// Returns whether the run begins a line that is indented: of a file of settings.
pub(super) fn is_indented(run: &Run<'_>) -> bool {
    is_config_line(run) && run.line_before(256).starts_of(" \t")
}

/// The value of a line in a file of settings: `password = correct horse`. In one line of prose only
/// the first word is the value.
pub(super) fn whole_line(run: &Run<'_>, secret: Range<usize>) -> Range<usize> {
    let alone = ["", "export ", "set "].contains(&run.line_before(256).trim_start());
    let rest = ahead(run.text, secret.end, 256);
    let tail = until(rest, "\n\r");
    let among = run.behind(256).has_of("\n") || tail.len() < rest.len();
    let plain = tail.starts_with(' ') && !tail.has_of("=:\"'{}#;&|");
    if !alone || !among || !plain {
        return secret;
    }
    secret.start..secret.end + tail.trim_end().len()
}

/// A value of YAML without the tag or anchor before it: `!vault |`, `&name x`.
pub(super) fn untagged(value: &str) -> &str {
    match ahead(value, 0, 64).cut(" ") {
        Some((tag, rest)) if tag.starts_of("!&") && !rest.starts_with('=') => {
            &value[tag.len() + 1..]
        }
        _ => value,
    }
}
