//! How long a server asks to wait, read out of its answer: headers, JSON, text, gRPC metadata.
//!
//! The functions are pure and total. They read no clock (`now` is an argument), and any input of a
//! peer (40 digits, `NaN`, the year 9999, 16 MiB) gives a value or `None`. A value that does not
//! parse is ignored and the next source is tried. A number of at most 64 digits that a [`Duration`]
//! cannot hold gives the longest one. Nothing else is clamped: the layers decide which wait is too
//! long.
//!
//! | function | reads |
//! |---|---|
//! | `from_headers` (feature `hints`) | the headers of an answer that refuses: 429, 503, 403 ... |
//! | `exhausted` (feature `hints`) | the headers of a success that used up the quota |
//! | `retry_after` (feature `hints`) | the value of `Retry-After` alone |
//! | [`from_json`] | `error.data` of JSON-RPC, bodies of errors |
//! | [`from_text`] | messages: `Please try again in 20s` |
//! | [`from_grpc_pushback`] | `grpc-retry-pushback-ms` |
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tower_toolcall::hint;
//!
//! let body = serde_json::json!({ "error": { "code": 429, "retry_after": 1.5 } });
//! let hint = hint::from_json(&body).unwrap();
//! assert_eq!(hint.delay, Some(Duration::from_millis(1500)));
//!
//! assert!(hint::from_text("rate limit reached, try again in 1m26.4s").is_some());
//! assert!(hint::from_text("the query took 30 s").is_none());
//! ```

use std::time::Duration;

#[cfg(feature = "hints")]
mod headers;
mod json;
mod text;
mod time;

#[cfg(feature = "hints")]
pub(crate) use self::headers::is_used_up;
#[cfg(feature = "hints")]
#[cfg_attr(docsrs, doc(cfg(feature = "hints")))]
pub use self::headers::{exhausted, from_headers, retry_after};
pub(crate) use self::text::LIMITS;
pub use self::{json::from_json, text::from_text};

/// A server's advice for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hint {
    /// The time to wait. Zero means immediately, or a moment that has passed.
    pub delay: Option<Duration>,
    /// `true` to repeat the call, `false` not to; `None` if the server does not say.
    pub retry: Option<bool>,
    /// Where the delay was read; without a delay, where `retry` was read.
    pub source: HintSource,
}

impl Hint {
    fn wait(delay: Duration, source: HintSource) -> Self {
        Self {
            delay: Some(delay),
            retry: None,
            source,
        }
    }
}

/// Where a [`Hint`] was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HintSource {
    /// `retry-after-ms`, of OpenAI and Azure.
    RetryAfterMs,
    /// `Retry-After` (RFC 9110, section 10.2.3).
    RetryAfter,
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
    RateLimit,
    /// `RateLimit-Reset`, of the same draft up to -06.
    RateLimitReset,
    /// `X-RateLimit-Reset` and its relatives: those of GitHub, OpenAI, Anthropic and others.
    XRateLimitReset,
    /// `x-should-retry`, of OpenAI and Anthropic.
    ShouldRetry,
    /// `google.rpc.RetryInfo` in JSON.
    RetryInfo,
    /// `retry_after` and the like in JSON.
    Json,
    /// A message.
    Text,
    /// `grpc-retry-pushback-ms`.
    GrpcPushback,
}

/// Reads the value of `grpc-retry-pushback-ms` (gRFC A6): a signed number of milliseconds, after
/// which the call is to be repeated. Negative or unparsable: it is not to be repeated.
///
/// ```
/// use tower_toolcall::hint;
///
/// assert_eq!(hint::from_grpc_pushback("-1").retry, Some(false));
/// ```
pub fn from_grpc_pushback(value: &str) -> Hint {
    let millis: Option<i64> = value.trim().parse().ok();
    let delay = millis.and_then(|ms| u64::try_from(ms).ok());
    Hint {
        delay: delay.map(Duration::from_millis),
        retry: Some(delay.is_some()),
        source: HintSource::GrpcPushback,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_pushback_is_milliseconds_or_a_refusal() {
        for (value, millis) in [
            ("0", Some(0)),
            ("250", Some(250)),
            (" 60000 ", Some(60_000)),
            ("-1", None),
            ("-9223372036854775808", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
            ("١", None),
            ("9999999999999999999999999999999999999999", None),
        ] {
            let hint = from_grpc_pushback(value);
            assert_eq!(hint.delay, millis.map(Duration::from_millis), "{value}");
            assert_eq!(hint.retry, Some(millis.is_some()), "{value}");
            assert_eq!(hint.source, HintSource::GrpcPushback);
        }
    }
}
