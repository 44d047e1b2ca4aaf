//! PowerShell: `ConvertTo-SecureString 'x'`, `'x' | ConvertTo-SecureString`, `Set-Item Env:TOKEN -Value 'x'`.

use std::ops::Range;

use super::{
    Run,
    bytes::{behind, last_line, until},
    look::{is_placeholder, is_small_number},
    quote::Quote,
    value,
};

/// How far from the command its argument may stand.
const NEAR: usize = 128;

pub(super) fn find(run: Run<'_>) -> Option<Range<usize>> {
    let word = run.word();
    if word.eq_ignore_ascii_case("ConvertTo-SecureString") {
        return argument(run).or_else(|| piped(run));
    }
    let value = word.starts_with('-') && word.trim_start_matches('-').eq_ignore_ascii_case("value");
    value.then(|| named_value(run))?
}

/// The first string behind the command and its flags, or the word behind `-String`.
fn argument(run: Run<'_>) -> Option<Range<usize>> {
    let near = run.ahead(NEAR);
    if let Some(i) = until(near, "\n|;").to_ascii_lowercase().find("-string ") {
        return literal(run.text, run.end + i + "-string ".len());
    }
    let start = run.end + near.find(|c: char| !c.is_ascii_alphabetic() && !"-:$ ".contains(c))?;
    Quote::at(run.text, start)?;
    literal(run.text, start)
}

/// The string before the command: `'x' | `.
fn piped(run: Run<'_>) -> Option<Range<usize>> {
    let head = run.before().trim_end().strip_suffix('|')?.trim_end();
    let quote = Quote::before(head, head.len())?;
    let end = head.len() - quote.len();
    let line = last_line(behind(head, end, NEAR));
    let secret = end - line.len() + line.rfind(quote.mark())? + 1..end;
    (!is_placeholder(&run.text[secret.clone()])).then_some(secret)
}

/// `Set-Item Env:TOKEN -Value x`, `--name db_password --value x`: the value of what is named in the same line.
fn named_value(run: Run<'_>) -> Option<Range<usize>> {
    let line = run.line_before(NEAR);
    let mut words = line.split(|c: char| c.is_whitespace() || "\"'=:/".contains(c));
    let named = words.any(|word| word.len() > 3 && run.rules.announces(word));
    if !run.after().starts_with(' ') || !named {
        return None;
    }
    literal(run.text, run.end + 1).filter(|value| {
        let value = &run.text[value.clone()];
        !is_small_number(value) && !value.starts_with("file://")
    })
}

/// The value at `start`, unless it is a flag, a variable, a command or a placeholder.
fn literal(text: &str, start: usize) -> Option<Range<usize>> {
    value::secret(text, start, |shown| {
        !shown.starts_with(['-', '$', '(']) && !is_placeholder(shown)
    })
}
