//! HTTP statuses in text: a number is a status only where the text says so.

use std::{iter, ops::Range};

use http::StatusCode;

use crate::text::{floor, with_buffer};

/// How much of the clause before a number is looked at, in bytes.
const MAX_CLAUSE: usize = 160;

/// The HTTP status that the text names, if it names one as such.
pub(super) fn status(text: &str) -> Option<StatusCode> {
    // Most texts have no number that may be one.
    numbers(text).next()?;
    with_buffer(|lower| {
        lower.push_str(text);
        lower.make_ascii_lowercase();
        let is_meant = |(number, at): &(u16, Range<usize>)| {
            is_status(&lower[..at.start], &lower[at.end..], *number)
        };
        let (number, _) = numbers(text).find(is_meant)?;
        StatusCode::from_u16(number).ok()
    })
}

/// The numbers that may be a status, and where they stand.
fn numbers(text: &str) -> impl Iterator<Item = (u16, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    iter::from_fn(move || {
        loop {
            let start = at + bytes[at..].iter().position(u8::is_ascii_digit)?;
            let digits = bytes[start..].iter().take_while(|b| b.is_ascii_digit());
            at = start + digits.count();
            if at - start == 3
                && let Ok(number @ 300..=599) = text[start..at].parse()
            {
                return Some((number, start..at));
            }
        }
    })
}

fn is_status(head: &str, tail: &str, number: u16) -> bool {
    if is_glued_before(head) || is_glued_after(tail) {
        return false;
    }
    let before = Before::of(head);
    let follows = Follows::of(tail, number);
    if follows == Follows::Reason {
        return !matches!(before.word, "port" | "line" | "row");
    }
    if before.is_strong() {
        return follows != Follows::Counted;
    }
    let clause = matches!(follows, Follows::Clause | Follows::Word);
    number >= 400
        && clause
        && (before.is_start(tail)
            || before.is_error()
            || before.is_verb()
            || before.is_bracketed_reason())
}

/// `401k`, `1.429`, `-503`, `v429`, `#404`, `10.0.0.503`.
fn is_glued_before(head: &str) -> bool {
    let last = head.chars().next_back();
    last.is_some_and(|c| c.is_alphanumeric() || "-#$.,_+/@~".contains(c))
}

/// `500%`, a decimal, a range, a thousands separator, a time of day.
fn is_glued_after(tail: &str) -> bool {
    let mut next = tail.chars();
    match next.next() {
        Some(c) if c.is_ascii_alphanumeric() || "%_/$°".contains(c) => true,
        Some('.' | ',' | '-' | ':') => next.next().is_some_and(|c| c.is_ascii_digit()),
        _ => false,
    }
}

/// The words and marks before a number.
struct Before<'a> {
    /// The last word.
    word: &'a str,
    /// The one before it.
    earlier: &'a str,
    /// All before the last word.
    rest: &'a str,
    /// The marks between the last word and the number.
    between: &'a str,
}

impl<'a> Before<'a> {
    fn of(head: &'a str) -> Self {
        let (word, between, rest) = last_word(head);
        let (earlier, ..) = last_word(rest);
        Self {
            word,
            earlier,
            rest,
            between,
        }
    }

    /// The text begins with the number: `404`, `429: slow down`.
    fn is_start(&self, tail: &str) -> bool {
        self.word.is_empty() && self.rest.is_empty() && !tail.trim_start().starts_with(',')
    }

    /// `HTTP/1.1 503`, `status code 404`.
    fn is_strong(&self) -> bool {
        // After text in another script there may be no blank before the word.
        let latin = self.word.trim_start_matches(|c: char| !c.is_ascii());
        let versions = ["http/", "http/1.", "http/2."];
        let versioned = versions.iter().any(|v| self.rest.ends_with(v)) && self.word.len() <= 1;
        let names = ["statuscode", "status_code", "状态码"];
        let coded = latin == "code" && ["status", "http", "response"].contains(&self.earlier);
        let of_http =
            coded || ["http", "https", "status", "http_status", "httpstatus"].contains(&latin);
        versioned || of_http && !self.is_exit() || names.iter().any(|w| self.word.ends_with(w))
    }

    /// `error 503`, `error code: 404`, `upstream: 502`.
    fn is_error(&self) -> bool {
        #[rustfmt::skip]
        const CODES: &[&str] = &["exit", "zip", "area", "postal", "country", "return", "line", "dial"];
        match self.word {
            "code" => !self.is_exit() && !CODES.contains(&self.earlier),
            "response" | "upstream" => true,
            word => word.ends_with("error") || word.ends_with("exception"),
        }
    }

    /// `the server returned 429`, `responded with 503`, `got a 404`; not `expected 500 rows, got
    /// 401`.
    fn is_verb(&self) -> bool {
        const ANSWERS: &[&str] = &["responded", "replied", "answered"];
        #[rustfmt::skip]
        const VERBS: &[&str] = &[
            "failed", "failure", "rejected", "returned", "returns", "responded", "answered", "replied", "got", "received",
        ];
        match self.word {
            "with" if ANSWERS.contains(&self.earlier) => true,
            "with" => matches!(self.earlier, "error") || self.follows_subject(VERBS, self.earlier),
            "a" => ["returned", "got", "received", "with"].contains(&self.earlier),
            word => self.follows_subject(VERBS, word),
        }
    }

