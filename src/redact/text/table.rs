//! Tables: a name at the head of a column, or in a list of columns, tells of the values below it. CSV, TSV, Markdown,
//! what database clients print, HTML, and SQL's `INSERT INTO t (a, password) VALUES ('x', 'y')`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{after_last, ahead, behind, is_one_of, last_line, looked_at, skip, strip_ignore_case},
    html,
    look::{is_composed, is_null, is_placeholder, is_prose, is_random, looks_secret},
    quote::Quote,
};
use crate::{redact::keys::Strength, text::floor};

/// The longest head of a table, in bytes.
pub(super) const HEAD: usize = 1024;

/// What parts the cells of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Mark(char),
    /// Two blanks or more.
    Blanks,
}

/// A column that has secrets in it.
pub(super) struct Column {
    pub(super) index: usize,
    /// Its name says so by itself: otherwise a value has to look like a secret.
    sure: bool,
    /// `key`, which issues, files and translations have, too: then a value has to look random.
    any: bool,
    /// `Secrets`, which may be how many there are: then a short number is none.
    counts: bool,
}

impl Column {
    pub(super) fn hides(&self, value: &str, sure: bool) -> bool {
        let number = value.len() <= 5 && value.bytes().all(|b| b.is_ascii_digit());
        is_secret(value, self.sure && sure)
            && (!self.any || is_random(value))
            && !(self.counts && number)
    }
}

/// Finds the table whose head the run is a part of; its secrets are kept in the scan. Whether there is one.
pub(super) fn find(scan: &mut Scan<'_>, run: Run) -> bool {
    if run.at < scan.tabled {
        return false;
    }
    let after = scan.after(run);
    let next = after.trim_start_matches(['"', '\'', '`', '*', '\\']);
    let ends = ['\n', '\r', '\t', ',', ';', '|', ' ', ')', ']'];
    let found = if after.trim_start_matches(':').starts_with("</") {
        html::find(scan, run)
    } else if next.is_empty() || next.starts_with(ends) {
        lines(scan, run).or_else(|| tuples(scan, run))
    } else {
        None
    };
    let Some((cells, end)) = found else {
        return false;
    };
    scan.tabled = end;
    let more = !cells.is_empty();
    scan.keep(cells);
    more
}

pub(super) type Found = (Vec<Range<usize>>, usize);

/// The columns among `heads` whose names are those of secrets.
pub(super) fn columns(scan: &Scan<'_>, heads: &[&str]) -> Vec<Column> {
    let column = |(index, head): (usize, &&str)| {
        let strength = scan.rules.strength(head);
        let column = Column {
            index,
            sure: strength == Strength::Strong,
            any: is_one_of(head, &["key", "keys"]),
            counts: head.ends_with(['s', 'S']),
        };
        (strength > Strength::Described).then_some(column)
    };
    heads.iter().enumerate().filter_map(column).collect()
}

/// Whether a value in a column is a secret.
pub(super) fn is_secret(value: &str, sure: bool) -> bool {
    let bound = value.starts_with([':', '@'])
        && value[1..]
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_');
    // `not set`, `90 days`, `Ask your admin.`
    let says = value.split_once(' ').is_some_and(|(first, rest)| {
        let number = first.bytes().all(|b| b.is_ascii_digit());
        let counts = number && rest.bytes().all(|b| b.is_ascii_alphabetic());
        let sentence = is_prose(first) || value.ends_with(['.', '?']);
        counts || sentence && !value.split(' ').any(looks_secret)
    });
    let absent = bound || says || is_null(value) || is_placeholder(value) || is_prose(value);
    // `pid=4711`
    let pair = |value: &str| {
        let pair = value.split_once('=');
        pair.is_some_and(|(name, value)| !name.is_empty() && !value.trim_matches('=').is_empty())
    };
    let looks = || looks_secret(value) && !is_composed(value) && !pair(value);
    !value.is_empty() && !absent && (sure || looks())
}

