//! What words look like.

use super::bytes::is_one_of;
use crate::redact::REDACTED;

/// Words that stand in prose after `password`, `token`, `Bearer` and the like.
#[rustfmt::skip]
const PROSE: &[&str] = &[
    "token", "tokens", "auth", "authentication", "authorization", "authorized", "scheme", "schemes", "realm", "header", "headers",
    "is", "was", "are", "were", "be", "been", "of", "or", "and", "not", "no", "required", "missing", "invalid", "expired", "expires",
    "format", "credential", "credentials", "error", "errors", "type", "types", "for", "in", "on", "at", "by", "to", "from", "with",
    "without", "the", "a", "an", "as", "has", "have", "had", "must", "may", "can", "cannot", "can't", "could", "should", "shall", "will",
    "would", "does", "did", "do", "doesn't", "isn't", "wasn't", "too", "incorrect", "wrong", "bad", "empty", "null", "nil", "none",
    "undefined", "unset", "set", "unknown", "unexpected", "field", "value", "values", "string", "number", "boolean", "object", "array",
    "integer", "param", "parameter", "parameters", "argument", "provided", "supplied", "given", "found", "failed", "failure",
    "rejected", "denied", "revoked", "refused", "accepted", "valid", "validation", "malformed", "mismatch", "matches", "match", "but",
    "if", "when", "that", "this", "it", "your", "you", "we", "our", "their", "his", "her", "its", "already", "exists", "longer",
    "shorter", "should", "needs", "need", "reset", "changed", "updated", "please", "check", "use", "using", "used", "only", "true", "yes", "ok",
    "false", "hidden", "redacted", "masked", "omitted", "optional", "default", "because", "after", "before", "until", "you're",
    "expected", "got", "received", "file", "files", "path", "flag", "option", "name", "id", "length", "size", "limit", "count", "per",
    "access", "strength", "policy", "manager", "server", "service", "endpoint", "url", "request", "response", "grant", "basic",
    "bearer", "digest", "protected", "management", "exchange", "refresh", "rotation", "issued", "identifier",
    "str", "int", "bool", "float", "bytes", "any", "optional", "char", "varchar", "text", "integer", "serial", "uuid", "timestamp",
];

/// Whether `word` is one of prose's own, a full stop or comma after it aside.
pub(super) fn is_prose(word: &str) -> bool {
    is_one_of(
        word.trim_end_matches(['.', ',', ':', ';', '!', '?', ')']),
        PROSE,
    )
}

/// Whether a word stands for a secret that is not there: `***`, `...`, `<token>`, `${TOKEN}`, `{{ token }}`.
pub(super) fn is_placeholder(word: &str) -> bool {
    let hidden = |c: char| {
        matches!(
            c,
            '*' | '.' | '\u{2022}' | '\u{2026}' | '-' | '_' | '?' | 'x' | 'X'
        )
    };
    let name = |s: &str| {
        !s.is_empty()
            && s.len() <= 40
            && s.bytes()
                .all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-' | b' ' | b'.'))
    };
    let inside = |open: &str, close: &str| {
        word.strip_prefix(open)
            .and_then(|s| s.strip_suffix(close))
            .is_some_and(|s| name(s.trim()))
    };
    let variable = word
        .strip_prefix('$')
        .is_some_and(|s| s.len() >= 2 && s.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'));
    variable
        || !word.is_empty() && word.chars().all(hidden)
        || word.starts_with("...[truncated]")
        || inside("<", ">")
        || inside("${", "}")
        || inside("{{", "}}")
}

/// What letters and digits a word has.
#[derive(Default)]
struct Make {
    len: usize,
    digits: usize,
    lower: bool,
    inner_upper: bool,
    /// How often letters and digits change places.
    changes: usize,
    blank: bool,
}

impl Make {
    fn of(word: &str) -> Self {
        let mut make = Self::default();
        let mut before: Option<bool> = None;
        for c in word.chars().take(256) {
            let digit = c.is_ascii_digit();
            make.inner_upper |= make.len > 0 && c.is_uppercase();
            make.len += 1;
            make.digits += usize::from(digit);
            make.lower |= c.is_lowercase();
            make.blank |= c.is_whitespace();
            if c.is_alphanumeric() {
                make.changes += usize::from(before.is_some_and(|b| b != digit));
                before = Some(digit);
            }
        }
        make
    }
}

fn trim(word: &str) -> &str {
    word.trim_matches(|c: char| {
        matches!(
            c,
            '"' | '\'' | '`' | '\\' | '.' | ',' | ':' | '!' | ')' | '('
        )
    })
}

/// Whether a word is no word of prose: long, with a digit or with capitals inside.
pub(super) fn looks_secret(word: &str) -> bool {
    let make = Make::of(trim(word));
    !word.contains(REDACTED)
        && !make.blank
        && (make.len >= 32 || make.len >= 8 && (make.digits > 0 || make.lower && make.inner_upper))
}

/// Whether a word of prose is a secret after a word that names one: letters and digits or signs mixed.
pub(super) fn is_mixed(word: &str) -> bool {
    let word = trim(word);
    let make = Make::of(word);
    let signs = word.contains(['!', '#', '$', '%', '^', '&', '*', '@']);
    let letters = make.len > make.digits && word.contains(|c: char| c.is_alphabetic());
    !word.contains(REDACTED)
        && !make.blank
        && make.len >= 4
        && letters
        && (make.digits > 0 || signs)
}

/// Whether a word is random: not one that only ends in a number, nor a path, a date or a name with marks.
pub(super) fn is_random(word: &str) -> bool {
    let word = trim(word);
    let make = Make::of(word);
    let named = word.contains(['.', '/', ':', '@', '(', '=']);
    let letters = word.contains(|c: char| c.is_ascii_alphabetic());
    let plain = word.bytes().all(|b| b.is_ascii_alphanumeric());
    !named
        && !word.contains(REDACTED)
        && letters
        && (make.changes >= 3 && make.len >= 8
            || plain && make.len >= 16 && make.digits > 0
            || plain && make.len >= 20 && make.inner_upper && make.lower)
}

/// `550e8400-e29b-41d4-a716-446655440000`
pub(super) fn is_uuid(word: &str) -> bool {
    let lens = [8, 4, 4, 4, 12];
    let mut parts = trim(word).split('-');
    let hex = |s: &str, len| s.len() == len && s.bytes().all(|b| b.is_ascii_hexdigit());
    lens.iter()
        .all(|len| parts.next().is_some_and(|s| hex(s, *len)))
        && parts.next().is_none()
}

/// Whether a value says that there is none.
pub(super) fn is_null(value: &str) -> bool {
    is_one_of(value, &["null", "none", "nil", "undefined", "None,"])
}

/// The first word of a value.
pub(super) fn first_word(value: &str) -> &str {
    value
        .split(|c: char| c.is_whitespace())
        .next()
        .unwrap_or(value)
}
