//! The words by which keys are judged: lower case, separators removed.

use std::sync::{LazyLock, OnceLock};

/// The lists that a word of a key is in: a bit each.
pub(super) type Kinds = u16;

/// Parts that make a key sensitive in any position, and alone announce a secret in prose.
pub(super) const STRONG: Kinds = 1 << 0;
/// Parts that make a key sensitive in any position, but have many other uses in prose.
pub(super) const WEAK: Kinds = 1 << 1;
/// Words that make a key sensitive only as whole words; digits may follow.
pub(super) const WHOLE: Kinds = 1 << 2;
/// Such words without another meaning.
pub(super) const SURE: Kinds = 1 << 3;
/// Last words of names that have many other uses in data.
pub(super) const VAGUE: Kinds = 1 << 4;
/// Words that hold a sensitive part by accident. They count at the beginning of a word:
/// `author_id`, `authorname`; what follows is judged as usual (`author_token`).
pub(super) const HARMLESS: Kinds = 1 << 5;
/// Harmless names of several words; they count as whole words only.
pub(super) const PHRASE: Kinds = 1 << 6;
/// Words that make a number of the `tokens` after them.
pub(super) const QUANTITY: Kinds = 1 << 7;
/// Words that make a number of the `token` or `tokens` before them.
pub(super) const COUNT: Kinds = 1 << 8;
/// Words that make a number of the `tokens` before them.
pub(super) const COUNTS: Kinds = 1 << 9;
/// Last words of names of failures: the value is the reason, not a secret.
pub(super) const FAILURE: Kinds = 1 << 10;
/// Last words of names of properties of a secret, or of its place.
pub(super) const DESCRIBED: Kinds = 1 << 11;
/// First words of names of failures: `missing key: city`.
pub(super) const FAILING: Kinds = 1 << 12;
/// Nouns that announce a secret when they end a name of several words.
pub(super) const NOUN: Kinds = 1 << 13;
/// Weak parts with the word before them that makes them sure.
pub(super) const KIND: Kinds = 1 << 14;

/// The lists of words, in the order of their bits.
pub(super) fn lists() -> impl Iterator<Item = (Kinds, &'static str)> {
    let lists = include_str!("words.txt").lines().enumerate();
    lists.filter_map(|(bit, list)| Some((1 << bit, list.split_once(": ")?.1)))
}

/// The most common names of secrets: they are not taken apart.
pub(super) const COMMON: &str = "password passwd secret apikey api_key api-key x-api-key access_token refresh_token client_secret";

/// Passwords in other scripts.
#[rustfmt::skip]
pub(super) const FOREIGN: &[&str] = &[
    "пароль", "Пароль", "ПАРОЛЬ", "密码", "密碼", "口令", "暗証番号", "パスワード", "비밀번호", "암호", "şifre", "Şifre", "lösenord", "Lösenord", "mật khẩu", "סיסמה", "كلمة المرور", "κωδικός",
];

/// Three letters of each part and word that makes a key sensitive: a key without any of them is
/// not sensitive. (`pw` has two; the filter looks for it by itself.)
#[rustfmt::skip]
pub(super) const TRIGRAMS: &[&str] = &[
    "pas", "psw", "pwd", "tok", "key", "uth", "cre", "kie", "jwt", "nnw", "ras", "nha", "mne", "edp", "ryp", "ryc", "upc", "sse", "mlr",
    "rif", "ssi", "psk", "otp", "sig", "sid", "pin", "cvv", "cvc", "ses", "srf", "bea", "mdp", "asl", "nst", "wac",
];

/// Digits that stand for letters: `p4ssw0rd`.
pub(super) const DISGUISED: [&[u8; 5]; 2] = [b"43105", b"aeios"];

/// The kinds of each word.
pub(super) static WORDS: LazyLock<Index<Kinds>> = LazyLock::new(|| {
    let words = lists().flat_map(|(kind, words)| words.split(' ').map(move |word| (word, kind)));
    Index::new(words)
});

/// The kinds of a whole word.
pub(super) fn kinds(word: &str) -> Kinds {
    let same = WORDS
        .beginnings(word)
        .filter(|(known, _)| known.len() == word.len());
    same.fold(0, |kinds, (_, kind)| kinds | kind)
}

/// A list of words with blanks between them, and its index, which is made when it is first used.
pub(super) struct Words(&'static str, OnceLock<Index<()>>);

impl Words {
    pub(super) const fn of(words: &'static str) -> Self {
        Self(words, OnceLock::new())
    }

    /// Returns whether a word is one of the list, in any case.
    pub(super) fn has(&self, word: &str) -> bool {
        let words = || Index::new(self.0.split_whitespace().map(|word| (word, ())));
        self.1.get_or_init(words).has(word)
    }
}

impl Index<()> {
    /// Returns whether a word is one of the list, in any case.
    pub(super) fn has(&self, word: &str) -> bool {
        let mut known = self.0[self.slot(word.as_bytes())].iter();
        known.any(|(.., known, ())| known.eq_ignore_ascii_case(word))
    }
}

/// Words by their first two bytes, each with its first eight and which of them it has.
#[derive(Debug)]
pub(super) struct Index<T>(Vec<Vec<(u64, u64, &'static str, T)>>);

impl<T: Copy> Index<T> {
    pub(super) fn new(words: impl Iterator<Item = (&'static str, T)>) -> Self {
        let words: Vec<_> = words.collect();
        let slots = (8 * words.len()).next_power_of_two().min(1 << 10);
        let mut index = Self(vec![Vec::new(); slots]);
        for (word, value) in words {
            let mask = u64::MAX >> (64 - 8 * word.len().min(8));
            let slot = index.slot(word.as_bytes());
            index.0[slot].push((head(word.as_bytes()), mask, word, value));
        }
        index
    }

    fn slot(&self, text: &[u8]) -> usize {
        let byte = |at: usize| text.get(at).map_or(0, |b| usize::from(b & 31));
        (byte(0) << 5 | byte(1)) & (self.0.len() - 1)
    }

    /// Returns whether a word may begin as `text`: false is certain.
    pub(super) fn may_begin(&self, text: &[u8]) -> bool {
        !self.0[self.slot(text)].is_empty()
    }

    /// The words that `text` begins with.
    pub(super) fn beginnings(&self, text: &str) -> impl Iterator<Item = (&'static str, T)> {
        let known = &self.0[self.slot(text.as_bytes())];
        let begins = move |(begin, mask, word, _): &&(u64, u64, &str, T)| {
            head(text.as_bytes()) & mask == *begin && (word.len() <= 8 || text.starts_with(word))
        };
        let known = known.iter().filter(begins);
        known.map(|(.., word, value)| (*word, *value))
    }
}

/// The first eight bytes of a text.
fn head(text: &[u8]) -> u64 {
    if let Some(bytes) = text.first_chunk() {
        return u64::from_le_bytes(*bytes);
    }
    let bytes = text.iter().rev();
    bytes.fold(0, |head, byte| head << 8 | u64::from(*byte))
}
