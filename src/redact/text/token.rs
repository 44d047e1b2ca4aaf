//! Tokens that are told by their own looks: vendors' prefixes, JWTs, keys with a mark inside.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, is_one_of, skip},
    look::looks_secret,
    value::bare_end,
    vendors::{self, Tail, Vendor},
};

/// Tokens are longer than this.
const MIN: usize = 12;

pub(super) fn find(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let own = scan.rules.prefixes();
    let word = scan.word(run);
    if word.len() < MIN && own.is_empty() {
        return marked(scan, run);
    }
    let bytes = word.as_bytes();
    let mut before = b' ';
    let mut at = 0;
    while at < bytes.len() {
        let starts = !before.is_ascii_alphanumeric();
        before = bytes[at];
        if starts && before.is_ascii_alphanumeric() {
            let rest = &word[at..];
            if let Some(len) = length(rest, scan) {
                return Some(
                    run.at + at..(run.at + at + len).max(continued(scan.text, run.at + at + len)),
                );
            }
        }
        at += 1;
    }
    marked(scan, run)
}

/// Some tokens have marks in them at which a run ends.
fn continued(text: &str, end: usize) -> usize {
    let goes_on = text[end..].starts_with(['=', '%', '|']) && !text[end..].starts_with("%2");
    if goes_on { bare_end(text, end) } else { end }
}

/// The length of the token that `rest` begins with.
fn length(rest: &str, scan: &Scan<'_>) -> Option<usize> {
    if rest.starts_with("eyJ") {
        return is_json_token(rest).then(|| tail(rest, 0));
    }
    if let Some(len) = azure(rest)
        .or_else(|| airtable(rest))
        .or_else(|| discord(rest))
        .or_else(|| bitcoin(rest))
    {
        return Some(len);
    }
    let own = scan.rules.prefixes().iter().find_map(|prefix| {
        let after = rest.strip_prefix(&*prefix.text)?;
        let len = tail(after, 0);
        (len >= prefix.min_tail).then_some(prefix.text.len() + len)
    });
    own.or_else(|| {
        let long = rest.len() >= MIN;
        long.then(|| vendors::beginning_as(rest.as_bytes()).find_map(|vendor| fits(vendor, rest)))?
    })
}

fn fits(vendor: &Vendor, rest: &str) -> Option<usize> {
    if rest.len() < vendor.prefix.len() + vendor.min {
        return None;
    }
    let after = rest.strip_prefix(vendor.prefix)?;
    let near = ahead(after, 0, 160);
    let near = match vendor.tail {
        Tail::Dotted => &near[..tail(near, 0)],
        _ => &near[..segment(near)],
    };
    let fits = near.len() >= vendor.min
        && match vendor.tail {
            Tail::Any | Tail::Dotted => true,
            Tail::Digit => {
                near.bytes().any(|b| b.is_ascii_digit()) && !is_words(near) || is_mingled(near)
            }
            Tail::Hex => near.bytes().all(|b| b.is_ascii_hexdigit()),
            Tail::Upper => near
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()),
        };
    fits.then(|| vendor.prefix.len() + tail(after, 0))
}

/// Whether a tail is words with marks between them: `sk-learn-contrib-2024-edition`.
fn is_words(tail: &str) -> bool {
    let word = |s: &str| {
        s.bytes().all(|b| b.is_ascii_lowercase()) && s.len() <= 14
            || s.len() <= 4 && s.bytes().all(|b| b.is_ascii_digit())
    };
    tail.contains(['-', '_']) && tail.split(['-', '_']).all(word)
}

/// Whether a tail is one word of capitals and small letters that change places again and again, unlike
/// those of a name (`StatefulSetController`).
fn is_mingled(tail: &str) -> bool {
    let bytes = tail.as_bytes();
    let letters = bytes.iter().all(u8::is_ascii_alphabetic);
    let capitals = bytes.iter().filter(|b| b.is_ascii_uppercase()).count();
    letters && bytes.len() >= 20 && capitals >= bytes.len() / 4 && capitals < bytes.len()
}

