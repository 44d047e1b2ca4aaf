//! Secrets in sentences: `password is hunter2`, `the token abc123def456`; `.netrc` and `.pgpass`.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{after_last, ahead, behind, is_one_of, is_run, run_end, skip, skip_blanks},
    look::{is_key_id, is_mixed, is_placeholder, is_prose, is_random, is_uuid},
    quote::Quote,
    value::{self, Style, bare_end},
};
use crate::{redact::keys::Strength, text::floor};

/// Words that announce a secret by themselves.
#[rustfmt::skip]
const PASSWORDS: &[&str] = &[
    "password", "passwd", "passphrase", "passcode", "pwd", "pw", "secret", "pin", "otp", "creds", "password:",
    "passwort", "kennwort", "passe", "contraseña", "contrasena", "senha", "haslo", "hasło", "пароль",
];

/// Words that announce it if it looks random.
#[rustfmt::skip]
const TOKENS: &[&str] = &[
    "token", "key", "apikey", "jwt", "credential", "credentials", "cookie", "api-key", "bearer", "auth", "pass",
    "schlüssel", "zugangsdaten", "clé", "clave", "chiave",
];

/// Words between the name and the value.
#[rustfmt::skip]
const LINKS: &[&str] = &[
    "is", "has", "been", "was", "are", "to", "as", "be", "now", "set", "value", "with", "currently", "still", "ist", "lautet", "est",
    "es", "é", "api", "changed", "updated", "reset", "rotated",
];

/// Words after which something else is named: `password for ada on web1 is x`.
const OTHERS: &[&str] = &["for", "of", "on", "at", "für", "auf", "pour", "para"];

/// `named` says that the word may hold the name of a secret.
pub(super) fn find(scan: &Scan<'_>, run: Run, named: bool) -> Option<Range<usize>> {
    let word = scan.word(run);
    if word == "input_value" {
        return rejected(scan, run);
    }
    if is_one_of(trimmed(word), &["code", "codes", "phrase"]) {
        return codes(scan, run);
    }
    if !named || !(2..=24).contains(&word.len()) {
        return pgpass(scan, run);
    }
    let after = scan.after(run).as_bytes();
    match after.first() {
        Some(b' ' | b'\t' | b'\n' | b',') => {}
        Some(b'*') => {}
        Some(b'"' | b'\'' | b'`' | b':') if matches!(after.get(1), Some(b' ' | b'\n')) => {}
        Some(b':') => return pgpass(scan, run),
        _ => return labelled(scan, run),
    }
    let password = is_one_of(word, PASSWORDS);
    if !password && !is_one_of(word, TOKENS) && !ends_with_noun(word) {
        return labelled(scan, run);
    }
    if password && let Some(secret) = netrc(scan, run) {
        return Some(secret);
    }
    let key = word.eq_ignore_ascii_case("key");
    sentence(scan, run, password, key)
        .or_else(|| pointed_at(scan, run, password))
        .or_else(|| labelled(scan, run))
}

/// `session_token`, `access-token`, `user_password`.
fn ends_with_noun(word: &str) -> bool {
    let ends = |noun: &str| {
        word.len() > noun.len()
            && word.is_char_boundary(word.len() - noun.len())
            && word[word.len() - noun.len()..].eq_ignore_ascii_case(noun)
    };
    [
        "token",
        "password",
        "secret",
        "_key",
        "-key",
        "apikey",
        "schlüssel",
    ]
    .into_iter()
    .any(ends)
}

