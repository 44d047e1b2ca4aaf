//! Headers with what remains of a limit, and when it is reset.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use super::{
    go_duration, http_date, joined, moment::rfc3339, number, saturating, since_1970, structured,
    until,
};
use crate::hint::HintSource;

/// The facts about one limit.
pub(super) struct Limit {
    /// Set if it is used up; `None` if the headers do not say.
    pub(super) exhausted: Option<bool>,
    pub(super) wait: Duration,
}

/// Returns how long to wait by the headers of an answer. If it refuses, some limit is used up,
/// perhaps without a header that says so.
pub(super) fn wait(
    headers: &HeaderMap,
    clock: SystemTime,
    is_refused: bool,
) -> Option<(Duration, HintSource)> {
    use HintSource as Source;
    let sources = [
        Source::RateLimit,
        Source::RateLimitReset,
        Source::XRateLimitReset,
    ];
    sources.into_iter().find_map(|source| {
        let delay = longest(limits(headers, clock, source), is_refused)?;
        Some((delay, source))
    })
}

/// Trap 9: of several exhausted limits the longest wait.
fn longest(limits: Vec<Limit>, is_refused: bool) -> Option<Duration> {
    let (mut known, mut silent) = (None, None);
    for limit in limits {
        match limit.exhausted {
            Some(true) => known = known.max(Some(limit.wait)),
            Some(false) => {}
            None => silent = silent.max(Some(limit.wait)),
        }
    }
    known.or(silent.filter(|_| is_refused))
}

/// Returns the limit of `RateLimit`; or all limits with the word `reset` in the names of their
/// headers: `x-ratelimit-reset`, `x-ratelimit-reset-tokens`, `anthropic-ratelimit-tokens-reset`,
/// `x-rate-limit-reset` ...
fn limits(headers: &HeaderMap, clock: SystemTime, source: HintSource) -> Vec<Limit> {
    if source == HintSource::RateLimit {
        return structured::limits(headers);
    }
    let of_draft = source == HintSource::RateLimitReset;
    let names = headers.keys().map(|name| name.as_str());
    names
        .filter(|name| tells_a_reset(name) && (*name == "ratelimit-reset") == of_draft)
        .flat_map(|name| of_header(headers, name, clock))
        .collect()
}

fn tells_a_reset(name: &str) -> bool {
    // Milliseconds would need a rule of their own; no server is known to send them.
    let mut words = name.split('-');
    name.contains("limit") && words.any(|word| word == "reset") && !name.ends_with("-ms")
}

/// Reads one limit, or several in a list, as Brave sends them: `Remaining: 0, 14523`, `Reset: 1,
/// 1419704`.
fn of_header(headers: &HeaderMap, name: &str, clock: SystemTime) -> Vec<Limit> {
    let Some(resets) = joined(headers, name) else {
        return Vec::new();
    };
    let remaining = fellow(headers, name, "remaining").unwrap_or_default();
    let limit = |reset: &str, exhausted| delay(reset, clock).map(|wait| Limit { exhausted, wait });
    let lists = (resets.split(','), remaining.split(','));
    if lists.0.clone().count() > 1 && lists.0.clone().count() == lists.1.clone().count() {
        let pairs = lists.0.zip(lists.1);
        return pairs
            .filter_map(|(reset, n)| limit(reset, is_zero(n)))
            .collect();
    }
    let exhausted = is_zero(&remaining).or_else(|| says_so(headers, name));
    limit(&resets, exhausted).into_iter().collect()
}

/// Reads the header with another word instead of `reset`; for `x-ratelimit-reset-after` the one of
/// `x-ratelimit-reset`, if it has none of its own.
fn fellow(headers: &HeaderMap, reset: &str, word: &str) -> Option<String> {
    let at = reset.find("reset")?;
    let (head, tail) = (&reset[..at], &reset[at + "reset".len()..]);
    joined(headers, &format!("{head}{word}{tail}"))
        .or_else(|| joined(headers, &format!("{head}{word}")))
}

/// Some servers count in fractions, and Docker Hub adds the window: `0;w=21600`. A negative number
/// is "not known" at Azure.
fn is_zero(remaining: &str) -> Option<bool> {
    let count = remaining.split(';').next()?;
    number(count).map(|n| n == 0.0)
}

/// Returns whether some limit has nothing left: `X-RateLimit-Remaining: 0`, `RateLimit:
/// "daily";r=0`.
pub(super) fn has_nothing_left(headers: &HeaderMap) -> bool {
    let has_none = |name: &str| {
        let values = joined(headers, name).unwrap_or_default();
        match name {
            "ratelimit" => values
                .split([';', ','])
                .any(|part| matches!(part.trim(), "r=0" | "remaining=0")),
            name if name.contains("limit") && name.contains("remaining") => {
                values.split(',').any(|n| is_zero(n) == Some(true))
            }
            _ => false,
        }
    };
    headers.keys().any(|name| has_none(name.as_str()))
}

/// Anthropic's unified limits have no remainder, but a status and the share that is used.
fn says_so(headers: &HeaderMap, name: &str) -> Option<bool> {
    if let Some(status) = fellow(headers, name, "status") {
        return Some(status.trim() == "rejected");
    }
    let share = fellow(headers, name, "utilization")?;
    number(&share).map(|share| share >= 1.0)
}

/// Reads how long it is until a reset, in whatever form.
fn delay(reset: &str, clock: SystemTime) -> Option<Duration> {
    if let Some(number) = number(reset) {
        return Some(delay_of_number(number, clock));
    }
    go_duration(reset).or_else(|| {
        let moment = rfc3339(reset).or_else(|| http_date(reset))?;
        Some(until(moment, clock))
    })
}

/// A delay of 10⁹ seconds would be one of 31 years, and 10¹¹ seconds after 1970 is the year 5138.
fn delay_of_number(number: f64, clock: SystemTime) -> Duration {
    let (moment, number) = match number {
        n if n > 1e11 => (true, n / 1000.0),
        n => (n > 1e9, n),
    };
    let duration = saturating(number);
    match moment {
        true => since_1970(duration, clock),
        false => duration,
    }
}