/// Lines of cells: the head, and rows of as many cells.
fn lines(scan: &Scan<'_>, run: Run) -> Option<Found> {
    let text = scan.text;
    let after = scan.after(run).trim_start_matches(['"', '`', '*']);
    let next = after.trim_start_matches(' ');
    let ends = ['\n', '\r', '\t', ',', ';', '|', '('];
    if !next.is_empty() && !next.starts_with(ends) && !after.starts_with("  ") {
        return None;
    }
    if run.at < scan.headless.get() {
        return None;
    }
    let start = run.at - last_line(behind(text, run.at, HEAD)).len();
    let head = ahead(text, start, HEAD);
    let head = &head[..head.find('\n')?];
    // Whichever of its names is met first.
    scan.headless.set(start + head.len());
    let sign = sign_of(head)?;
    let (mut cells, next) = row(text, start, sign)?;
    // `failed: user,password`, `failed: | User | Password |`
    let first = cells.first_mut()?;
    let mut led = true;
    if let Some((before, _)) = text[first.clone()].rsplit_once(": ") {
        first.start += before.len() + 2;
    } else if text[first.clone()].ends_with(':') {
        cells.remove(0);
    } else {
        led = false;
    }
    let heads: Vec<_> = cells.iter().map(|cell| &text[inside(text, cell)]).collect();
    let columns = columns(scan, &heads);
    // A sentence has commas with a blank behind them, and more than one word between them.
    let words = sign == Sign::Mark(',') && head.contains(", ");
    let fits = |head: &&str| is_head(head) && !(words && head.contains(' '));
    if columns.is_empty() || heads.len() < 2 || !heads.iter().all(fits) {
        return None;
    }
    // Bars may be anything, but those at both ends of lines are a table's.
    let below = line_at(text, next);
    let framed = [head, below]
        .iter()
        .all(|line| line.trim().starts_with('|') && line.trim().ends_with('|'));
    let barred = sign == Sign::Mark('|') && !is_rule(below) && !framed;
    if barred || is_row(text, start, sign, cells.len()) {
        return None;
    }
    let (mut found, mut at) = (Vec::new(), next);
    while let Some((cells, next)) = row(text, at, sign) {
        if is_rule(&text[at..next]) {
            at = next;
            continue;
        }
        // The numbers of rows have no head.
        let more = cells.len() == heads.len() + 1;
        let numbered = sign == Sign::Blanks && more;
        // A row that has too many cells or too few; a sentence, whose commas have blanks behind them, may go on behind
        // the last row.
        let mut starts = cells.iter().skip(1).map(|cell| cell.start);
        let spaced = starts.all(|at| text[..at].ends_with(' '));
        let worded = cells.iter().any(|cell| text[cell.clone()].contains(' '));
        let sentence = sign == Sign::Mark(',') && !words && spaced && worded;
        let even = cells.len() == heads.len() || numbered || sign == Sign::Mark('|') && more;
        let ragged = !even && sign != Sign::Blanks && !spaced;
        if sentence || !even && !ragged {
            break;
        }
        for column in &columns {
            let index = column.index + usize::from(numbered);
            // A comma too many before it has moved it.
            let moved = if ragged {
                cells.len().saturating_sub(heads.len())
            } else {
                0
            };
            for cell in cells.iter().skip(index).take(1 + moved) {
                let cell = inside(text, cell);
                let shown = &text[cell.clone()];
                // What is behind a colon may be the names of columns in a message, and the next line another one.
                let message = led && matches!(sign, Sign::Mark(',' | ';'));
                let sure = sign != Sign::Blanks && !message;
                if column.hides(shown, sure) && !(words && shown.contains(' ')) {
                    found.push(cell);
                }
            }
        }
        at = next;
    }
    (at > next).then_some((found, at))
}

/// What parts the cells of a head.
fn sign_of(head: &str) -> Option<Sign> {
    if let Some(mark) = ['\t', '|'].into_iter().find(|mark| head.contains(*mark)) {
        return Some(Sign::Mark(mark));
    }
    if head.trim().contains("  ") {
        return Some(Sign::Blanks);
    }
    let mark = [';', ','].into_iter().find(|mark| head.contains(*mark))?;
    (!head.contains("; ")).then_some(Sign::Mark(mark))
}

/// Whether a cell may be the head of a column: a few words.
fn is_head(head: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || " _-.#()/%".contains(c);
    head.len() <= 48 && head.chars().all(part) && head.split(' ').count() <= 4
}

/// Whether a line has nothing but what parts the head from the rows.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.chars().all(|c| "-=+|: ".contains(c)) && line.contains(['-', '='])
}

