//! Tables: a sensitive name at the head of a column, or in a list of columns, makes secrets of the
//! values below it. CSV, TSV, Markdown, the output of database clients, HTML, and SQL's `INSERT
//! INTO t (a, password) VALUES ('x', 'y')`.

use std::ops::Range;

use super::{
    Run, TABLE,
    bytes::{
        after_last, ahead, behind, is_digits, is_one_of, last_line, looked_at, skip,
        strip_ignore_case, until,
    },
    html,
    look::{
        is_composed, is_null, is_placeholder, is_prose, is_random, is_small_number, looks_secret,
    },
    quote::Quote,
    shape::{self, Shape},
};
use crate::{hidden::is_format, keys::Strength, text::bytes::floor};

/// The longest head of a table, in bytes.
pub(super) const HEAD: usize = 1024;

/// Secrets, and where the table ends.
pub(super) type Found = (Vec<Range<usize>>, usize);

/// Finds the table whose head has the run in it, and keeps its secrets in the scan. Whether there
/// are any.
pub(super) fn find(run: Run<'_>) -> bool {
    if run.at < run.scan.tabled.get() {
        return false;
    }
    let after = run.after();
    let next = after.trim_start_matches(['"', '\'', '`', '*', '\\']);
    let ends = ['\n', '\r', '\t', ',', ';', '|', ' ', ')', ']'];
    let found = match after.trim_start_matches(':').starts_with("</") {
        true => html::find(run),
        false if next.is_empty() || next.starts_with(ends) => lines(run).or_else(|| tuples(run)),
        false => None,
    };
    found.is_some_and(|(cells, end)| {
        run.scan.tabled.set(end);
        run.scan.keep(TABLE, cells)
    })
}

/// A column that has secrets in it.
struct Column {
    index: usize,
    /// Its name alone decides: otherwise a value has to look like a secret, too.
    sure: bool,
    /// The name is `key`, which issues, files and translations have, too: then a value has to look
    /// random.
    any: bool,
    /// The name is a plural (`Secrets`), whose values may be counts: then a short number is no
    /// secret.
    counts: bool,
}

impl Column {
    fn hides(&self, value: &str) -> bool {
        is_secret(value, self.sure)
            && match shape::of(value) {
                Shape::Code => self.sure && !shape::has_statements(value),
                Shape::Format | Shape::Schema => false,
                _ => true,
            }
            && (!self.any || is_random(value))
            && !(is_small_number(value) && (self.counts || value.len() < 3))
    }
}

/// The columns of a table that have secrets in them.
pub(super) struct Columns(Vec<Column>);

impl Columns {
    /// The columns among `heads` whose names are those of secrets.
    pub(super) fn of(run: Run<'_>, heads: &[Range<usize>]) -> Self {
        let column = |(index, head): (usize, &Range<usize>)| {
            let head = &run.text[head.clone()];
            let strength = run.rules.strength(head);
            let column = Column {
                index,
                sure: strength == Strength::Strong,
                any: is_one_of(head, &["key", "keys"]),
                counts: head.ends_with(['s', 'S']),
            };
            (strength > Strength::Described).then_some(column)
        };
        Self(heads.iter().enumerate().filter_map(column).collect())
    }

    /// The cells of a row that are secrets.
    pub(super) fn secrets(
        &self,
        text: &str,
        row: &[Range<usize>],
    ) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().filter_map(move |column| {
            let cell = row.get(column.index)?;
            column.hides(&text[cell.clone()]).then(|| cell.clone())
        })
    }
}

/// Returns whether a value in a column is a secret.
pub(super) fn is_secret(value: &str, sure: bool) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b == b'_';
    let bound = value.strip_prefix([':', '@']);
    let bound = bound.is_some_and(|name| name.bytes().all(lower));
    // `not set`, `90 days`, `Ask your admin.`
    let says = value.split_once(' ').is_some_and(|(first, rest)| {
        let counts = is_digits(first) && rest.bytes().all(|b| b.is_ascii_alphabetic());
        let sentence = is_prose(first) || value.ends_with(['.', '?']);
        counts || sentence && !value.split(' ').any(looks_secret)
    });
    let absent = bound || says || is_null(value) || is_placeholder(value) || is_prose(value);
    // `pid=4711`
    let pair = |value: &str| {
        let pair = value.split_once('=');
        pair.is_some_and(|(name, value)| !name.is_empty() && !value.trim_matches('=').is_empty())
    };
    let looks = || {
        looks_secret(value)
            && shape::of(value) == Shape::Secret
            && !is_composed(value)
            && !pair(value)
    };
    !value.is_empty() && !absent && (sure || looks())
}

