//! A name and its value: `name=value`, `"name": "value"`, `Header: value`, `--name value`, YAML, INI.

use std::{borrow::Cow, ops::Range};

use super::{
    Run, Scan,
    bytes::{ahead, behind, indent, is_one_of, last_line, skip, skip_blanks, strip_ignore_case},
    field,
    look::{is_placeholder, is_prose, looks_secret},
    value::{self, SCHEMES, Style},
};
use crate::redact::keys::Strength;

/// What stands between a name and its value.
struct Mark {
    /// A quote or a bracket closes the name.
    quoted: bool,
    colon: bool,
    style: Style,
    /// Where the mark ends.
    end: usize,
}

/// Longest first where one begins with another.
#[rustfmt::skip]
const MARKS: &[(&str, Style)] = &[
    ("===", Style::Plain), ("!==", Style::Plain), ("==", Style::Plain), ("!=", Style::Plain), (":=", Style::Plain), ("=>", Style::Plain),
    ("=~", Style::Plain), ("+=", Style::Plain), ("?=", Style::Plain), ("||=", Style::Plain), ("->", Style::Plain), ("=", Style::Plain), (":", Style::Plain),
    ("%3D", Style::Encoded), ("%3d", Style::Encoded), ("%253D", Style::Encoded), ("%253d", Style::Encoded),
    ("%3A", Style::Encoded), ("%3a", Style::Encoded),
    ("&#61;", Style::Plain), ("\u{ff1d}", Style::Plain), ("\u{ff1a}", Style::Plain),
];

const CLOSERS: &[&str] = &[
    "%22", "%27", "%5D", "%5d", "%255D", "&quot;", "&#34;", "&#39;", "\u{201d}", "\u{2019}",
];

impl Mark {
    /// The mark after a name that ends at `end`.
    fn after(text: &str, end: usize) -> Option<Self> {
        let first = *text.as_bytes().get(end)?;
        let near = matches!(
            first,
            b'"' | b'\''
                | b'`'
                | b'\\'
                | b']'
                | b' '
                | b'\t'
                | b'='
                | b':'
                | b'%'
                | b'&'
                | b'?'
                | b'|'
                | b'!'
        );
        if !near && first.is_ascii() {
            return None;
        }
        let mut at = skip(text, end, |c| matches!(c, '"' | '\'' | '`' | '\\' | ']'));
        // Each of them is a run of its own, so that more of them would be looked at again and again.
        for _ in 0..4 {
            if let Some(closer) = CLOSERS.iter().find(|c| text[at..].starts_with(**c)) {
                at += closer.len();
            }
        }
        let quoted = at > end;
        // `password?: string`
        at += usize::from(text[at..].starts_with("?:"));
        at = skip_blanks(text, at);
        if text[at..].starts_with('(')
            && let Some(i) = ahead(text, at, 24).find(')')
        {
            // `password (old): x`
            at = skip_blanks(text, at + i + 1);
        }
        let rest = &text[at..];
        let (mark, style) = MARKS.iter().find(|(mark, _)| rest.starts_with(mark))?;
        let after = &rest[mark.len()..];
        let colon = mark.starts_with(':') && mark.len() == 1 || *mark == "\u{ff1a}";
        // A path (`auth::login`), a URL.
        if colon && (after.starts_with(':') || after.starts_with("//")) {
            return None;
        }
        Some(Self {
            quoted,
            colon,
            style: *style,
            end: at + mark.len(),
        })
    }
}

pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let text = scan.text;
    let mark = Mark::after(text, run.end)?;
    let name = &*name(scan, run, &mark);
    let strength = scan.rules.strength(name);
    if strength == Strength::Harmless && !is_signature(name, &mark) {
        return None;
    }
    if is_working_directory(name, &text[mark.end..]) {
        return None;
    }
    let start = skip_blanks(text, mark.end);
    let bare = !mark.quoted && !text[start..].starts_with(['"', '\'', '`', '\\', '\u{201c}']);
    if is_header(name) && bare {
        return header(scan, run, start);
    }
    if let Some(lines) = lines_below(text, run, start, strength, &mark) {
        return lines;
    }
    let secret = value::glance(text, start, mark.style);
    let found = judge(scan, run, name, strength, &mark, start, secret)?;
    Some(value::whole(text, start, mark.style, found))
}

