//! Delays in messages.
//!
//! A number is a delay only after words that ask for one (`try again in`, `retry after`, `wait`)
//! and with a unit.

use std::time::Duration;

use super::{
    Hint, HintSource,
    time::{SECOND, quantity},
};
use crate::text::{is_one_of, prefix};

/// Only the beginning of a text is looked at, in characters.
const MAX_TEXT: usize = 2_000;

/// Words after which a delay stands.
const PHRASES: &[&[&str]] = &[
    &["retry", "after"],
    &["retryafter"],
    &["retry", "in"],
    &["retrying", "in"],
    &["try", "again", "in"],
    &["try", "again", "after"],
    &["retry", "your", "request", "in"],
    &["retry", "your", "request", "after"],
    &["expected", "available", "in"], // Django REST framework
    &["requests", "available", "in"], // Stack Exchange
    &["wait"],
];

/// Phrases that ask only after a word of a limit: a connection is reset after 30 s, too.
const OF_LIMITS: &[&[&str]] = &[
    &["reset", "after"], // Gemini CLI
    &["reset", "in"],
    &["resets", "after"],
    &["resets", "in"],
    &["retry", "delay"], // Gemini's SDKs print its JSON
];

/// Words of a limit.
pub(crate) const LIMITS: &[&str] = &[
    "limit",
    "limits",
    "limited",
    "quota",
    "quotas",
    "throttle",
    "throttled",
    "slow",
];

/// Of a word of each phrase.
const STEMS: &[&str] = &["try", "wait", "available", "reset"];

/// Reads the delay that a message asks for: `Please try again in 1m26.4s`, `retry after 30
/// seconds`, `wait 5 minutes`, `Retry-After: 12`, `Your quota will reset after 39s`. Only the first
/// 2,000 characters are looked at.
///
/// A number without a unit means seconds after `retry after` and is nothing elsewhere. Of several
/// delays the longest wins.
pub fn from_text(text: &str) -> Option<Hint> {
    let (head, cut) = prefix(text, MAX_TEXT);
    if !may_ask(head) {
        return None;
    }
    let mut tokens = tokens(head);
    if cut {
        // They may be half a number, or half its unit.
        tokens.truncate(tokens.len().saturating_sub(2));
    }
    let delays = (0..tokens.len()).filter_map(|at| asked(&tokens[..at], &tokens[at..]));
    let delay = delays.max()?;
    Some(Hint::wait(delay, HintSource::Text))
}

/// Returns whether there is a digit, and a word of a phrase. Most texts end here.
fn may_ask(text: &str) -> bool {
    let text = text.as_bytes();
    let has = |stem: &&str| {
        let stem = stem.as_bytes();
        text.windows(stem.len())
            .any(|w| w.eq_ignore_ascii_case(stem))
    };
    text.iter().any(u8::is_ascii_digit) && STEMS.iter().any(has)
}

/// Words, numbers and marks. Blanks, quotes, `_` and the `-` before a letter only separate, so that
/// `retry_after`, `Retry-After` and `retryAfter` are two words each.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '0'..='9' => number_len(rest),
            _ if first.is_alphabetic() => word_len(rest),
            _ => first.len_utf8(),
        };
        let (token, tail) = rest.split_at(len);
        let separates = first != '\n' && first.is_whitespace()
            || matches!(first, '"' | '\'' | '`' | '\\' | '_')
            || first == '-' && tail.starts_with(char::is_alphabetic);
        if !separates {
            tokens.push(token);
        }
        rest = tail;
    }
    tokens
}

fn word_len(text: &str) -> usize {
    let mut before = ' ';
    let ends = |c: char| {
        let camel = before.is_lowercase() && c.is_uppercase();
        before = c;
        !c.is_alphabetic() || camel
    };
    text.find(ends).unwrap_or(text.len())
}

/// Dates, times and ranges are one token, and none that means an amount.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let ends = |at: &usize| !(digit(*at) || b".,:-/".contains(&bytes[*at]) && digit(at + 1));
    (0..bytes.len()).find(ends).unwrap_or(bytes.len())
}

