//! PowerShell: `ConvertTo-SecureString 'x'`, `'x' | ConvertTo-SecureString`, `Set-Item Env:TOKEN -Value 'x'`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, is_one_of, last_line},
    look::is_placeholder,
    quote::Quote,
    value::{self, Style},
};

/// How far from the command its argument may stand.
const NEAR: usize = 128;

pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    if word.eq_ignore_ascii_case("ConvertTo-SecureString") {
        return argument(scan, run).or_else(|| piped(scan, run));
    }
    is_one_of(word.trim_start_matches('-'), &["value"])
        .then(|| named_value(scan, run))
        .flatten()
}

/// The first string behind the command and its flags, or the word behind `-String`.
fn argument(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let near = ahead(scan.text, run.end, NEAR);
    let line = near.split(['\n', '|', ';']).next().unwrap_or(near);
    if let Some(i) = line.to_ascii_lowercase().find("-string ") {
        return literal(scan.text, run.end + i + "-string ".len());
    }
    let flags = |c: char| !(c.is_ascii_alphabetic() || "-:$ ".contains(c));
    let start = run.end + near.find(flags)?;
    quoted(scan.text, start)
}

/// The string before the command: `'x' | `.
fn piped(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let head = scan.before(run).trim_end().strip_suffix('|')?.trim_end();
    let quote = Quote::before(head, head.len())?;
    let line = last_line(behind(head, head.len() - quote.len(), NEAR));
    let open = line.rfind(quote.mark())?;
    let start = head.len() - quote.len() - line.len() + open;
    let secret = start + 1..head.len() - quote.len();
    (!is_placeholder(&scan.text[secret.clone()])).then_some(secret)
}

/// `Set-Item Env:TOKEN -Value x`, `--name db_password --value x`: the value of what is named in the same line.
fn named_value(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let flag = scan.word(run).starts_with('-') && scan.after(run).starts_with(' ');
    let line = last_line(behind(scan.text, run.at, NEAR));
    let mut words = line.split(|c: char| c.is_whitespace() || "\"'=:/".contains(c));
    if !flag || !words.any(|word| word.len() > 3 && scan.rules.announces(word)) {
        return None;
    }
    literal(scan.text, run.end + 1).filter(|value| {
        let value = &scan.text[value.clone()];
        let number = value.len() <= 5 && value.bytes().all(|b| b.is_ascii_digit());
        !number && !value.starts_with("file://")
    })
}

/// The string that opens at `start`, if it is one.
fn quoted(text: &str, start: usize) -> Option<Range<usize>> {
    Quote::at(text, start)?;
    literal(text, start)
}

/// The value at `start`, unless it is a flag, a variable, a command or a placeholder.
fn literal(text: &str, start: usize) -> Option<Range<usize>> {
    let value = value::glance(text, start, Style::Plain);
    let shown = &text[value.clone()];
    let none = shown.starts_with(['-', '$', '(']) || is_placeholder(shown);
    (!none).then(|| value::whole(text, start, Style::Plain, value))
}