/// Whether the value beside a sensitive name is a secret, and what of it.
fn judge(
    scan: &Scan<'_>,
    run: Run,
    name: &str,
    strength: Strength,
    mark: &Mark,
    start: usize,
    secret: Range<usize>,
) -> Option<Range<usize>> {
    let text = scan.text;
    let bare = !mark.quoted && !text[start..].starts_with(['"', '\'', '`', '\\', '\u{201c}']);
    let word = first_word(&text[secret.clone()]);
    if mark.quoted || !bare {
        // `"key": "password", "value": "x"`: the name of what follows.
        if let Some(value) = field::announced(scan, run, &secret) {
            return Some(value);
        }
    }
    if is_null(&text[secret.clone()]) || is_placeholder(&text[secret.clone()]) {
        return None;
    }
    if mark.style == Style::Encoded || mark.quoted {
        return Some(secret);
    }
    if mark.colon {
        return colon(scan, run, name, strength, secret, bare);
    }
    if bare && is_expression(text, name, &secret, strength) {
        return None;
    }
    if strength != Strength::Strong && is_weak_word(name) && !in_query(scan, run) {
        let tuple = text[start..].starts_with(['(', '[']) && name.eq_ignore_ascii_case("auth");
        return (tuple || looks_secret(word) || super::look::is_mixed(word))
            .then(|| whole_line(text, run, secret));
    }
    Some(whole_line(text, run, secret))
}

/// `name: value`, which prose has as well.
fn colon(
    scan: &Scan<'_>,
    run: Run,
    name: &str,
    strength: Strength,
    secret: Range<usize>,
    bare: bool,
) -> Option<Range<usize>> {
    let text = scan.text;
    let value = &text[secret.clone()];
    let first = first_word(value);
    if bare && let Some(typed) = typed(text, secret.start) {
        return typed;
    }
    if bare && (is_prose(first) || first.is_empty()) && !is_one_of(first, SCHEMES) {
        return None;
    }
    let port = value.len() <= 5 && value.bytes().all(|b| b.is_ascii_digit());
    let place = secret.start == run.end + 1 && value.starts_with(|c: char| c.is_ascii_digit());
    let announces = match strength {
        Strength::Strong if name.eq_ignore_ascii_case("pass") => {
            looks_secret(first) || super::look::is_mixed(first) || !bare || is_indented(text, run)
        }
        Strength::Strong => !(port && place && !holds_password(name)),
        _ if follows_kind(text, run) => true,
        _ => looks_secret(value) && !place && !is_failure(name),
    };
    announces.then(|| whole_line(text, run, secret))
}

/// `password: str = "x"`: a type stands between the name and the value. `Some(None)` if the value is
/// no secret.
fn typed(text: &str, start: usize) -> Option<Option<Range<usize>>> {
    const TYPES: &[&str] = &[
        "str",
        "string",
        "option",
        "optional",
        "secretstr",
        "secretstring",
        "text",
        "char",
        "varchar",
        "any",
        "bytes",
        "vec",
        "u8",
        "static",
        "int",
        "u64",
        "i64",
        "null",
        "none",
        "undefined",
        "box",
        "cow",
        "a",
        "unknown",
        "object",
    ];
    let part = |c: char| {
        c.is_alphanumeric()
            || matches!(
                c,
                '&' | '<' | '>' | '\'' | '[' | ']' | '|' | '_' | ' ' | '.' | '?' | '*'
            )
    };
    let near = ahead(text, start, 64);
    let sign = skip(near, 0, part);
    let is_set = near[sign..].starts_with('=')
        && !near[sign..].starts_with("==")
        && near[..sign].ends_with(' ');
    if !is_set || sign == 0 {
        return None;
    }
    let mut words = near[..sign]
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty());
    let from = skip_blanks(text, start + sign + 1);
    let secret = value::glance(text, from, Style::Plain);
    let secret = value::whole(text, from, Style::Plain, secret);
    if !words.all(|word| is_one_of(word, TYPES)) {
        return Some(Some(start..secret.end));
    }
    let shown = &text[secret.clone()];
    Some((!is_null(shown) && !is_placeholder(shown)).then_some(secret))
}

