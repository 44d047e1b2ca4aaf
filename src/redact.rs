//! Keeping secrets and bulk out of everything that people and log stores read.
//!
//! [`Redacted`] is a lazy view of JSON: it is made while it is printed or serialised, costs nothing
//! before, and never copies the value. Values under [sensitive keys](is_sensitive_key) become
//! `[REDACTED]`, long strings are cut, depth and size are bounded. [`redact_text`] does what can be
//! done for free text.
//!
//! Bounds: strings of [`MAX_STRING`] characters, [`MAX_DEPTH`] levels, [`MAX_NODES`] values.

use std::{borrow::Cow, cell::Cell, fmt};

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{Map, Value};

use crate::text::{TRUNCATED, truncate};

/// What stands in the place of a secret.
pub const REDACTED: &str = "[REDACTED]";

/// Longer strings are cut, in characters (S3).
pub const MAX_STRING: usize = 200;

/// Deeper levels are shown as `"[...]"`.
pub const MAX_DEPTH: usize = 16;

/// After so many values the rest is left out.
pub const MAX_NODES: usize = 1000;

/// A redacted view of JSON. `Display` prints JSON, `Serialize` gives the same structure.
#[derive(Clone, Copy)]
pub struct Redacted<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Map(&'a Map<String, Value>),
    Value(&'a Value),
}

impl<'a> Redacted<'a> {
    /// The view of an object.
    pub fn of_map(map: &'a Map<String, Value>) -> Self {
        Self(Source::Map(map))
    }

    /// The view of any value.
    pub fn of(value: &'a Value) -> Self {
        Self(Source::Value(value))
    }
}

impl Serialize for Redacted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nodes = Cell::new(MAX_NODES);
        let walk = Walk {
            nodes: &nodes,
            depth: 0,
        };
        match self.0 {
            Source::Map(map) => walk.map(map, serializer),
            Source::Value(value) => Node { value, walk }.serialize(serializer),
        }
    }
}

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Utf8<'f, 'b>(&'f mut fmt::Formatter<'b>);
        impl std::io::Write for Utf8<'_, '_> {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                // serde_json writes whole UTF-8 strings.
                let text = std::str::from_utf8(bytes).map_err(std::io::Error::other)?;
                self.0.write_str(text).map_err(std::io::Error::other)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        serde_json::to_writer(Utf8(f), self).map_err(|_| fmt::Error)
    }
}

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Copy)]
struct Walk<'n> {
    nodes: &'n Cell<usize>,
    depth: usize,
}

impl Walk<'_> {
    /// Counts a value; false once there were too many.
    fn admit(&self) -> bool {
        let left = self.nodes.get();
        self.nodes.set(left.saturating_sub(1));
        left > 0
    }

    fn deeper(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }

    fn map<S: Serializer>(self, map: &Map<String, Value>, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_map(None)?;
        for (key, value) in map {
            if !self.admit() {
                out.serialize_entry("...", TRUNCATED)?;
                break;
            }
            let shown = Short(key);
            if is_sensitive_key(key) {
                out.serialize_entry(&shown, REDACTED)?;
            } else {
                let walk = self.deeper();
                out.serialize_entry(&shown, &Node { value, walk })?;
            }
        }
        out.end()
    }
}

/// A key, cut like a string: a caller may put bulk there too.
struct Short<'a>(&'a str);

impl Serialize for Short<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&truncate(&redact_text(self.0), MAX_STRING))
    }
}

struct Node<'a, 'n> {
    value: &'a Value,
    walk: Walk<'n>,
}

impl Serialize for Node<'_, '_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.walk.depth >= MAX_DEPTH && (self.value.is_array() || self.value.is_object()) {
            return s.serialize_str("[...]");
        }
        match self.value {
            Value::String(text) => {
                // Cut first, with room for a secret that spans the cut.
                let (head, _) = crate::text::prefix(text, 4 * MAX_STRING);
                s.serialize_str(&truncate(&redact_text(head), MAX_STRING))
            }
            Value::Object(map) => self.walk.map(map, s),
            Value::Array(items) => {
                let mut out = s.serialize_seq(None)?;
                for value in items {
                    if !self.walk.admit() {
                        out.serialize_element(TRUNCATED)?;
                        break;
                    }
                    let walk = self.walk.deeper();
                    out.serialize_element(&Node { value, walk })?;
                }
                out.end()
            }
            plain => plain.serialize(s),
        }
    }
}

/// Parts of a key that make its value a secret (S2).
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

