//! The shapes of code, schemas and documents: values beside the names of secrets that are none.

use super::{name::*, prelude::*};
use crate::REDACTED;

/// The shape of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A value with a part that may be a secret.
    Secret,
    /// `true`, `0x08`, `48u16`.
    Literal,
    /// One word without a mark: `swordfish`, `key2`.
    Word,
    /// Words with marks that names, paths and addresses have: `first_key`, `PartialEq`, `c/d.pem`.
    Name,
    /// `%s`, `{key:?}`, `<name>`.
    Format,
    /// Operators, brackets, calls and types: `*key`, `f(x)`, `[u8; 32]`, `a::B<C>`.
    Code,
    /// A mapping that says what a secret is like: `{"type": "string"}`.
    Schema,
}

/// The shape of a value, of its beginning if it is long.
pub(super) fn of(value: &str) -> Shape {
    let value = value.trim().trim_end_of(";,:");
    if is_schema(value) {
        return Shape::Schema;
    }
    if value.holds(REDACTED) {
        return Shape::Secret;
    }
    if value.starts_with("arn:aws") {
        return Shape::Format;
    }
    if is_date(value) || is_literal(value) {
        return Shape::Literal;
    }
    let rest = without_directives(value);
    let directives = rest.len() < value.len();
    if has_statements(value) {
        return Shape::Code;
    }
    let among = value.has_of("(_ .:*");
    let called = rest.find_of("(").unwrap_or(0);
    let path = is_made_of(&rest[..called], "_.:!<>&*?") && !pieces(&rest[..called]).any(alternates);
    let parts = if path { &rest[called..] } else { &rest };
    if !pieces(parts).all(|piece| is_plain(piece, among)) {
        return Shape::Secret;
    }
    if directives && (pieces(&rest).next().is_none() || rest.has_of(" ")) {
        return Shape::Format;
    }
    if has_sign_inside(value) {
        return Shape::Secret;
    }
    let code = |c: char| "()[]{}<>*&|=!?+$%^;\\#".contains(c);
    let name = |c: char| "_./-:@, ".contains(c);
    match () {
        () if value.is_empty() || value.contains(code) || value.holds("::") => Shape::Code,
        () if value.contains(name) || is_camel(value) => Shape::Name,
        () => Shape::Word,
    }
}

/// Returns whether a value beside a name is of a shape that secrets with this name do not have.
pub(super) fn is_innocent(value: &str, name: &str) -> bool {
    let sure = keys::is_sure(name);
    match of(value) {
        Shape::Secret => false,
        Shape::Format | Shape::Schema => true,
        _ if is_header(name) => false,
        Shape::Literal | Shape::Word if holds_password(name) && has_digit(value) => false,
        Shape::Literal => !holds_password(name),
        Shape::Code | Shape::Name => !sure,
        Shape::Word => !sure && keys::is_vague(name),
    }
}

/// Returns whether a value has a part that may be a secret.
pub(super) fn has_secret(value: &str) -> bool {
    of(value) == Shape::Secret
}

/// Returns whether what follows a value is that of a program.
pub(super) fn ends_code(rest: &str) -> bool {
    #[rustfmt::skip]
    const ENDS: &[&str] = &[";\n", "; ", ");", "),", ",\n", ")\n", " {", "<", "?;", " =>", " as ", ").", ", ", ")", ".", ":\n"];
    prefix_of(rest, ENDS).is_some() || rest == ","
}

/// Returns whether a sign that passwords have stands among letters and digits: `Tiger!2021`.
fn has_sign_inside(value: &str) -> bool {
    let is_sign = |b: &u8| b"!#$%^@".contains(b);
    let ends = |c: char| c.is_whitespace() || "()[]{}\"'<>:/,;=".contains(c);
    value.split(ends).any(|word| {
        let mut near = word.as_bytes().windows(3);
        let inside = |part: &[u8]| {
            is_sign(&part[1]) && part[0].is_ascii_alphanumeric() && part[2].is_ascii_alphanumeric()
        };
        has_digit(word) && near.any(inside)
    })
}

/// The letters and digits of a value, parted by all other characters.
pub(super) fn pieces(value: &str) -> impl Iterator<Item = &str> {
    let parts = value.split(|c: char| !c.is_alphanumeric());
    parts.filter(|piece| !piece.is_empty())
}

