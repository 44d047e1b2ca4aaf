//! The headers of a request that concern its call.

use std::time::Duration;

use http::{Extensions, HeaderMap, header::AsHeaderName};
use tokio::time::Instant;

use crate::call::{CallExt, ToolCall, Trust};

/// A longer id is not taken up.
pub(super) const MAX_ID_BYTES: usize = 128;

const REQUEST_ID: &str = "x-request-id";

/// How long a proxy in front waits for the answer. HTTP has no standard for it; this is Envoy's.
const ENVOY_TIMEOUT_MS: &str = "x-envoy-expected-rq-timeout-ms";

impl ToolCall {
    /// Takes up what the headers of an HTTP request, or the metadata of a gRPC request, say of the
    /// call:
    ///
    /// - `x-request-id`, at most 128 visible characters: the call's id
    /// - `traceparent`, `tracestate` and what else is configured (feature `otel`): the parent of
    ///   its span
    ///
    /// A value that is malformed, too long or there twice is ignored. No deadline is taken: see
    /// [`with_request_deadline`](Self::with_request_deadline).
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tower_toolcall::ToolCall;
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-request-id", "r-17".parse()?);
    /// let call = ToolCall::new("search").with_request_headers(&headers);
    /// assert_eq!(call.id(), Some("r-17"));
    /// # Ok::<_, tower_toolcall::BoxError>(())
    /// ```
    pub fn with_request_headers(mut self, headers: &HeaderMap) -> Self {
        if let Some(id) = the_only(headers, REQUEST_ID).filter(|id| is_usable_id(id)) {
            self = self.with_id(id);
        }
        #[cfg(feature = "otel")]
        if let Some(parent) = super::otel::parent_from_headers(headers) {
            self = self.with_remote_parent(parent);
        }
        self
    }

    /// Takes up who has sent a request, as far as its extensions say so:
    ///
    /// - [`VerifiedCaller`](crate::VerifiedCaller), from an authentication layer: the agent id
    /// - **axum's `ConnectInfo<SocketAddr>` (feature `axum`)**: the session id: the peer's IP
    ///   address, [not verified](Self::with_unverified_ids)
    ///
    /// axum has the address if the server is made with
    /// `into_make_service_with_connect_info::<SocketAddr>()`. Behind a proxy it is the proxy's:
    /// then all callers without a verified name are one. With neither of both, the call stays as it
    /// is.
    pub fn with_request_extensions(self, extensions: &Extensions) -> Self {
        #[cfg(feature = "axum")]
        if let Some(address) = super::serve::address(extensions) {
            let call = self.with_unverified_session(address);
            return call.with_verified_caller(extensions);
        }
        self.with_verified_caller(extensions)
    }

    /// Takes up how long the sender of an HTTP request waits: `x-envoy-expected-rq-timeout-ms`, in
    /// milliseconds from now, becomes the call's deadline if that is earlier than the one it has.
    /// What is malformed, zero or there twice is ignored.
    ///
    /// [`tighten_remote`](crate::flow::CallExt::tighten_remote) says what `trust` means. `Trusted`
    /// is for a proxy that sets the header itself, or your own mesh.
    pub fn with_request_deadline(mut self, headers: &HeaderMap, trust: Trust) -> Self {
        if let Some(at) = deadline_of(headers) {
            self.tighten_remote(at, trust);
        }
        self
    }
}

/// The deadline of a request that arrives now.
pub(super) fn deadline_of(headers: &HeaderMap) -> Option<Instant> {
    let ms = the_only(headers, ENVOY_TIMEOUT_MS).and_then(digits)?;
    // Zero means no limit.
    let timeout = (ms > 0).then_some(Duration::from_millis(ms))?;
    Instant::now().checked_add(timeout)
}

pub(super) fn is_usable_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// A number without a sign.
pub(super) fn digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// A header's value, if it is there once and is text.
pub(super) fn the_only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(headers: &[(&'static str, &str)]) -> ToolCall {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        ToolCall::new("t")
            .with_request_headers(&map)
            .with_request_deadline(&map, Trust::Untrusted)
    }

    /// Rule 8: a value, or nothing.
    #[test]
    fn an_id_is_taken_if_it_is_usable() {
        let long = "x".repeat(129);
        for (value, taken) in [("r-1", true), ("", false), ("a b", false), (&long, false)] {
            let id = call(&[(REQUEST_ID, value)]);
            assert_eq!(id.id(), Some(value).filter(|_| taken));
        }
        assert_eq!(call(&[(REQUEST_ID, "a"), (REQUEST_ID, "b")]).id(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_can_only_shorten() {
        let now = Instant::now();
        let deadline = |value| call(&[(ENVOY_TIMEOUT_MS, value)]).deadline();
        assert_eq!(deadline("1500"), Some(now + Duration::from_millis(1500)));
        for nothing in [
            "0",
            "-1",
            "+1",
            "1.5",
            "",
            "soon",
            "99999999999999999999999",
        ] {
            assert_eq!(deadline(nothing), None, "{nothing}");
        }
        assert!(deadline("18446744073709551615").is_none_or(|at| at > now));
        let mut headers = HeaderMap::new();
        headers.insert(ENVOY_TIMEOUT_MS, "60000".parse().unwrap());
        let call = ToolCall::new("t")
            .with_deadline(now)
            .with_request_deadline(&headers, Trust::Untrusted);
        assert_eq!(call.deadline(), Some(now));
        assert!(!call.is_deadline_untrusted());
    }

    /// V3: without a setting.
    #[test]
    fn a_deadline_in_a_header_is_not_taken_by_itself() {
        let mut headers = HeaderMap::new();
        headers.insert(ENVOY_TIMEOUT_MS, "501".parse().unwrap());
        let call = ToolCall::new("t").with_request_headers(&headers);
        assert_eq!(call.deadline(), None);
    }

    /// V3.
    #[test]
    fn a_deadline_from_a_header_knows_whose_it_is() {
        let mut headers = HeaderMap::new();
        headers.insert(ENVOY_TIMEOUT_MS, "501".parse().unwrap());
        for (trust, untrusted) in [(Trust::Untrusted, true), (Trust::Trusted, false)] {
            let call = ToolCall::new("t").with_request_deadline(&headers, trust);
            assert!(call.deadline().is_some());
            assert_eq!(call.is_deadline_untrusted(), untrusted);
        }
    }
}