/// How many characters of a token `text` begins with, dots not counted.
fn segment(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
        .unwrap_or(text.len())
}

/// The same, dots counted unless they end it.
fn tail(text: &str, from: usize) -> usize {
    let part =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '~' | '/');
    let end = text[from..]
        .find(|c| !part(c))
        .map_or(text.len(), |i| from + i);
    text[..end].trim_end_matches(['.', '/']).len()
}

/// JWT and JWE (`eyJ`: Base64 of `{"`): parts with dots between them, or one long part.
fn is_json_token(rest: &str) -> bool {
    let near = ahead(rest, 0, 160);
    let first = segment(near);
    first >= 40 || first >= 10 && near[first..].starts_with('.') && near.len() >= 20
}

/// Client secrets of Azure: three characters, a digit, `Q~`, 34 characters.
fn azure(rest: &str) -> Option<usize> {
    let mark = rest.get(4..6)? == "Q~";
    let long = rest.len() >= 36 && rest.as_bytes()[3].is_ascii_digit();
    (mark && long).then(|| tail(rest, 0))
}

/// Personal tokens of Airtable: `pat`, 14 characters, a dot, 64 hexadecimal digits.
fn airtable(rest: &str) -> Option<usize> {
    let id = rest.strip_prefix("pat")?.get(..14)?;
    let secret = rest.get(18..82).filter(|_| rest.as_bytes()[17] == b'.')?;
    let fits = id.bytes().all(|b| b.is_ascii_alphanumeric())
        && secret.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| tail(rest, 0))
}

/// Tokens of Discord's bots: the number of the bot in Base64, a time of 6 characters, 27 and more.
fn discord(rest: &str) -> Option<usize> {
    let first = matches!(rest.as_bytes()[0], b'M' | b'N' | b'O');
    if !first || rest.len() < 56 {
        return None;
    }
    let mut parts = ahead(rest, 0, 96).split('.');
    let mut part = |least: usize, most: usize| {
        let part = parts.next().unwrap_or_default();
        let part = &part[..segment(part)];
        (least..=most).contains(&part.len()).then_some(())
    };
    part(23, 28)?;
    part(6, 7)?;
    part(25, 45)?;
    Some(tail(rest, 0))
}

/// Private keys of Bitcoin: 51 or 52 characters of Base58 that begin with `5`, `K` or `L`.
fn bitcoin(rest: &str) -> Option<usize> {
    let len = match rest.as_bytes()[0] {
        b'5' => 51,
        b'K' | b'L' => 52,
        _ => return None,
    };
    let base58 = |b: u8| b.is_ascii_alphanumeric() && !matches!(b, b'0' | b'O' | b'I' | b'l');
    let fits = rest.len() == len
        && rest.bytes().all(base58)
        && rest.bytes().any(|b| b.is_ascii_lowercase())
        && rest.bytes().any(|b| b.is_ascii_uppercase());
    fits.then_some(len)
}

