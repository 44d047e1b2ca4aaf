//! Which keys have secrets as their values.

use super::words::{self, *};
use super::{filter::suspicious, rules::Custom, text::bytes::*};

/// The strength with which a name marks its value as a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// Nothing.
    Harmless,
    /// The value is a secret where names have values by their structure (JSON). In text the value
    /// only describes one: `token_file`, `password_min_length`.
    Described,
    /// The value is a secret where names have values (JSON), but not where prose uses the word.
    Weak,
    /// The value is a secret in prose, too.
    Strong,
}

/// Returns the strength of `key` by the built-in words and by `extra`.
pub(super) fn strength(key: &str, extra: &Custom) -> Strength {
    if extra.sensitive.is_empty() && !suspicious(key) {
        return Strength::Harmless;
    }
    if is_one_of(key, COMMON) && extra.sensitive.is_empty() && extra.harmless.is_empty() {
        return Strength::Strong;
    }
    if !key.is_ascii() && FOREIGN.iter().any(|word| key.holds(word)) {
        return Strength::Strong;
    }
    Folded::of(key).judge(extra)
}

/// `word` in the form in which words are compared; empty if nothing is left of it.
pub(super) fn folded(word: &str) -> String {
    word.chars().filter_map(fold).collect()
}

/// Returns whether a key holds a [folded] word. Allocates nothing.
pub(super) fn holds(key: &str, word: &str) -> bool {
    key.char_indices().any(|(at, _)| {
        let mut rest = key[at..].chars().filter_map(fold);
        word.chars().all(|c| rest.next() == Some(c))
    })
}

/// A letter or digit in lower case, and in its ASCII form if it has one. `None` for other
/// characters.
fn fold(c: char) -> Option<char> {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric().then(|| c.to_ascii_lowercase());
    }
    let c = looks_like(c);
    c.to_lowercase().next().filter(|_| c.is_alphanumeric())
}

/// The ASCII letter that a character looks like: full-width and mathematical forms, Cyrillic and
/// Greek.
fn looks_like(c: char) -> char {
    const FROM: &str = "ſñÑłŁаеорсухіјѕԁһӏкмтвнАЕОРСУХІЈЅКМТВНαεικνορτυΑΒΕΖΗΙΚΜΝΟΡΤΥΧıɡɑ";
    const TO: &str = "snnllaeopcyxijsdhlkmtbhaeopcyxijskmtbhaeiknoptuabezhikmnoptyxiga";
    let letter = |at: u32| char::from(b'a' + (at % 26) as u8);
    match u32::from(c) {
        wide @ 0xff01..=0xff5e => char::from_u32(wide - 0xfee0).unwrap_or(c),
        circled @ 0x24b6..=0x24e9 => letter(circled - 0x24b6),
        mathematical @ 0x1d400..=0x1d6a3 => letter(mathematical - 0x1d400),
        _ => {
            let at = FROM.chars().position(|from| from == c);
            at.and_then(|at| TO.chars().nth(at)).unwrap_or(c)
        }
    }
}

/// A key without case and separators.
struct Folded {
    text: String,
    /// For each byte, whether a word begins with it.
    starts: Vec<bool>,
}

impl Folded {
    fn of(key: &str) -> Self {
        let mut text = String::with_capacity(key.len());
        let mut starts = Vec::with_capacity(key.len());
        let mut before = ' ';
        let mut chars = key.chars().peekable();
        while let Some(c) = chars.next() {
            if let Some(folded) = fold(c) {
                let lower_follows = chars.peek().is_some_and(|next| next.is_lowercase());
                let capital = c.is_uppercase() && (!before.is_uppercase() || lower_follows);
                text.push(folded);
                starts.push(before == ' ' || capital);
                starts.resize(text.len(), false);
                before = c;
            } else if c.is_ascii() || c.is_whitespace() {
                // It separates words. Zero-width characters and the like are ignored.
                before = ' ';
            }
        }
        Self { text, starts }
    }

    fn starts_at(&self, i: usize) -> bool {
        self.starts.get(i).is_none_or(|starts| *starts)
    }

