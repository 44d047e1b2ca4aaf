use std::time::Duration;

use base64::{
    Engine as _,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode::Indifferent, GeneralPurpose, GeneralPurposeConfig},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::Secret;

/// A token as it was issued.
///
/// ```
/// use std::time::Duration;
/// use tower_toolcall::token::Token;
///
/// let token = Token::new("t0k3n").with_lifetime(Duration::from_secs(300));
/// assert_eq!(token.lifetime(), Some(Duration::from_secs(300)));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Token {
    secret: Secret,
    lifetime: Option<Duration>,
    scope: Option<Box<str>>,
    since: Instant,
}

impl Token {
    /// Makes a token, without its scheme (`Bearer`).
    pub fn new(token: impl Into<Secret>) -> Self {
        Self {
            secret: token.into(),
            lifetime: None,
            scope: None,
            since: Instant::now(),
        }
    }

    /// Sets what the token is good for: scopes, separated by blanks. Default: nothing is known.
    pub fn with_scope(mut self, scope: impl Into<Box<str>>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Sets how long it is valid, from the moment at which it was asked for; zero: for one call.
    /// Default: nothing is known.
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// Returns the token itself.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Returns how long it is valid, if that is known.
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// Returns when it expires, if that is known: its [lifetime](Self::lifetime) after this value
    /// was made.
    pub fn expires_at(&self) -> Option<Instant> {
        self.since.checked_add(self.lifetime?)
    }

    /// Returns its scopes, separated by blanks, as the provider has granted them, if it says so.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Returns its type, as the scheme of the header: always `Bearer`, because a token of another
    /// type is refused.
    pub const fn token_type(&self) -> &'static str {
        "Bearer"
    }
}

/// Reads seconds. A negative number or `NaN` is zero.
pub(super) fn time(seconds: f64) -> Duration {
    match seconds > 0.0 {
        true => Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
        false => Duration::ZERO,
    }
}

/// JWTs have no padding, but a service may accept it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(Indifferent),
);

/// The claims of a JWT that bear on the exchange of tokens. The service that takes the token checks
/// its signature: it is not checked here.
#[derive(Deserialize)]
pub struct Claims {
    aud: Option<Value>,
    exp: Option<Value>,
    iat: Option<Value>,
}

crate::text::debug_fields! { {} |_| Claims { .. } }

impl Claims {
    /// Returns the claims of a token; `None` if it is not a JWT, has more than 64 KiB, or cannot be
    /// read.
    pub fn of(token: &str) -> Option<Self> {
        const MAX_BYTES: usize = 64 << 10;
        if token.len() > MAX_BYTES {
            return None;
        }
        let mut parts = token.split('.');
        let (Some(_), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let claims = BASE64.decode(claims).ok()?;
        serde_json::from_slice(&claims).ok()
    }

    /// Returns for whom the token is; `None` if it does not say so.
    pub fn audiences(&self) -> Option<Vec<&str>> {
        match self.aud.as_ref()? {
            Value::String(one) => Some(vec![one]),
            Value::Array(all) => Some(all.iter().filter_map(Value::as_str).collect()),
            _ => Some(vec![]),
        }
    }

    /// Returns its lifetime when it was issued, in seconds, without the clock of this machine.
    pub(super) fn lifetime(&self) -> Option<f64> {
        Some(self.expires()? - self.iat.as_ref()?.as_f64()?)
    }

    /// Until when it is valid, in seconds since 1970.
    pub(super) fn expires(&self) -> Option<f64> {
        self.exp.as_ref()?.as_f64()
    }
}
