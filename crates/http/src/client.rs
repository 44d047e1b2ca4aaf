use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{TryFutureExt as _, future::BoxFuture};
use http::{Request, Response};
use tower_service::Service;

use tower_toolcall::ConfigError;

/// reqwest as the client of HTTP tools.
///
/// TLS is your choice: name reqwest among your own dependencies, with its feature `rustls` or
/// `native-tls` (`reqwest = { version = "0.13", default-features = false, features = ["rustls"]
/// }`). Without it each call of a tool with an `https://` URL is refused, as
/// [`Internal`](tower_toolcall::ErrorKind::Internal), and nothing is sent.
///
/// # Clone
///
/// Clones share the connections.
#[derive(Clone)]
pub struct ReqwestClient(reqwest::Client);

// Headers and proxies of a client that was set up elsewhere may have secrets.
impl std::fmt::Debug for ReqwestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReqwestClient").finish_non_exhaustive()
    }
}

impl ReqwestClient {
    /// Makes a client that follows no redirect, uses no proxy, repeats nothing and has no timeout
    /// of its own, of connecting either: layers do that. One [made elsewhere](Self::from_client)
    /// may have both.
    ///
    /// # Errors
    ///
    /// `client`, if TLS or the resolver could not be set up.
    ///
    /// # Panics
    ///
    /// As reqwest does: with its feature `rustls-no-provider`, unless the process has installed a
    /// provider of rustls'.
    pub fn new() -> Result<Self, ConfigError> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never());
        let client = client.build();
        client
            .map(Self)
            .map_err(|_| ConfigError::new("client", "could not be set up"))
    }

    /// Uses a client that was set up elsewhere. It should follow no redirects: else the tool's
    /// headers, with its token, may be sent to other hosts, and a refused connection there would
    /// count as proof that the first host did nothing.
    pub fn from_client(client: reqwest::Client) -> Self {
        Self(client)
    }
}

// The URL of an error may be a secret as a whole.
impl Service<Request<Bytes>> for ReqwestClient {
    type Response = Response<reqwest::Body>;
    type Error = reqwest::Error;
    type Future = ReqwestFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        let ready = Service::<reqwest::Request>::poll_ready(&mut self.0, cx);
        ready.map_err(reqwest::Error::without_url)
    }

    fn call(&mut self, request: Request<Bytes>) -> ReqwestFuture {
        let client = self.0.clone();
        let answer = async move { client.execute(request.try_into()?).await };
        Box::pin(
            answer
                .map_ok(Response::from)
                .map_err(reqwest::Error::without_url),
        )
    }
}

/// Response future of [`ReqwestClient`]. Its errors have no URL. Boxed: reqwest's own future has no
/// public name.
pub type ReqwestFuture = BoxFuture<'static, Result<Response<reqwest::Body>, reqwest::Error>>;
