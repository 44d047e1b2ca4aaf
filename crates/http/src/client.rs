use std::{
    error::Error as StdError,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
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
    /// A client that follows no redirect, uses no proxy, repeats nothing and has no timeout of its
    /// own, of connecting either: layers do that. One [made elsewhere](Self::from_client) may have
    /// both.
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

    /// A client that was set up elsewhere. It should follow no redirects: else the tool's headers,
    /// with its token, may be sent to other hosts, and a refused connection there would count as
    /// proof that the first host did nothing.
    pub fn from_client(client: reqwest::Client) -> Self {
        Self(client)
    }
}

impl Service<Request<Bytes>> for ReqwestClient {
    type Response = Response<ReqwestBody>;
    type Error = ReqwestError;
    type Future = ReqwestFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReqwestError>> {
        let ready = Service::<reqwest::Request>::poll_ready(&mut self.0, cx);
        ready.map_err(ReqwestError::new)
    }

    fn call(&mut self, request: Request<Bytes>) -> ReqwestFuture {
        let client = self.0.clone();
        Box::pin(async move {
            let request = request.try_into().map_err(ReqwestError::new)?;
            let answer = client.execute(request).await.map_err(ReqwestError::new)?;
            Ok(Response::from(answer).map(ReqwestBody))
        })
    }
}

type Answer = Result<Response<ReqwestBody>, ReqwestError>;

/// Response future of [`ReqwestClient`]. Boxed: reqwest's own future has no public name.
pub type ReqwestFuture = BoxFuture<'static, Answer>;

/// The body of an answer that comes through [`ReqwestClient`].
pub struct ReqwestBody(reqwest::Body);

impl std::fmt::Debug for ReqwestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReqwestBody").finish_non_exhaustive()
    }
}

impl Body for ReqwestBody {
    type Data = Bytes;
    type Error = ReqwestError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReqwestError>>> {
        let frame = Pin::new(&mut self.0).poll_frame(cx);
        frame.map(|frame| frame.map(|frame| frame.map_err(ReqwestError::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A request through [`ReqwestClient`] has no answer. Its [source](StdError::source) is
/// reqwest's error, without the URL: that may be a secret as a whole.
#[derive(Debug)]
pub struct ReqwestError(reqwest::Error);

impl ReqwestError {
    fn new(error: reqwest::Error) -> Self {
        Self(error.without_url())
    }
}

impl fmt::Display for ReqwestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match lacks_tls(&self.0) {
            true => f.write_str("reqwest is built without TLS"),
            false => self.0.fmt(f),
        }
    }
}

/// Returns whether a client without TLS was asked for `https`. Of hyper-util's error only the text
/// says so.
fn lacks_tls(error: &reqwest::Error) -> bool {
    let mut link = error.is_connect().then_some(error as &dyn StdError);
    while let Some(error) = link {
        if error.source().is_none() {
            return error.to_string().contains("scheme is not http");
        }
        link = error.source();
    }
    false
}

impl StdError for ReqwestError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}