/// The separator of the cells of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Mark(char),
    /// Two blanks or more.
    Blanks,
}

/// The head of a table of lines.
struct Head {
    sign: Sign,
    columns: Columns,
    /// How many cells it has.
    count: usize,
    /// A blank follows the commas, as in sentences.
    spaced: bool,
    /// Where it begins, and where the rows do.
    place: Range<usize>,
}

/// Lines of cells: the head, and rows of as many cells.
fn lines(run: Run<'_>) -> Option<Found> {
    let head = Head::of(run)?;
    let text = run.text;
    let (mut found, mut at) = (Vec::new(), head.place.end);
    while let Some((cells, next)) = row(text, at, head.sign) {
        if !is_rule(&text[at..next]) {
            match head.secrets(text, &cells) {
                Some(secrets) => found.extend(secrets),
                None => break,
            }
        }
        at = next;
    }
    (at > head.place.end).then_some((found, at))
}

impl Head {
    /// The head in whose line the run stands.
    fn of(run: Run<'_>) -> Option<Self> {
        let text = run.text;
        let after = run.after().trim_start_matches(['"', '`', '*']);
        let next = after.trim_start_matches(' ');
        let ends = ['\n', '\r', '\t', ',', ';', '|', '('];
        let ends = next.is_empty() || next.starts_with(ends) || after.starts_with("  ");
        if !ends || run.at < run.scan.headless.get() {
            return None;
        }
        let start = run.at - run.line_before(HEAD).len();
        let (line, _) = ahead(text, start, HEAD).split_once('\n')?;
        // The line is judged once, at the first name in it.
        run.scan.headless.set(start + line.len());
        let sign = sign_of(line)?;
        // A list of names goes on, or a statement ends.
        if line.trim_end().ends_with([',', ';', '{', '(']) {
            return None;
        }
        // A quoted cell may have line ends: it is not looked for further than this.
        let (mut cells, end) = row(&text[..floor(text, start + HEAD)], start, sign)?;
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
        let names: Vec<_> = cells.iter().map(|cell| inside(text, cell)).collect();
        let mut head = Self {
            sign,
            columns: Columns::of(run, &names),
            count: cells.len(),
            spaced: sign == Sign::Mark(',') && line.contains(", "),
            place: start..end,
        };
        let fits = names.iter().all(|name| head.is_name(&text[name.clone()]));
        // `private String password;` has a mark behind it, and no second name.
        let several = names.iter().filter(|name| !name.is_empty()).count() > 1;
        // Names of an import, of which each line but the last ends with a comma.
        let goes_on = head.spaced && line.trim_end().ends_with(',');
        let alone = !goes_on && head.stands_alone(text);
        if head.columns.0.is_empty() || !several || !fits || !alone {
            return None;
        }
        // Names behind a colon may be a message, and the next line another message.
        let message = led && matches!(sign, Sign::Mark(',' | ';'));
        if sign == Sign::Blanks || message {
            for column in &mut head.columns.0 {
                column.sure = false;
            }
        }
        Some(head)
    }