/// Returns whether letters and digits may be a part of a name or a number, and not of a secret.
/// Among others, a number may stand behind more letters.
fn is_plain(piece: &str, among: bool) -> bool {
    const SAMPLES: &str = "value val name foo bar test arg type node item property myvalue";
    let stem = piece.trim_end_of(DIGITS);
    let digits = piece.len() - stem.len();
    if is_literal(piece) || is_one_of(piece, ALGORITHMS) {
        return true;
    }
    if has_digit(stem) {
        // `Utf8Error`
        let word =
            |part: &str| part.len() > 2 && part.contains(char::is_lowercase) && is_wordy(part, 0);
        let head = stem.find_of(DIGITS).unwrap_or(0);
        let tail = stem[head..].trim_start_of(DIGITS);
        let camel = !has_digit(tail) && tail.starts_with(char::is_uppercase);
        let two = camel && stem.len() >= 9 && head + tail.len() + 2 >= stem.len();
        return among && piece.len() <= 2 || two && word(&stem[..head]) && word(tail);
    }
    match digits {
        0 => is_wordy(piece, 1 + piece.len() / 24),
        _ if stem.is_empty() => digits <= 5,
        1 | 2 if BUILT_IN.strength(stem) > Strength::Harmless || is_one_of(stem, SAMPLES) => true,
        1 | 2 if is_camel(stem) && stem.len() >= 8 => is_wordy(stem, 0),
        1 if among && is_wordy(stem, 0) => stem.len() <= 8,
        2 | 3 if among && stem.bytes().all(|b| b.is_ascii_uppercase()) => stem.len() <= 5,
        _ => digits <= 3 && stem.len() <= 2,
    }
}

/// Names that have letters and digits.
const ALGORITHMS: &str = "sha1 sha256 sha384 sha512 ed25519 x25519 base64 utf8 ipv4 ipv6 x509 pbkdf2 pkcs8 pkcs12 \
    argon2 oauth2 secp256k1 sigv4 uint8array rs256 hs256 es256";

/// Returns whether letters are words, each with a capital at its beginning or with none, and
/// abbreviations in capitals among them.
fn is_wordy(letters: &str, abbreviations: usize) -> bool {
    let (mut words, mut run, mut short) = (1, 0, 0);
    let mut before = ' ';
    for c in letters.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            short += usize::from(run < 2 && words > 1);
            words += 1;
            run = 0;
        }
        run += usize::from(c.is_lowercase());
        before = c;
    }
    let parts = letters.split(char::is_lowercase);
    let parts = parts.filter(|part| part.len() > 1);
    let mixed = letters.contains(char::is_lowercase);
    let abbreviated = if mixed { parts.count() } else { 0 };
    let sized = words == 1 || letters.len() >= (3 + short) * words;
    // Among digits, each word has a vowel.
    let hump = |part: &str| part.len() < 2 || part.has_of("aeiouyAEIOUY");
    let spoken = abbreviations > 0 || !mixed || humps(letters).all(hump);
    spoken && letters.len() <= 48 && short * 3 <= words && abbreviated <= abbreviations && sized
}

/// The words of a name, each from its capital on.
fn humps(letters: &str) -> impl Iterator<Item = &str> {
    let mut rest = letters;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let tail = &rest[first.len_utf8()..];
        let end = tail.find(char::is_uppercase).unwrap_or(tail.len());
        let (hump, after) = rest.split_at(first.len_utf8() + end);
        rest = after;
        Some(hump)
    })
}

fn is_camel(word: &str) -> bool {
    let humps = word.chars().skip(1).any(char::is_uppercase);
    humps && word.contains(char::is_lowercase)
}

