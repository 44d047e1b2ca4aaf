//! Which keys have secrets as their values.

use super::{
    filter::suspicious,
    rules::Words,
    words::{
        COUNTS, DESCRIBED, FAILING, FAILURES, FOREIGN, HARMLESS_INDEX, Index, NOUNS, PHRASES_INDEX,
        QUANTITIES, STRONG_INDEX, WEAK_INDEX, WHOLE,
    },
};

/// Folded characters that are judged at once; a longer key is judged in pieces that overlap.
const PIECE: usize = 128;
const OVERLAP: usize = 48;

/// What a name says about the value beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// Nothing.
    Harmless,
    /// The value is a secret where names have values by their structure (JSON); in text it tells of one: `token_file`,
    /// `password_min_length`.
    Described,
    /// The value is a secret where names have values (JSON), but not where prose uses the word.
    Weak,
    /// The value is a secret in prose, too.
    Strong,
}

/// What `key` says by the built-in words and by `extra`.
pub(super) fn strength(key: &str, extra: Option<&Words>) -> Strength {
    if extra.is_none_or(|words| words.sensitive.is_empty()) && !suspicious(key) {
        return Strength::Harmless;
    }
    if !key.is_ascii() && FOREIGN.iter().any(|word| key.contains(word)) {
        return Strength::Strong;
    }
    let mut best = Strength::Harmless;
    let mut rest = key;
    loop {
        let (piece, next) = Folded::of(rest);
        best = best.max(piece.judge(extra));
        match next {
            Some(next) if best < Strength::Strong => rest = &rest[next..],
            _ => return best,
        }
    }
}

/// `word` in the form in which words are compared; empty if nothing is left of it.
pub(super) fn folded(word: &str) -> String {
    word.chars().filter_map(fold).map(char::from).collect()
}

/// A letter or digit in lower case; letters without an ASCII form stand as `?`. None for all others.
fn fold(c: char) -> Option<u8> {
    let c = looks_like(c);
    if !c.is_alphanumeric() {
        return None;
    }
    let lower = c.to_lowercase().next().unwrap_or(c);
    Some(
        u8::try_from(lower)
            .ok()
            .filter(u8::is_ascii)
            .unwrap_or(b'?'),
    )
}

/// The ASCII letter that a character looks like: full-width and mathematical forms, Cyrillic and Greek.
fn looks_like(c: char) -> char {
    const FROM: &str = "ſñÑłŁаеорсухіјѕԁһӏкмтвнАЕОРСУХІЈЅКМТВНαεικνορτυΑΒΕΖΗΙΚΜΝΟΡΤΥΧıɡɑ";
    const TO: &str = "snnllaeopcyxijsdhlkmtbhaeopcyxijskmtbhaeiknoptuabezhikmnoptyxiga";
    let letter = |at: u32| char::from(b'a' + (at % 26) as u8);
    match u32::from(c) {
        0..=0x7f => c,
        wide @ 0xff01..=0xff5e => char::from_u32(wide - 0xfee0).unwrap_or(c),
        circled @ 0x24b6..=0x24e9 => letter(circled - 0x24b6),
        mathematical @ 0x1d400..=0x1d6a3 => letter(mathematical - 0x1d400),
        _ => {
            let at = FROM.chars().position(|from| from == c);
            at.and_then(|at| TO.chars().nth(at)).unwrap_or(c)
        }
    }
}

/// A piece of a key without case and separators, and where its words begin.
struct Folded {
    bytes: [u8; PIECE],
    len: usize,
    starts: u128,
}

