//! Statements that set a secret: of SQL (`IDENTIFIED BY 'x'`, `PASSWORD 'x'`, `SET PASSWORD FOR
//! ada = 'x'`), and of PowerShell (`ConvertTo-SecureString 'x'`, `'x' | ConvertTo-SecureString`,
//! `Set-Item Env:TOKEN -Value 'x'`). Directives of files of settings (`requirepass x`).

use super::{command::words, prelude::*};

/// How far the value may stand from the word that announces it.
pub(super) const NEAR: usize = 192;

pub(super) fn sql(run: &Run<'_>) -> Option<Range<usize>> {
    match run.word() {
        word if word.eq_ignore_ascii_case("identified") => identified(run),
        word if word.eq_ignore_ascii_case("password") => password(run),
        _ => None,
    }
}

/// `IDENTIFIED BY 'x'`, `IDENTIFIED WITH method BY 'x'`, `identified by tiger`.
fn identified(run: &Run<'_>) -> Option<Range<usize>> {
    let line = until(run.ahead(NEAR), ";\n");
    let mut at = run.end;
    for part in line.split_inclusive(' ') {
        at += part.len();
        let start = skip_blanks(run.text, at);
        let follows = |word| strip_ignore_case(&run.text[start..], word).is_some();
        let method = follows("password") || follows("values");
        if !method && is_one_of(part.trim(), "by as values using") {
            return value::secret(run.text, start, |shown| {
                let looks = is_mixed(shown) && has_secret(shown);
                is_set(shown) && (is_statement(run) || looks)
            });
        }
    }
    None
}

pub(super) fn is_set(value: &str) -> bool {
    !is_null(value) && !is_placeholder(value)
}

/// Returns whether the word stands in a statement, and not in prose.
fn is_statement(run: &Run<'_>) -> bool {
    let before = run.behind(NEAR).to_ascii_lowercase();
    let subjects = ["user ", "grant ", "role "];
    run.word().bytes().all(|b| b.is_ascii_uppercase())
        || subjects.iter().any(|word| before.holds(word))
}

/// `PASSWORD 'x'`, `PASSWORD('x')`, `PASSWORD FOR 'ada'@'%' = 'x'`.
fn password(run: &Run<'_>) -> Option<Range<usize>> {
    let near = run.ahead(NEAR);
    let set = || run.behind(24).trim_end().to_ascii_lowercase();
    let start = if strip_ignore_case(near, " for ").is_some() && set().ends_with("set") {
        skip_blanks(run.text, run.end + until(near, "\n;").find_str(" = ")? + 3)
    } else if near.starts_with('(') || near.starts_with(' ') && is_statement(run) {
        run.end + 1
    } else {
        return None;
    };
    let value = run.text[start..].trim_start_of("\\");
    let quoted = value.starts_of("'\"");
    quoted.then(|| value::secret(run.text, start, is_set))?
}

/// `requirepass x`, `sentinel auth-pass name x`, `rclone obscure x`, `snmp-server community x`,
/// `stats auth ada:x`.
pub(super) fn directive(run: &Run<'_>) -> Option<Range<usize>> {
    // Words, what stands before them in their line, and how many names before the value.
    #[rustfmt::skip]
    const ROWS: &[(&str, &str, usize)] = &[
        ("requirepass masterauth bindpw rootpw insecure-password", "", 0), ("obscure", "rclone", 0),
        ("community", "snmp-server", 0), ("auth", "stats", 0), ("auth-pass", "", 1),
    ];
    let mut rows = ROWS.iter();
    let (_, before, skipped) = rows.find(|(words, ..)| is_one_of(run.word(), words))?;
    let near = run.line_before(64).to_ascii_lowercase();
    // All but `rclone -v obscure x` begin their line, or stand behind a prompt.
    let begins = |head: &str| head.trim().is_empty() || head.trim().ends_of("\"'#>+$:");
    let first = near.trim_end().strip_suffix(before).is_some_and(begins);
    let led = first || before.is_empty() || *before == "rclone" && near.holds(before);
    let line = until(run.ahead(NEAR), "\n");
    let word = words(line).nth(*skipped);
    let (start, _) = word.filter(|_| line.starts_with(char::is_whitespace))?;
    value::secret(run.text, run.end + start, |shown| {
        let mark = shown.bytes().all(|b| b"-=:<>|\\".contains(&b));
        led && is_set(shown) && !is_prose(shown) && !mark
    })
}

pub(super) fn powershell(run: &Run<'_>) -> Option<Range<usize>> {
    let word = run.word();
    if word.eq_ignore_ascii_case("ConvertTo-SecureString") {
        return first_string(run).or_else(|| piped(run));
    }
    let value = word.starts_with('-') && is_one_of(word.trim_start_of("-"), "value");
    (value && !run.before().ends_with('\\')).then(|| named_value(run))?
}

/// The first string behind the command and its flags, or the word behind `-String`, whichever is
/// first; the string of another parameter is not.
fn first_string(run: &Run<'_>) -> Option<Range<usize>> {
    let near = run.ahead(NEAR);
    let line = until(near, "\n|;").to_ascii_lowercase();
    let flag = line.find_str("-string ");
    let first = near.find(|c: char| !c.is_ascii_alphabetic() && !"-:$ ".contains(c));
    let first = first.filter(|at| Quote::at(run.text, run.end + at).is_some());
    // A string behind another parameter is that one's: `-Key 'k'`, `-ErrorAction 'Stop'`.
    let is_anothers = |at: usize| {
        let word = near[..at].split_whitespace().next_back();
        word.is_some_and(|word| word.starts_with('-') && !is_one_of(word, "-AsPlainText -Force"))
    };
    let start = match flag {
        Some(flag) if first.is_none_or(|at| flag < at || is_anothers(at)) => {
            flag + "-string ".len()
        }
        _ => first?,
    };
    literal(run.text, run.end + start)
}

/// The string before the command: `'x' | `.
fn piped(run: &Run<'_>) -> Option<Range<usize>> {
    let head = run.before().trim_end().strip_suffix('|')?.trim_end();
    let quote = Quote::before(head, head.len())?;
    let end = head.len() - quote.len();
    let line = last_line(behind(head, end, NEAR));
    let secret = end - line.len() + line.rfind(quote.mark())? + 1..end;
    (!is_placeholder(&run.text[secret.clone()])).then_some(secret)
}

/// `Set-Item Env:TOKEN -Value x`, `--name db_password --value x`: the value of a name in the same
/// line.
fn named_value(run: &Run<'_>) -> Option<Range<usize>> {
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
        !shown.starts_of("-$(") && !is_placeholder(shown)
    })
}
