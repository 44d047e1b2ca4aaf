//! Code that has a name and no secret beside it.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, is_one_of, last_line, skip, skip_blanks},
    look::{is_mixed, is_null, is_placeholder, is_prose, is_random, looks_secret},
    quote::Quote,
    value::{self, Style},
};
use crate::redact::keys::{self, Strength};

/// `password: str = "x"`: a type stands between the name and the value. Empty if there is no secret.
pub(super) fn typed(text: &str, run: Run, start: usize) -> Option<Range<usize>> {
    #[rustfmt::skip]
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
                '&' | '<' | '>' | '\'' | '[' | ']' | '|' | '_' | ' ' | '.' | '?' | '*' | ':' | '!'
            )
    };
    let code = is_code_line(text, run);
    let near = ahead(text, start, 64);
    let sign = skip(near, 0, part);
    let rest = &near[sign..];
    let words = || {
        let words = near[..sign].split(|c: char| !c.is_alphanumeric() && c != '_');
        words.filter(|w| !w.is_empty())
    };
    let set = rest.starts_with('=') && !rest.starts_with("==") && near[..sign].ends_with(' ');
    if !set || sign == 0 {
        let pointer = ["&mut ", "*mut ", "*const ", "&'", "&dyn "];
        let pointer = pointer.iter().any(|p| near.starts_with(p));
        let end = rest.starts_with([',', ')', ';', '=', '{', '(']) || rest.is_empty();
        let plain = sign > 0 && words().all(|word| !is_mixed(word) || is_primitive(word));
        return (code && plain && end || pointer).then_some(start..start);
    }
    let from = skip_blanks(text, start + sign + 1);
    let secret = value::glance(text, from, Style::Plain);
    let secret = value::whole(text, from, Style::Plain, secret);
    if !code && !words().all(|word| is_one_of(word, TYPES)) {
        return Some(start..secret.end);
    }
    let shown = &text[secret.clone()];
    let quoted = text[from..].starts_with(['"', '\'', '`']);
    let number = code && !quoted && shown.bytes().next().is_some_and(|b| b.is_ascii_digit());
    let absent = is_null(shown)
        || is_placeholder(shown)
        || number
        || !quoted && is_reference(text, &secret, Strength::Strong);
    Some(if absent { start..start } else { secret })
}

fn is_primitive(word: &str) -> bool {
    let digits = word.trim_start_matches(['u', 'i', 'f', '_', 'n', 't']);
    matches!(
        digits,
        "8" | "16" | "32" | "64" | "128" | "8_t" | "16_t" | "32_t" | "64_t"
    )
}

/// Whether the line up to the run is one of a program that declares something.
fn is_code_line(text: &str, run: Run) -> bool {
    #[rustfmt::skip]
    const KEYWORDS: &[&str] = &[
        "let", "const", "pub", "fn", "static", "mut", "def", "function", "var", "val", "private",
        "public", "final", "readonly",
    ];
    let line = last_line(behind(text, run.at, 160));
    line.split(|c: char| !c.is_alphanumeric())
        .any(|word| KEYWORDS.contains(&word))
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
    if strength <= Strength::Described || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let secret = value::glance(text, start, Style::Plain);
    let shown = &text[secret.clone()];
    let typed = TYPES.iter().any(|noun| lower.ends_with(noun));
    let sure = strength == Strength::Strong || looks_secret(shown) || is_mixed(shown);
    let absent = shown.is_empty() || is_placeholder(shown) || is_prose(shown);
    if !typed || absent {
        return None;
    }
    // `NetworkCredential("user", "x")`: the secret is the second.
    let comma = skip(text, secret.end, |c| matches!(c, '"' | '\'' | '\\'));
    if lower.contains("credential") && text[comma..].starts_with(',') {
        let start = skip(text, comma + 1, char::is_whitespace);
        return Quote::at(text, start).map(|_| value::extent(text, start, Style::Plain));
    }
    sure.then(|| value::whole(text, start, Style::Plain, secret))
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
    let shown = &text[value.clone()];
    // `self.token = token;`
    let same = shown.trim_end_matches(';');
    let assigned = name
        .strip_suffix(same)
        .is_some_and(|head| head.ends_with(['.', '_', '-', '>']));
    assigned || is_reference(text, value, strength) || is_cmdlet(text, value)
}