/// `true`, `None`, `0x08`, `48u16`, `-1.5`.
fn is_literal(value: &str) -> bool {
    const WORDS: &str = "true false yes no on off send eof self this";
    const SUFFIXES: &str = "u8 u16 u32 u64 i8 i16 i32 i64 usize isize f32 f64 ul l u ull n";
    if is_one_of(value, WORDS) || is_null(value) {
        return true;
    }
    let number = value.trim_start_of("-+");
    if let Some(hex) = strip_ignore_case(number, "0x") {
        let rest = hex.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        let (digits, tail) = (hex.len() - rest.len(), rest.trim_start_of("_"));
        return (1..=8).contains(&digits) && (tail.is_empty() || is_one_of(tail, SUFFIXES));
    }
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit() || "._".contains(c));
    let digits = &number[..number.len() - rest.len()];
    let suffix = rest.trim_start_of("_");
    digits.starts_of(DIGITS)
        && (suffix.is_empty()
            && (digits.len() <= 3
                || value.len() > number.len()
                || digits.split_of(".").count() == 2)
            || is_one_of(suffix, SUFFIXES))
}

/// A value without the directives of formats in it: `%s`, `{0}`, `{key:?}`, `${name}`, `<name>`.
fn without_directives(value: &str) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(at) = rest.find_of("%{<\\") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let escaped = escape(rest).filter(|len| *len == 4 || value.starts_of("[("));
        let escaped = escaped.map(|len| ("\\", len));
        let other = || directive(rest).map_or((&rest[..1], 1), |len| ("", len));
        let (kept, len) = escaped.unwrap_or_else(other);
        out.push_str(kept);
        rest = &rest[len..];
    }
    out + rest
}

/// The length of the escape of a character beyond ASCII that `text` begins with.
fn escape(text: &str) -> Option<usize> {
    let len = match text.as_bytes() {
        [b'\\', b'x', b'8'..=b'9' | b'a'..=b'f', _, ..] => 4,
        [b'\\', b'u', b'1'..=b'9' | b'a'..=b'f', _, _, _, ..] => 6,
        _ => return None,
    };
    text.get(2..len).is_some_and(is_hex).then_some(len)
}

/// The length of the directive that `text` begins with.
fn directive(text: &str) -> Option<usize> {
    if let Some(rest) = text.strip_prefix('%') {
        let kind = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "-+.#*l".contains(c));
        let fits = kind.starts_of("sdirxXufcpqv@");
        return fits.then_some(text.len() - kind.len() + 1);
    }
    let close = if text.starts_with('{') { "}" } else { ">" };
    let end = text.find_str(close).filter(|end| *end <= 64)?;
    let inner = &text[1..end];
    let plain = is_made_of(inner.trim_start_of("{/"), "_.:?!#- ");
    let word = close == "}" || !inner.is_empty();
    (plain && word && !has_sign_inside(inner) && pieces(inner).all(|piece| is_plain(piece, true)))
        .then(|| end + 1 + usize::from(text[end + 1..].starts_with("}")))
}

/// Returns whether there are statements of a program.
pub(super) fn has_statements(value: &str) -> bool {
    #[rustfmt::skip]
    const STATEMENTS: &[&str] = &[
        ";\n", "; ", "fn ", "let ", "return ", " => ", "self.", "this.", "if (", "function", "->", "async ", "lambda ", "lambda:", " && ", " || ", "const ", "pub ", "new ", "await ",
    ];
    value.has_of("({[.=") && STATEMENTS.iter().any(|statement| value.holds(statement))
}

/// Returns whether a mapping describes a value, as a schema, a model or a job does. Its members are
/// not secrets.
fn is_schema(value: &str) -> bool {
    let marks = |c: char| c.is_whitespace() || "\"'\\-".contains(c);
    let members = value.split_of("\n{,}").filter_map(|line| {
        let (name, kind) = line.cut(":")?;
        Some((name.trim_matches(marks), kind.trim_matches(marks)))
    });
    let (head, _) = value.split_at(value.find_of("\n{").unwrap_or(0));
    if !value.has_of("\n{") || is_mixed(head) {
        return false;
    }
    const NAMES: &str = "$ref description properties anyOf oneOf allOf shape documentation steps runs-on uses schema \
        pattern minLength maxLength enum help locationName plural_name summary requestUri help_text arg_name api_field \
        supported_apis method";
    const TYPES: &str = "string object integer array list structure boolean number map timestamp";
    const VALUES: &str = "value default const example";
    let describes = |(name, kind): (&str, &str)| {
        is_one_of(name, NAMES) || name == "type" && is_one_of(kind, TYPES)
    };
    let mut names = members.clone();
    members.clone().any(describes) && !names.any(|(name, _)| is_one_of(name, VALUES))
}
