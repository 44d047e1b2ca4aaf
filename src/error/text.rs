//! Guesses the kind of an untyped error from its text. The last resort: a text never proves whether
//! the tool ran.
//!
//! Two rules limit wrong guesses. A number is a status only where the text says so (`HTTP 429`,
//! `status code 503`, `404: Not Found`), so `took 429 ms` and `port 503` name no status. A phrase
//! counts only as whole words. A word that often names a setting (`timeout`, `connect_timeout`,
//! `rate limit`) does not count where the text talks about the setting.

mod grpc;
mod phrases;
mod status;

use std::sync::LazyLock;

use http::StatusCode;

use self::{phrases::PHRASES, status::status};
use super::ErrorKind;
use crate::{hint, text::with_buffer};

/// The kind that the text means, if it is clear, and the HTTP status that it names.
pub(super) fn classify(text: &str) -> Option<(ErrorKind, Option<StatusCode>)> {
    with_buffer(|words| {
        normalise(text, words);
        if starts(words).any(|at| begins(&words[at..], "message larger than ")) {
            return None;
        }
        if let Some(known) = grpc::classify(text) {
            return Some(known);
        }
        match status(text) {
            // Servers that use it for a limit say so beside it.
            Some(StatusCode::FORBIDDEN) if first_meant(words) == Some(ErrorKind::RateLimited) => {
                Some((ErrorKind::RateLimited, Some(StatusCode::FORBIDDEN)))
            }
            Some(status) => Some((ErrorKind::from_http_status(status.as_u16())?, Some(status))),
            None => Some((by_words(text, words)?, None)),
        }
    })
}

fn by_words(text: &str, words: &str) -> Option<ErrorKind> {
    match first_meant(words) {
        Some(kind) => Some(kind),
        None if names_missing_tool(words) => Some(ErrorKind::NotFound),
        None if words.ends_with(" : eof ") => Some(ErrorKind::ConnectionFailed),
        None => asks_for_patience(text, words).then_some(ErrorKind::RateLimited),
    }
}

/// A delay beside words of a limit. A delay alone means no limit: a server that is down may ask for
/// one as well.
fn asks_for_patience(text: &str, words: &str) -> bool {
    hint::from_text(text).is_some()
        && starts(words).any(|at| {
            let (head, tail) = words.split_at(at);
            let word = tail.split(BLANKS).next().unwrap_or_default();
            let tail = &tail[word.len()..];
            let is_bare = head.ends_with(' ') && tail.starts_with(' ');
            hint::LIMITS.contains(&word) && (is_bare || !is_setting(head, tail))
        })
}

/// The blanks between words. The words of an identifier are joined by `_` if it begins in lower
/// case, as a variable or a flag, and by `-` if not, as a type.
const BLANKS: [char; 3] = [' ', '_', '-'];

/// Lower case, words split where CamelCase, `_`, `-` and other marks split them, one blank between
/// and at both ends: `Rate-limit error` is ` rate limit error `, `connectTimeout` and
/// `--connect-timeout` are ` connect_timeout `, `ReadTimeout` is ` read-timeout `. Marks that end a
/// clause and quotes are kept as words, so that a phrase never spans two clauses; a point inside a
/// word, as in a file's name, is kept as `·`.
fn normalise(text: &str, out: &mut String) {
    out.reserve(text.len() + 16);
    out.push(' ');
    let join = |out: &mut String, blank: char| {
        if !out.ends_with(BLANKS) {
            out.push(blank);
        }
    };
    let mark = |out: &mut String, mark: &str| {
        join(out, ' ');
        if !mark.is_empty() {
            out.push_str(mark);
            out.push(' ');
        }
    };
    let mut before = ' ';
    // Of the identifier: what joins its words, and whether `-` does, because it is a flag's.
    let (mut blank, mut is_flag, mut dashes) = (' ', false, 0);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        if c.is_alphanumeric() {
            if !(before.is_alphanumeric() || before == '_' || is_flag && before == '-') {
                is_flag = dashes > 1;
                blank = if c.is_lowercase() { '_' } else { '-' };
            }
            dashes = 0;
            let starts_word = c.is_uppercase()
                && (before.is_lowercase() || before.is_uppercase() && next.is_lowercase());
            if starts_word {
                join(out, blank);
            }
            match c.is_ascii() {
                true => out.push(c.to_ascii_lowercase()),
                false => out.extend(c.to_lowercase()),
            }
        } else {
            let inside = before.is_alphanumeric() && next.is_alphanumeric();
            dashes = if c == '-' { dashes + 1 } else { 0 };
            match c {
                '_' if inside => join(out, blank),
                '-' if inside && is_flag => join(out, blank),
                '.' if inside => mark(out, "·"),
                '\'' | '`' if inside => {} // an apostrophe
                '"' | '\'' | '`' => mark(out, "\""),
                ':' | ';' | ',' | '.' | '(' | ')' | '=' | '?' | '!' | '/' => {
                    mark(out, c.encode_utf8(&mut [0; 4]));
                }
                _ => mark(out, ""),
            }
        }
        before = c;
    }
    mark(out, "");
}

