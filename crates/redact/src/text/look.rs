//! The look of words: random, mixed, prose.

use std::{collections::HashSet, sync::LazyLock};

use super::{bytes::*, code::has_literal};
use crate::{REDACTED, keys::Strength, rules::BUILT_IN};

/// Words that stand in prose after `password`, `token`, `Bearer` and the like.
static PROSE: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("prose.txt").split_whitespace().collect());

/// Returns whether `word` is one of [`PROSE`], with or without a mark behind it.
pub(super) fn is_prose(word: &str) -> bool {
    let word = word.trim_end_of(".,:;!?)");
    word.len() <= 16 && PROSE.contains(&*word.to_ascii_lowercase())
}

/// Returns whether a word is a placeholder of a secret: `***`, `...`, `<token>`, `YOUR_API_KEY`,
/// `$1`, or variables with marks between them (`${USER}:{{ token }}`).
pub(super) fn is_placeholder(word: &str) -> bool {
    let hidden = |c: char| "*.\u{2022}\u{2026}-_?xX".contains(c);
    if word.chars().all(hidden) || word.starts_with("...[truncated]") {
        return !word.is_empty();
    }
    let mut rest = word.trim_end_of(".,;");
    // Marks of Terraform and others.
    let mark = matches!(
        word,
        "(sensitive value)" | "(known after apply)" | "[hidden]" | "[masked]"
    );
    if mark || word.starts_with("$(") && word.ends_with(')') || is_name_itself(rest) {
        return true;
    }
    while let Some(len) = variable(rest) {
        rest = rest[len..].trim_start_of(":/@-");
        if rest.is_empty() {
            return true;
        }
    }
    false
}

/// Returns whether a word is the name of a secret instead of one: `PASSWORD`, `your-api-key`.
fn is_name_itself(word: &str) -> bool {
    const PARTS: &str = "access api apikey app auth client credential credentials db github here id key my name openai \
        pass passphrase passwd password private pwd refresh secret session the token user username value your";
    let parts = |word: &str| word.split_of("_-").all(|part| is_one_of(part, PARTS));
    let sign = |b: u8| b.is_ascii_uppercase() || b"_-".contains(&b);
    let upper = word.bytes().all(sign);
    let owned = |owner| strip_ignore_case(word, owner).is_some_and(|rest| rest.starts_of("_-"));
    let yours = owned("your") || owned("my");
    (yours || upper && BUILT_IN.strength(word) > Strength::Harmless) && parts(word)
}

/// The length of the variable that `text` begins with.
fn variable(text: &str) -> Option<usize> {
    #[rustfmt::skip]
    const BRACKETS: &[(&str, &str)] = &[
        ("${{", "}}"), ("{{", "}}"), ("${", "}"), ("#{", "}"), ("%(", ")s"), ("$(", ")"), ("{", "}"), ("<", ">"), ("%", "%"),
    ];
    if let Some((open, close)) = BRACKETS.iter().find(|(open, _)| text.starts_with(open)) {
        let (name, _) = text[open.len()..].cut(close)?;
        // `{{ lookup('env', 'API_KEY') }}`, `{{resolve:ssm:name}}`
        let begins = prefix_of(name.trim_start_of(" "), &["lookup(", "resolve:"]).is_some();
        let call = *close == "}}" && begins && !name.holds("default") && !has_literal(name, true);
        let marks = if call { "_-. (),'\"|:/" } else { "_-. " };
        let max = if call { 64 } else { 40 };
        let plain = |b: u8| b.is_ascii_alphabetic() || marks.as_bytes().contains(&b);
        let fits = (1..=max).contains(&name.trim().len()) && name.trim().bytes().all(plain);
        return fits.then_some(open.len() + name.len() + close.len());
    }
    let rest = text.strip_prefix(['$', '%'])?;
    let name = &rest[..skip(rest, 0, |c| c.is_ascii_alphanumeric() || c == '_')];
    let constant = name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') && name.len() >= 2;
    let number = name.len() <= 2 && is_digits(name);
    let secret = || BUILT_IN.strength(name) > Strength::Harmless;
    let known = constant || number || name == "s" || !has_digit(name) && secret();
    (known && !name.is_empty()).then_some(1 + name.len())
}

/// The letters and digits of a word.
#[derive(Default)]
struct Make<'w> {
    /// The word without the marks of a sentence around it.
    word: &'w str,
    len: usize,
    digits: usize,
    lower: bool,
    inner_upper: bool,
    /// How often a letter follows a digit or a digit a letter.
    changes: usize,
    /// Set if there is a blank, or a secret that was redacted before.
    parted: bool,
}

impl<'w> Make<'w> {
    fn of(word: &'w str) -> Self {
        let mut make = Self::default();
        let mut before: Option<bool> = None;
        make.word = word.trim_of("\"'`\\.,:!)(");
        make.parted = word.holds(REDACTED);
        for c in make.word.chars().take(256) {
            let digit = c.is_ascii_digit();
            make.inner_upper |= make.len > 0 && c.is_uppercase();
            make.len += 1;
            make.digits += usize::from(digit);
            make.lower |= c.is_lowercase();
            make.parted |= c.is_whitespace();
            if c.is_alphanumeric() {
                make.changes += usize::from(before.is_some_and(|b| b != digit));
                before = Some(digit);
            }
        }
        make
    }
}

/// Returns whether a word does not look like prose: long, with a digit or with capitals inside.
pub(super) fn looks_secret(word: &str) -> bool {
    let make = Make::of(word);
    let capitals = || make.lower && make.inner_upper && !is_type_name(make.word);
    !make.parted
        && !is_date(word)
        && (make.len >= 32 || make.len >= 8 && (make.digits > 0 || capitals()))
}

