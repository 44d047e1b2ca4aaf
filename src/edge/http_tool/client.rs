use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use tower_service::Service;

use crate::config::ConfigError;

/// reqwest as the client of HTTP tools.
///
/// # Clone
///
/// Clones share the connections.
#[derive(Clone, Debug)]
pub struct ReqwestClient(reqwest::Client);

impl ReqwestClient {
    /// A client that follows no redirect, uses no proxy, repeats nothing and has no timeout of its own: layers do that.
    ///
    /// # Errors
    ///
    /// `client`, if TLS or the resolver could not be set up.
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

    /// A client that was set up elsewhere. It should follow no redirects: else the tool's headers, with its token, may be sent to
    /// other hosts, and a refused connection there would count as proof that the first host did nothing.
    pub fn from_client(client: reqwest::Client) -> Self {
        Self(client)
    }
}

impl Service<Request<Bytes>> for ReqwestClient {
    type Response = Response<reqwest::Body>;
    type Error = reqwest::Error;
    type Future = ReqwestFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Service::<reqwest::Request>::poll_ready(&mut self.0, cx)
    }

    fn call(&mut self, request: Request<Bytes>) -> ReqwestFuture {
        let client = self.0.clone();
        ReqwestFuture(Box::pin(async move {
            let answer = client.execute(request.try_into()?).await?;
            Ok(answer.into())
        }))
    }
}

/// Response future of [`ReqwestClient`].
#[must_use = "futures do nothing unless polled"]
pub struct ReqwestFuture(
    Pin<Box<dyn Future<Output = Result<Response<reqwest::Body>, reqwest::Error>> + Send>>,
);

crate::text::opaque_debug!({} ReqwestFuture);

impl Future for ReqwestFuture {
    type Output = Result<Response<reqwest::Body>, reqwest::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}