/// A phrase with its place in the list, and its second letter.
type Phrase = (usize, u8, &'static str, ErrorKind);

/// The phrases that begin with each letter.
static BY_LETTER: LazyLock<[Vec<Phrase>; 26]> = LazyLock::new(|| {
    let mut all = [const { Vec::new() }; 26];
    let mut place = 0;
    for (kind, phrases) in PHRASES {
        for phrase in *phrases {
            let letters = phrase.as_bytes();
            all[usize::from(letters[0] - b'a')].push((place, letters[1], *phrase, *kind));
            place += 1;
        }
    }
    all
});

/// The first phrase of the list that is in the text as whole words and is meant.
fn first_meant(words: &str) -> Option<ErrorKind> {
    let mut best = None;
    for at in starts(words) {
        let letters = &words.as_bytes()[at..];
        let Some(phrases) = BY_LETTER.get(usize::from(letters[0].wrapping_sub(b'a'))) else {
            continue;
        };
        for &(place, second, phrase, kind) in phrases {
            if best.is_some_and(|(best, _)| place >= best) {
                break;
            }
            if letters.get(1) == Some(&second)
                && stands_at(words, at, phrase)
                && is_meant(phrase, &words[..at], &words[at + phrase.len()..])
            {
                best = Some((place, kind));
            }
        }
    }
    best.map(|(_, kind)| kind)
}

/// Where words begin.
fn starts(words: &str) -> impl Iterator<Item = usize> {
    let bytes = words.as_bytes();
    (1..bytes.len()).filter(|at| is_blank(bytes[at - 1]))
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'_' | b'-')
}

/// The words of a part.
fn split(words: &str) -> impl DoubleEndedIterator<Item = &str> {
    words.split(BLANKS).filter(|w| !w.is_empty())
}

/// Returns whether the words at a place are these, as a whole.
fn stands_at(words: &str, at: usize, phrase: &str) -> bool {
    let end = words.as_bytes().get(at + phrase.len());
    end.is_some_and(|end| is_blank(*end)) && begins(&words[at..], phrase)
}

/// Returns whether the words begin with these, whatever stands between them.
fn begins(words: &str, text: &str) -> bool {
    let mut pairs = words.bytes().zip(text.bytes());
    words.len() >= text.len() && pairs.all(|(w, t)| w == t || t == b' ' && is_blank(w))
}

/// Returns whether the words around a phrase show that it is the error and not its subject.
fn is_meant(phrase: &str, head: &str, tail: &str) -> bool {
    let [before, earlier, ..] = around(head, tail);
    let next = split(tail).next().unwrap_or_default();
    let negated = |w: &str| matches!(w, "no" | "not" | "never" | "without" | "zero");
    // A title: `column "`, `the song "`.
    let is_quoted = head.ends_with(" \" ")
        && split(head)
            .rev()
            .find(|w| *w != "\"")
            .is_some_and(is_unannounced);
    if negated(before)
        || matches!(before, "a" | "an" | "any" | "the") && negated(earlier)
        || head.ends_with(" / ")
        || matches!(next, "·" | "/")
        || tail.starts_with(" \" : ")
        || is_quoted
    {
        return false;
    }
    match phrase {
        "timeout" | "throttling" => !is_setting(head, tail),
        _ if phrase.starts_with("rate") => {
            !is_setting(head, tail) && !matches!(before, "first" | "second" | "flat")
        }
        "quota exceeded" => !matches!(before, "disk" | "storage" | "mailbox"),
        // Alone, or as the cause: others name what the text is about.
        "network" => {
            let is_cause = head.ends_with(" : ") && !is_unannounced(before);
            matches!(next, "" | "." | "!") && (before.is_empty() || is_cause)
        }
        // Of a text that was parsed.
        "unexpected eof" => !tail.contains(" parsing ") && !head.contains(" syntax "),
        "forbidden" => {
            let subject = split(tail).find(|w| *w != "\"").unwrap_or_default();
            !matches!(
                subject.trim_end_matches('s'),
                "character" | "word" | "pattern" | "value"
            ) && !head.contains(" character ")
        }
        _ => true,
    }
}