/// The line at `at`, as far as heads may go.
fn line_at(text: &str, at: usize) -> &str {
    let line = ahead(text, at, HEAD);
    line.split('\n').next().unwrap_or(line)
}

/// Whether the line before `start` is a row of `count` cells: then this one is no head.
fn is_row(text: &str, start: usize, sign: Sign, count: usize) -> bool {
    let Some(end) = start.checked_sub(1) else {
        return false;
    };
    let line = last_line(behind(text, end, HEAD));
    let cells = row(text, end - line.len(), sign);
    !is_rule(line) && cells.is_some_and(|(cells, _)| cells.len() == count)
}

/// The cells of the line at `at`, and where the next begins. None for an empty line. A quoted cell may have line ends.
fn row(text: &str, at: usize, sign: Sign) -> Option<(Vec<Range<usize>>, usize)> {
    let (mut cells, mut from) = (Vec::new(), at);
    loop {
        let start = skip(text, from, |c| c == ' ');
        let quoted = text[start..]
            .starts_with('"')
            .then(|| quoted_end(text, start));
        let quoted = quoted.flatten();
        let mut end = quoted.unwrap_or(start);
        end = match sign {
            Sign::Mark(mark) => skip(text, end, |c| c != mark && c != '\n'),
            Sign::Blanks => cell_end(text, end),
        };
        let rest = &text[end..];
        let cell = text[start..end].trim_end();
        let edge = sign == Sign::Mark('|') && cell.is_empty();
        let first = edge && cells.is_empty() && from == at && rest.starts_with('|');
        let last = edge && !rest.starts_with('|');
        if !first && !last {
            cells.push(start..start + cell.len());
        }
        from = end + 1;
        if rest.is_empty() || rest.starts_with('\n') {
            let empty = text[at..end].trim().is_empty();
            return (!empty).then_some((cells, from.min(text.len())));
        }
    }
}

/// Where a cell ends before two blanks.
fn cell_end(text: &str, from: usize) -> usize {
    let mut at = from;
    loop {
        at = skip(text, at, |c| c != ' ' && c != '\n');
        if !text[at..].starts_with(' ') || text[at..].starts_with("  ") {
            return at;
        }
        at += 1;
    }
}

/// The end of a quoted cell, in which a quote is two; none if it does not end.
fn quoted_end(text: &str, at: usize) -> Option<usize> {
    let mut from = at + 1;
    loop {
        let end = from + text[from..].find('"')? + 1;
        looked_at(end - from);
        if !text[end..].starts_with('"') {
            return Some(end);
        }
        from = end + 1;
    }
}

/// A cell, or an element, without its quotes.
fn inside(text: &str, cell: &Range<usize>) -> Range<usize> {
    let value = &text[cell.clone()];
    let marks = |c: char| matches!(c, '"' | '\'' | '`' | '*' | '\\' | '\r' | '[' | ']');
    // `E'x'`, `N'x'`
    let string = value
        .strip_prefix(['E', 'N', 'e', 'n'])
        .filter(|s| s.starts_with('\''));
    let start = cell.end - string.unwrap_or(value).trim_start_matches(marks).len();
    let end = cell.start + value.trim_end_matches(marks).len();
    start..end.max(start)
}

