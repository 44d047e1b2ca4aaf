use std::{collections::BTreeSet, sync::Arc};

use http::Uri;

use super::Secret;
use crate::{config::ConfigError, kit::flights::FlightKey};

/// The target of a token: its audience, resources and scopes (RFC 8693, section 2.1).
///
/// Two of them are the same if they have the same parts; the order of scopes means nothing.
///
/// ```
/// use tower_toolcall::token::Target;
///
/// let target = Target::audience("orders").with_scope("read").with_scope("write");
/// assert_eq!(target, Target::audience("orders").with_scope("write read"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Target(Arc<Parts>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Parts {
    audience: Option<String>,
    resources: BTreeSet<String>,
    scopes: BTreeSet<String>,
}

impl Target {
    /// Returns a service by the name that the identity provider knows it by.
    pub fn audience(audience: impl Into<String>) -> Self {
        Self(Arc::default()).edit(|parts| parts.audience = Some(audience.into()))
    }

    /// Returns a service by its URL (RFC 8707).
    pub fn resource(url: impl Into<String>) -> Self {
        Self(Arc::default()).with_resource(url)
    }

    /// Adds a resource.
    pub fn with_resource(self, url: impl Into<String>) -> Self {
        self.edit(|parts| _ = parts.resources.insert(url.into()))
    }

    /// Adds a scope, or several with spaces between them.
    pub fn with_scope(self, scopes: &str) -> Self {
        let scopes = scopes.split_whitespace().map(str::to_owned);
        self.edit(|parts| parts.scopes.extend(scopes))
    }

    fn edit(mut self, change: impl FnOnce(&mut Parts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Returns the name of the service, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.0.audience.as_deref()
    }

    /// Returns the URLs of the service.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.0.resources.iter().map(String::as_str)
    }

    /// Returns the scopes, in order.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.0.scopes.iter().map(String::as_str)
    }
}

/// A request for a token: an extension of the calls that a [`TokenLayer`](super::TokenLayer) sends
/// to an identity provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRequest {
    subject: Secret,
    target: Target,
}

impl FlightKey for TokenRequest {}

impl TokenRequest {
    /// Makes a token for this target, in exchange for the subject's.
    pub fn new(subject: impl Into<Secret>, target: Target) -> Self {
        let subject = subject.into();
        Self { subject, target }
    }

    /// Returns the token to exchange.
    pub fn subject(&self) -> &Secret {
        &self.subject
    }

    /// Returns the target of the new token.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

/// Returns the URL of a token endpoint: `https://`, or `http://` on this machine (`localhost`,
/// `127.0.0.1`, `[::1]`).
///
/// # Errors
///
/// `endpoint` if the URL is another one, or has a user or a query.
pub fn endpoint_uri(url: &str) -> Result<Uri, ConfigError> {
    let refuse = |reason: &'static str| ConfigError::new("endpoint", reason);
    let uri: Uri = url.parse().map_err(|_| refuse("is not a URL"))?;
    let host = uri.host().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| refuse("has no host"))?;
    let is_local = ["localhost", "127.0.0.1", "[::1]"].contains(&&*host.to_ascii_lowercase());
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if is_local => {}
        Some("http") => return Err(refuse("is `http://` on another machine: secrets go there")),
        _ => return Err(refuse("is not an `https://` URL")),
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(refuse("has a user in it"));
    }
    match uri.query() {
        Some(_) => Err(refuse("has a query")),
        None => Ok(uri),
    }
}
