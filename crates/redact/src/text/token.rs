//! Tokens that are recognised by their form alone: vendors' prefixes, JWTs, keys with a mark
//! inside.

use super::{Secret, prelude::*, vendors::*};

/// Tokens are longer than this.
const MIN: usize = 12;

pub(super) fn find<'a>(run: &Run<'a>) -> Option<Secret<'a>> {
    let word = run.word();
    if word.len() < MIN && run.rules.rows().is_empty() {
        return None;
    }
    let mut before = b' ';
    for (i, byte) in word.bytes().enumerate() {
        let starts = byte.is_ascii_alphanumeric() && !before.is_ascii_alphanumeric();
        before = byte;
        if let Some((rule, len)) = starts.then(|| length(run, i)).flatten() {
            let (start, end) = (run.at + i, run.at + i + len);
            // In a token there may be marks that end a run.
            let rest = &run.text[end..];
            let goes_on = rest.starts_of("=%|") && !rest.starts_with("%2");
            let whole = || bare_end(run.text, end);
            let end = if goes_on { whole() } else { end };
            return Some((rule, start..end));
        }
    }
    marked(run).filter(|(rule, _)| run.rules.allows(rule))
}

/// The id of a rule, and whether a text begins with its form.
type Form = (&'static str, fn(&str) -> bool);

/// Forms that are more than a prefix and a tail.
const FORMS: &[Form] = &[
    ("azure", is_azure),
    ("airtable", is_airtable),
    ("discord", is_discord),
    ("bitcoin", is_bitcoin),
];

/// The rule and the length of the token that begins `at` bytes behind the beginning of a run.
fn length<'a>(run: &Run<'a>, at: usize) -> Option<(&'a str, usize)> {
    let (before, rest) = (&run.text[..run.at + at], &run.word()[at..]);
    let mut own = run.rules.rows().iter();
    let own = own.find(|row| {
        let fits = || fits(&row.prefix, row.tail, row.min, rest);
        before.ends_with(&*row.anchor) && fits() && run.rules.allows(row.id())
    });
    if let Some(row) = own {
        let prefix = row.prefix.len();
        return Some((row.id(), prefix + tail(&rest[prefix..])));
    }
    if rest.starts_with("eyJ") && run.rules.allows("jwt") {
        return is_json_token(rest).then(|| ("jwt", tail(rest)));
    }
    let mut forms = FORMS.iter();
    if let Some((form, _)) = forms.find(|(form, is)| is(rest) && run.rules.allows(form)) {
        return Some((form, tail(rest)));
    }
    let vendors = BY_PREFIX.beginnings(rest).map(|(_, vendor)| vendor);
    let vendors = vendors.filter(|(id, prefix, tail, min)| {
        rest.len() >= MIN && fits(prefix, *tail, *min, rest) && run.rules.allows(id)
    });
    let (id, prefix, ..) = vendors.max_by_key(|(_, prefix, ..)| prefix.len())?;
    Some((id, prefix.len() + tail(&rest[prefix.len()..])))
}

/// Returns whether a text begins with a prefix, and a tail of at least `min` characters follows.
fn fits(prefix: &str, kind: Tail, min: usize, rest: &str) -> bool {
    let Some(after) = rest.strip_prefix(prefix) else {
        return false;
    };
    let near = ahead(after, 0, 320);
    let dotted = matches!(kind, Tail::Dotted);
    let near = &near[..if dotted { tail(near) } else { segment(near) }];
    let upper = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit();
    near.chars().filter(|c| is_plain(*c)).count() >= min
        && match kind {
            Tail::Any | Tail::Dotted => true,
            Tail::Lower if !near.starts_with(|c: char| c.is_ascii_lowercase()) => false,
            Tail::Plain => has_digit(near) && is_made_of(near, ""),
            Tail::Digit | Tail::Lower => has_digit(near) && !is_words(near) || is_mingled(near),
            Tail::Hex => is_hex(near),
            Tail::Upper => near.bytes().all(upper),
        }
}

/// Returns whether a tail is words with marks between them: `sk-learn-contrib-2024-edition`.
fn is_words(tail: &str) -> bool {
    let word = |s: &str| {
        s.len() <= 20 && s.bytes().all(|b| b.is_ascii_lowercase())
            || s.len() <= 4 && is_digits(s.strip_prefix('l').unwrap_or(s))
    };
    tail.has_of("-_") && tail.split_of("-_").all(word)
}

/// Returns whether a tail is one word of capitals and small letters that alternate, unlike
/// those of a name (`StatefulSetController`).
fn is_mingled(tail: &str) -> bool {
    let bytes = tail.as_bytes();
    let letters = bytes.iter().all(u8::is_ascii_alphabetic);
    let capitals = bytes.iter().filter(|b| b.is_ascii_uppercase()).count();
    letters && bytes.len() >= 20 && capitals >= bytes.len() / 4 && capitals < bytes.len()
}

/// How many characters of a token `text` begins with, dots not counted.
fn segment(text: &str) -> usize {
    text.len() - text.trim_start_matches(is_plain).len()
}

pub(super) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns the length of the token, dots included unless they end it.
fn tail(text: &str) -> usize {
    let rest = text.trim_start_matches(|c: char| is_plain(c) || ".+~/".contains(c));
    let token = &text[..text.len() - rest.len()];
    token.trim_end_of("./").len()
}

/// JWT and JWE (`eyJ`: Base64 of `{"`): parts with dots between them, or one long part.
fn is_json_token(rest: &str) -> bool {
    let near = ahead(rest, 0, 160);
    let first = segment(near);
    first >= 40 || first >= 10 && near[first..].starts_with('.') && near.len() >= 20
}

