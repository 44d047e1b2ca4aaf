//! The hosts and origins that requests may name. A page of a foreign site does not reach the
//! gateway, not even by a name of its own that leads to this machine (DNS rebinding).

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode, Uri,
        header::{HOST, ORIGIN},
    },
    middleware::Next,
    response::Response,
};

/// Those of this machine.
pub(crate) const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The hosts for `Host` and `Origin`, and whole origins of other sites.
#[derive(Clone)]
pub(crate) struct Hosts {
    pub(crate) hosts: Arc<[String]>,
    pub(crate) origins: Arc<[String]>,
}

impl Hosts {
    /// Those of this machine.
    pub(crate) fn loopback() -> Self {
        Self {
            hosts: LOOPBACK.map(str::to_owned).into(),
            origins: Arc::default(),
        }
    }

    fn has(&self, host: &str) -> bool {
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    fn is_of_ours(&self, value: &HeaderValue) -> bool {
        Uri::try_from(value.as_bytes()).is_ok_and(|uri| uri.host().is_some_and(|it| self.has(it)))
    }
}

/// Refuses requests that name another host in `Host`, or another origin in `Origin`.
pub(crate) async fn check(
    State(hosts): State<Hosts>,
    request: Request,
    next: Next,
) -> Result<Response, (StatusCode, &'static str)> {
    let (asked, headers) = (request.uri().host(), request.headers());
    let mut origins = headers.get_all(ORIGIN).iter();
    let all_ours = headers.get_all(HOST).iter().all(|it| hosts.is_of_ours(it))
        && origins.all(|it| hosts.is_of_ours(it) || hosts.origins.iter().any(|own| own == it));
    // HTTP/2 has the host in the URI.
    let has_host = asked.is_some() || headers.contains_key(HOST);
    match has_host && asked.is_none_or(|asked| hosts.has(asked)) && all_ours {
        true => Ok(next.run(request).await),
        false => Err((StatusCode::FORBIDDEN, "no Host or Origin of this gateway\n")),
    }
}
