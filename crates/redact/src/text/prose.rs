//! Secrets in sentences: `password is hunter2`, `the token abc123def456`; `.netrc` and `.pgpass`.

use super::{pair::is_login, prelude::*};

/// Words that announce a secret by themselves.
static PASSWORDS: Words = Words::of(
    "password passwd passphrase passcode pwd pw secret pin otp psk creds password: passwort kennwort \
    passe contraseña contrasena senha haslo hasło пароль",
);

/// Words that announce it if it looks random.
static TOKENS: Words = Words::of(
    "token key apikey jwt credential credentials cookie api-key bearer auth pass schlüssel \
    zugangsdaten clé clave chiave",
);

/// Words before `key` that make one of a fingerprint's form a secret.
const SECRET_KEYS: &str = "secret private api encryption signing hmac license";

/// Words between the name and the value.
static LINKS: Words = Words::of(
    "is s has been was are to as be now set value with currently still ist lautet est es é api changed \
    updated reset rotated",
);

/// Words before the owner or place of the secret: `password for ada on web1 is x`.
const OTHERS: &str = "for of on at für auf pour para";

/// The kind of a word, by the secret that may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Noun {
    /// One of [`PASSWORDS`].
    Password,
    /// One of [`TOKENS`], or a name that ends with one.
    Token,
    /// `key`, which prose uses for many other things.
    Key,
}

impl Noun {
    fn of(word: &str) -> Option<Self> {
        const ENDS: &str = "token password secret _key -key apikey schlüssel";
        let token = TOKENS.has(word) || word.len() > 4 && ends_with_one_of(word, ENDS);
        match () {
            () if PASSWORDS.has(word) => Some(Self::Password),
            () if word.eq_ignore_ascii_case("key") => Some(Self::Key),
            () => token.then_some(Self::Token),
        }
    }
}

pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let word = run.word();
    if word == "input_value" {
        return rejected(run);
    }
    if is_one_of(trimmed(word), "code codes phrase") {
        return codes(run);
    }
    if !run.is_named() || !(2..=24).contains(&word.len()) {
        return pgpass(run);
    }
    let noun = match run.after().as_bytes() {
        [b' ' | b'\t' | b'\n' | b',' | b'*', ..]
        | [b'"' | b'\'' | b'`' | b':', b' ' | b'\n', ..] => Noun::of(word),
        // `my password's x`
        _ if is_possessive(run.after()) => Noun::of(word),
        [b':', ..] => return pgpass(run),
        _ => None,
    };
    let login = |noun| (noun == Noun::Password).then(|| netrc(run)).flatten();
    let say = |noun| login(noun).or_else(|| sentence(run, noun));
    let say = |noun| say(noun).or_else(|| pointed_at(run, noun));
    noun.and_then(say).or_else(|| labelled(run))
}

/// Returns whether a word before this text owns what follows: `'s x`.
fn is_possessive(after: &str) -> bool {
    let rest = after.strip_prefix(['\'', '\u{2019}']);
    let rest = rest.and_then(|rest| rest.strip_prefix(['s', 'S']));
    rest.is_some_and(|rest| rest.starts_of(" \t"))
}

/// The word that follows the name, or the words that link it with the name: `password for ada is
/// now x`.
fn sentence(run: &Run<'_>, noun: Noun) -> Option<Range<usize>> {
    let text = run.text;
    let password = noun == Noun::Password;
    let (mut at, mut linked) = (run.end, false);
    for _ in 0..8 {
        at = word_start(text, at);
        let end = word_end(text, at, 256);
        let word = &text[at..end];
        // `PASSWORD elastic = x`, `credentials: ada / x`
        let sign = if password { " = " } else { " / " };
        if LINKS.has(trimmed(word)) || password && word == "from" {
            (at, linked) = (end, true);
        } else if !linked && password && matches!(word.as_bytes(), [b'0'..=b'9']) {
            // `enable secret 5 x`: devices of a network say how it is encrypted.
            at = end;
        } else if !linked && is_one_of(word, OTHERS) {
            // `password for ada is x`
            at = word_end(text, skip_blanks(text, end), 64);
        } else if !linked && text[end..].starts_with(sign) {
            (at, linked) = (end + sign.len(), true);
        } else {
            return said(run, noun, linked, at..end);
        }
    }
    None
}