/// Returns whether a word of letters is the name of a type or of a value in code, in which capitals
/// begin words: `HTTPBasicAuthHandler`, `refreshToken`.
fn is_type_name(word: &str) -> bool {
    let bytes = word.as_bytes();
    let lower = bytes.iter().filter(|b| b.is_ascii_lowercase()).count();
    let begins = |pair: &&[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    let begun = bytes.windows(2).filter(begins).count();
    let named = is_made_of(word, "_.:") && !has_digit(word);
    named && begun * 6 <= bytes.len() && lower * 2 >= bytes.len()
}

/// Returns whether a word of prose is a secret after a word that names one: letters and digits or
/// signs mixed.
pub(crate) fn is_mixed(word: &str) -> bool {
    let make = Make::of(word);
    let signs = || make.word.has_of("!#$%^&*@");
    let letters = || make.len > make.digits && make.word.contains(char::is_alphabetic);
    let mixed = make.len >= 4 && (make.digits > 0 || signs()) && letters();
    mixed && !make.parted && !is_date(make.word)
}

/// `2026-01-31`, alone or with a time of day. Stricter than [`is_date`]: `1234-56-7890123456` may
/// be a credential.
pub(crate) fn is_moment(word: &str) -> bool {
    let time = word.get(10..).unwrap_or_default();
    let of_day = time.starts_of("T ") && time.get(3..4) == Some(":");
    is_date(word) && (time.is_empty() || of_day && word.len() <= MAX_MOMENT)
}

/// `2026-01-31 10:00:00.123456789 +00:00`
const MAX_MOMENT: usize = 36;

/// `2026-01-31`, with a time or not.
pub(super) fn is_date(word: &str) -> bool {
    let digit = |b: &u8| if b.is_ascii_digit() { b'0' } else { *b };
    let (day, time) = word.as_bytes().split_at(word.len().min(10));
    day.iter().map(digit).eq(*b"0000-00-00") && time.iter().all(|b| b"0TZ:.+- ".contains(&digit(b)))
}

/// Returns whether a word consists of words and numbers: `user:1234:profile`.
pub(super) fn is_composed(word: &str) -> bool {
    let mut parts = word.split_of(":/_-.");
    parts.all(|part| is_digits(part) || part.bytes().all(|b| b.is_ascii_lowercase()))
}

/// Returns whether a value is a version of a program: `0.10.3`, `^4.0.0-beta.2`. One that a
/// password could be needs two dots or a mark before it.
pub(super) fn is_version(value: &str, sure: bool) -> bool {
    let version = value.trim_start_of("^~><=v ");
    let end = version.find_of("-+").unwrap_or(version.len());
    let mut parts = version[..end].split_of(".");
    let dots = parts.clone().count() - 1;
    let numbers = parts.all(|part| !part.is_empty() && part.len() <= 5 && is_digits(part));
    let tail = is_made_of(&version[end..], ".-+") && version.len() <= 32;
    let marked = value.starts_of("^~><");
    numbers && tail && dots >= 1 && (sure || marked || dots >= 2)
}

/// Returns whether a value is a number of up to five digits: a port, a line, a count.
pub(super) fn is_small_number(value: &str) -> bool {
    value.len() <= 5 && is_digits(value)
}

/// Returns whether a word is long and random, and neither an address nor a list of fields.
pub(crate) fn is_opaque(word: &str) -> bool {
    let word = word.trim().trim_end_of("=");
    word.len() >= 16 && looks_secret(word) && !word.has_of("=; ") && !word.holds("://")
}

/// Returns whether a word is a number in hexadecimal that names a key: `9f2c04be01d3a2ff`,
/// `0x2b7c2fbb`, or a fingerprint of PGP: 40 hexadecimal digits in capitals.
pub(super) fn is_key_id(word: &str) -> bool {
    let word = Make::of(word).word;
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let upper = !digits.contains(char::is_lowercase);
    (matches!(digits.len(), 8 | 16) || digits.len() == 40 && upper) && is_hex(digits)
}

/// Returns whether a word is random. A word that only ends in a number is not, nor is a path, a
/// date or a name with marks.
pub(super) fn is_random(word: &str) -> bool {
    let make = Make::of(word);
    let named = make.word.has_of("./:@(=") || word.holds(REDACTED);
    let plain = || is_made_of(make.word, "");
    let long =
        make.len >= 16 && make.digits > 0 || make.len >= 20 && make.inner_upper && make.lower;
    !named
        && make.word.contains(|c: char| c.is_ascii_alphabetic())
        && (make.changes >= 3 && make.len >= 8 || long && plain())
}

/// Returns whether letters and digits take turns in a word, as in no name of a function.
pub(super) fn alternates(word: &str) -> bool {
    Make::of(word).changes > 3
}

/// `550e8400-e29b-41d4-a716-446655440000`
pub(super) fn is_uuid(word: &str) -> bool {
    let parts = Make::of(word).word.split_of("-");
    let lens = parts.map(|part| if is_hex(part) { part.len() } else { 0 });
    lens.eq([8, 4, 4, 4, 12])
}

/// Returns whether a value means that there is none, or is a truth value.
pub(super) fn is_null(value: &str) -> bool {
    is_one_of(
        value,
        "null none nil undefined true false None, \\N [] {} ()",
    )
}

/// The first word of a value.
pub(super) fn first_word(value: &str) -> &str {
    value.split(char::is_whitespace).next().unwrap_or(value)
}
