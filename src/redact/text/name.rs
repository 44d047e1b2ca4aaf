//! What a name in text says.

use std::borrow::Cow;

use super::{
    Run,
    bytes::{after_last, ahead, behind, ends_with_one_of, is_one_of, strip_ignore_case},
    mark::Mark,
};
use crate::redact::inside;

/// The name in a run: what follows its last slash, its escapes taken for what they are.
pub(super) fn name<'a>(run: Run<'a>, mark: &Mark) -> Cow<'a, str> {
    let word = run.word();
    let before = run.before();
    let letter = mark.quoted && before.ends_with('\\') && word.starts_with('u');
    let entity = before.ends_with(';') && run.behind(8).contains("&#");
    if letter || entity || before.ends_with("\\u") {
        return Cow::Owned(unescaped(run));
    }
    let name = word.rsplit('/').next().unwrap_or(word);
    // `user[password]=x` has its name in the brackets; `headers["x"]` as well.
    Cow::Borrowed(name)
}

/// `pass\u0077ord`, `pass&#119;ord`, read from the quote or blank before it.
fn unescaped(run: Run<'_>) -> String {
    let near = behind(run.text, run.end, 256);
    let from = near.rfind(['"', '\'', ' ', '{', ',']).map_or(0, |i| i + 1);
    let mut out = String::new();
    let mut rest = &near[from..];
    while let Some(c) = rest.chars().next() {
        let (c, len) = code(rest).unwrap_or((c, c.len_utf8()));
        out.push(c);
        rest = &rest[len..];
    }
    out
}

/// The character that is written as `\u0077`, `&#119;` or `&#x77;`, and the length of that.
fn code(text: &str) -> Option<(char, usize)> {
    if let Some(escape) = text.strip_prefix("\\u") {
        return inside::code(escape).map(|(c, len)| (c, len + 2));
    }
    let entity = text.strip_prefix("&#")?;
    let (digits, _) = ahead(entity, 0, 8).split_once(';')?;
    let code = match digits.strip_prefix('x') {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    Some((char::from_u32(code.ok()?)?, digits.len() + 3))
}

pub(super) fn is_signature(name: &str, mark: &Mark) -> bool {
    !mark.colon && ends_with_one_of(name, &["signature"])
}

/// `PWD=/home/ada` of an environment.
pub(super) fn is_working_directory(name: &str, value: &str) -> bool {
    matches!(name, "PWD" | "OLDPWD" | "pwd")
        && value
            .trim_start_matches(['"', '\'', ' '])
            .starts_with(['/', '~'])
}

/// The word before a run and the blank between them; empty if they are parted by more.
fn word_before(run: Run<'_>, len: usize) -> &str {
    let head = run.behind(len).strip_suffix(' ');
    after_last(head.unwrap_or_default(), |c| !c.is_alphanumeric())
}

/// Whether a type gets this name: `type AuthToken = string`.
pub(super) fn is_type(run: Run<'_>) -> bool {
    let declares = ["type", "typedef", "interface", "enum", "class", "struct"];
    declares.contains(&word_before(run, 16))
}

/// Whether the run is a part of the name of something in AWS: `arn:aws:kms:eu:1:key/x`.
pub(super) fn is_resource(run: Run<'_>) -> bool {
    let before = run.behind(128);
    let parts = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ',');
    before.ends_with(':') && after_last(before, parts).starts_with("arn:")
}

pub(super) fn holds_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts = ["pass", "secret", "pin", "otp", "cv"];
    parts.iter().any(|part| name.contains(part))
}

/// `KeyError: 'x'`, `missing key: x`.
pub(super) fn is_failure(name: &str) -> bool {
    #[rustfmt::skip]
    const ENDS: &[&str] = &["error", "exception", "err", "failure", "missing", "invalid", "expired"];
    ends_with_one_of(name, ENDS)
}

/// `api key: x`, `access token: x`.
pub(super) fn follows_kind(run: Run<'_>) -> bool {
    #[rustfmt::skip]
    const KINDS: &[&str] = &[
        "api", "access", "secret", "private", "auth", "session", "refresh", "client", "master", "encryption", "signing", "bot",
        "license",
    ];
    is_one_of(word_before(run, 24), KINDS)
}

/// Names that code has for many other things.
pub(super) fn is_weak_word(name: &str) -> bool {
    let last = after_last(name, |c| c == '.' || c == '-');
    let last = last.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    is_one_of(last, &["key", "keys", "auth"])
}

/// `?key=x`, `&key=x`, `--key=x`.
pub(super) fn in_query(run: Run<'_>) -> bool {
    let before = run.before();
    before.ends_with(['?', '&', '#']) && !before.ends_with("&&") || run.word().starts_with('-')
}

/// Headers whose value is a secret as a whole, its scheme included.
pub(super) fn is_header(name: &str) -> bool {
    ends_with_one_of(name, &["authorization", "cookie", "cookie2"])
}

/// Whether `name` is a whole string that announces a value.
pub(super) fn is_name(run: Run<'_>, name: &str) -> bool {
    let name = strip_ignore_case(name, "env:").unwrap_or(name);
    name.len() <= 64 && !name.contains(' ') && run.rules.announces(name)
}