impl Folded {
    /// The beginning of `key`, and where the next piece begins if this is not all.
    fn of(key: &str) -> (Self, Option<usize>) {
        let mut piece = Self {
            bytes: [0; PIECE],
            len: 0,
            starts: 0,
        };
        let mut next = 0;
        let mut before = ' ';
        let mut chars = key.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            let Some(byte) = fold(c) else {
                // Zero-width characters and the like are nothing at all, other characters separate.
                if c.is_ascii() || c.is_whitespace() {
                    before = ' ';
                }
                continue;
            };
            if piece.len == PIECE {
                return (piece, Some(next));
            }
            let lower_follows = chars.peek().is_some_and(|(_, n)| n.is_lowercase());
            let starts = before == ' '
                || c.is_uppercase()
                    && (!before.is_uppercase() || before.is_uppercase() && lower_follows);
            if starts {
                piece.starts |= 1 << piece.len;
            }
            if piece.len == PIECE - OVERLAP {
                next = i;
            }
            piece.bytes[piece.len] = byte;
            piece.len += 1;
            before = c;
        }
        (piece, None)
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn starts_at(&self, i: usize) -> bool {
        i >= self.len || self.starts >> i & 1 == 1
    }

    /// Whether a word begins strictly inside of `from..to`.
    fn is_split(&self, from: usize, to: usize) -> bool {
        self.starts & mask(from + 1, to) != 0
    }

    /// The words, as ranges.
    fn words(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let from = at;
            if from >= self.len {
                return None;
            }
            at += 1;
            while !self.starts_at(at) {
                at += 1;
            }
            Some((from, at))
        })
    }

    fn judge(&self, extra: Option<&Words>) -> Strength {
        let covered = self.covered(extra);
        let bare = |from, to| covered & mask(from, to) != mask(from, to);
        let holds = |index: &Index| {
            (0..self.len).any(|i| {
                index
                    .prefixes_of(&self.text()[i..])
                    .any(|part| bare(i, i + part.len()))
            })
        };
        let own = extra.is_some_and(|words| {
            words
                .sensitive
                .iter()
                .any(|part| self.holds_own(part, &bare))
        });
        if own {
            return self.in_prose(Strength::Strong).max(Strength::Weak);
        }
        if holds(&STRONG_INDEX) || self.is_disguised() {
            return self.in_prose(Strength::Strong);
        }
        if self
            .words()
            .any(|(from, to)| bare(from, to) && self.is_whole(from, to))
        {
            return self.in_prose(Strength::Strong);
        }
        if holds(&WEAK_INDEX) {
            return self.in_prose(self.compound());
        }
        Strength::Harmless
    }

    /// `p4ssw0rd`: digits stand for letters.
    fn is_disguised(&self) -> bool {
        let letter = |b: &u8| match b {
            b'4' => b'a',
            b'3' => b'e',
            b'1' => b'i',
            b'0' => b'o',
            b'5' => b's',
            b => *b,
        };
        let words: [&[u8]; 3] = [b"password", b"passwort", b"passphrase"];
        words.iter().any(|word| {
            self.text()
                .windows(word.len())
                .any(|at| at.iter().map(letter).eq(word.iter().copied()))
        })
    }

    fn holds_own(&self, part: &str, bare: &impl Fn(usize, usize) -> bool) -> bool {
        (0..self.len)
            .any(|i| self.text()[i..].starts_with(part.as_bytes()) && bare(i, i + part.len()))
    }

    /// `pass`, `otp2`, `dbpass`.
    fn is_whole(&self, from: usize, to: usize) -> bool {
        let mut word = &self.text()[from..to];
        while let [head @ .., b'0'..=b'9'] = word {
            word = head;
        }
        word.ends_with(b"pass") || WHOLE.iter().any(|w| w.as_bytes() == word)
    }

    /// The places that harmless words take up.
    fn covered(&self, extra: Option<&Words>) -> u128 {
        let mut covered = 0;
        let mut before: &[u8] = &[];
        let mut words = self.words().peekable();
        while let Some((from, to)) = words.next() {
            let rest = &self.text()[from..];
            let word = &self.text()[from..to];
            let mut cover = |len: usize| covered |= mask(from, from + len);
            for harmless in HARMLESS_INDEX.prefixes_of(rest) {
                if !self.is_split(from, from + harmless.len()) {
                    cover(harmless.len());
                }
            }
            let own = extra.map_or(&[][..], |words| &words.harmless);
            let own = own.iter().filter(|word| rest.starts_with(word.as_bytes()));
            let own = own.map(|word| word.len());
            for len in PHRASES_INDEX.prefixes_of(rest).map(str::len).chain(own) {
                let end = from + len;
                if self.starts_at(end) || !self.is_split(from, end) {
                    cover(len);
                }
            }
            let after = words
                .peek()
                .map_or(&[][..], |(from, to)| &self.text()[*from..*to]);
            if is_count(before, word, after) {
                cover(word.len());
            }
            before = word;
        }
        covered
    }

    /// Whether a name that holds a weak part announces a secret: `X-Api-Key`, `mytoken`, but neither
    /// `token` nor `missing_key`.
    fn compound(&self) -> Strength {
        let (mut first, mut last, mut count) = ((0, 0), (0, 0), 0);
        for word in self.words() {
            if count == 0 {
                first = word;
            }
            (last, count) = (word, count + 1);
        }
        let mut word = &self.text()[last.0..last.1];
        while let [head @ .., b'0'..=b'9'] = word {
            word = head;
        }
        let failing = FAILING
            .iter()
            .any(|w| w.as_bytes() == &self.text()[first.0..first.1]);
        let noun = NOUNS.iter().any(|noun| noun.as_bytes() == word);
        let grown = ["token", "authorization"]
            .iter()
            .any(|noun| word.len() > noun.len() && word.ends_with(noun.as_bytes()));
        if (count > 1 && noun && !failing) || grown {
            Strength::Strong
        } else {
            Strength::Weak
        }
    }

    /// The strength of a name that does not tell of a failure (`PasswordExpiredError`), or of what a secret is like.
    fn in_prose(&self, strength: Strength) -> Strength {
        let Some((from, to)) = self.words().last() else {
            return strength;
        };
        let word = &self.text()[from..to];
        let one_of = |words: &[&str]| words.iter().any(|w| w.as_bytes() == word);
        if from > 0 && one_of(DESCRIBED) {
            Strength::Described
        } else if from > 0 && one_of(FAILURES) || word == b"keyerror" {
            Strength::Weak
        } else {
            strength
        }
    }
}