    /// Returns whether the clause of the verb names something that answers with a status: a server,
    /// an API.
    fn follows_subject(&self, verbs: &[&str], verb: &str) -> bool {
        #[rustfmt::skip]
        const SUBJECTS: &[&str] = &[
            "server", "upstream", "api", "endpoint", "backend", "service", "gateway", "proxy", "host", "http", "https",
            "request", "response", "url", "origin", "webhook", "website", "get", "post", "put", "patch", "fetch",
        ];
        let near = &self.rest[floor(self.rest, self.rest.len().saturating_sub(MAX_CLAUSE))..];
        let clause = near.rsplit([',', ';', '\n']).next().unwrap_or(near);
        let mut words = clause.split(|c: char| !c.is_alphanumeric());
        verbs.contains(&verb) && words.any(|w| SUBJECTS.contains(&w))
    }

    /// `Too Many Requests (429)`, `An error occurred (404)`.
    fn is_bracketed_reason(&self) -> bool {
        #[rustfmt::skip]
        const WORDS: &[&str] = &["requests", "unavailable", "unauthorized", "forbidden", "found", "gateway", "occurred"];
        self.between.contains(['(', '[']) && WORDS.contains(&self.word)
    }

    fn is_exit(&self) -> bool {
        let exited = self.rest.trim_end_matches("status ");
        self.earlier == "exit" || exited.ends_with("exited with ")
    }
}

#[derive(PartialEq, Eq)]
enum Follows {
    /// The number's own reason phrase.
    Reason,
    /// The end, or a mark that ends a clause.
    Clause,
    /// A word that goes with a status.
    Word,
    /// A unit, or a noun that is counted.
    Counted,
    /// Anything else.
    Other,
}

impl Follows {
    fn of(tail: &str, number: u16) -> Self {
        // `404 (Not Found)`, `503 - Service Unavailable`
        let text = tail.trim_start_matches(|c: char| c.is_whitespace() || "(-:\"'".contains(c));
        let words = text.split(|c: char| !c.is_alphanumeric());
        let mut words = words.filter(|w| !w.is_empty());
        let two = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if text.starts_with(two.0) && is_reason(number, two) {
            return Self::Reason;
        }
        // An opening bracket or a bare quote after a blank may hold anything.
        match tail.trim_start().chars().next() {
            Some(first) if first.is_alphanumeric() => Self::word(two.0),
            _ => Self::Clause,
        }
    }

    fn word(word: &str) -> Self {
        match word {
            "error" | "response" | "status" | "from" | "for" | "on" | "when" | "while"
            | "after" | "because" | "back" | "backend" | "due" | "by" | "returned"
            | "overloaded" | "retry" | "retrying" | "but" | "https" | "http" => Self::Word,
            "ms" | "s" | "sec" | "seconds" | "minutes" | "hours" | "days" | "times" | "bytes"
            | "kb" | "mb" | "gb" | "rows" | "items" | "records" | "lines" | "files" | "users"
            | "requests" | "entries" | "events" | "messages" | "tokens" | "characters"
            | "percent" | "of" | "k" => Self::Counted,
            _ => Self::Other,
        }
    }
}

/// Returns whether the words are the reason phrase of the status, or its beginning; an empty one
/// matches any.
fn is_reason(number: u16, words: (&str, &str)) -> bool {
    #[rustfmt::skip]
    const REASONS: &[(u16, &str, &str)] = &[
        (301, "moved", "permanently"), (303, "see", "other"), (304, "not", "modified"),
        (307, "temporary", "redirect"), (308, "permanent", "redirect"), (400, "bad", "request"),
        (401, "unauthorized", ""), (401, "unauthorised", ""), (402, "payment", "required"),
        (403, "forbidden", ""), (404, "not", "found"), (404, "page", "not"),
        (405, "method", "not"), (406, "not", "acceptable"), (407, "proxy", "authentication"),
        (408, "request", "timeout"), (408, "request", "time"), (409, "conflict", ""),
        (412, "precondition", "failed"), (413, "payload", "too"), (413, "request", "entity"),
        (413, "content", "too"), (415, "unsupported", "media"), (422, "unprocessable", ""),
        (424, "failed", "dependency"), (428, "precondition", "required"), (429, "too", "many"),
        (431, "request", "header"), (500, "internal", "server"), (500, "internal", "error"),
        (502, "bad", "gateway"), (503, "service", "unavailable"), (503, "service", "temporarily"),
        (504, "gateway", "timeout"), (504, "gateway", "time"),
    ];
    let own = REASONS.iter().any(|&(status, first, second)| {
        status == number && words.0 == first && (second.is_empty() || words.1 == second)
    });
    own || number >= 400 && matches!(words, ("client" | "server", "error"))
}

/// The last word before a number, the marks, quotes and blanks between them, and the text before
/// the word.
fn last_word(text: &str) -> (&str, &str, &str) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let trimmed =
        text.trim_end_matches(|c: char| c.is_whitespace() || "\"':=([{<>*`|\\".contains(c));
    let rest = trimmed.trim_end_matches(is_word);
    (&trimmed[rest.len()..], &text[trimmed.len()..], rest)
}
