//! Which keys have secrets as their values (S2).

/// Parts of a key that make its value a secret, wherever they stand in it.
const SENSITIVE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "key",
    "auth",
    "credential",
    "cookie",
];

/// Words that do so only as a whole.
const SENSITIVE_WORDS: &[&str] = &["pwd", "pass", "jwt", "otp", "sig"];

/// Words that hold a sensitive part by accident; taken out of a key before it is judged.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "author", "authors", "authored", "authoring", "monkey", "monkeys", "keyboard", "keyboards", "keyword", "keywords",
    "keynote", "keynotes", "keyframe", "keyframes", "keypoint", "keypoints", "turkey", "hockey", "donkey", "donkeys",
    "jockey", "whiskey", "tokenizer", "tokenize", "tokenized", "tokenization", "secretary", "maxtokens", "mintokens",
    "numtokens", "ntokens", "totaltokens", "inputtokens", "outputtokens", "prompttokens", "completiontokens",
    "tokencount",
];

/// Words that make a number of the `tokens` after them.
#[rustfmt::skip]
const QUANTITIES: &[&str] = &[
    "max", "min", "num", "n", "total", "input", "output", "prompt", "completion", "cached", "reasoning", "used",
    "remaining", "new",
];

/// Words that make a number of the `token` before them.
const COUNTS: &[&str] = &["count", "counts", "limit", "budget", "usage"];

/// Whether values under this key are secrets: it contains `password`, `token`, `secret`, `key`,
/// `auth`, `credential` or the like, in any case and with any separators, after harmless words
/// (`author`, `monkey`, `max_tokens` ...) are taken out. In doubt it is one.
///
/// ```
/// use tower_toolcall::redact::is_sensitive_key;
///
/// assert!(is_sensitive_key("X-Api-Key") && is_sensitive_key("adminTokens"));
/// assert!(!is_sensitive_key("max_tokens") && !is_sensitive_key("author"));
/// ```
pub fn is_sensitive_key(key: &str) -> bool {
    // A key longer than any sensible one is judged by its beginning and its end.
    let short;
    let key = if key.len() <= 256 {
        key
    } else {
        let (head, _) = crate::text::prefix(key, 128);
        let tail: String = key.chars().rev().take(128).collect();
        short = format!("{head} {}", tail.chars().rev().collect::<String>());
        &short
    };
    let words = words(key);
    let mut rest = String::new();
    for (i, word) in words.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &*words[i]);
        let after = words.get(i + 1).map(|w| &**w);
        let counted = word == "tokens" && before.is_some_and(|w| QUANTITIES.contains(&w))
            || word == "token" && after.is_some_and(|w| COUNTS.contains(&w));
        if counted || HARMLESS.contains(&&**word) {
            // A mark in its place, so that the rest does not grow together into a new word.
            rest.push('|');
        } else if SENSITIVE_WORDS.contains(&&**word) {
            return true;
        } else {
            rest.push_str(word);
        }
    }
    SENSITIVE.iter().any(|part| rest.contains(part))
}

/// The words of a key, in lower case: split at separators and where CamelCase splits.
pub(super) fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = key.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let starts = c.is_uppercase()
            && (before.is_lowercase()
                || before.is_uppercase() && chars.peek().is_some_and(|n| n.is_lowercase()));
        if starts || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}