/// Reads the delay, if the text asks for one here.
fn asked(before: &[&str], text: &[&str]) -> Option<Duration> {
    let mut phrases = PHRASES.iter().chain(OF_LIMITS);
    let phrase = phrases.find(|phrase| begins_with(text, phrase))?;
    let previous = before.last().copied().unwrap_or_default();
    let waits = *phrase == ["wait"];
    // `max wait 30s exceeded`, `had to wait 30s` ask for nothing.
    if is_one_of(previous, &["not", "never", "no", "t"])
        || waits && !asks_to_wait(before)
        || OF_LIMITS.contains(phrase) && !is_of_limit(before)
    {
        return None;
    }
    let mut rest = &text[phrase.len()..];
    let mut unit = matches!(**phrase, ["retry", "after"] | ["retryafter"]).then_some(SECOND);
    // `retry_after_ms: 500`
    if let Some((word, tail)) = rest.split_first()
        && let (Some(_), Some(named)) = (unit, self::unit(word))
    {
        (unit, rest) = (Some(named), tail);
    }
    // `{wait: 30s}` is a setting.
    let fills = |word: &&&str| is_filler(word) && !(waits && matches!(**word, ":" | "="));
    let fillers = rest.iter().take(4).take_while(fills);
    amount(&rest[fillers.count()..], unit)
}

fn begins_with(text: &[&str], phrase: &[&str]) -> bool {
    let mut pairs = phrase.iter().zip(text);
    text.len() >= phrase.len() && pairs.all(|(p, t)| t.eq_ignore_ascii_case(p))
}

fn asks_to_wait(before: &[&str]) -> bool {
    let Some((last, earlier)) = before.split_last() else {
        return true;
    };
    let asks = ["please", "must", "should", "to", "and", "then", "can"];
    let past = earlier.last().is_some_and(|w| is_one_of(w, &["had"]));
    !past && (is_one_of(last, &asks) || !last.starts_with(char::is_alphanumeric))
}

/// Returns whether the words before a phrase are about a limit, and not of what else is reset.
fn is_of_limit(before: &[&str]) -> bool {
    const OTHERS: &[&str] = &["connection", "stream", "socket", "peer"];
    let previous = before.last().copied().unwrap_or_default();
    let mut words = before.iter();
    !is_one_of(previous, OTHERS) && words.any(|word| is_one_of(word, LIMITS))
}

fn is_filler(word: &str) -> bool {
    #[rustfmt::skip]
    const FILLERS: &[&str] = &[
        ":", "=", "~", "(", ")", "for", "about", "around", "approximately", "at", "least", "another", "is", "of",
    ];
    is_one_of(word, FILLERS)
}

/// `1m26.4s`, `2 minutes and 30 seconds`; `12`, where it has a unit by itself.
fn amount(mut text: &[&str], bare: Option<u64>) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    let mut smallest = None;
    while let [number, rest @ ..] = text
        && number.starts_with(|c: char| c.is_ascii_digit())
    {
        match rest.first().and_then(|word| unit(word)) {
            Some(unit) if smallest.is_none_or(|smallest| unit < smallest) => {
                sum = sum.saturating_add(quantity(&plain(number)?, unit)?);
                smallest = Some(unit);
                text = &rest[1..];
            }
            None if smallest.is_none() && ends(rest) => return quantity(&plain(number)?, bare?),
            _ => break,
        }
        if let ["and" | ",", rest @ ..] = text {
            text = rest;
        }
    }
    smallest.map(|_| sum)
}

/// Returns whether nothing follows that the number could belong to: `3 attempts`, `5 %`.
fn ends(rest: &[&str]) -> bool {
    let mark = |next: &&str| ["\n", ".", ",", ";", ")", "]", "}", "!"].contains(next);
    rest.first().is_none_or(mark)
}

/// Reads a number without its thousands separators.
fn plain(number: &str) -> Option<String> {
    let whole = number.split('.').next()?;
    let grouped = whole.split(',').skip(1).all(|group| group.len() == 3);
    grouped.then(|| number.replace(',', ""))
}