    /// Returns whether a cell may be the name of a column: a few words.
    fn is_name(&self, cell: &str) -> bool {
        let part = |c: char| c.is_alphanumeric() || " _-.#()/%".contains(c);
        let words = cell.split(' ').count();
        let counted = |mark: char| cell.chars().filter(|c| *c == mark).count();
        let number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '#');
        let call = number || counted('(') != counted(')');
        cell.len() <= 48
            && cell.chars().all(part)
            && !call
            && words <= if self.spaced { 1 } else { 4 }
    }

    /// Returns whether the lines before and after it allow it to be a head.
    fn stands_alone(&self, text: &str) -> bool {
        let Range { start, end } = self.place;
        // Bars have many uses, but bars at both ends of the lines are those of a table.
        let below = until(ahead(text, end, HEAD), "\n");
        let framed = |line: &str| line.trim().starts_with('|') && line.trim().ends_with('|');
        let barred = self.sign == Sign::Mark('|')
            && !is_rule(below)
            && !(framed(&text[start..end]) && framed(below));
        !barred && !self.follows_row(text)
    }

    /// Returns whether the line before it is a row of as many cells, or the rule below a head of
    /// Markdown: then this one is no head.
    fn follows_row(&self, text: &str) -> bool {
        let Some(end) = self.place.start.checked_sub(1) else {
            return false;
        };
        let line = last_line(behind(text, end, HEAD));
        let cells = row(
            &text[..floor(text, end + HEAD)],
            end - line.len(),
            self.sign,
        );
        let rule = is_rule(line);
        rule && line.contains('|') && !line.contains(['+', '='])
            || !rule && cells.is_some_and(|(cells, _)| cells.len() == self.count)
    }

    /// The cells of a row that are secrets. None for a line that is no row.
    fn secrets(&self, text: &str, cells: &[Range<usize>]) -> Option<Vec<Range<usize>>> {
        let more = cells.len() == self.count + 1;
        // The numbers of rows have no head.
        let numbered = self.sign == Sign::Blanks && more;
        let even = cells.len() == self.count || numbered || self.sign == Sign::Mark('|') && more;
        // A row that has too many cells or too few; a sentence, whose commas have blanks behind
        // them, may go on behind the last row.
        let mut starts = cells.iter().skip(1).map(|cell| cell.start);
        let spaced = starts.all(|at| text[..at].ends_with(' '));
        let worded = cells.iter().any(|cell| text[cell.clone()].contains(' '));
        let sentence = self.sign == Sign::Mark(',') && !self.spaced && spaced && worded;
        let ragged = !even && self.sign != Sign::Blanks && !spaced;
        if sentence || !even && !ragged {
            return None;
        }
        // A comma too many before a cell has moved it.
        let moved = usize::from(ragged) * cells.len().saturating_sub(self.count);
        let mut found = Vec::new();
        for column in &self.columns.0 {
            let index = column.index + usize::from(numbered);
            for cell in cells.iter().skip(index).take(1 + moved) {
                let cell = inside(text, cell);
                let shown = &text[cell.clone()];
                if column.hides(shown) && !(self.spaced && shown.contains(' ')) {
                    found.push(cell);
                }
            }
        }
        Some(found)
    }
}

/// The separator of the cells of a head.
fn sign_of(head: &str) -> Option<Sign> {
    let first = |marks: [char; 2]| marks.into_iter().find(|mark| head.contains(*mark));
    match first(['\t', '|']) {
        Some(mark) => Some(Sign::Mark(mark)),
        None if head.trim().contains("  ") => Some(Sign::Blanks),
        None => first([';', ','])
            .filter(|_| !head.contains("; "))
            .map(Sign::Mark),
    }
}

/// Returns whether a line only separates the head from the rows.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.chars().all(|c| "-=+|: ".contains(c)) && line.contains(['-', '='])
}