/// Words that hold a sensitive part by accident; taken out of a key before it is judged.
const HARMLESS: &[&str] = &[
    "author",
    "monkey",
    "keyboard",
    "keyword",
    "keynote",
    "turkey",
    "hockey",
    "donkey",
    "jockey",
    "whiskey",
    "maxtokens",
    "mintokens",
    "totaltokens",
    "inputtokens",
    "outputtokens",
    "prompttokens",
    "completiontokens",
    "tokencount",
    "tokenizer",
    "tokenize",
    "keyframe",
    "secretary",
];

/// Whether values under this key are secrets: it contains `password`, `token`, `secret`, `key`,
/// `auth`, `credential` or the like, in any case and with any separators, after harmless words
/// (`author`, `monkey`, `max_tokens` ...) are taken out. In doubt it is one.
pub fn is_sensitive_key(key: &str) -> bool {
    // A key longer than any sensible one is judged by its beginning and its end.
    let mut word = String::with_capacity(key.len().min(256));
    let letters = |c: &char| c.is_alphanumeric();
    if key.len() <= 256 {
        word.extend(key.chars().filter(letters).flat_map(char::to_lowercase));
    } else {
        let (head, _) = crate::text::prefix(key, 128);
        word.extend(head.chars().filter(letters).flat_map(char::to_lowercase));
        let tail: Vec<char> = key.chars().rev().take(128).collect();
        word.extend(
            tail.iter()
                .rev()
                .filter(|c| letters(c))
                .flat_map(|c| c.to_lowercase()),
        );
    }
    if !SENSITIVE.iter().any(|part| word.contains(part)) {
        return false;
    }
    // `authorization` begins like `author` and is none.
    word = word.replace("authoriz", "auth").replace("authoris", "auth");
    for harmless in HARMLESS {
        if word.contains(harmless) {
            // A mark in its place, so that the rest does not grow together into a new word.
            word = word.replace(harmless, "|");
        }
    }
    SENSITIVE.iter().any(|part| word.contains(part))
}

/// Prefixes of well-known vendors' keys.
const KEY_PREFIXES: &[&str] = &[
    "sk-",
    "sk_",
    "pk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "hf_",
    "npm_",
    "pypi-",
    "dop_v1_",
    "shpat_",
    "SG.",
    "whsec_",
    "lsv2_",
    "gsk_",
    "xai-",
];

/// Free text without the secrets that can be told by their looks: `Bearer x`, `Basic x`, `key=x` and
/// `"key": "x"` under sensitive keys, `scheme://user:password@`, private-key blocks, and well-known
/// vendors' key prefixes. Linear in the text; borrows it if nothing is found.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let token_len = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        if token_len == 0 {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        if let Some(secret) = secret_at(text, at, token_len) {
            out.push_str(&text[copied..secret.start]);
            out.push_str(REDACTED);
            copied = secret.end;
            at = secret.end;
        } else {
            at += token_len;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Characters that names, keys and tokens are made of.
fn is_token(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '~')
}

/// The secret that begins with, or is announced by, the token at `at`.
fn secret_at(text: &str, at: usize, len: usize) -> Option<std::ops::Range<usize>> {
    let token = &text[at..at + len];
    let after = at + len;
    let rest = &text[after..];

    if token == "-----BEGIN"
        && rest
            .trim_start()
            .get(..64.min(rest.trim_start().len()))
            .is_some_and(|r| r.contains("PRIVATE"))
    {
        let end = rest.find("-----END").map_or(text.len(), |i| {
            let tail = &text[after + i..];
            after + i + tail[8..].find("-----").map_or(tail.len(), |j| 8 + j + 5)
        });
        return Some(at..end);
    }
    let scheme = ["bearer", "basic", "digest", "token"];
    if scheme.iter().any(|s| token.eq_ignore_ascii_case(s)) {
        let gap = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let value = word_end(&rest[gap..]);
        // Prose says "basic auth failed"; a credential is longer, or not a plain word.
        if gap > 0 && looks_secret(&rest[gap..gap + value]) {
            return Some(after + gap..after + gap + value);
        }
    }
    // `key=value`, `key: value`, `"key": "value"`.
    let name = token.rsplit(['/', '.']).next().unwrap_or(token);
    if is_sensitive_key(name) {
        let gap = rest.len() - rest.trim_start_matches(['"', '\'', '\\', ' ']).len();
        let mark = &rest[gap..];
        if mark.starts_with('=') || mark.starts_with(':') && !mark.starts_with("://") {
            let inner = mark[1..].trim_start_matches(['"', '\'', '\\', ' ']);
            let start = text.len() - inner.len();
            let mut end = start + word_end(inner);
            // `Authorization: Bearer x`: the scheme goes with what it announces.
            if scheme
                .iter()
                .any(|s| text[start..end].eq_ignore_ascii_case(s))
            {
                let more = &text[end..];
                let gap = more.len() - more.trim_start_matches(' ').len();
                end += gap + word_end(&more[gap..]);
            }
            if end > start {
                return Some(start..end);
            }
        }
    }
    // `scheme://user:password@host`.
    if let Some(authority) = rest.strip_prefix("://") {
        let end = authority
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\''))
            .unwrap_or(authority.len());
        if let Some(sign) = authority[..end].rfind('@') {
            return Some(after + 3..after + 3 + sign);
        }
    }
    KEY_PREFIXES.iter().find_map(|prefix| {
        let i = token.find(prefix)?;
        let starts = i == 0 || !token.as_bytes()[i - 1].is_ascii_alphanumeric();
        (starts && token.len() - i >= prefix.len() + 12).then_some(at + i..after)
    })
}