    /// The words, and where each begins.
    fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let from = at;
            at = (from + 1..).find(|i| self.starts_at(*i))?;
            Some((from, self.text.get(from..at)?))
        })
    }

    fn last_word(&self) -> &str {
        self.words().last().map_or("", |(_, word)| word)
    }

    fn judge(&self, extra: &Custom) -> Strength {
        let covered = self.covered(extra);
        let bare = |at: usize, word: &str| covered[at..at + word.len()].contains(&false);
        let own = |part: &str| {
            let mut places = self.text.match_indices(part);
            places.any(|(at, part)| bare(at, part))
        };
        if extra.sensitive.iter().any(|part| own(part)) {
            return self.in_prose(Strength::Strong).max(Strength::Weak);
        }
        let whole = |(at, word)| bare(at, word) && is_whole(word);
        let parts = self.parts().filter(|(at, part, _)| bare(*at, part));
        let kinds = parts.fold(0, |kinds, (.., kind)| kinds | kind);
        match kinds & STRONG != 0 || self.is_disguised() || self.words().any(whole) {
            true => self.in_prose(Strength::Strong),
            false if kinds & WEAK != 0 => self.in_prose(self.compound()),
            false => Strength::Harmless,
        }
    }

    /// The known words that stand anywhere in the key, and their kinds.
    fn parts(&self) -> impl Iterator<Item = (usize, &'static str, Kinds)> {
        let places = self.text.char_indices();
        places.flat_map(|(at, _)| {
            let parts = WORDS.beginnings(&self.text[at..]);
            parts.map(move |(part, kind)| (at, part, kind))
        })
    }

    /// `p4ssw0rd`: digits stand for letters.
    fn is_disguised(&self) -> bool {
        let letter = |c| {
            let mut digits = DISGUISED[0].iter();
            let known = digits.position(|digit| char::from(*digit) == c);
            known.map_or(c, |at| char::from(DISGUISED[1][at]))
        };
        let is_password = |text: String| {
            let mut words = ["password", "passwort", "passphrase"].iter();
            words.any(|word| text.holds(word))
        };
        has_digit(&self.text) && is_password(self.text.chars().map(letter).collect())
    }

    /// For each byte, whether it belongs to a harmless word.
    fn covered(&self, extra: &Custom) -> Vec<bool> {
        let mut covered = vec![false; self.text.len()];
        let mut before = "";
        let mut words = self.words().peekable();
        while let Some((from, word)) = words.next() {
            let rest = &self.text[from..];
            let own = extra.harmless.iter().map(|own| &**own);
            let own = own.filter(|own| rest.starts_with(own));
            let own = own.map(|own| (own.len(), PHRASE));
            let known = WORDS
                .beginnings(rest)
                .map(|(known, kind)| (known.len(), kind));
            let known = known.filter(|(_, kind)| kind & (HARMLESS | PHRASE) != 0);
            for (len, kind) in known.chain(own) {
                let end = from + len;
                // No other word begins inside of it.
                let one = !self.starts[from + 1..end].contains(&true);
                if one || kind == PHRASE && self.starts_at(end) {
                    covered[from..end].fill(true);
                }
            }
            let after = words.peek().map_or("", |(_, after)| after);
            let counted = match word {
                "tokens" => is(before, QUANTITY) || is(after, COUNT | COUNTS),
                _ => word == "token" && is(after, COUNT),
            };
            if counted {
                covered[from..from + word.len()].fill(true);
            }
            before = word;
        }
        covered
    }

    /// Returns whether a name that holds a weak part announces a secret: `X-Api-Key`, `mytoken`,
    /// but neither `token` nor `missing_key`.
    fn compound(&self) -> Strength {
        let (_, first) = self.words().next().unwrap_or_default();
        let last = without_number(self.last_word());
        let several = self.starts.iter().skip(1).any(|starts| *starts);
        let noun = several && is(last, NOUN) && !is(first, FAILING);
        let grown = |noun: &str| last.len() > noun.len() && last.ends_with(noun);
        match noun || grown("token") || grown("authorization") {
            true => Strength::Strong,
            false => Strength::Weak,
        }
    }

    /// Lowers the strength of a name that is about a failure (`PasswordExpiredError`) or a property
    /// of a secret.
    fn in_prose(&self, strength: Strength) -> Strength {
        let word = self.last_word();
        let several = word.len() < self.text.len();
        match () {
            () if several && is(word, DESCRIBED) => Strength::Described,
            () if several && is(word, FAILURE) || word == "keyerror" => Strength::Weak,
            () => strength,
        }
    }
}

fn is(word: &str, kind: Kinds) -> bool {
    words::kinds(word) & kind != 0
}

/// `pass`, `otp2`, `dbpass`.
fn is_whole(word: &str) -> bool {
    let word = without_number(word);
    word.ends_with("pass") || is(word, WHOLE)
}

fn without_number(word: &str) -> &str {
    word.trim_end_of(DIGITS)
}

/// Returns whether a name is that of a connection string, which has a secret in it, or is one:
/// `AzureWebJobsStorage_connection_string`.
pub(super) fn is_connection(name: &str) -> bool {
    let is_in = |name: String| name.holds("connectionstring") || name.holds("connstr");
    suspicious(name) && is_in(folded(name))
}

/// Returns whether a name is one of those that say what a secret is like, of itself or by its last
/// word: `file`, `set_at`.
pub(super) fn describes(name: &str) -> bool {
    is(Folded::of(name).last_word(), DESCRIBED)
}

/// Returns whether a name that announces a secret is never that of something else: `db_password`,
/// `access_token`, but neither `min_key` nor `pin`.
pub(super) fn is_sure(name: &str) -> bool {
    let whole = Folded::of(name);
    let is_sure = |(_, word)| is(without_number(word), SURE);
    whole.parts().any(|(.., kind)| kind & (STRONG | KIND) != 0)
        || whole.words().any(is_sure)
        || FOREIGN.iter().any(|word| name.holds(word))
}

/// Returns whether a name ends with a word that data has for many other things.
pub(super) fn is_vague(name: &str) -> bool {
    let name = Folded::of(name);
    let last = without_number(name.last_word());
    last.ends_with("key") || is(last, VAGUE)
}
