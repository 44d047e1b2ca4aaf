//! Tables: a sensitive name at the head of a column, or in a list of columns, makes secrets of the
//! values below it. CSV, TSV, Markdown, the output of database clients, HTML, and SQL's `INSERT
//! INTO t (a, password) VALUES ('x', 'y')`.

use super::{TABLE, html, prelude::*};
use crate::hidden::is_format;

/// The longest head of a table, in bytes.
pub(super) const HEAD: usize = 1024;

/// Secrets, and where the table ends.
pub(super) type Found = (Vec<Range<usize>>, usize);

/// Finds the table that has the run in its head, and keeps its secrets in the scan. Returns whether
/// it found any.
pub(super) fn find(run: &Run<'_>) -> bool {
    if run.at < run.scan.tabled.get() {
        return false;
    }
    let after = run.after();
    let next = after.trim_start_of("\"'`*\\");
    let ends = ['\n', '\r', '\t', ',', ';', '|', ' ', ')', ']'];
    let found = match after.trim_start_of(":").starts_with("</") {
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
struct Column<'t> {
    index: usize,
    head: &'t str,
    /// Its name alone decides: otherwise a value has to look like a secret, too.
    sure: bool,
}

impl Column<'_> {
    fn hides(&self, value: &str) -> bool {
        // Issues, files and translations have a `key`, too. `Secrets` may be counts.
        let any = is_one_of(self.head, "key keys");
        let counts = self.head.ends_of("sS");
        is_secret(value, self.sure)
            && match shape::of(value) {
                Shape::Code => self.sure && !shape::has_statements(value),
                Shape::Format | Shape::Schema => false,
                _ => true,
            }
            && (!any || is_random(value))
            && !(is_small_number(value) && (counts || value.len() < 3))
    }
}

/// The columns of a table that have secrets in them.
pub(super) struct Columns<'t>(Vec<Column<'t>>);

impl<'t> Columns<'t> {
    /// Returns the columns among `heads` that name secrets.
    pub(super) fn of(run: &Run<'t>, heads: &[Range<usize>]) -> Self {
        let heads = heads.iter().map(|head| &run.text[head.clone()]);
        let columns = heads.enumerate().filter_map(|(index, head)| {
            let strength = run.rules.strength(head);
            let sure = strength == Strength::Strong;
            (strength > Strength::Described).then_some(Column { index, head, sure })
        });
        Self(columns.collect())
    }

    /// The cells of a row that are secrets: `before` cells have no head, and the cell of each head
    /// is one of the next `1 + moved`.
    pub(super) fn secrets(
        &self,
        text: &str,
        row: &[Range<usize>],
        (before, moved): (usize, usize),
    ) -> Vec<Range<usize>> {
        let cells = self.0.iter().flat_map(|column| {
            let cells = row.iter().skip(before + column.index).take(1 + moved);
            cells.filter(|cell| column.hides(&text[(*cell).clone()]))
        });
        cells.cloned().collect()
    }
}

/// Returns whether a value in a column is a secret.
pub(super) fn is_secret(value: &str, sure: bool) -> bool {
    let bound = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    // `not set`, `90 days`, `Ask your admin.`
    let says = |(first, rest): (&str, &str)| {
        let counts = is_digits(first) && rest.bytes().all(|b| b.is_ascii_alphabetic());
        let sentence = is_prose(first) || value.ends_of(".?");
        counts || sentence && !value.split_of(" ").any(looks_secret)
    };
    let absent = value.is_empty()
        || value.strip_prefix([':', '@']).is_some_and(bound)
        || value.cut(" ").is_some_and(says)
        || is_null(value)
        || is_placeholder(value)
        || is_prose(value);
    // `pid=4711`
    let pair = |(name, value): (&str, &str)| !name.is_empty() && !value.trim_of("=").is_empty();
    let looks = || {
        let secret = looks_secret(value) && has_secret(value);
        secret && !is_composed(value) && !value.cut("=").is_some_and(pair)
    };
    !absent && (sure || looks())
}