/// Where the next word of a sentence begins, behind marks and blanks.
fn word_start(text: &str, at: usize) -> usize {
    let mut at = skip_blanks(text, skip(text, at, |c| "\"'\u{2019}`:,(*".contains(c)));
    if text[at..].starts_with(": ") {
        at = skip_blanks(text, at + 1);
    }
    at + if text[at..].starts_with("| ") { 2 } else { 0 }
}

/// Where the word at `at` ends, within `len` bytes.
fn word_end(text: &str, at: usize, len: usize) -> usize {
    bare_end(&text[..floor(text, at + len)], at)
}

/// The secret that begins with the bare word `first`, if it looks like one. `linked` says that a
/// sentence leads to it: `is`, `was set to`.
fn said(run: &Run<'_>, noun: Noun, linked: bool, first: Range<usize>) -> Option<Range<usize>> {
    let (text, at) = (run.text, first.start);
    let quote = Quote::at(text, at);
    // `getpass("Password: ")`: the quote behind the name closes a string, and no other one begins.
    let next = |quote: &Quote| {
        let rest = ahead(text, at + quote.len(), 16);
        rest.trim_start_of(" ,+.<&")
    };
    let ends = |quote: &Quote| quote.closes_line(text, at) && !next(quote).starts_of("\"'");
    if quote.as_ref().is_some_and(ends) {
        return None;
    }
    let quoted = quote.is_some();
    let string = || value::extent(&text[..floor(text, at + 256)], at);
    let secret = if quoted { string() } else { first };
    let word = &text[secret.clone()];
    if word.is_empty() || is_prose(word) || is_placeholder(word) || word.holds("://") {
        return None;
    }
    // `credentials are ada:x`
    if is_one_of(run.word(), "credentials creds zugangsdaten")
        && let Some((_, password)) = word.split_once([':', '/'])
        && is_mixed(password)
    {
        return Some(secret.end - password.len()..secret.end);
    }
    let secretive = || is_digits(trimmed(word)) || has_secret(word);
    let loose = is_mixed(word) && !is_dated(word);
    let of_secret = || linked || ends_with_one_of(run.behind(16).trim_end(), SECRET_KEYS);
    let fingerprint = || is_key_id(word) && (word.len() < 40 || !of_secret());
    let known = || is_uuid(word) || word.has_of("_") || fingerprint();
    let is_pin = is_one_of(run.word(), "pin otp passcode");
    let is_pin = is_pin && word.len() >= 4 && is_digits(word.trim_end_of("."));
    // `the password is "correct horse"`
    let named = linked && !run.word().eq_ignore_ascii_case("secret") && word.len() >= 6;
    let login = || quoted && run.word() == "pass" && secretive() && is_login(run);
    let fits = match noun {
        Noun::Password if quoted && (word.has_of(" ") || named) => linked || has_digit(word),
        _ if is_random(word) && noun != Noun::Key => true,
        Noun::Password if linked => is_mixed(word) || is_pin,
        Noun::Password if is_one_of(run.word(), "pin") && word.has_of("-") => false,
        Noun::Password => loose && (quoted || word.len() >= 6),
        // `user "ada" pass "x"`
        Noun::Token => (linked || login()) && loose && word.len() >= 6,
        Noun::Key => is_random(word) && (linked || secretive()) && !known(),
    };
    if !fits || word.starts_with('-') || !quoted && (word.ends_with(':') || !secretive()) {
        return None;
    }
    // `first` may be cut: only its beginning was read.
    let bare = || &text[at..bare_end(text, at)];
    let whole = if quoted { word } else { bare() };
    let end = secret.start + trimmed(whole).len();
    Some(changed_to(text, secret.start..end))
}

