//! What an error's text means. The last resort: only for errors that no type explains, and only of
//! what kind they are. No text proves anything: whether the tool ran stays unknown.
//!
//! Two rules keep it from guessing. A number is a status only where the text says so (`HTTP 429`,
//! `status code 503`, `404: Not Found`), so `took 429 ms` and `port 503` name no status. A phrase
//! counts only as whole words, and a word that is as often a setting's name (`timeout`,
//! `connect_timeout`, `rate limit`) not where the text talks about the setting.

mod grpc;
mod phrases;
mod status;

use http::StatusCode;

use self::{
    phrases::{PHRASES, of_letter},
    status::status,
};
use super::ErrorKind;
use crate::{hint, text::with_buffer};

/// The kind that the text means, if it is clear, and the HTTP status that it names.
pub(super) fn classify(text: &str) -> Option<(ErrorKind, Option<StatusCode>)> {
    with_buffer(|words| {
        normalise(text, words);
        if find(words, "message larger than ").is_some() {
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
            hint::LIMITS.contains(&word) && !is_name_of_setting(head, &tail[word.len()..])
        })
}

/// What stands between words. Inside an identifier it is `_` if that begins in lower case, as
/// variables and flags do, and else `-`.
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

/// The first phrase of the list that is in the text as whole words and is meant. One pass over the
/// words, each of which is compared with the few phrases that begin with its letter.
fn first_meant(words: &str) -> Option<ErrorKind> {
    let mut best = None;
    for at in starts(words) {
        let letters = &words.as_bytes()[at..];
        for &(place, second) in of_letter(letters[0]) {
            let place = usize::from(place);
            if best.is_some_and(|found| found <= place) {
                break;
            }
            if letters.get(1) != Some(&second) {
                continue;
            }
            let phrase = PHRASES[place].0;
            if stands_at(words, at, phrase)
                && is_meant(phrase, &words[..at], &words[at + phrase.len()..])
            {
                best = Some(place);
            }
        }
    }
    best.map(|place| PHRASES[place].1)
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

/// Where a word begins that these characters follow from.
fn find(words: &str, text: &str) -> Option<usize> {
    starts(words).find(|at| begins(&words[*at..], text))
}

/// Returns whether the words around a phrase show that it is the error and not its subject.
fn is_meant(phrase: &str, head: &str, tail: &str) -> bool {
    // `option: timeout` talks about an option as `option timeout` does, and so does `option
    // 'timeout'`.
    let mut preceding = split(head).rev().filter(|w| !matches!(*w, ":" | "\""));
    let before = preceding.next().unwrap_or_default();
    let earlier = preceding.next().unwrap_or_default();
    let next = split(tail).next().unwrap_or_default();
    let mut following = split(tail).filter(|w| *w != "\"");
    let after = following.next().unwrap_or_default();
    let then = following.next().unwrap_or_default();
    let negated = |w: &str| matches!(w, "no" | "not" | "never" | "without" | "zero");
    if negated(before)
        || matches!(before, "a" | "an" | "any" | "the") && negated(earlier)
        || head.ends_with(" / ")
        || matches!(next, "·" | "/")
        || tail.starts_with(" \" : ")
        || is_title(head)
    {
        return false;
    }
    match phrase {
        "timeout" | "throttling" => {
            !is_setting(before, after, then) && !is_name_of_setting(head, tail)
        }
        _ if phrase.starts_with("rate") => {
            !is_setting(before, after, then)
                && !is_name_of_setting(head, tail)
                && !matches!(before, "first" | "second" | "flat")
        }
        "quota exceeded" => !matches!(before, "disk" | "storage" | "mailbox"),
        // Alone, or as the cause: others name what the text is about.
        "network" => {
            let is_cause = matches!(
                before,
                "error" | "exception" | "cause" | "reason" | "failed"
            );
            matches!(next, "" | "." | "!")
                && (before.is_empty() || is_cause && head.ends_with(" : "))
        }
        // Of a text that was parsed.
        "unexpected eof" => {
            !matches!(then, "parsing" | "looking") && !matches!(earlier, "syntax" | "parse")
        }
        "forbidden" => {
            #[rustfmt::skip]
            const SUBJECTS: &[&str] = &[
                "character", "characters", "word", "words", "pattern", "value", "values",
            ];
            !SUBJECTS.contains(&after) && !head.contains(" character ") && before != "substring"
        }
        _ => true,
    }
}

/// Words after which the name of an error stands.
#[rustfmt::skip]
const ANNOUNCE: &[&str] = &[
    "error", "errors", "reason", "message", "cause", "with", "code", "said", "returned",
    "failed", "status", "exception", "got", "response", "was",
];

/// Returns whether a quotation is open that is the name of something: `column "`, `the song "`.
/// That of an error comes after a mark, or after a word that announces it.
fn is_title(head: &str) -> bool {
    let Some(opened) = head.rfind('"') else {
        return false;
    };
    let before = split(&head[..opened]).next_back();
    head.matches('"').count() % 2 == 1
        && before.is_some_and(|w| w.chars().all(char::is_alphabetic) && !ANNOUNCE.contains(&w))
}

/// Returns whether a noun is part of an identifier that names a setting: `connect_timeout`,
/// `timeoutMs`, `retry_limit`. It names an event where it says so (`request_timeout_error`,
/// `read_timeout exceeded`), or where the name of an error stands; a class or a constant names one
/// also after other words.
fn is_name_of_setting(head: &str, tail: &str) -> bool {
    #[rustfmt::skip]
    const EVENTS: &[&str] = &[
        "error", "err", "er", "exception", "exceeded", "reached", "hit", "expired", "occurred",
    ];
    const UNITS: &[&str] = &[
        "ms",
        "millis",
        "milliseconds",
        "s",
        "sec",
        "secs",
        "seconds",
        "minutes",
    ];
    let first = head.rsplit(' ').next().unwrap_or_default();
    let last = tail.split(' ').next().unwrap_or_default();
    let (head, tail) = (&head[..head.len() - first.len()], &tail[last.len()..]);
    let mut preceding = split(head)
        .rev()
        .filter(|w| !matches!(*w, ":" | "\"" | "·"));
    let before = preceding.next().unwrap_or_default();
    let earlier = preceding.next().unwrap_or_default();
    let mut following = split(tail).filter(|w| *w != "\"");
    let after = following.next().unwrap_or_default();
    let then = following.next().unwrap_or_default();
    if first.is_empty() && last.is_empty()
        || split(first)
            .chain(split(last))
            .chain([after])
            .any(|w| EVENTS.contains(&w))
    {
        return false;
    }
    let is_variable = first.ends_with('_') || last.starts_with('_');
    let is_announced = !before.starts_with(char::is_alphabetic)
        || ANNOUNCE.contains(&before) && !matches!(earlier, "key" | "name" | "attribute")
        || matches!(before, "type" | "kind" | "by");
    is_setting(before, after, then)
        || split(last).any(|w| UNITS.contains(&w))
        || tail.starts_with(" \" : ")
        || is_variable && !is_announced
}

/// Returns whether the words around a noun show that a setting of that name is meant.
#[rustfmt::skip]
fn is_setting(before: &str, after: &str, then: &str) -> bool {
    const BEFORE: &[&str] = &[
        "invalid", "unknown", "missing", "unexpected", "unsupported", "negative", "set", "setting",
        "configure", "default", "argument", "parameter", "option", "keyword", "field", "flag", "key",
        "variable", "property", "increase", "your", "checking", "within", "for",
    ];
    const AFTER: &[&str] = &[
        "must", "should", "cannot", "value", "parameter", "argument", "option", "setting", "settings",
        "config", "configuration", "configured", "field", "flag", "header", "headers", "is", "was",
        "not", "set", "remaining", "policy", "disabled", "enabled", "updated", "changed", "accepts",
        "expects", "=",
    ];
    let hit = matches!(then, "exceeded" | "reached" | "hit");
    BEFORE.contains(&before)
        || AFTER.contains(&after) && !hit
}

/// `tool 'x' not found`, `tool x does not exist`: only the name is in between.
fn names_missing_tool(words: &str) -> bool {
    let Some(at) = find(words, "tool ") else {
        return false;
    };
    #[rustfmt::skip]
    const NO_NAMES: &[&str] = &[
        "failed", "execution", "error", "call", "result", "output", "returned",
    ];
    let rest = &words[at + 5..];
    ["not found ", "does not exist "].iter().any(|end| {
        find(rest, end).is_some_and(|end| {
            let name: Vec<&str> = rest[..end].split_whitespace().collect();
            let name = match &name[..] {
                ["\"", quoted @ .., "\""] => quoted,
                bare => bare,
            };
            let clause =
                |w: &&str| NO_NAMES.contains(w) || w.chars().all(|c| c.is_ascii_punctuation());
            name.len() <= 6 && !name.iter().any(clause)
        })
    })
}