/// Client secrets of Azure: three characters, a digit, `Q~`, 34 characters.
fn is_azure(rest: &str) -> bool {
    rest.len() >= 36 && rest.as_bytes()[3].is_ascii_digit() && rest.get(4..6) == Some("Q~")
}

/// Personal tokens of Airtable: `pat`, 14 characters, a dot, 64 hexadecimal digits.
fn is_airtable(rest: &str) -> bool {
    let parts = rest.strip_prefix("pat").and_then(|it| it.cut("."));
    let is = |(id, secret): (&str, &str)| {
        id.len() == 14 && is_made_of(id, "") && secret.get(..64).is_some_and(is_hex)
    };
    parts.is_some_and(is)
}

/// Tokens of Discord's bots: the number of the bot in Base64, a time of 6 characters, 27 and more.
fn is_discord(rest: &str) -> bool {
    let mut parts = ahead(rest, 0, 96).split_of(".").map(segment);
    let mut lens = [23..=28, 6..=7, 25..=45].into_iter();
    let fits = lens.all(|len| parts.next().is_some_and(|part| len.contains(&part)));
    fits && rest.starts_of("MNO")
}

/// Private keys of Bitcoin: 51 or 52 characters of Base58 that begin with `5`, `K` or `L`.
fn is_bitcoin(rest: &str) -> bool {
    let len = match rest.as_bytes()[0] {
        b'5' => 51,
        b'K' | b'L' => 52,
        _ => return false,
    };
    let base58 = |b: u8| b.is_ascii_alphanumeric() && !b"0OIl".contains(&b);
    rest.len() == len && rest.bytes().all(base58) && has_both_cases(rest)
}

/// Bare keys without a prefix, but with marks in them: pairs of hashes, hashes of passwords,
/// Braintree's, the codes that a server of OAuth gives.
pub(super) fn composed(run: &Run<'_>) -> Option<Range<usize>> {
    const LDAP_HASHES: &str = "sha ssha md5 smd5 crypt sha256 ssha256 sha512 ssha512";
    const HASHES: &str = "1 2 2a 2b 2x 2y 5 6 7 y gy apr1 argon2i argon2d argon2id scrypt pbkdf2-sha256 pbkdf2-sha512 \
        bcrypt-sha256";
    let (text, word, before, after) = (run.text, run.word(), run.before(), run.after());
    let value = run.end + 1;
    // What begins at `from`, to the end of the word at `at`, if that is longer than `min`.
    let longer = |from: usize, at: usize, min: usize| {
        let end = bare_end(text, at);
        (end - run.end > min).then_some(from..end)
    };
    match after.as_bytes().first()? {
        // A pair of hashes, as in a line of `secretsdump`.
        b':' if is_hash(word) && after.get(1..33).is_some_and(is_hash) => {
            Some(run.at..run.end + 33)
        }
        b':' => {
            let (version, id) = word.cut("/")?;
            let id = after_last(id, |c| c == '/');
            let end = skip(text, value, |c| c.is_ascii_hexdigit());
            let numbers =
                version.len() == 1 && is_digits(version) && id.len() >= 12 && is_digits(id);
            (numbers && end - run.end > 32).then_some(run.at..end)
        }
        // `{SSHA}x`, as LDAP and Apache have hashes of passwords.
        b'}' if before.ends_with('{') && is_one_of(word, LDAP_HASHES) => longer(value, value, 20),
        b'$' if word == "access_token" => prefix_of(after, &["$production$", "$sandbox$"])
            .and_then(|_| longer(run.at, run.end, 0)),
        b'$' if before.ends_with('$') && is_one_of(word, HASHES) => {
            let hash = longer(run.at - 1, run.end, 21)?;
            text[value..hash.end].has_of("$").then_some(hash)
        }
        // What a server of OAuth gives to a client.
        b'=' if matches!(word, "code" | "state") && before.ends_of("?&") => {
            longer(value, value, 20).filter(|secret| looks_secret(&text[secret.clone()]))
        }
        _ => None,
    }
}

fn has_both_cases(word: &str) -> bool {
    word.bytes().any(|b| b.is_ascii_lowercase()) && word.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_hash(word: &str) -> bool {
    word.len() == 32 && is_hex(word)
}

/// The secret key that stands beside the id of an AWS key: 40 characters without a name.
pub(super) fn beside_id(run: &Run<'_>) -> Option<Range<usize>> {
    let word = run.word();
    let fits =
        word.len() == 40 && is_made_of(word, "/+") && has_both_cases(word) && has_digit(word);
    let id = |near: &str| near.holds("AKIA") || near.holds("ASIA");
    (fits && (id(run.behind(200)) || id(run.ahead(200)))).then_some(run.at..run.end)
}

/// Keys with a mark at their end or inside: MaxMind's `_mmk`, Mailchimp's `-us12`, Terraform's
/// `.atlasv1.`.
fn marked(run: &Run<'_>) -> Option<Secret<'static>> {
    let word = run.word().trim_end_of("./");
    if word.len() < 32 {
        return None;
    }
    if let Some((path, _)) = ahead(word, 0, 64).cut(".atlasv1.") {
        let id = after_last(path, |c| c == '/');
        let secret = run.at + path.len() - id.len()..run.end;
        return (id.len() >= 10).then_some(("terraform", secret));
    }
    if word.len() == 40 && word.ends_with("_mmk") && is_made_of(word, "_") {
        return Some(("maxmind", run.at..run.at + word.len()));
    }
    let (head, region) = word.cut_last("-us")?;
    let key = after_last(head, |c| matches!(c, '/' | '.' | '_'));
    let numbered = (1..=2).contains(&region.len()) && is_digits(region);
    let start = run.at + head.len() - key.len();
    (is_hash(key) && numbered).then(|| ("mailchimp", start..run.at + word.len()))
}