/// Whether a name is that of a connection string, which has a secret in it, or is one: `AzureWebJobsStorage_connection_string`.
pub(super) fn is_connection(name: &str) -> bool {
    if name.len() < "connstr".len() || !suspicious(name) {
        return false;
    }
    let (piece, _) = Folded::of(name);
    let parts: [&[u8]; 2] = [b"connectionstring", b"connstr"];
    parts
        .iter()
        .any(|part| piece.text().windows(part.len()).any(|at| at == *part))
}

/// Whether a name is one of those that say what a secret is like, of itself or by its last word: `file`, `set_at`.
pub(super) fn describes(name: &str) -> bool {
    let (piece, rest) = Folded::of(name);
    let last = piece.words().last();
    let word = last.map_or(&[][..], |(from, to)| &piece.text()[from..to]);
    rest.is_none() && DESCRIBED.iter().any(|w| w.as_bytes() == word)
}

/// Whether `word` is a `tokens` that is counted.
fn is_count(before: &[u8], word: &[u8], after: &[u8]) -> bool {
    let one_of = |words: &[&str], word: &[u8]| words.iter().any(|w| w.as_bytes() == word);
    word == b"tokens" && (one_of(QUANTITIES, before) || one_of(COUNTS, after))
        || word == b"token" && one_of(&COUNTS[..6], after)
}

/// The bits `from..to`.
fn mask(from: usize, to: usize) -> u128 {
    let below = |n: usize| if n >= 128 { u128::MAX } else { (1 << n) - 1 };
    below(to) & !below(from)
}