/// Where a value ends: at a blank, a quote, or a mark that separates fields.
fn word_end(text: &str) -> usize {
    text.find(|c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | '&' | ',' | ';' | ')' | '}' | ']' | '\\')
    })
    .unwrap_or(text.len())
}

fn looks_secret(word: &str) -> bool {
    word.len() >= 16
        || word.len() >= 6
            && !word
                .chars()
                .all(|c| c.is_ascii_lowercase() || ".:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_under_sensitive_keys_are_redacted_at_any_depth() {
        let value = json!({ "user": "ada", "password": "hunter2", "a": [{ "X-Auth-Token": 7 }] });
        let shown: Value = serde_json::from_str(&Redacted::of(&value).to_string()).unwrap();
        assert_eq!(
            shown,
            json!({ "user": "ada", "password": REDACTED, "a": [{ "X-Auth-Token": REDACTED }] })
        );
    }

    #[test]
    fn sensitive_keys_are_told_from_their_look_alikes() {
        for key in [
            "apiKey",
            "api_key",
            "X-Auth-Token",
            "client-secret",
            "passwd",
            "privateKey",
            "accesskey",
            "mytoken",
            "authheader",
            "Authorization",
            "PASSWORD",
            "author_token",
        ] {
            assert!(is_sensitive_key(key), "{key}");
        }
        for key in [
            "max_tokens",
            "monkey",
            "author",
            "keyboard",
            "maxTokens",
            "query",
            "keywords",
        ] {
            assert!(!is_sensitive_key(key), "{key}");
        }
    }

    #[test]
    fn secrets_in_free_text_are_redacted_and_the_rest_is_kept() {
        let cases = [
            (
                "Authorization: Bearer abcdef123456",
                "Authorization: [REDACTED]",
            ),
            (
                "sent Bearer abc.def-123456 twice",
                "sent Bearer [REDACTED] twice",
            ),
            (
                "GET /x?api_key=s3cr3t&q=1 failed",
                "GET /x?api_key=[REDACTED]&q=1 failed",
            ),
            (
                r#"{"password": "hunter2", "q": 1}"#,
                r#"{"password": "[REDACTED]", "q": 1}"#,
            ),
            ("postgres://ada:pw@db/x", "postgres://[REDACTED]@db/x"),
            (
                "key sk-proj-abcdefghijklmnop is wrong",
                "key [REDACTED] is wrong",
            ),
            ("connection refused", "connection refused"),
            ("basic auth failed", "basic auth failed"),
        ];
        for (text, expected) in cases {
            assert_eq!(redact_text(text), expected);
        }
    }

    #[test]
    fn a_private_key_block_goes_as_a_whole() {
        let text = "x -----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY----- y";
        assert_eq!(redact_text(text), "x [REDACTED] y");
    }

    #[test]
    fn output_is_bounded_in_depth_nodes_and_string_length() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(Redacted::of(&deep).to_string().contains("[...]"));
        let wide = Value::Array(vec![json!(1); 100_000]);
        assert!(Redacted::of(&wide).to_string().len() < 4 * MAX_NODES);
        let long = Value::String("ä".repeat(1 << 20));
        let shown = Redacted::of(&long).to_string();
        assert_eq!(shown.chars().count(), 2 + MAX_STRING + TRUNCATED.len());
    }
}