/// The head of a table of lines.
struct Head<'t> {
    /// The separator of cells: a blank stands for two blanks or more.
    sign: char,
    columns: Columns<'t>,
    /// How many cells it has.
    count: usize,
    /// A blank follows the commas, as in sentences.
    spaced: bool,
    /// Where it begins, and where the rows do.
    place: Range<usize>,
}

/// Lines of cells: the head, and rows of as many cells.
fn lines(run: &Run<'_>) -> Option<Found> {
    let head = Head::of(run)?;
    let (mut found, mut at) = (Vec::new(), head.place.end);
    while let Some((cells, next)) = row(run.text, at, head.sign) {
        if !is_rule(&run.text[at..next]) {
            match head.secrets(run.text, &cells) {
                Some(secrets) => found.extend(secrets),
                None => break,
            }
        }
        at = next;
    }
    (at > head.place.end).then_some((found, at))
}

impl<'t> Head<'t> {
    /// Returns the head in the line of the run.
    fn of(run: &Run<'t>) -> Option<Self> {
        let text = run.text;
        let after = run.after().trim_start_of("\"`*");
        let next = after.trim_start_of(" ");
        let ends = ['\n', '\r', '\t', ',', ';', '|', '('];
        let ends = next.is_empty() || next.starts_with(ends) || after.starts_with("  ");
        if !ends || run.at < run.scan.headless.get() {
            return None;
        }
        let start = run.at - run.line_before(HEAD).len();
        let (line, _) = ahead(text, start, HEAD).cut("\n")?;
        // The line is judged once, at the first name in it.
        run.scan.headless.set(start + line.len());
        let sign = sign_of(line)?;
        // A list of names goes on, or a statement ends.
        if line.trim_end().ends_of(",;{(") {
            return None;
        }
        // A quoted cell may have line ends: it is not looked for further than this.
        let (mut cells, end) = row(&text[..floor(text, start + HEAD)], start, sign)?;
        // `failed: user,password`, `failed: | User | Password |`
        let first = cells.first_mut()?;
        let label = text[first.clone()].cut_last(": ");
        let led = label.is_some() || text[first.clone()].ends_with(':');
        match label {
            Some((label, _)) => first.start += label.len() + 2,
            None if led => drop(cells.remove(0)),
            None => {}
        }
        let names: Vec<_> = cells.iter().map(|cell| inside(text, cell)).collect();
        let mut head = Self {
            sign,
            columns: Columns::of(run, &names),
            count: cells.len(),
            spaced: sign == ',' && line.holds(", "),
            place: start..end,
        };
        let fits = names.iter().all(|name| head.is_name(&text[name.clone()]));
        // `private String password;` has a mark behind it, and no second name.
        let several = names.iter().filter(|name| !name.is_empty()).count() > 1;
        if head.columns.0.is_empty() || !several || !fits || !head.stands_alone(text) {
            return None;
        }
        // Names behind a colon may be a message, and the next line another message.
        let unsure = sign == ' ' || led && matches!(sign, ',' | ';');
        for column in &mut head.columns.0 {
            column.sure &= !unsure;
        }
        Some(head)
    }

    /// Returns whether a cell may be the name of a column: a few words.
    fn is_name(&self, cell: &str) -> bool {
        let part = |c: char| c.is_alphanumeric() || " _-.#()/%".contains(c);
        let counted = |mark: char| cell.matches(mark).count();
        cell.len() <= 48
            && cell.chars().all(part)
            && !cell.starts_with(|c: char| c.is_ascii_digit() || c == '#')
            && counted('(') == counted(')')
            && counted(' ') < if self.spaced { 1 } else { 4 }
    }

    /// Returns whether the lines before and after it allow it to be a head.
    fn stands_alone(&self, text: &str) -> bool {
        let start = self.place.start;
        // The previous line is not a row of as many cells, and not the rule under a head of
        // Markdown.
        let Some(end) = start.checked_sub(1) else {
            return true;
        };
        let line = last_line(behind(text, end, HEAD));
        match is_rule(line) {
            true => !line.has_of("|") || line.has_of("+="),
            false => {
                let near = &text[..floor(text, end + HEAD)];
                let row = row(near, end - line.len(), self.sign);
                row.is_none_or(|(cells, _)| cells.len() != self.count)
            }
        }
    }

