//! Code that has a name and no secret beside it.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, is_one_of, skip, skip_blanks},
    look::{is_mixed, is_null, is_placeholder, is_prose, is_random, looks_secret},
    value::{self, Style},
};
use crate::redact::keys::Strength;

/// `password: str = "x"`: a type stands between the name and the value. Empty if the value is
/// no secret.
pub(super) fn typed(text: &str, start: usize) -> Option<Range<usize>> {
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
        return Some(start..secret.end);
    }
    let shown = &text[secret.clone()];
    let absent = is_null(shown) || is_placeholder(shown);
    Some(if absent { start..start } else { secret })
}

/// `ApiKey("x")`, `Token(\n "x",\n)`: how Rust and others print a value that has a type of its own.
pub(super) fn newtype(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const TYPES: &[&str] = &[
        "token", "key", "secret", "password", "passphrase", "credential", "credentials", "auth", "cookie", "bearer",
        "jwt", "pin", "otp", "secretstr", "secretstring", "pass", "passcode",
    ];
    let (text, name) = (scan.text, scan.word(run));
    let name = name.rsplit('.').next().unwrap_or(name);
    if !scan.after(run).starts_with('(') || !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let start = skip(text, run.end + 1, char::is_whitespace);
    if !text[start..]
        .trim_start_matches('\\')
        .starts_with(['"', '\''])
    {
        return None;
    }
    let strength = scan.rules.strength(name);
    if strength == Strength::Harmless || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let secret = value::glance(text, start, Style::Plain);
    let shown = &text[secret.clone()];
    let typed = TYPES.iter().any(|noun| lower.ends_with(noun));
    let sure = strength == Strength::Strong || looks_secret(shown) || is_mixed(shown);
    let absent = shown.is_empty() || is_placeholder(shown) || is_prose(shown);
    (typed && sure && !absent).then(|| value::whole(text, start, Style::Plain, secret))
}

/// Whether the value is read from the environment: `process.env.API_KEY`, `os.environ["API_KEY"]`.
pub(super) fn is_environment(value: &str) -> bool {
    #[rustfmt::skip]
    const READERS: &[&str] = &[
        "process.env.", "import.meta.env.", "os.environ[", "os.getenv(", "Deno.env.get(",
    ];
    READERS.iter().any(|reader| value.starts_with(reader))
}

/// Whether the value is code that gets a secret from elsewhere: `process.env.TOKEN`, `lexer.next()`.
pub(super) fn is_expression(
    text: &str,
    name: &str,
    value: &Range<usize>,
    strength: Strength,
) -> bool {
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
    // `self.token = token;`
    let same = shown.trim_end_matches(';');
    if name.ends_with(same)
        && name.len() > same.len()
        && is_one_of(same, &["token", "key", "auth", "password", "secret"])
    {
        return true;
    }
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
        && !is_random(path)
}
