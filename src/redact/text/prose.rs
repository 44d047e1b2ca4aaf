//! Secrets in sentences: `password is hunter2`, `the token abc123def456`; `.netrc` and `.pgpass`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, is_one_of, is_run, run_end, skip_blanks},
    look::{is_key_id, is_mixed, is_placeholder, is_prose, is_random, is_uuid},
    value::{self, Style, bare_end},
};

/// Words that announce a secret by themselves.
#[rustfmt::skip]
const PASSWORDS: &[&str] = &[
    "password", "passwd", "passphrase", "passcode", "pwd", "pw", "secret", "pin", "otp", "creds", "passwort", "password:",
];

/// Words that announce it if it looks random.
const TOKENS: &[&str] = &[
    "token",
    "key",
    "apikey",
    "jwt",
    "credential",
    "credentials",
    "cookie",
    "api-key",
    "bearer",
];

/// Words between the name and the value.
#[rustfmt::skip]
const LINKS: &[&str] = &["is", "has", "been", "was", "are", "to", "as", "be", "now", "set", "value", "with", "currently", "still", "ist", "lautet", "est", "es"];

/// `named` says that the word may hold the name of a secret.
pub(super) fn find(scan: &Scan<'_>, run: Run, named: bool) -> Option<Range<usize>> {
    let word = scan.word(run);
    if word == "input_value" {
        return rejected(scan, run);
    }
    if !named || !(2..=20).contains(&word.len()) {
        return pgpass(scan, run);
    }
    let after = scan.after(run).as_bytes();
    match after.first() {
        Some(b' ' | b'\t' | b'\n' | b',') => {}
        Some(b'*') => {}
        Some(b'"' | b'\'' | b'`' | b':') if after.get(1) == Some(&b' ') => {}
        Some(b':') => return pgpass(scan, run),
        _ => return None,
    }
    let password = is_one_of(word, PASSWORDS);
    if !password && !is_one_of(word, TOKENS) && !ends_with_noun(word) {
        return None;
    }
    if password && let Some(secret) = netrc(scan, run) {
        return Some(secret);
    }
    sentence(scan, run, password, word.eq_ignore_ascii_case("key"))
}

/// `session_token`, `access-token`, `user_password`.
fn ends_with_noun(word: &str) -> bool {
    let ends = |noun: &str| {
        word.len() > noun.len()
            && word.is_char_boundary(word.len() - noun.len())
            && word[word.len() - noun.len()..].eq_ignore_ascii_case(noun)
    };
    [
        "token", "password", "secret", "_key", "-key", "apikey", "ApiKey",
    ]
    .into_iter()
    .any(ends)
}

fn sentence(scan: &Scan<'_>, run: Run, password: bool, key: bool) -> Option<Range<usize>> {
    let text = scan.text;
    let mut at = run.end;
    let mut linked = false;
    for _ in 0..6 {
        while text[at..].starts_with(['"', '\'', '`', ':', ',', '(', '*']) {
            at += 1;
        }
        at = skip_blanks(text, at);
        if text[at..].starts_with("| ") {
            at += 2;
        }
        let end = bare_end(&text[..crate::text::floor(text, at + 1024)], at);
        let word = &text[at..end];
        if is_one_of(word, LINKS) {
            (at, linked) = (end, true);
            continue;
        }
        if is_one_of(word, &["for", "of"]) && !linked {
            // `password for ada is x`
            let whose = skip_blanks(text, end);
            at = bare_end(&text[..crate::text::floor(text, whose + 64)], whose);
            continue;
        }
        let quoted = text[at..].starts_with(['"', '\'', '`']);
        let secret = if quoted {
            value::extent(
                &text[..crate::text::floor(text, at + 1024)],
                at,
                Style::Plain,
            )
        } else {
            at..end
        };
        let word = &text[secret.clone()];
        if word.is_empty() || is_prose(word) || is_placeholder(word) || word.contains("://") {
            return None;
        }
        let fits = match (password, linked, key) {
            (true, true, _) => is_mixed(word) || is_random(word),
            (true, false, _) => {
                is_mixed(word) && (quoted || word.len() >= 6) && !is_dated(word) || is_random(word)
            }
            (false, _, true) => {
                is_random(word) && !is_uuid(word) && !is_key_id(word) && !word.contains('_')
            }
            (false, true, false) => {
                is_random(word) || is_mixed(word) && word.len() >= 6 && !is_dated(word)
            }
            (false, false, false) => is_random(word),
        };
        let end = secret.end;
        let whole = if quoted {
            end
        } else {
            bare_end(text, secret.start)
        };
        let stop = text[secret.start..whole]
            .trim_end_matches(['.', ',', '!', '?', ':'])
            .len();
        return fits.then_some(secret.start..secret.start + stop);
    }
    None
}

/// `v2`, `2024-01-01`, `user_id2.name`: mixed, but known.
fn is_dated(word: &str) -> bool {
    word.contains(['/', '.', ':', '=', '('])
        || word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('-')
        || is_uuid(word)
}

/// `machine h login u password p`
fn netrc(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let before = behind(scan.text, run.at, 256);
    let login = before.rfind("login ")?;
    let machine =
        before[..login].contains("machine ") || before[..login].trim_end().ends_with("default");
    let start = skip_blanks(scan.text, run.end);
    (machine && start > run.end).then(|| start..bare_end(scan.text, start))
}

/// `api_key: too short (input_value='x', input_type=str)`: what was refused, beside the name of its field in
/// this line or the one before.
fn rejected(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let start = run.end + 1;
    if !scan.after(run).starts_with('=') {
        return None;
    }
    let near = behind(scan.text, run.at, 256);
    let lines = near.rmatch_indices('\n').nth(1).map_or(0, |(i, _)| i + 1);
    let mut names = near[lines..].split(|c: char| !is_run(c));
    let named = names.any(|name| name.len() <= 64 && scan.rules.announces(name));
    named.then(|| value::extent(scan.text, start, Style::Plain))
}

/// `host:5432:db:user:password`, alone in its line.
fn pgpass(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let text = scan.text;
    let apart = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
    if !text[run.end..].starts_with(':') || !(run.at == 0 || text[..run.at].ends_with(apart)) {
        return None;
    }
    let near = ahead(text, run.at, 512);
    let line = near.split(apart).next()?;
    if line.len() == near.len() && run.at + line.len() < text.len() {
        return None;
    }
    let mut fields = line.splitn(5, ':');
    let (_, port, database, user, password) = (
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    );
    let number =
        (4..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit()) || port == "*";
    let name = |s: &str| {
        s == "*"
            || !s.is_empty()
                && run_end(s, 0) == s.len()
                && !s.starts_with(|c: char| c.is_ascii_digit())
    };
    let plain = !password.is_empty() && !password.contains(char::is_whitespace);
    let start = run.at + line.len() - password.len();
    (number && name(database) && name(user) && plain).then(|| start..run.at + line.len())
}
