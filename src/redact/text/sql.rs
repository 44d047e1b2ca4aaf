//! Statements that set a password: `IDENTIFIED BY 'x'`, `PASSWORD 'x'`, `SET PASSWORD FOR ada = 'x'`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, skip_blanks, strip_ignore_case},
    look::{is_mixed, is_null, is_placeholder},
    value::{self, Style},
};

/// How far the value may stand from the word that announces it.
const NEAR: usize = 192;

pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    if word.eq_ignore_ascii_case("identified") {
        identified(scan, run)
    } else if word.eq_ignore_ascii_case("password") {
        password(scan, run)
    } else {
        None
    }
}

/// `IDENTIFIED BY 'x'`, `IDENTIFIED WITH method BY 'x'`, `identified by tiger`.
fn identified(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let near = ahead(scan.text, run.end, NEAR);
    let line = near.split([';', '\n']).next().unwrap_or(near);
    let mut at = run.end;
    for part in line.split_inclusive(' ') {
        at += part.len();
        if !["by", "as", "values", "using"]
            .iter()
            .any(|w| w.eq_ignore_ascii_case(part.trim()))
        {
            continue;
        }
        let start = skip_blanks(scan.text, at);
        let next = &scan.text[start..];
        if ["password", "values"]
            .iter()
            .any(|w| strip_ignore_case(next, w).is_some())
        {
            continue;
        }
        let secret = value::glance(scan.text, start, Style::Plain);
        let shown = &scan.text[secret.clone()];
        let sure = is_statement(scan, run) || is_mixed(shown);
        return (sure && !is_null(shown) && !is_placeholder(shown)).then_some(secret);
    }
    None
}

/// Whether the word stands in a statement, and not in prose.
fn is_statement(scan: &Scan<'_>, run: Run) -> bool {
    let before = behind(scan.text, run.at, NEAR).to_ascii_lowercase();
    scan.word(run).bytes().all(|b| b.is_ascii_uppercase())
        || ["user ", "grant ", "role "]
            .iter()
            .any(|word| before.contains(word))
}

/// `PASSWORD 'x'`, `PASSWORD('x')`, `PASSWORD FOR 'ada'@'%' = 'x'`.
fn password(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let text = scan.text;
    let before = behind(text, run.at, 24).trim_end().to_ascii_lowercase();
    let set = before.ends_with("set");
    let near = ahead(text, run.end, NEAR);
    let quoted = |s: &str| s.trim_start_matches('\\').starts_with(['\'', '"']);
    let start = if near.starts_with('(') && quoted(&near[1..]) {
        run.end + 1
    } else if set && strip_ignore_case(near, " for ").is_some() {
        let sign = near.split(['\n', ';']).next()?.find(" = ")?;
        let start = skip_blanks(text, run.end + sign + 3);
        if !quoted(&text[start..]) {
            return None;
        }
        start
    } else if near.starts_with(' ') && quoted(&near[1..]) && is_statement(scan, run) {
        run.end + 1
    } else {
        return None;
    };
    let secret = value::glance(text, start, Style::Plain);
    let shown = &text[secret.clone()];
    let absent = is_null(shown) || is_placeholder(shown);
    (!absent).then(|| value::whole(text, start, Style::Plain, secret))
}
