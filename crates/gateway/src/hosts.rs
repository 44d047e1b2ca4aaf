//! The hosts that requests may name. A page of a foreign site does not reach the gateway, not even
//! by a name of its own that leads to this machine (DNS rebinding).

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{
        StatusCode, Uri,
        header::{HOST, ORIGIN},
    },
    middleware::Next,
    response::Response,
};

/// Those of this machine.
pub(crate) const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Refuses requests that name another host than these in `Host` or `Origin`.
pub(crate) async fn check(
    State(hosts): State<Arc<[String]>>,
    request: Request,
    next: Next,
) -> Result<Response, (StatusCode, &'static str)> {
    let is_ours = |host: &str| hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
    let (asked, headers) = (request.uri().host(), request.headers());
    let named = headers.get_all(HOST).iter().chain(headers.get_all(ORIGIN));
    let all_ours = named
        .map(|value| Uri::try_from(value.as_bytes()))
        .all(|value| value.is_ok_and(|value| value.host().is_some_and(is_ours)));
    // HTTP/2 has the host in the URI.
    let has_host = asked.is_some() || headers.contains_key(HOST);
    match has_host && asked.is_none_or(is_ours) && all_ours {
        true => Ok(next.run(request).await),
        false => Err((StatusCode::FORBIDDEN, "no Host or Origin of this gateway\n")),
    }
}
