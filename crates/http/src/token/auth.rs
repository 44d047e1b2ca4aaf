use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use percent_encoding::utf8_percent_encode;
use zeroize::Zeroizing;

use crate::body::ENCODED;
use tower_toolcall::{AnyError, token::Secret};

/// How this program signs in to the identity provider (RFC 6749, section 2.3).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientAuth {
    /// By a header, `client_secret_basic`: what providers have to take.
    Basic {
        /// The client's id.
        id: String,
        /// Its password.
        secret: Secret,
    },
    /// In the body, `client_secret_post`.
    Post {
        /// The client's id.
        id: String,
        /// Its password.
        secret: Secret,
    },
    /// By a JWT that it signs (RFC 7523), `private_key_jwt`.
    Assertion {
        /// The client's id.
        id: String,
        /// The key that signs it.
        sign: Signer,
    },
    /// By its id alone.
    Public {
        /// The client's id.
        id: String,
    },
}

impl ClientAuth {
    /// Sends a password in a header: the usual way.
    pub fn basic(id: impl Into<String>, secret: impl Into<Secret>) -> Self {
        let (id, secret) = (id.into(), secret.into());
        Self::Basic { id, secret }
    }

    /// Sends a password in the body.
    pub fn post(id: impl Into<String>, secret: impl Into<Secret>) -> Self {
        let (id, secret) = (id.into(), secret.into());
        Self::Post { id, secret }
    }

    /// Sends no password.
    pub fn public(id: impl Into<String>) -> Self {
        Self::Public { id: id.into() }
    }

    /// Sends a JWT, which a crate for JWTs makes: see [`Assertion`].
    pub fn assertion(id: impl Into<String>, sign: impl Assertion + 'static) -> Self {
        let sign = Signer(Arc::new(sign));
        Self::Assertion {
            id: id.into(),
            sign,
        }
    }

    pub(super) fn id(&self) -> &str {
        match self {
            Self::Basic { id, .. }
            | Self::Post { id, .. }
            | Self::Assertion { id, .. }
            | Self::Public { id } => id,
        }
    }

    pub(super) fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Basic { secret, .. } | Self::Post { secret, .. } => Some(secret),
            Self::Assertion { .. } | Self::Public { .. } => None,
        }
    }

    /// Adds its part to a form. What it adds to the headers is returned.
    pub(super) fn sign_in(
        &self,
        form: &mut Form,
        endpoint: &str,
    ) -> Result<Option<HeaderValue>, AnyError> {
        match self {
            Self::Basic { id, secret } => return basic(id, secret).map(Some),
            Self::Post { id, secret } => {
                form.add("client_id", id);
                form.add("client_secret", secret.expose());
            }
            Self::Assertion { id, sign } => {
                let assertion = sign.0.assertion(endpoint)?;
                form.add("client_id", id);
                form.add("client_assertion_type", ASSERTION_TYPE);
                form.add("client_assertion", assertion.expose());
            }
            Self::Public { id } => form.add("client_id", id),
        }
        Ok(None)
    }
}

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Both parts are encoded as in a form first: RFC 6749, section 2.3.1.
fn basic(id: &str, secret: &Secret) -> Result<HeaderValue, AnyError> {
    let encoded = |text| utf8_percent_encode(text, ENCODED);
    let pair = Zeroizing::new(format!("{}:{}", encoded(id), encoded(secret.expose())));
    let value = Zeroizing::new(format!(
        "Basic {}",
        &*Zeroizing::new(STANDARD.encode(&*pair))
    ));
    let mut value = HeaderValue::from_str(&value)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Makes the JWT with which a client signs in: `iss` and `sub` are the client's id, `aud` is the
/// audience that it gets, `jti` is new each time, `exp` is soon (RFC 7523, section 3). By the JWT
/// crate of your choice.
pub trait Assertion: Send + Sync {
    /// A new one, for the identity provider of this URL.
    ///
    /// # Errors
    ///
    /// Nothing can be signed: the exchange fails, and is not repeated.
    fn assertion(&self, audience: &str) -> Result<Secret, AnyError>;
}

impl<F, E> Assertion for F
where
    F: Fn(&str) -> Result<Secret, E> + Send + Sync,
    E: Into<AnyError>,
{
    fn assertion(&self, audience: &str) -> Result<Secret, AnyError> {
        self(audience).map_err(E::into)
    }
}

/// An [`Assertion`], shared.
#[derive(Clone)]
pub struct Signer(Arc<dyn Assertion>);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

/// A form, which is wiped.
#[derive(Default)]
pub(super) struct Form(Zeroizing<String>);

impl Form {
    /// With room for this many bytes: a text that grows leaves copies behind.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Zeroizing::new(String::with_capacity(bytes)))
    }

    pub(super) fn add(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(value, ENCODED));
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}