    /// Returns the secret cells of a row, or `None` if the line is not a row.
    fn secrets(&self, text: &str, cells: &[Range<usize>]) -> Option<Vec<Range<usize>>> {
        let more = cells.len() == self.count + 1;
        let blanks = self.sign == ' ';
        let even = cells.len() == self.count || more && (blanks || self.sign == '|');
        // A row with too many or too few cells. A sentence, with blanks after its commas, may
        // follow the last row.
        let mut starts = cells.iter().skip(1).map(|cell| cell.start);
        let spaced = starts.all(|at| text[..at].ends_with(' '));
        let worded = || cells.iter().any(|cell| text[cell.clone()].has_of(" "));
        let sentence = self.sign == ',' && !self.spaced && spaced && worded();
        if sentence || !even && (blanks || spaced) {
            return None;
        }
        // The numbers of rows have no head. A comma too many before a cell has moved it.
        let before = usize::from(blanks && more);
        let moved = usize::from(!even) * cells.len().saturating_sub(self.count);
        let cells: Vec<_> = cells.iter().map(|cell| inside(text, cell)).collect();
        let mut secrets = self.columns.secrets(text, &cells, (before, moved));
        secrets.retain(|cell| !(self.spaced && text[cell.clone()].has_of(" ")));
        Some(secrets)
    }
}

/// The separator of the cells of a head.
fn sign_of(head: &str) -> Option<char> {
    let parts = |sign: &char| match sign {
        ' ' => head.trim().holds("  "),
        ',' | ';' => head.contains(*sign) && !head.holds("; "),
        _ => head.contains(*sign),
    };
    ['\t', '|', ' ', ';', ','].into_iter().find(parts)
}

/// Returns whether a line only separates the head from the rows.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.chars().all(|c| "-=+|: ".contains(c)) && line.has_of("-=")
}

/// The cells of the line at `at`, and where the next begins. None for an empty line. A quoted cell
/// may have line ends.
fn row(text: &str, at: usize, sign: char) -> Option<(Vec<Range<usize>>, usize)> {
    let (mut cells, mut from) = (Vec::new(), at);
    loop {
        let start = skip(text, from, |c| c == ' ');
        let end = cell_end(text, quoted_end(text, start).unwrap_or(start), sign);
        let rest = &text[end..];
        let cell = text[start..end].trim_end();
        // Bars may stand at both ends of a line.
        let edge = cells.is_empty() && from == at || !rest.starts_with('|');
        if sign != '|' || !cell.is_empty() || !edge {
            cells.push(start..start + cell.len());
        }
        from = end + 1;
        if rest.is_empty() || rest.starts_with('\n') {
            let empty = text[at..end].trim().is_empty();
            return (!empty).then_some((cells, from.min(text.len())));
        }
    }
}

/// Where a cell ends: at its sign, or with its line.
fn cell_end(text: &str, from: usize, sign: char) -> usize {
    let end = text[from..].find([sign, '\n']);
    let end = end.map_or(text.len(), |i| from + i);
    looked_at(end - from);
    let blank = sign == ' ' && text[end..].starts_with(' ') && !text[end..].starts_with("  ");
    let more = || cell_end(text, end + 1, sign);
    if blank { more() } else { end }
}