/// Returns whether a word does not announce that the name of an error follows.
#[rustfmt::skip]
fn is_unannounced(word: &str) -> bool {
    const ANNOUNCE: &[&str] = &[
        "error", "errors", "reason", "message", "cause", "with", "code", "said", "returned",
        "failed", "status", "exception", "got", "response", "was", "type", "kind", "by",
    ];
    word.chars().all(char::is_alphabetic) && !word.is_empty() && !ANNOUNCE.contains(&word)
}

/// The words around a phrase: two before it, the nearest first, and two after it.
fn around<'a>(head: &'a str, tail: &'a str) -> [&'a str; 4] {
    // `option: timeout` talks about an option as `option 'timeout'` does.
    let head = split(head).rev();
    let mut head = head.filter(|w| !matches!(*w, ":" | "\"" | "·"));
    let mut tail = split(tail).filter(|w| *w != "\"");
    let words = [head.next(), head.next(), tail.next(), tail.next()];
    words.map(Option::unwrap_or_default)
}

/// Words that stand before or after the name of a setting.
#[rustfmt::skip]
const OF_SETTINGS: &[&str] = &[
    "invalid", "unknown", "missing", "unexpected", "unsupported", "negative", "set", "setting",
    "settings", "config", "configure", "configured", "configuration", "default", "argument",
    "arguments", "parameter", "option", "keyword", "field", "flag", "key", "variable", "property",
    "value", "increase", "your", "checking", "header", "headers", "must", "should", "cannot", "is",
    "was", "not", "remaining", "policy", "disabled", "enabled", "updated", "changed", "accepts",
    "expects", "column", "change",
];

/// Words that say that something has happened.
#[rustfmt::skip]
const EVENTS: &[&str] = &[
    "error", "err", "er", "exception", "exceeded", "reached", "hit", "expired", "occurred",
];

/// Returns whether a noun names a setting: `timeout must be`, `connect_timeout`, `retry_limit`. It
/// names an event where it says so (`request_timeout_error`), or where the name of an error stands.
fn is_setting(head: &str, tail: &str) -> bool {
    #[rustfmt::skip]
    const UNITS: &[&str] = &[
        "ms", "millis", "milliseconds", "s", "sec", "secs", "seconds", "minutes",
    ];
    // The rest of the identifier.
    let first = head.rsplit(' ').next().unwrap_or_default();
    let last = tail.split(' ').next().unwrap_or_default();
    let (head, tail) = (&head[..head.len() - first.len()], &tail[last.len()..]);
    let [before, earlier, after, then] = around(head, tail);
    let mut own = split(first).chain(split(last)).chain([after]);
    if own.any(|w| EVENTS.contains(&w)) || EVENTS.contains(&then) && after == "was" {
        return false;
    }
    let is_variable = first.ends_with('_') || last.starts_with('_');
    [before, after].iter().any(|w| OF_SETTINGS.contains(w))
        || matches!(
            earlier,
            "key" | "name" | "attribute" | "value" | "parameter" | "argument"
        )
        || after == "="
        || matches!(before, "for" | "within")
        || split(last).any(|w| UNITS.contains(&w))
        || tail.starts_with(" \" : ")
        || is_variable && is_unannounced(before)
}

/// `tool 'x' not found`, `tool x does not exist`: only the name is in between.
fn names_missing_tool(words: &str) -> bool {
    let Some((_, rest)) = words.split_once(" tool ") else {
        return false;
    };
    ["not found ", "does not exist "].iter().any(|end| {
        rest.split_once(end).is_some_and(|(name, _)| {
            let is_name = |w: &str| matches!(w, "\"" | "·") || w.starts_with(char::is_alphanumeric);
            name.split(' ').count() <= 8 && name.split(' ').all(|w| w.is_empty() || is_name(w))
        })
    })
}