/// A word without the marks of a sentence behind it.
fn trimmed(word: &str) -> &str {
    word.trim_end_of(".,!?:")
}

/// Extends a secret by its new value: `from a to b`.
fn changed_to(text: &str, old: Range<usize>) -> Range<usize> {
    let rest = text[old.end..].strip_prefix(" to ");
    let new = rest.map_or("", |rest| trimmed(&rest[..bare_end(rest, 0)]));
    if !is_mixed(new) {
        return old;
    }
    old.start..old.end + " to ".len() + new.len()
}

/// Finds the word that an arrow or a colon points at, behind some words or in the next line:
/// `the key for prod -> x`.
fn pointed_at(run: &Run<'_>, noun: Noun) -> Option<Range<usize>> {
    let text = run.text;
    let line = until(run.ahead(96), "\n");
    let after = |arrow: &str| Some(line.find(arrow)? + arrow.len());
    let arrow = after("-> ").or_else(|| after("\u{2192} "));
    let below = || line.trim_end().ends_with(':').then_some(line.len());
    let start = match arrow {
        Some(arrow) => run.end + arrow,
        None => skip(text, run.end + below()?, char::is_whitespace),
    };
    let end = word_end(text, start, 256);
    let (word, rest) = (&text[start..end], &text[end..]);
    let alone = arrow.is_some() || rest.is_empty() || rest.starts_of("\n\r");
    let loose = is_mixed(word) && word.len() >= 6 && !is_dated(word);
    let password = noun == Noun::Password && loose;
    let fits = is_random(word) && !is_uuid(word) || password;
    (fits && alone && !is_placeholder(word)).then(|| start..bare_end(text, start))
}

/// `[token] x`, `token|x|`, `column password - [x]`: as logs set a value apart from its name.
fn labelled(run: &Run<'_>) -> Option<Range<usize>> {
    // `| SecretAccessKey |  x |`
    let cell = skip_blanks(run.text, run.end);
    let begins_cell = |at| run.text[skip_blanks(run.text, at)..].starts_with('|');
    if cell > run.end && begins_cell(cell) {
        let start = skip_blanks(run.text, cell + 1);
        let word = first_word(ahead(run.text, start, 256));
        let end = start + word.len();
        let row = run.line_before(128).has_of("|") && begins_cell(end);
        let fits = row && is_mixed(word) && has_secret(word);
        return (fits && run.is_strong(run.word())).then_some(start..end);
    }
    let mark = prefix_of(run.after(), &["] ", "|", " - ["])?;
    // `#[pin] field: T` has an attribute.
    let opened = mark != "] " || run.before().ends_with('[') && !run.before().ends_with("#[");
    let start = run.end + mark.len();
    let apart = |c: char| c.is_whitespace() || matches!(c, '|' | ']');
    let word = ahead(run.text, start, 256).split(apart).next()?;
    // `(?:password|token)\s*=` is a pattern.
    let pattern = word.starts_with(')') || word.holds("\\s*") || word.holds("\\s+");
    let fits = is_mixed(word) && !word.starts_with('-') && !is_placeholder(word) && !pattern;
    (opened && fits && run.is_strong(run.word())).then(|| start..start + word.len())
}