fn unit(word: &str) -> Option<u64> {
    #[rustfmt::skip]
    const UNITS: &[(&[&str], u64)] = &[
        (&["ms", "msec", "millis", "millisecond", "milliseconds"], SECOND / 1_000),
        (&["s", "sec", "secs", "second", "seconds"], SECOND),
        (&["m", "min", "mins", "minute", "minutes"], 60 * SECOND),
        (&["h", "hr", "hrs", "hour", "hours"], 3_600 * SECOND),
        (&["d", "day", "days"], 86_400 * SECOND),
    ];
    let found = UNITS.iter().find(|(names, _)| is_one_of(word, names))?;
    Some(found.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u128> {
        Some(from_text(text)?.delay?.as_millis())
    }

    /// Messages of vendors and frameworks, and the forms of the issue.
    #[test]
    fn a_text_that_asks_to_come_again_gives_its_delay() {
        #[rustfmt::skip]
        let rows: &[(&str, u128)] = &[
            ("try again in 20s", 20_000),
            ("Please try again in 1m26.4s.", 86_400),
            ("retry after 30 seconds", 30_000),
            ("Retry-After: 12", 12_000),
            ("wait 5 minutes", 300_000),
            ("retry in 250ms", 250),
            // OpenAI, Azure OpenAI, Gemini, Groq
            ("Rate limit reached for gpt-4 in organization org-1 on tokens per min (TPM): Limit 40000, Used 39012, Requested 1500. Please try again in 768ms. Visit https://platform.openai.com/account/rate-limits", 768),
            ("Requests to the ChatCompletions_Create Operation have exceeded call rate limit. Please retry after 26 seconds.", 26_000),
            ("You exceeded your current quota. Please retry in 36.553s.", 36_553),
            ("Limit 6000, Used 5900, Requested 400. Please try again in 3s. Need more tokens?", 3_000),
            // Discord, Django REST framework, @fastify/rate-limit, Slack's SDK, HTTP in text
            ("You are being rate limited. (retry_after: 0.5)", 500),
            ("Request was throttled. Expected available in 54 seconds.", 54_000),
            ("Rate limit exceeded, retry in 1 minute", 60_000),
            ("A rate-limit has been reached, you may retry this request in 30 seconds. Retry after 30s", 30_000),
            ("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 12\r\nContent-Length: 0\r\n", 12_000),
            // As keys
            (r#"{"error":"slow down","retry_after":12,"global":false}"#, 12_000),
            (r#"{\"retryAfter\": \"12\"}"#, 12_000),
            ("retryAfterMs=500", 500),
            ("retry_after_ms: 500", 500),
            ("retry_after_seconds: 7", 7_000),
            ("retryafter 7", 7_000),
            // Compounds, fillers, large numbers
            ("Try again in 2 minutes and 30 seconds", 150_000),
            ("Try again in 1 hour, 5 minutes", 3_900_000),
            ("try again in 1h5m", 3_900_000),
            ("try again in 20s, 30 requests were sent", 20_000),
            ("try again in 20s, 5m is the window", 20_000),
            ("please wait for at least 90 sec before the next call", 90_000),
            ("You must wait another 10 minutes", 600_000),
            ("slow down: wait 3s", 3_000),
            ("Retry your request after 1,000 seconds", 1_000_000),
            ("RETRY AFTER 5 S", 5_000),
            ("Retry after 1 day", 86_400_000),
            ("retry after 0", 0),
            ("retry after soon. Please try again in 5s", 5_000),
            // The longest
            ("retry after 3 s; the daily quota is used up, try again in 2 hours", 7_200_000),
            ("try again in 2 hours, or retry after 3 s with another key", 7_200_000),
        ];
        for (text, expected) in rows {
            assert_eq!(millis(text), Some(*expected), "{text}");
        }
    }

    #[test]
    fn each_phrase_has_a_word_with_a_stem() {
        let has_stem = |word: &&str| STEMS.iter().any(|stem| word.contains(stem));
        let mut phrases = PHRASES.iter().chain(OF_LIMITS);
        assert!(phrases.all(|phrase| phrase.iter().any(has_stem)));
    }

    #[test]
    fn other_numbers_are_no_delays() {
        for text in [
            "took 30 s",
            "limit 20s exceeded",
            "timeout after 30 seconds",
            "connection reset after 30s",
            "limit reached: connection reset after 30s",
            "counter reset in 30 s",
            "the retry delay 5s is too long",
            "failed again after 30 s",
            "waited 30 s",
            "had to wait 30s",
            "max wait 30s exceeded",
            "max_wait=30s",
            "{wait: 30s}",
            "Lock wait timeout 50s exceeded",
            "do not retry in 5s",
            "don't retry after 30 seconds",
            "retry after 3 failures",
            "will retry in 3 attempts",
            "try again in 20",
            "wait 5",
            "retry after 5%",
            "retry after 2025-08-21T12:00:00Z",
            "retry after 12:30",
            "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT",
            "try again in 5-10 minutes",
            "try again in 1,5 s",
            "retry after -1",
            "Retry-After: -1",
            "try again in 1e400 seconds",
            "try again in NaN seconds",
            "try again in inf",
            "try again later",
            "retry",
            "retry after",
            "wait",
            "",
            "١ retry after ١ s",
        ] {
            assert_eq!(millis(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_first_2000_characters_are_read() {
        let text = |n: usize| format!("{}retry after 300 seconds!", " ".repeat(n));
        assert_eq!(millis(&text(1_900)), Some(300_000));
        // Cut inside the number and inside the unit it would mean something else.
        for n in 1_976..2_000 {
            let found = millis(&text(n));
            assert!(found.is_none_or(|ms| ms == 300_000), "{n}: {found:?}");
        }
        assert_eq!(millis(&text(2_000)), None);
        assert_eq!(millis(&"retry after ".repeat(1 << 20)), None);
    }
}