/// The name in a run: what follows its last slash, its escapes taken for what they are.
fn name<'a>(scan: &Scan<'a>, run: Run, mark: &Mark) -> Cow<'a, str> {
    let word = scan.word(run);
    let before = scan.before(run);
    if mark.quoted && before.ends_with('\\') && word.starts_with('u') || before.ends_with("\\u") {
        return Cow::Owned(unescaped(scan, run));
    }
    let name = word.rsplit('/').next().unwrap_or(word);
    // `user[password]=x` has its name in the brackets; `headers["x"]` as well.
    Cow::Borrowed(name)
}

/// `pass\u0077ord`, read from the quote before it.
fn unescaped(scan: &Scan<'_>, run: Run) -> String {
    let near = behind(scan.text, run.end, 256);
    let from = near.rfind(['"', '\'', ' ', '{', ',']).map_or(0, |i| i + 1);
    let mut out = String::new();
    let mut rest = &near[from..];
    while let Some(c) = rest.chars().next() {
        let code = rest
            .strip_prefix("\\u")
            .and_then(|hex| hex.get(..4))
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
            .and_then(char::from_u32);
        out.push(code.unwrap_or(c));
        rest = &rest[code.map_or(c.len_utf8(), |_| 6)..];
    }
    out
}

fn is_signature(name: &str, mark: &Mark) -> bool {
    let suffix = name.len().checked_sub(9).and_then(|i| name.get(i..));
    !mark.colon && suffix.is_some_and(|s| s.eq_ignore_ascii_case("signature"))
}

/// `PWD=/home/ada` of an environment.
fn is_working_directory(name: &str, value: &str) -> bool {
    matches!(name, "PWD" | "OLDPWD" | "pwd")
        && value
            .trim_start_matches(['"', '\'', ' '])
            .starts_with(['/', '~'])
}

fn is_null(value: &str) -> bool {
    is_one_of(value, &["null", "none", "nil", "undefined", "None,"])
}

fn first_word(value: &str) -> &str {
    value
        .split(|c: char| c.is_whitespace())
        .next()
        .unwrap_or(value)
}

fn holds_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("pass")
        || name.contains("secret")
        || name.contains("pin")
        || name.contains("otp")
        || name.contains("cv")
}

/// `KeyError: 'x'`, `missing key: x`.
fn is_failure(name: &str) -> bool {
    let ends = |end: &str| {
        name.len() >= end.len()
            && name.is_char_boundary(name.len() - end.len())
            && name[name.len() - end.len()..].eq_ignore_ascii_case(end)
    };
    [
        "error",
        "exception",
        "err",
        "failure",
        "missing",
        "invalid",
        "expired",
    ]
    .into_iter()
    .any(ends)
}

/// `api key: x`, `access token: x`.
fn follows_kind(text: &str, run: Run) -> bool {
    let before = behind(text, run.at, 24);
    let kind = before
        .strip_suffix(' ')
        .map(|s| s.rsplit(|c: char| !c.is_alphanumeric()).next());
    let kinds = [
        "api",
        "access",
        "secret",
        "private",
        "auth",
        "session",
        "refresh",
        "client",
        "master",
        "encryption",
        "signing",
        "bot",
        "license",
    ];
    kind.flatten().is_some_and(|kind| is_one_of(kind, &kinds))
}

/// Names that code has for many other things.
fn is_weak_word(name: &str) -> bool {
    is_one_of(name, &["key", "keys", "auth"])
}

/// `?key=x`, `&key=x`, `--key=x`.
fn in_query(scan: &Scan<'_>, run: Run) -> bool {
    scan.before(run).ends_with(['?', '&', '#']) && !scan.before(run).ends_with("&&")
        || scan.word(run).starts_with('-')
}