/// Whether the value names a place where a secret is, or calls for one, and shows none: `var.db_password`,
/// `$(cat file)`, `input("Password: ")`.
fn is_reference(text: &str, value: &Range<usize>, strength: Strength) -> bool {
    #[rustfmt::skip]
    const ROOTS: &[&str] = &[
        "process.env", "os.environ", "os.getenv", "os.Getenv", "getenv(", "env::var", "std::env", "System.getenv", "self.", "this.",
        "config.", "settings.", "req.", "request.", "ENV[", "args.", "opts.", "options.", "import.meta.env", "secrets.", "vault.",
        "getpass", "input(", "env(", "$ENV", "var.", "local.", "data.", "module.", "params.", "props.", "state.", "ctx.",
    ];
    #[rustfmt::skip]
    const KEYWORDS: &[&str] = &[
        "unsafe", "await", "new", "match", "if", "async", "move", "return", "typeof", "function", "class", "lambda", "void", "yield", "not",
    ];
    let shown = &text[value.clone()];
    let rest = &text[value.end..];
    let function = rest.starts_with(" => ") || rest.starts_with(" =>\n");
    if KEYWORDS.contains(&shown) && rest.starts_with(' ') || shown.starts_with("$(") || function {
        return true;
    }
    // `$self->token`, `$Config::token`
    if let Some(name) = text[value.start..].strip_prefix('$') {
        let name = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        return ["->", "::", "[", "{"]
            .iter()
            .any(|mark| name.starts_with(mark));
    }
    let root = ROOTS.iter().any(|root| shown.starts_with(root));
    if shown.len() >= 240 {
        return root && !shown.contains(['"', '\'']);
    }
    let sure = strength == Strength::Strong;
    let open = shown.find(['(', '[', '{']).unwrap_or(shown.len());
    let path = shown[..open].trim_end_matches(['!', '?', ';', ' ']);
    let called = open < shown.len() || shown[..open].ends_with('!') && rest.starts_with(" {");
    let plain = |s: &str| {
        let part = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let named = s.bytes().all(part) && !s.starts_with(|c: char| c.is_ascii_digit());
        named && !is_mixed(s.trim_end_matches(|c: char| c.is_ascii_digit()))
    };
    let parted = path.contains('.') || path.contains("::");
    let parts = path.split(['.', ':', '?', '!']).filter(|s| !s.is_empty());
    if path.is_empty() || !parts.clone().all(plain) || is_random(path) {
        return root && !shown.contains(['"', '\'']);
    }
    let constructs = path.starts_with(char::is_uppercase) && !path.contains('.');
    if called {
        return (!constructs || !shown.contains(['"', '\''])) && !has_literal(&shown[open..], sure);
    }
    // `DB_PASSWORD=secret.garden` and `password: correct.secret.horse` are settings.
    let before = if sure {
        parts.clone().count().saturating_sub(1)
    } else {
        0
    };
    let named = parts
        .skip(before)
        .any(|part| keys::strength(part, None) != Strength::Harmless);
    let code = !sure || text[..value.start].ends_with(' ') || rest.starts_with([')', ',']);
    root || parted && (code && (path.contains("::") || named) || !sure && !constructs)
}

/// Whether the value of a name that may be anything is one of a program: `token = next`, `tokens = {` over lines,
/// `cookie.path = x`, `ERROR_TOKEN = 58`.
pub(super) fn is_assignment(text: &str, name: &str, value: &Range<usize>) -> bool {
    let shown = &text[value.clone()];
    let apart = text[..value.start].ends_with(' ');
    let last = name.rsplit('.').next().unwrap_or(name);
    let word = shown.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') && !is_random(shown);
    let number = shown.len() <= 5 && shown.bytes().all(|b| b.is_ascii_digit());
    let lines = shown.starts_with(['{', '[', '(']) && shown.contains('\n');
    let member = last.len() < name.len() && keys::strength(last, None) == Strength::Harmless;
    apart && (word || number || lines) || member
}

/// Whether a string among arguments may be a secret: in the call that a `sure` secret comes from, each that is no
/// name, prompt or path.
fn has_literal(arguments: &str, sure: bool) -> bool {
    let mut at = 0;
    while let Some(i) = arguments[at..].find(['"', '\'', '\\']) {
        at += i;
        let Some(quote) = Quote::at(arguments, at) else {
            at += 1;
            continue;
        };
        let from = at + quote.len();
        let Some(close) = quote.close(arguments, from) else {
            return true;
        };
        let literal = &arguments[from..close.start];
        let names = literal.contains([' ', '/', '_', '-'])
            || keys::strength(literal, None) != Strength::Harmless;
        if looks_secret(literal) && !literal.contains(['_', '-'])
            || is_mixed(literal)
            || sure && !names && literal.len() > 3
        {
            return true;
        }
        at = close.end;
    }
    false
}

/// Whether the value is a command of PowerShell: `$x = Read-Host -AsSecureString`.
fn is_cmdlet(text: &str, value: &Range<usize>) -> bool {
    #[rustfmt::skip]
    const VERBS: &[&str] = &[
        "Get", "New", "Read", "Import", "ConvertTo", "ConvertFrom", "Invoke", "Select", "Join", "Unprotect",
    ];
    let noun =
        |s: &str| s.starts_with(char::is_uppercase) && s.bytes().all(|b| b.is_ascii_alphabetic());
    let verb = text[value.clone()].split_once('-');
    verb.is_some_and(|(verb, rest)| VERBS.contains(&verb) && noun(rest))
        && last_line(behind(text, value.start, 64)).contains('$')
}
