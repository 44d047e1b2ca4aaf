//! Delays in headers.
//!
//! Peers' clocks are not ours: a moment counts from the answer's own `Date`, where it has one.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use super::{
    Hint, HintSource,
    time::{go_duration, millis, number, saturating, seconds},
};

mod moment;
mod quota;
mod structured;

/// Longer values are ignored, in bytes.
const MAX_VALUE: usize = 4_096;

/// Has milliseconds, whatever it is called.
const OF_AWS: &str = "x-amz-retry-after";

/// Reads the headers of an answer that refuses (429, 503, 403 ...).
///
/// The first of these that can be read:
///
/// 1. `retry-after-ms`, then `Retry-After`, each with any prefix (`x-ms-retry-after-ms`); of
///    several the longest. `x-amz-retry-after` has milliseconds.
/// 2. `RateLimit` with `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10, which gives
///    `Retry-After` precedence): the longest `t` of the items with `r=0`, or the window of their
///    policy where `t` is missing. Also its form up to -07: `limit=100, remaining=0, reset=5`.
/// 3. `RateLimit-Reset`, if `RateLimit-Remaining` is 0 or missing.
/// 4. All other headers about a limit's reset: `X-RateLimit-Reset`, `x-ratelimit-reset-tokens`,
///    `anthropic-ratelimit-requests-reset` ...: the longest of the limits that are used up; if none
///    says so, of those that say nothing else. Seconds since 1970 (over 10⁹), milliseconds (over
///    10¹¹), a number of seconds, a duration as Go prints it (`1m26.4s`), a moment (RFC 3339, also
///    without its seconds) or an HTTP date.
///
/// `x-should-retry` decides about retries, with or without a delay.
///
/// Moments count from the answer's `Date`, if it has one, else from `now`. One that has passed is
/// zero.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use http::{HeaderMap, HeaderValue};
/// use tower_toolcall::hint;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(
///     "ratelimit",
///     HeaderValue::from_static(r#""burst";r=0;t=30, "daily";r=900;t=3600"#),
/// );
/// let hint = hint::from_headers(&headers, SystemTime::UNIX_EPOCH).unwrap();
/// assert_eq!(hint.delay, Some(Duration::from_secs(30)));
/// ```
pub fn from_headers(headers: &HeaderMap, now: SystemTime) -> Option<Hint> {
    let clock = clock(headers, now);
    let after = longest(headers, "retry-after", |value| retry_after(value, clock));
    let delay = longest(headers, "retry-after-ms", millis)
        .or_else(|| longest(headers, OF_AWS, millis))
        .map(|delay| (delay, HintSource::RetryAfterMs))
        .or(after.map(|delay| (delay, HintSource::RetryAfter)))
        .or_else(|| quota::wait(headers, clock, true));
    let retry = values(headers, "x-should-retry").find_map(verdict);
    match delay {
        Some((delay, source)) => Some(Hint {
            retry,
            ..Hint::wait(delay, source)
        }),
        None => retry.map(|_| Hint {
            delay: None,
            retry,
            source: HintSource::ShouldRetry,
        }),
    }
}

/// Reads how long until there is quota again, if the headers of a success say that it is used up.
///
/// The same headers and forms as in [`from_headers`] except `Retry-After`; a limit counts only if
/// it says that nothing remains. Some servers (OpenAI) say when the limit is full again, which is
/// later.
pub fn exhausted(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let found = quota::wait(headers, clock(headers, now), false);
    found.map(|(delay, _)| delay)
}

/// Returns whether the headers say that nothing is left of a limit, also without its reset.
pub(crate) fn is_used_up(headers: &HeaderMap, now: SystemTime) -> bool {
    exhausted(headers, now).is_some() || quota::has_nothing_left(headers)
}

/// Reads the value of `Retry-After` (RFC 9110, section 10.2.3): seconds, or an HTTP date in any of
/// its three forms.
///
/// As sent in practice also: seconds with a fraction, in quotes, as `30s`, as seconds since 1970
/// (over 10⁹), and several of these where a proxy has joined them; then the longest counts.
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Some(date) = http_date(value) {
        return Some(until(date, now));
    }
    if value.len() > MAX_VALUE {
        return None;
    }
    // Not `1,5`, which may be one and a half.
    let parts = value.split(", ");
    parts.filter_map(|part| delta(part, now)).max()
}

fn delta(value: &str, now: SystemTime) -> Option<Duration> {
    /// No server asks for thirty years: it is a moment.
    const EPOCH: Duration = Duration::from_secs(1_000_000_000);
    let value = value.trim().trim_matches('"');
    match seconds(value).or_else(|| go_duration(value))? {
        moment if moment >= EPOCH => Some(since_1970(moment, now)),
        delay => Some(delay),
    }
}

fn verdict(value: &str) -> Option<bool> {
    value.trim().to_ascii_lowercase().parse().ok()
}

fn clock(headers: &HeaderMap, now: SystemTime) -> SystemTime {
    values(headers, "date").find_map(http_date).unwrap_or(now)
}

fn http_date(value: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(value.trim()).ok()
}

/// Reads how long it is until a moment that is so long after 1970.
fn since_1970(moment: Duration, clock: SystemTime) -> Duration {
    let moment = SystemTime::UNIX_EPOCH.checked_add(moment);
    moment.map_or(Duration::MAX, |moment| until(moment, clock))
}

fn until(moment: SystemTime, clock: SystemTime) -> Duration {
    moment.duration_since(clock).unwrap_or_default()
}

/// Reads the values of a header that are text of a sensible length.
fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter(|value| value.len() <= MAX_VALUE)
        .filter_map(|value| value.to_str().ok())
}

/// Reads the longest delay of the headers with a name, alone or behind a vendor's prefix.
fn longest(
    headers: &HeaderMap,
    name: &str,
    read: impl Fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    let is_named = |found: &&str| {
        let prefix = found.strip_suffix(name);
        let is_unit = *found != OF_AWS || name == OF_AWS;
        is_unit && prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
    };
    let names = headers.keys().map(|name| name.as_str()).filter(is_named);
    names
        .flat_map(|name| values(headers, name))
        .filter_map(read)
        .max()
}

/// Reads the lines of a header as one list (RFC 9110, section 5.3).
fn joined(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut joined: Option<String> = None;
    for value in values(headers, name) {
        match &mut joined {
            Some(list) if list.len() + value.len() > MAX_VALUE => return None,
            Some(list) => list.extend([", ", value]),
            None => joined = Some(value.to_owned()),
        }
    }
    joined
}

#[cfg(test)]
mod tests;