/// Whether the value is code that gets a secret from elsewhere: `process.env.TOKEN`, `lexer.next()`.
fn is_expression(text: &str, name: &str, value: &Range<usize>, strength: Strength) -> bool {
    const ROOTS: &[&str] = &[
        "process.env",
        "os.environ",
        "os.getenv",
        "getenv(",
        "env::var",
        "std::env",
        "System.getenv",
        "self.",
        "this.",
        "config.",
        "settings.",
        "req.",
        "request.",
        "ENV[",
        "args.",
        "opts.",
        "options.",
        "import.meta.env",
        "secrets.",
        "vault.",
        "getpass",
        "input(",
        "env(",
        "$ENV",
    ];
    let shown = &text[value.clone()];
    if ROOTS.iter().any(|root| shown.starts_with(root)) && !shown.contains(['"', '\''])
        || ROOTS
            .iter()
            .any(|root| shown.starts_with(root) && root.contains("env"))
    {
        return true;
    }
    let plain = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    let open = shown.find(['(', '[']).unwrap_or(shown.len());
    let path = &shown[..open];
    strength != Strength::Strong
        && !path.is_empty()
        && (path.contains('.') || open < shown.len())
        && path
            .trim_end_matches('?')
            .split(['.', ':'])
            .filter(|s| !s.is_empty())
            .all(plain)
        && !path.starts_with(char::is_uppercase)
        && !name.starts_with('-')
        && shown.len() < 120
        && !super::look::is_random(path)
}

/// Headers whose value is a secret as a whole, its scheme included.
fn is_header(name: &str) -> bool {
    let ends = |end: &str| {
        name.len()
            .checked_sub(end.len())
            .and_then(|i| name.get(i..))
            .is_some_and(|s| s.eq_ignore_ascii_case(end))
    };
    ends("authorization") || ends("cookie") || ends("cookie2")
}

/// The value of a header: to the end of its line and of those folded under it, or to the quote that was
/// opened before the header.
fn header(scan: &Scan<'_>, run: Run, start: usize) -> Option<Range<usize>> {
    let text = scan.text;
    let first = first_word(ahead(text, start, 64));
    let second = skip_blanks(text, start + first.len());
    let shown = if is_one_of(first, SCHEMES) {
        first_word(ahead(text, second, 64))
    } else {
        first
    };
    let shown = shown.trim_end_matches(['"', '\'', ',']);
    if is_prose(first) && !is_one_of(first, SCHEMES) || is_placeholder(shown) && !shown.is_empty() {
        return None;
    }
    let quote = scan
        .before(run)
        .chars()
        .next_back()
        .filter(|c| matches!(c, '"' | '\'' | '`'));
    if let Some(quote) = quote {
        let end = text[start..].find([quote, '\n', '\r']);
        let end = end.map_or(text.len(), |i| start + i);
        return Some(start..end - usize::from(text[start..end].ends_with('\\')));
    }
    Some(start..header_end(text, start))
}

/// The end of a header's lines.
fn header_end(text: &str, start: usize) -> usize {
    let mut at = start;
    loop {
        at = skip(text, at, |c| !matches!(c, '\n' | '\r' | '\\' | '"'));
        let rest = &text[at..];
        let folded = ["\n ", "\n\t", "\r\n ", "\r\n\t"]
            .iter()
            .any(|fold| rest.starts_with(fold));
        if folded {
            at += 2;
        } else if rest.starts_with('"') && (text[..at].ends_with('=') || at == start) {
            // `response="x"`
            at = rest[1..]
                .find(['"', '\n'])
                .map_or(text.len(), |i| at + 1 + i);
            at += usize::from(text[at..].starts_with('"'));
        } else if rest.starts_with('\\') && !rest[1..].starts_with(['n', 'r', '"']) {
            // A line's end may be escaped: the text stands in a string of another.
            at += 1;
        } else {
            return at;
        }
    }
}