fn sentence(scan: &Scan<'_>, run: Run, password: bool, key: bool) -> Option<Range<usize>> {
    let text = scan.text;
    let near = |at: usize, len| &text[..floor(text, at + len)];
    let digits = is_one_of(scan.word(run), &["pin", "otp", "passcode"]);
    let credentials = is_one_of(scan.word(run), &["credentials", "creds", "zugangsdaten"]);
    let mut at = run.end;
    let mut linked = false;
    for _ in 0..8 {
        at = skip(text, at, |c| {
            matches!(c, '"' | '\'' | '`' | ':' | ',' | '(' | '*')
        });
        let mark = skip_blanks(text, at);
        at = if text[mark..].starts_with(": ") {
            skip_blanks(text, mark + 1)
        } else {
            mark
        };
        if text[at..].starts_with("| ") {
            at += 2;
        }
        let end = bare_end(near(at, 256), at);
        let word = &text[at..end];
        if is_one_of(trimmed(word), LINKS) || password && word == "from" {
            (at, linked) = (end, true);
            continue;
        }
        // `enable secret 5 x`: devices of a network say how it is encrypted.
        if password && matches!(word.as_bytes(), [b'0'..=b'9']) && !linked {
            at = end;
            continue;
        }
        if is_one_of(word, OTHERS) && !linked {
            // `password for ada is x`
            let whose = skip_blanks(text, end);
            at = bare_end(near(whose, 64), whose);
            continue;
        }
        // `PASSWORD elastic = x`, `credentials: ada / x`
        let sign = if password { " = " } else { " / " };
        if text[end..].starts_with(sign) && !linked {
            (at, linked) = (end + sign.len(), true);
            continue;
        }
        let quoted = Quote::at(text, at).is_some();
        let secret = if quoted {
            value::extent(near(at, 256), at, Style::Plain)
        } else {
            at..end
        };
        let word = &text[secret.clone()];
        if word.is_empty() || is_prose(word) || is_placeholder(word) || word.contains("://") {
            return None;
        }
        // `credentials are ada:x`
        if credentials
            && let Some((_, password)) = word.split_once([':', '/'])
            && is_mixed(password)
        {
            return Some(secret.end - password.len()..secret.end);
        }
        let number = digits
            && word
                .trim_end_matches('.')
                .bytes()
                .all(|b| b.is_ascii_digit());
        let said = linked && !scan.word(run).eq_ignore_ascii_case("secret") && word.len() >= 6;
        let words = password && quoted && (word.contains(' ') || said);
        let fits = match (password, linked, key) {
            (true, _, _) if words => linked || word.contains(|c: char| c.is_ascii_digit()),
            (true, true, _) => is_mixed(word) || is_random(word) || number && word.len() >= 4,
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
        if !fits {
            return None;
        }
        let end = if quoted {
            secret.end
        } else {
            bare_end(text, secret.start)
        };
        let len = trimmed(&text[secret.start..end]).len();
        return Some(changed_to(text, secret.start..secret.start + len));
    }
    None
}

/// A word without the marks of a sentence behind it.
fn trimmed(word: &str) -> &str {
    word.trim_end_matches(['.', ',', '!', '?', ':'])
}

/// A secret with the one that it is changed to: `from a to b`.
fn changed_to(text: &str, old: Range<usize>) -> Range<usize> {
    if !text[old.end..].starts_with(" to ") {
        return old;
    }
    let start = old.end + " to ".len();
    let new = trimmed(&text[start..bare_end(text, start)]);
    if is_mixed(new) {
        old.start..start + new.len()
    } else {
        old
    }
}

/// What an arrow or a colon points at, behind some words or in the line below: `the key for prod -> x`.
fn pointed_at(scan: &Scan<'_>, run: Run, password: bool) -> Option<Range<usize>> {
    let text = scan.text;
    let near = ahead(text, run.end, 96);
    let line = near.find('\n').unwrap_or(near.len());
    let arrow = ["-> ", "\u{2192} "]
        .iter()
        .find_map(|arrow| Some(near[..line].find(arrow)? + arrow.len()));
    let alone = arrow.is_none();
    let start = match arrow {
        Some(arrow) => run.end + arrow,
        None if near[..line].trim_end().ends_with(':') => {
            skip(text, run.end + line, char::is_whitespace)
        }
        None => return None,
    };
    let end = bare_end(&text[..floor(text, start + 256)], start);
    let word = &text[start..end];
    if alone && !text[end..].starts_with(['\n', '\r']) && end < text.len() || is_placeholder(word) {
        return None;
    }
    let fits = is_random(word) && !is_uuid(word)
        || password && is_mixed(word) && word.len() >= 6 && !is_dated(word);
    fits.then(|| start..bare_end(text, start))
}

/// `[token] x`, `token|x|`, `column password - [x]`: as logs set a value apart from its name.
fn labelled(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let rest = scan.after(run);
    let mark = ["] ", "|", " - ["]
        .iter()
        .find(|mark| rest.starts_with(**mark))?;
    let opened = *mark != "] " || scan.before(run).ends_with('[');
    if !opened || scan.rules.strength(scan.word(run)) != Strength::Strong {
        return None;
    }
    let start = run.end + mark.len();
    let near = ahead(scan.text, start, 256);
    let end = near.find(|c: char| c.is_whitespace() || matches!(c, '|' | ']'));
    let word = &near[..end.unwrap_or(near.len())];
    (is_mixed(word) && !word.starts_with('-') && !is_placeholder(word))
        .then(|| start..start + word.len())
}

/// `verification code is 730 418`, `Recovery codes: a, b`, `Seed phrase: ...`, `1234 is your login code`.
fn codes(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const KINDS: &[&str] = &[
        "verification", "security", "one-time", "login", "access", "confirmation", "authentication", "recovery", "backup", "2fa",
        "sms", "seed", "secret", "scratch", "pass",
    ];
    let (text, word) = (scan.text, scan.word(run));
    let before = behind(text, run.at, 96);
    let sentence = before.trim_end();
    if !is_one_of(
        after_last(sentence, |c| !c.is_alphanumeric() && c != '-'),
        KINDS,
    ) {
        return None;
    }
    if !trimmed(word).eq_ignore_ascii_case("code") {
        if !scan.after(run).starts_with(':') {
            return None;
        }
        let start = skip_blanks(text, run.end + 1);
        let secret = start..lines_end(text, start);
        // Of a phrase, all the words that wallets have; of codes, digits.
        let shown = &text[secret.clone()];
        let digits = shown.bytes().filter(u8::is_ascii_digit).count();
        let fits = shown.split(' ').count() >= 10 || digits >= 4;
        return fits.then_some(secret);
    }
    // `1234 is your Google verification code`
    let said = |text: &str| text.bytes().filter(u8::is_ascii_digit).count() >= 4;
    if let Some(i) = sentence.rfind(" is your ") {
        let code = after_last(&sentence[..i], char::is_whitespace);
        let start = run.at - before.len() + i - code.len();
        return said(code).then(|| start..start + code.len());
    }
    let rest = scan.after(run);
    let mark = [" is ", ": ", " ist "]
        .iter()
        .find(|mark| rest.starts_with(**mark))?;
    let start = run.end + mark.len();
    let near = ahead(text, start, 32);
    let end = near
        .find(|c: char| !c.is_ascii_alphanumeric() && !" -".contains(c) || c.is_ascii_lowercase());
    let code = near[..end.unwrap_or(near.len())].trim_end();
    said(code).then(|| start..start + code.len())
}

/// The end of the line at `at`; of the list below if there is nothing in it.
fn lines_end(text: &str, at: usize) -> usize {
    let mut end = skip(text, at, |c| c != '\n');
    if text[at..end].trim().is_empty() {
        while let Some(line) = text.get(end + 1..) {
            let line = line.split('\n').next().unwrap_or(line);
            let item = line
                .trim_start()
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ')');
            if line.trim().is_empty() || !item.starts_with([' ', '-', '*']) {
                break;
            }
            end += 1 + line.len();
        }
    }
    end
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
    let secret = start..bare_end(scan.text, start);
    let named = is_one_of(&scan.text[secret.clone()], PASSWORDS);
    (machine && start > run.end && !named).then_some(secret)
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

/// `host:5432:db:user:password`, `*:*:*:user:password`, alone in its line.
fn pgpass(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let text = scan.text;
    let apart = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
    if !text[run.end..].starts_with(':') {
        return None;
    }
    let start = run.at - after_last(behind(text, run.at, 16), apart).len();
    if !text[start..run.at].chars().all(|c| c == '*' || c == ':') {
        return None;
    }
    let near = ahead(text, start, 512);
    let line = near.split(apart).next()?;
    if line.len() == near.len() && start + line.len() < text.len() {
        return None;
    }
    let mut fields = line.splitn(5, ':').skip(1);
    let (port, database, user, password) = (
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
    let end = start + line.len();
    (number && name(database) && name(user) && plain).then(|| end - password.len()..end)
}