/// `verification code is 730 418`, `Recovery codes: a, b`, `Seed phrase: ...`, `1234 is your login
/// code`.
fn codes(run: &Run<'_>) -> Option<Range<usize>> {
    const KINDS: &str = "verification security one-time login access confirmation authentication recovery backup 2fa \
        sms seed secret scratch pass";
    let (text, before) = (run.text, run.behind(96));
    let sentence = before.trim_end();
    let kind = after_last(sentence, |c| !c.is_alphanumeric() && c != '-');
    let single = trimmed(run.word()).eq_ignore_ascii_case("code");
    let secret = if !is_one_of(kind, KINDS) {
        return None;
    } else if !single {
        let start = skip_blanks(text, run.end + prefix_of(run.after(), &[":"])?.len());
        start..lines_end(text, start)
    } else if let Some(i) = sentence.rfind(" is your ") {
        // `1234 is your Google verification code`
        let end = run.at - before.len() + i;
        end - after_last(&sentence[..i], char::is_whitespace).len()..end
    } else {
        let start = run.end + prefix_of(run.after(), &[" is ", ": ", " ist "])?.len();
        let part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || " -".contains(c);
        let near = ahead(text, start, 32);
        start..start + near[..skip(near, 0, part)].trim_end().len()
    };
    // A phrase has as many words as those of wallets; codes have digits.
    let shown = &text[secret.clone()];
    let phrase = !single && shown.split_of(" ").count() >= 10;
    let digits = shown.bytes().filter(u8::is_ascii_digit).count();
    (phrase || digits >= 4).then_some(secret)
}

/// The end of the line at `at`; of the list below if there is nothing in it.
fn lines_end(text: &str, at: usize) -> usize {
    let mut end = skip(text, at, |c| c != '\n');
    let below = text[at..end].trim().is_empty();
    while below && let Some(rest) = text.get(end + 1..) {
        let line = until(rest, "\n");
        let number = |c: char| c.is_ascii_digit() || c == '.' || c == ')';
        let item = line.trim_start().trim_start_matches(number);
        if line.trim().is_empty() || !item.starts_of(" -*") {
            break;
        }
        end += 1 + line.len();
    }
    end
}

/// `v2`, `2024-01-01`, `user_id2.name`: mixed, but known.
fn is_dated(word: &str) -> bool {
    word.trim_end_of("=").has_of("/.:=(")
        || word.starts_of(DIGITS) && word.has_of("-")
        || is_uuid(word)
}

/// `machine h login u password p`
fn netrc(run: &Run<'_>) -> Option<Range<usize>> {
    let before = run.behind(256);
    let head = &before[..before.rfind("login ")?];
    let machine = head.holds("machine ") || head.trim_end().ends_with("default");
    let start = skip_blanks(run.text, run.end);
    let secret = start..bare_end(run.text, start);
    let named = PASSWORDS.has(&run.text[secret.clone()]);
    (machine && start > run.end && !named).then_some(secret)
}

/// `api_key: too short (input_value='x', input_type=str)`: what was refused, beside the name of its
/// field in this line or the one before.
fn rejected(run: &Run<'_>) -> Option<Range<usize>> {
    let start = run.end + prefix_of(run.after(), &["="])?.len();
    let near = run.behind(256);
    let lines = near.rmatch_indices('\n').nth(1).map_or(0, |(i, _)| i + 1);
    let mut names = near[lines..].split(|c: char| !is_run(c));
    let named = names.any(|name| name.len() <= 64 && run.rules.announces(name));
    named.then(|| value::extent(run.text, start))
}

/// `host:5432:db:user:password`, `*:*:*:user:password`, alone in its line.
fn pgpass(run: &Run<'_>) -> Option<Range<usize>> {
    run.after().strip_prefix(':')?;
    let apart = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
    let stars = after_last(run.behind(16), apart);
    if !stars.bytes().all(|b| b"*:".contains(&b)) {
        return None;
    }
    let start = run.at - stars.len();
    let near = ahead(run.text, start, 512);
    let line = near.split(apart).next()?;
    let end = start + line.len();
    let fields: Vec<_> = line.splitn(5, ':').collect();
    let [_, port, database, user, password] = fields[..] else {
        return None;
    };
    let number = port == "*" || (4..=5).contains(&port.len()) && is_digits(port);
    let name = |s: &str| {
        let word = !s.starts_of(DIGITS) && run_end(s, 0) == s.len();
        s == "*" || !s.is_empty() && word
    };
    let whole = line.len() < near.len() || end == run.text.len();
    let fits = whole && number && name(database) && name(user) && !password.is_empty();
    fits.then(|| end - password.len()..end)
}