/// Bare keys that no prefix tells, but marks in them: Asana's `1/1234567890123456:x`, Kubernetes' bootstrap
/// tokens, the legacy ones of FCM, hashes of passwords, Braintree's.
pub(super) fn composed(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let (text, word) = (scan.text, scan.word(run));
    let after = scan.after(run);
    let end_of = |from: usize, part: fn(char) -> bool| skip(text, from, part);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match after.as_bytes().first()? {
        b':' if after.starts_with(":APA91b") => {
            let end = end_of(run.end + 1, plain);
            (end - run.end > 60).then_some(run.at..end)
        }
        // A line of `secretsdump`: `name:500:<LM hash>:<NT hash>:::`.
        b':' if is_hash(word)
            && after.get(1..33).is_some_and(is_hash)
            && after[33..].starts_with(":::") =>
        {
            Some(run.at..run.end + 33)
        }
        // `{SSHA}x`, as LDAP and Apache have hashes of passwords.
        b'}' if scan.before(run).ends_with('{') && is_one_of(word, LDAP_HASHES) => {
            let end = bare_end(text, run.end + 1);
            (end - run.end > 20).then_some(run.end + 1..end)
        }
        b':' => {
            let (version, id) = word.split_once('/')?;
            let id = id.rsplit('/').next().unwrap_or(id);
            let number = |s: &str, len| s.len() >= len && s.bytes().all(|b| b.is_ascii_digit());
            let hex = |c: char| c.is_ascii_hexdigit();
            let end = end_of(run.end + 1, hex);
            (number(version, 1) && version.len() == 1 && number(id, 12) && end - run.end > 32)
                .then_some(run.at..end)
        }
        b'$' if word == "access_token" => {
            let env = ["$production$", "$sandbox$"];
            let fits = env.iter().any(|env| after.starts_with(env));
            fits.then(|| run.at..bare_end(text, run.end))
        }
        b'$' if scan.before(run).ends_with('$') => {
            #[rustfmt::skip]
            const HASHES: &[&str] = &[
                "1", "2", "2a", "2b", "2x", "2y", "5", "6", "7", "y", "gy", "apr1", "argon2i", "argon2d", "argon2id",
                "scrypt", "pbkdf2-sha256", "pbkdf2-sha512", "bcrypt-sha256",
            ];
            if !HASHES.contains(&word) {
                return None;
            }
            let end = bare_end(text, run.end);
            let hash = &text[run.end..end];
            let fits = hash.len() >= 22 && hash.chars().skip(1).any(|c| c == '$');
            fits.then_some(run.at - 1..end)
        }
        // What a server of OAuth gives to a client.
        b'=' if matches!(word, "code" | "state") && scan.before(run).ends_with(['?', '&']) => {
            let end = bare_end(text, run.end + 1);
            (looks_secret(&text[run.end + 1..end]) && end - run.end > 20)
                .then_some(run.end + 1..end)
        }
        _ => None,
    }
}

const LDAP_HASHES: &[&str] = &[
    "sha", "ssha", "md5", "smd5", "crypt", "sha256", "ssha256", "sha512", "ssha512",
];

fn is_hash(word: &str) -> bool {
    word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The secret key that stands beside the id of an AWS key: 40 characters without a name.
pub(super) fn beside_id(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    let part = |b: u8| b.is_ascii_alphanumeric() || b"/+".contains(&b);
    let kinds: [fn(&u8) -> bool; 3] = [
        u8::is_ascii_lowercase,
        u8::is_ascii_uppercase,
        u8::is_ascii_digit,
    ];
    if word.len() != 40
        || !word.bytes().all(part)
        || !kinds.iter().all(|kind| word.bytes().any(|b| kind(&b)))
    {
        return None;
    }
    let near = [
        behind(scan.text, run.at, 200),
        ahead(scan.text, run.end, 200),
    ];
    let id = near
        .iter()
        .any(|near| near.contains("AKIA") || near.contains("ASIA"));
    id.then_some(run.at..run.end)
}

/// Keys with a mark at their end or inside: Mailchimp's `-us12`, Terraform's `.atlasv1.`.
fn marked(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    let end = word.trim_end_matches(['.', '/']);
    if end.len() < 32 {
        return None;
    }
    if let Some(i) = ahead(end, 0, 64).find(".atlasv1.") {
        let start = end[..i].rfind('/').map_or(0, |i| i + 1);
        return (i - start >= 10).then_some(run.at + start..run.end);
    }
    let (head, region) = end.rsplit_once("-us")?;
    let key = head.rsplit(['/', '.', '_']).next().unwrap_or(head);
    let hex = key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit());
    let numbered = (1..=2).contains(&region.len()) && region.bytes().all(|b| b.is_ascii_digit());
    let start = run.at + head.len() - key.len();
    (hex && numbered).then(|| start..run.at + end.len())
}
