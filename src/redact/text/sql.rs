//! Statements that set a password: `IDENTIFIED BY 'x'`, `PASSWORD 'x'`, `SET PASSWORD FOR ada = 'x'`.

use std::ops::Range;

use super::{
    Run,
    bytes::{is_one_of, skip_blanks, strip_ignore_case, until},
    look::{is_mixed, is_null, is_placeholder},
    value,
};

/// How far the value may stand from the word that announces it.
const NEAR: usize = 192;

pub(super) fn find(run: Run<'_>) -> Option<Range<usize>> {
    match run.word() {
        word if word.eq_ignore_ascii_case("identified") => identified(run),
        word if word.eq_ignore_ascii_case("password") => password(run),
        _ => None,
    }
}

/// `IDENTIFIED BY 'x'`, `IDENTIFIED WITH method BY 'x'`, `identified by tiger`.
fn identified(run: Run<'_>) -> Option<Range<usize>> {
    let line = until(run.ahead(NEAR), ";\n");
    let mut at = run.end;
    for part in line.split_inclusive(' ') {
        at += part.len();
        let start = skip_blanks(run.text, at);
        let method = ["password", "values"]
            .iter()
            .any(|word| strip_ignore_case(&run.text[start..], word).is_some());
        if !method && is_one_of(part.trim(), &["by", "as", "values", "using"]) {
            return value::secret(run.text, start, |shown| {
                is_set(shown) && (is_statement(run) || is_mixed(shown))
            });
        }
    }
    None
}

fn is_set(value: &str) -> bool {
    !is_null(value) && !is_placeholder(value)
}

/// Whether the word stands in a statement, and not in prose.
fn is_statement(run: Run<'_>) -> bool {
    let before = run.behind(NEAR).to_ascii_lowercase();
    let subjects = ["user ", "grant ", "role "];
    run.word().bytes().all(|b| b.is_ascii_uppercase())
        || subjects.iter().any(|word| before.contains(word))
}

/// `PASSWORD 'x'`, `PASSWORD('x')`, `PASSWORD FOR 'ada'@'%' = 'x'`.
fn password(run: Run<'_>) -> Option<Range<usize>> {
    let near = run.ahead(NEAR);
    let set = || run.behind(24).trim_end().to_ascii_lowercase();
    let start = if strip_ignore_case(near, " for ").is_some() && set().ends_with("set") {
        skip_blanks(run.text, run.end + until(near, "\n;").find(" = ")? + 3)
    } else if near.starts_with('(') || near.starts_with(' ') && is_statement(run) {
        run.end + 1
    } else {
        return None;
    };
    let value = run.text[start..].trim_start_matches('\\');
    let quoted = value.starts_with(['\'', '"']);
    quoted.then(|| value::secret(run.text, start, is_set))?
}
