//! What a name in text says.

use std::borrow::Cow;

use super::{
    Run, Scan,
    bytes::{after_last, ahead, behind, is_one_of, strip_ignore_case},
    mark::Mark,
};

/// The name in a run: what follows its last slash, its escapes taken for what they are.
pub(super) fn name<'a>(scan: &Scan<'a>, run: Run, mark: &Mark) -> Cow<'a, str> {
    let word = scan.word(run);
    let before = scan.before(run);
    if mark.quoted && before.ends_with('\\') && word.starts_with('u') || before.ends_with("\\u") {
        return Cow::Owned(unescaped(scan, run));
    }
    if before.ends_with(';') && behind(before, before.len(), 8).contains("&#") {
        return Cow::Owned(unescaped(scan, run));
    }
    let name = word.rsplit('/').next().unwrap_or(word);
    // `user[password]=x` has its name in the brackets; `headers["x"]` as well.
    Cow::Borrowed(name)
}

/// `pass\u0077ord`, `pass&#119;ord`, read from the quote or blank before it.
fn unescaped(scan: &Scan<'_>, run: Run) -> String {
    let near = behind(scan.text, run.end, 256);
    let from = near.rfind(['"', '\'', ' ', '{', ',']).map_or(0, |i| i + 1);
    let mut out = String::new();
    let mut rest = &near[from..];
    while let Some(c) = rest.chars().next() {
        let (code, len) = code(rest).map_or((c, c.len_utf8()), |(code, len)| (code, len));
        out.push(code);
        rest = &rest[len..];
    }
    out
}

/// The character that is written as `\u0077`, `&#119;` or `&#x77;`, and the length of that.
fn code(text: &str) -> Option<(char, usize)> {
    let (digits, radix, len) = if let Some(rest) = text.strip_prefix("\\u") {
        (rest.get(..4)?, 16, 6)
    } else {
        let entity = text.strip_prefix("&#")?;
        let end = ahead(entity, 0, 8).find(';')?;
        match entity[..end].strip_prefix('x') {
            Some(hex) => (hex, 16, end + 3),
            None => (&entity[..end], 10, end + 3),
        }
    };
    let code = u32::from_str_radix(digits, radix).ok()?;
    Some((char::from_u32(code)?, len))
}

pub(super) fn is_signature(name: &str, mark: &Mark) -> bool {
    let suffix = name.len().checked_sub(9).and_then(|i| name.get(i..));
    !mark.colon && suffix.is_some_and(|s| s.eq_ignore_ascii_case("signature"))
}

/// `PWD=/home/ada` of an environment.
pub(super) fn is_working_directory(name: &str, value: &str) -> bool {
    matches!(name, "PWD" | "OLDPWD" | "pwd")
        && value
            .trim_start_matches(['"', '\'', ' '])
            .starts_with(['/', '~'])
}

/// Whether a type gets this name: `type AuthToken = string`.
pub(super) fn is_type(scan: &Scan<'_>, run: Run) -> bool {
    let before = behind(scan.text, run.at, 16);
    let word = before
        .strip_suffix(' ')
        .map(|s| after_last(s, |c| !c.is_alphanumeric()));
    word.is_some_and(|word| {
        matches!(
            word,
            "type" | "typedef" | "interface" | "enum" | "class" | "struct"
        )
    })
}

/// Whether the run is a part of the name of something in AWS: `arn:aws:kms:eu:1:key/x`.
pub(super) fn is_resource(scan: &Scan<'_>, run: Run) -> bool {
    let before = behind(scan.text, run.at, 128);
    let parts = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ',');
    before.ends_with(':') && after_last(before, parts).starts_with("arn:")
}

pub(super) fn holds_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("pass")
        || name.contains("secret")
        || name.contains("pin")
        || name.contains("otp")
        || name.contains("cv")
}

/// `KeyError: 'x'`, `missing key: x`.
pub(super) fn is_failure(name: &str) -> bool {
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
pub(super) fn follows_kind(text: &str, run: Run) -> bool {
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
pub(super) fn is_weak_word(name: &str) -> bool {
    let last = name.rsplit(['.', '-']).next().unwrap_or(name);
    let last = last.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    is_one_of(last, &["key", "keys", "auth"])
}

/// `?key=x`, `&key=x`, `--key=x`.
pub(super) fn in_query(scan: &Scan<'_>, run: Run) -> bool {
    scan.before(run).ends_with(['?', '&', '#']) && !scan.before(run).ends_with("&&")
        || scan.word(run).starts_with('-')
}

/// Headers whose value is a secret as a whole, its scheme included.
pub(super) fn is_header(name: &str) -> bool {
    let ends = |end: &str| {
        name.len()
            .checked_sub(end.len())
            .and_then(|i| name.get(i..))
            .is_some_and(|s| s.eq_ignore_ascii_case(end))
    };
    ends("authorization") || ends("cookie") || ends("cookie2")
}

/// Whether `text` holds a name that a value may follow: for those who look at whole strings.
pub(super) fn is_name(scan: &Scan<'_>, name: &str) -> bool {
    let name = strip_ignore_case(name, "env:").unwrap_or(name);
    name.len() <= 64 && !name.contains(' ') && scan.rules.announces(name)
}