/// The end of a quoted cell, in which a quote is two; none if it does not end.
fn quoted_end(text: &str, at: usize) -> Option<usize> {
    let mut end = at;
    while text.get(end..)?.starts_with('"') {
        end = skip(text, end + 1, |c| c != '"') + 1;
    }
    Some(end)
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
fn tuples(run: &Run<'_>) -> Option<Found> {
    let text = run.text;
    let quotes = |c: char| "`\"'\\ \n".contains(c);
    let after = run.after().trim_start_matches(quotes);
    let (names, close) = match strip_ignore_case(after, "values") {
        Some(_) => {
            // `INSERT INTO passwords VALUES (...)`
            let near = run.behind(HEAD).trim_end_matches(quotes);
            let into = after_last(near, char::is_whitespace).eq_ignore_ascii_case("into");
            into.then_some((Vec::new(), run.end))?
        }
        None => names(run, after)?,
    };
    let columns = Columns::of(run, &names);
    if columns.0.is_empty() && !names.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    if strip_ignore_case(&text[close..], " from stdin").is_some() {
        // Rows of a dump, with tabs between their values: `COPY t (a, password) FROM stdin;`.
        let mut at = close + ahead(text, close, HEAD).find_of("\n")? + 1;
        while let Some((cells, next)) = row(text, at, '\t')
            && cells.len() == names.len()
        {
            found.extend(columns.secrets(text, &cells, (0, 0)));
            at = next;
        }
        return Some((found, at));
    }
    let mut at = list_after(text, close)?;
    let inner = skip(text, at + 1, char::is_whitespace);
    if text[inner..].starts_of("([") {
        at = inner;
    }
    loop {
        let (values, end) = elements(text, at);
        let values: Vec<_> = values.iter().map(|value| inside(text, value)).collect();
        if names.is_empty() {
            let secret = |v: &Range<usize>| v.len() >= 16 && is_secret(&text[v.clone()], false);
            found.extend(values.into_iter().filter(secret));
        } else if values.len() == names.len() {
            found.extend(columns.secrets(text, &values, (0, 0)));
        }
        at = skip(text, end, |c| c.is_whitespace() || c == ',');
        if !text[at..].starts_of("([") {
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
fn names(run: &Run<'_>, after: &str) -> Option<Found> {
    if !after.starts_of(",)]") {
        return None;
    }
    let text = run.text;
    let near = run.behind(HEAD);
    // SQL Server puts names in brackets.
    let own = near.strip_suffix('[').filter(|_| after.starts_with(']'));
    let own = own.filter(|near| near.has_of("("));
    let open = match own {
        Some(near) => near.rfind(['(', ')', ';'])?,
        None => near.rfind(['(', '[', ')', ']', ';'])?,
    };
    let open = run.at - near.len() + open;
    // `data['password']`
    let index = text[open..].starts_with('[') && text[..open].ends_with(char::is_alphanumeric);
    if index || !text[open..].starts_of("([") {
        return None;
    }
    let (names, close) = elements(&text[..floor(text, open + HEAD)], open);
    let names: Vec<_> = names.iter().map(|name| inside(text, name)).collect();
    let part = |c: char| c.is_alphanumeric() || "_-. ".contains(c);
    let plain = |name: &Range<usize>| !name.is_empty() && text[name.clone()].chars().all(part);
    let closed = text[..close].ends_of(")]");
    (closed && names.iter().all(plain)).then_some((names, close))
}

/// Where a list of values begins behind `at`, a word for them before it.
fn list_after(text: &str, at: usize) -> Option<usize> {
    const WORDS: &str = "values value rows data records params parameters args";
    let gap = ahead(text, at, 64);
    let first = gap.find_of("([;")?;
    let mut words = gap[..first].split(|c: char| !c.is_alphanumeric());
    let keyword = strip_ignore_case(gap.trim_start(), "values").is_some();
    let last = words.rfind(|word| {
        !word.is_empty() && !word.starts_with(char::is_uppercase) || is_one_of(word, WORDS)
    });
    let fits = !gap[first..].starts_with(';')
        && (keyword || last.is_some_and(|word| is_one_of(word, WORDS)));
    fits.then_some(at + first)
}

/// The elements of the list that opens at `open`, and where it ends. It may be cut off.
pub(super) fn elements(text: &str, open: usize) -> (Vec<Range<usize>>, usize) {
    let (mut found, mut depth, mut at) = (Vec::new(), 0_usize, open + 1);
    let mut from = at;
    let mut push = |from: usize, to: usize| {
        let value = &text[from..to];
        let start = to - value.trim_start().len();
        found.push(start..start + value.trim().len());
    };
    while let Some(byte) = text.as_bytes().get(at) {
        looked_at(1);
        match byte {
            b'"' | b'\'' | b'\\' => {
                // A run of backslashes may open nothing.
                let end = Quote::string_end(text, at);
                at = end.unwrap_or_else(|| skip(text, at + 1, |c| c == '\\'));
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => break,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                push(from, at);
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    push(from, at);
    (found, (at + 1).min(text.len()))
}