/// The cells of the line at `at`, and where the next begins. None for an empty line. A quoted cell
/// may have line ends.
fn row(text: &str, at: usize, sign: Sign) -> Option<(Vec<Range<usize>>, usize)> {
    let (mut cells, mut from) = (Vec::new(), at);
    loop {
        let start = skip(text, from, |c| c == ' ');
        let quoted = text[start..].starts_with('"');
        let quoted = quoted.then(|| quoted_end(text, start)).flatten();
        let end = quoted.unwrap_or(start);
        let end = match sign {
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
    let marks = |c| "\"'`*\\\r[]".contains(c) || is_format(c);
    // `E'x'`, `N'x'`
    let string = value.strip_prefix(['E', 'N', 'e', 'n']);
    let string = string.filter(|string| string.starts_with('\''));
    let start = cell.end - string.unwrap_or(value).trim_start_matches(marks).len();
    let end = cell.start + value.trim_end_matches(marks).len();
    start..end.max(start)
}

/// A list of names, and lists of as many values: `(login, password) VALUES ('a', 'b'), ('c', 'd')`,
/// `columns=["login", "password"] rows=[["a", "b"]]`.
fn tuples(run: Run<'_>) -> Option<Found> {
    let text = run.text;
    let quotes = |c: char| matches!(c, '`' | '"' | '\'' | '\\' | ' ' | '\n');
    let after = run.after().trim_start_matches(quotes);
    let (names, close) = if strip_ignore_case(after, "values").is_some() {
        // `INSERT INTO passwords VALUES (...)`
        let near = run.behind(HEAD).trim_end_matches(quotes);
        let into = after_last(near, char::is_whitespace).eq_ignore_ascii_case("into");
        into.then_some((Vec::new(), run.end))?
    } else if after.starts_with([',', ')', ']']) {
        names(run, after)?
    } else {
        return None;
    };
    let columns = Columns::of(run, &names);
    if columns.0.is_empty() && !names.is_empty() {
        return None;
    }
    if strip_ignore_case(&text[close..], " from stdin").is_some() {
        let start = close + ahead(text, close, HEAD).find('\n')? + 1;
        return Some(dumped(text, start, names.len(), &columns));
    }
    let mut at = list_after(text, close)?;
    let inner = skip(text, at + 1, char::is_whitespace);
    if text[inner..].starts_with(['(', '[']) {
        at = inner;
    }
    let mut found = Vec::new();
    loop {
        let (values, end) = elements(text, at);
        let values: Vec<_> = values.iter().map(|value| inside(text, value)).collect();
        if names.is_empty() {
            let secret = |v: &Range<usize>| v.len() >= 16 && is_secret(&text[v.clone()], false);
            found.extend(values.into_iter().filter(secret));
        } else if values.len() == names.len() {
            found.extend(columns.secrets(text, &values));
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

/// The names in the list that the run stands in, `after` which its next mark comes, and where the
/// list ends.
fn names(run: Run<'_>, after: &str) -> Option<Found> {
    let text = run.text;
    let near = run.behind(HEAD);
    // SQL Server puts names in brackets.
    let own = near.strip_suffix('[');
    let open = match own.filter(|near| after.starts_with(']') && near.contains('(')) {
        Some(near) => near.rfind(['(', ')', ';'])?,
        None => near.rfind(['(', '[', ')', ']', ';'])?,
    };
    let open = run.at - near.len() + open;
    if !text[open..].starts_with(['(', '[']) {
        return None;
    }
    let (names, close) = elements(&text[..floor(text, open + HEAD)], open);
    let names: Vec<_> = names.iter().map(|name| inside(text, name)).collect();
    let part = |c: char| c.is_alphanumeric() || "_-. ".contains(c);
    let plain = |name: &Range<usize>| !name.is_empty() && text[name.clone()].chars().all(part);
    let closed = text[..close].ends_with([')', ']']);
    (closed && names.iter().all(plain)).then_some((names, close))
}

/// Where a list of values begins behind `at`, a word for them before it.
fn list_after(text: &str, at: usize) -> Option<usize> {
    #[rustfmt::skip]
    const WORDS: &[&str] = &["values", "value", "rows", "data", "records", "params", "parameters", "args"];
    let gap = ahead(text, at, 64);
    let first = gap.find(['(', '[', ';'])?;
    let mut words = gap[..first].split(|c: char| !c.is_alphanumeric());
    let fits = !gap[first..].starts_with(';') && words.any(|word| is_one_of(word, WORDS));
    fits.then_some(at + first)
}

/// The rows of a dump, with tabs between their values: `COPY t (a, password) FROM stdin;`.
fn dumped(text: &str, mut at: usize, count: usize, columns: &Columns) -> Found {
    let mut found = Vec::new();
    while let Some((cells, next)) = row(text, at, Sign::Mark('\t'))
        && cells.len() == count
    {
        found.extend(columns.secrets(text, &cells));
        at = next;
    }
    (found, at)
}

/// The elements of the list that opens at `open`, and where it ends. It may be cut off.
pub(super) fn elements(text: &str, open: usize) -> (Vec<Range<usize>>, usize) {
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
                // A run of backslashes may open nothing.
                let end = Quote::string_end(text, at);
                at = end.unwrap_or_else(|| skip(text, at + 1, |c| c == '\\'));
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