/// A value that stands in the lines below its name: a YAML block, mapping or list. `Some(None)` if
/// there is no value.
#[expect(clippy::option_option, reason = "not here, and certainly not")]
fn lines_below(
    text: &str,
    run: Run,
    start: usize,
    strength: Strength,
    mark: &Mark,
) -> Option<Option<Range<usize>>> {
    let rest = ahead(text, start, 64);
    let head = &rest[..rest.find('\n')?];
    let sign = head.trim_end();
    let block = sign.starts_with(['|', '>'])
        && sign[1..]
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '+' | '-'));
    if !block && !sign.is_empty() || mark.style == Style::Encoded {
        return None;
    }
    if !block && !mark.quoted && strength != Strength::Strong && !is_config_line(text, run) {
        return Some(None);
    }
    let line = last_line(behind(text, run.at, 512));
    let own = indent(line)
        + if line.trim_start().starts_with("- ") {
            2
        } else {
            0
        };
    let first = start + head.len() + 1;
    let (mut from, mut at) = (None, first);
    while at < text.len() {
        let end = text[at..].find('\n').map_or(text.len(), |i| at + i);
        let line = &text[at..end];
        let blank = line.trim().is_empty();
        let list = !block && line.trim_start().starts_with("- ") && indent(line) >= own;
        if !blank && indent(line) <= own && !list {
            break;
        }
        if !blank && from.is_none() {
            from = Some(at + indent(line));
        }
        if !blank {
            at = end;
            from = from.map(|from| from.min(at));
        }
        if at != end {
            at = end;
        }
        if at < text.len() {
            at += 1;
        }
    }
    let Some(from) = from else {
        return Some(if mark.colon || block {
            None
        } else {
            return None;
        });
    };
    let end = from + text[from..at].trim_end().len();
    Some(Some(from..end))
}

/// Whether the run is the first thing in its line, a list's dash aside.
fn is_config_line(text: &str, run: Run) -> bool {
    let line = last_line(behind(text, run.at, 256));
    line.chars().all(|c| matches!(c, ' ' | '\t' | '-'))
}

/// Whether the run begins a line that is indented: of a file of settings.
fn is_indented(text: &str, run: Run) -> bool {
    is_config_line(text, run) && text[..run.at].ends_with([' ', '\t'])
}

/// The value of a line in a file of settings: `password = correct horse`. In one line of prose only the
/// first word is the value.
fn whole_line(text: &str, run: Run, secret: Range<usize>) -> Range<usize> {
    let line = last_line(behind(text, run.at, 256)).trim_start();
    let alone = line.is_empty() || line == "export " || line == "set ";
    let rest = ahead(text, secret.end, 256);
    let end = rest.find(['\n', '\r']).unwrap_or(rest.len());
    let among =
        run.at > 0 && text[..run.at].contains('\n') || rest[end..].starts_with(['\n', '\r']);
    let tail = &rest[..end];
    let plain = tail.starts_with(' ')
        && !tail.contains(['=', ':', '"', '\'', '{', '}', '#', ';', '&', '|']);
    if alone && among && plain {
        secret.start..secret.end + tail.trim_end().len()
    } else {
        secret
    }
}

/// `--password x`, `-token x`.
pub(super) fn flag(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let (text, word) = (scan.text, scan.word(run));
    let name = word.trim_start_matches('-');
    let quoted = skip(text, run.end, |c| matches!(c, '"' | '\'' | '\\' | ','));
    let start = skip(text, quoted, |c| {
        c.is_whitespace() || c == '\\' && text[run.end..].starts_with('\\')
    });
    if name.len() == word.len() || start == run.end || quoted == start && quoted == run.end {
        return None;
    }
    if name.is_empty() || !scan.rules.is_sensitive_key(name) {
        return None;
    }
    let secret = value::glance(text, start, Style::Plain);
    let value = &text[secret.clone()];
    let prose = is_prose(value) || value.starts_with('-') || is_placeholder(value);
    (!prose).then(|| value::whole(text, start, Style::Plain, secret))
}

/// Whether `text` holds a name that a value may follow: for those who look at whole strings.
pub(super) fn is_name(scan: &Scan<'_>, name: &str) -> bool {
    let name = strip_ignore_case(name, "env:").unwrap_or(name);
    name.len() <= 64 && !name.contains(' ') && scan.rules.is_sensitive_key(name)
}