/// A list of names, and lists of as many values: `(login, password) VALUES ('a', 'b'), ('c', 'd')`,
/// `columns=["login", "password"] rows=[["a", "b"]]`.
fn tuples(scan: &Scan<'_>, run: Run) -> Option<Found> {
    let text = scan.text;
    let quotes = |c: char| matches!(c, '`' | '"' | '\'' | '\\' | ' ' | '\n');
    let after = scan.after(run).trim_start_matches(quotes);
    let values = strip_ignore_case(after, "values").is_some();
    if !values && !after.starts_with([',', ')', ']']) {
        return None;
    }
    let near = behind(text, run.at, HEAD);
    let (heads, close) = if values {
        let word = after_last(near.trim_end_matches(quotes), char::is_whitespace);
        if !word.eq_ignore_ascii_case("into") {
            return None;
        }
        (Vec::new(), run.end)
    } else {
        // SQL Server puts names in brackets.
        let own = near
            .strip_suffix('[')
            .filter(|near| after.starts_with(']') && near.contains('('));
        let open = match own {
            Some(near) => near.rfind(['(', ')', ';'])?,
            None => near.rfind(['(', '[', ')', ']', ';'])?,
        };
        let open = run.at - near.len() + open;
        if !text[open..].starts_with(['(', '[']) {
            return None;
        }
        let near = &text[..floor(text, open + HEAD)];
        let (heads, close) = elements(near, open);
        if !near[..close].ends_with([')', ']']) {
            return None;
        }
        (heads, close)
    };
    let names: Vec<_> = heads.iter().map(|name| &text[inside(text, name)]).collect();
    let plain = |name: &&str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || "_-. ".contains(c))
    };
    let columns = columns(scan, &names);
    if !names.iter().all(plain) || columns.is_empty() && !names.is_empty() {
        return None;
    }
    let gap = ahead(text, close, 64);
    if strip_ignore_case(gap, " from stdin").is_some() {
        let at = close + ahead(text, close, HEAD).find('\n')? + 1;
        return Some(dumped(text, at, names.len(), &columns));
    }
    let (mut at, mut found) = (list_after(text, close)?, Vec::new());
    let inner = skip(text, at + 1, char::is_whitespace);
    if text[inner..].starts_with(['(', '[']) {
        at = inner;
    }
    loop {
        let (values, end) = elements(text, at);
        if names.is_empty() {
            let values = values.iter().map(|value| inside(text, value));
            found.extend(values.filter(|v| v.len() >= 16 && is_secret(&text[v.clone()], false)));
        } else if values.len() == names.len() {
            for column in &columns {
                let value = inside(text, &values[column.index]);
                if column.hides(&text[value.clone()], true) {
                    found.push(value);
                }
            }
        }
        at = skip(text, end, |c| c.is_whitespace() || c == ',');
        if !text[at..].starts_with(['(', '[']) {
            // `VALUES (?, ?)`, and the values elsewhere.
            match list_after(text, at) {
                Some(list) => at = list,
                None => return Some((found, at)),
            }
        }
    }
}

/// Where a list of values begins behind `at`, a word for them before it.
fn list_after(text: &str, at: usize) -> Option<usize> {
    const WORDS: &[&str] = &[
        "values",
        "value",
        "rows",
        "data",
        "records",
        "params",
        "parameters",
        "args",
    ];
    let gap = ahead(text, at, 64);
    let first = gap.find(['(', '[', ';'])?;
    if gap[first..].starts_with(';') {
        return None;
    }
    let mut words = gap[..first].split(|c: char| !c.is_alphanumeric());
    words
        .any(|word| is_one_of(word, WORDS))
        .then_some(at + first)
}

/// The rows of a dump, with tabs between their values: `COPY t (a, password) FROM stdin;`.
fn dumped(text: &str, mut at: usize, count: usize, columns: &[Column]) -> Found {
    let mut found = Vec::new();
    while let Some((cells, next)) = row(text, at, Sign::Mark('\t'))
        && cells.len() == count
    {
        let hidden = columns.iter().filter_map(|column| {
            let cell = cells[column.index].clone();
            column.hides(&text[cell.clone()], true).then_some(cell)
        });
        found.extend(hidden);
        at = next;
    }
    (found, at)
}

/// The elements of the list that opens at `open`, and where it ends. It may be cut off.
fn elements(text: &str, open: usize) -> (Vec<Range<usize>>, usize) {
    let bytes = text.as_bytes();
    let (mut found, mut depth, mut at) = (Vec::new(), 0_usize, open + 1);
    let mut from = at;
    let mut push = |from: usize, to: usize| {
        let value = &text[from..to];
        let start = to - value.trim_start().len();
        found.push(start..start + value.trim().len());
    };
    while let Some(byte) = bytes.get(at) {
        looked_at(1);
        match byte {
            b'"' | b'\'' | b'\\' => {
                if let Some(quote) = Quote::at(text, at) {
                    let close = quote.close(text, at + quote.len());
                    at = close.map_or(text.len(), |close| close.end);
                    continue;
                }
                // A run of them that opens nothing.
                at = skip(text, at + 1, |c| c == '\\');
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => {
                push(from, at);
                return (found, at + 1);
            }
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                push(from, at);
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    push(from, text.len());
    (found, text.len())
}
