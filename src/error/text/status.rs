//! HTTP statuses in text: a number is a status only where the text says so.

use std::{iter, ops::Range};

use http::StatusCode;

use crate::text::with_buffer;

/// The HTTP status that the text names, if it names one as such.
pub(super) fn status(text: &str) -> Option<StatusCode> {
    // Most texts have no number that may be one.
    numbers(text).next()?;
    with_buffer(|lower| {
        lower.push_str(text);
        lower.make_ascii_lowercase();
        let meant = |(status, at): (StatusCode, Range<usize>)| {
            is_meant(&lower[..at.start], &lower[at.end..], status).then_some(status)
        };
        numbers(text).find_map(meant)
    })
}

/// The numbers that may be a status, and where they stand.
fn numbers(text: &str) -> impl Iterator<Item = (StatusCode, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    iter::from_fn(move || {
        loop {
            let start = at + bytes[at..].iter().position(u8::is_ascii_digit)?;
            let digits = bytes[start..].iter().take_while(|b| b.is_ascii_digit());
            at = start + digits.count();
            match StatusCode::from_bytes(&bytes[start..at]) {
                Ok(status) if (300..600).contains(&status.as_u16()) => {
                    return Some((status, start..at));
                }
                _ => {}
            }
        }
    })
}

const STATUSES: &[&str] = &["http", "https", "status", "httpstatus"];
#[rustfmt::skip]
const VERBS: &[&str] = &[
    "failed", "rejected", "returned", "returns", "responded", "answered", "replied", "got",
    "received", "with",
];
#[rustfmt::skip]
const SUBJECTS: &[&str] = &[
    "server", "upstream", "api", "endpoint", "backend", "service", "gateway", "proxy", "host",
    "http", "https", "request", "response", "url", "origin", "webhook", "website", "get",
    "post", "put", "patch", "fetch",
];
#[rustfmt::skip]
const COUNTED: &[&str] = &[
    "ms", "s", "seconds", "times", "bytes", "rows", "items", "records", "files", "requests",
    "events", "messages", "of",
];
const CODES: &[&str] = &["zip", "area", "postal", "country", "return", "line", "dial"];
#[rustfmt::skip]
const FOLLOWS: &[&str] = &[
    "error", "response", "status", "from", "for", "on", "when", "while", "after", "because",
    "back", "backend", "due", "by", "returned", "overloaded", "retry", "retrying", "but",
    "https", "http",
];

/// Returns whether a number is a status by the text before and after it.
fn is_meant(head: &str, tail: &str, status: StatusCode) -> bool {
    let mut next = tail.chars();
    let (next, then) = (next.next(), next.next());
    // `$429`, `-503`, `429k`, `500%`, a decimal, a range, a time of day.
    if head.ends_with(|c: char| c.is_alphanumeric() || "-#$.,_+/@~".contains(c))
        || next.is_some_and(|c| c.is_ascii_alphanumeric() || "%_/$°".contains(c))
        || matches!(next, Some('.' | ',' | '-' | ':')) && then.is_some_and(|c| c.is_ascii_digit())
    {
        return false;
    }
    let is_gap = |c: char| c.is_whitespace() || "\"':=([{<>*`|\\".contains(c);
    let clause = head.trim_end_matches(is_gap);
    let mut words = clause.rsplit(|c: char| !c.is_alphanumeric());
    let word = words.next().unwrap_or_default();
    let mut words = words.filter(|w| !w.is_empty());
    let earlier = words.next().unwrap_or_default();
    if has_reason(tail, status) {
        return !matches!(word, "port" | "line" | "row");
    }
    if [word, earlier]
        .into_iter()
        .chain(words.take(2))
        .any(|w| matches!(w, "exit" | "exited"))
    {
        return false;
    }
    let end = tail.trim_start();
    let first = end
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default();
    // After text in another script there may be no blank before the word.
    if STATUSES.contains(&word.trim_start_matches(|c: char| !c.is_ascii()))
        || word.ends_with("statuscode")
        || word.ends_with("状态码")
        || ["http/1.0", "http/1.1", "http/2", "http/2.0"]
            .iter()
            .any(|v| clause.ends_with(v))
        || word == "code" && ["status", "http", "response"].contains(&earlier)
    {
        return !COUNTED.contains(&first);
    }
    let near = clause.rsplit([',', ';', '\n']).next().unwrap_or_default();
    let mut near = near.split(|c: char| !c.is_alphanumeric());
    status.as_u16() >= 400
        && (first.is_empty() || FOLLOWS.contains(&first))
        && match word {
            "" => clause.is_empty() && !end.starts_with(','),
            "code" => !CODES.contains(&earlier),
            "response" | "upstream" => true,
            "with" if matches!(earlier, "responded" | "replied" | "answered" | "error") => true,
            "a" => VERBS.contains(&earlier),
            "occurred" | "found" => head.trim_end().ends_with(['(', '[']),
            word if VERBS.contains(&word) => near.any(|w| SUBJECTS.contains(&w)),
            word => word.ends_with("error") || word.ends_with("exception"),
        }
}

/// Returns whether the status' own reason phrase stands after it, or its beginning.
fn has_reason(tail: &str, status: StatusCode) -> bool {
    let tail = tail.trim_start_matches(|c: char| c.is_whitespace() || "(-:\"'".contains(c));
    let own = status.canonical_reason().unwrap_or_default();
    let (first, rest) = own.split_once(' ').unwrap_or((own, ""));
    let next = rest.split(' ').next().unwrap_or_default();
    let mut words = tail.split(|c: char| !c.is_alphanumeric());
    let (start, second) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let others = ["temporarily", "error", "time", "entity", "content"];
    let is_own = start.eq_ignore_ascii_case(first)
        && (next.is_empty() || second.eq_ignore_ascii_case(next) || others.contains(&second));
    !start.is_empty() && is_own
        || tail.starts_with("page not found")
        || status.as_u16() >= 400 && matches!((start, second), ("client" | "server", "error"))
}
