//! The answers of an identity provider (RFC 8693, section 2.2; RFC 6749, section 5.2).

use std::time::Duration;

use base64::{
    Engine as _,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode::Indifferent, GeneralPurpose, GeneralPurposeConfig},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{Secret, Target};
use crate::call::MAX_TOKEN;

/// The longest code of an error that is taken over.
const MAX_CODE: usize = 64;

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
    /// A token, without its scheme (`Bearer`).
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

    /// The token itself.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// How long it is valid, if that is known.
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

/// The types of tokens that can be asked for, and sent to a tool.
pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

#[derive(Deserialize)]
struct Issued {
    access_token: Secret,
    token_type: String,
    issued_token_type: Option<String>,
    expires_in: Option<Value>,
    scope: Option<String>,
}

/// A part that a provider left out of its answer, and the value that is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// `issued_token_type`: it is an access token.
    Type,
    /// The `aud` of a JWT, or it cannot be read: it is for whom it was asked for.
    Audience,
}

/// The token of a 2xx, and what its answer leaves out.
///
/// # Errors
///
/// The fault of the answer, in words without anything of the answer's own.
pub(super) fn issued(
    body: &[u8],
    target: &Target,
    needs_audience: bool,
) -> Result<(Token, Vec<Gap>), &'static str> {
    let issued: Issued =
        serde_json::from_slice(body).map_err(|_| "the answer is no token of RFC 8693")?;
    let mut gaps = Vec::new();
    match issued.issued_token_type.as_deref() {
        Some(ACCESS_TOKEN | JWT) => {}
        Some(_) => return Err("the token is of another type than an access token"),
        None => gaps.push(Gap::Type),
    }
    if !issued.token_type.eq_ignore_ascii_case("bearer") {
        return Err("the token is no bearer token");
    }
    let token = issued.access_token.expose();
    if !(1..=MAX_TOKEN).contains(&token.len()) || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("the token is empty, too long, or has other characters than visible ASCII");
    }
    if let Some(scope) = &issued.scope {
        let given: Vec<&str> = scope.split(' ').collect();
        if !target.scopes().all(|asked| given.contains(&asked)) {
            return Err("the token lacks a scope that was asked for");
        }
    }
    let says_jwt = issued.issued_token_type.as_deref() == Some(JWT);
    let looks_so = token.split('.').count() == 3;
    match (Claims::of(token), target.name()) {
        (Some(claims), asked) => match (claims.audiences(), asked) {
            (Some(all), Some(asked)) if !all.contains(&asked) => {
                return Err("the token is for another audience than the one that was asked for");
            }
            (Some(_), _) => {}
            (None, _) if needs_audience => return Err("the token names no audience"),
            (None, Some(_)) => gaps.push(Gap::Audience),
            (None, None) => {}
        },
        (None, _) if says_jwt || needs_audience && looks_so => {
            return Err("the token is no JWT that can be read");
        }
        (None, Some(_)) if looks_so => gaps.push(Gap::Audience),
        (None, _) => {}
    }
    let mut token = Token::new(issued.access_token);
    token.scope = issued.scope.map(Into::into);
    if let Some(value) = &issued.expires_in {
        token = token.with_lifetime(lifetime(value));
    }
    Ok((token, gaps))
}

/// A number of seconds, also in a text; zero for what is none.
fn lifetime(value: &Value) -> Duration {
    let seconds = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_f64(),
    };
    seconds.map(time).unwrap_or_default()
}

/// So many seconds: none for what is negative or no number.
pub(super) fn time(seconds: f64) -> Duration {
    match seconds > 0.0 {
        true => Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
        false => Duration::ZERO,
    }
}

#[derive(Deserialize)]
struct Refused {
    error: String,
    error_description: Option<String>,
}

/// The code of an OAuth error, and its description, if the body is one.
pub(super) fn refused(body: &[u8]) -> Option<(String, Option<String>)> {
    let refused: Refused = serde_json::from_slice(body).ok()?;
    let is_code = |c: char| c.is_ascii_lowercase() || c == '_';
    let fits = (1..=MAX_CODE).contains(&refused.error.len()) && refused.error.chars().all(is_code);
    fits.then_some((refused.error, refused.error_description))
}

#[cfg(test)]
mod tests;

/// JWTs have no padding; a service may read one that has.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(Indifferent),
);

#[derive(Deserialize)]
pub(super) struct Claims {
    aud: Option<Value>,
    exp: Option<Value>,
    iat: Option<Value>,
}

impl Claims {
    /// `None`: it is no JWT, or cannot be read.
    pub(super) fn of(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (Some(_), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let claims = BASE64.decode(claims).ok()?;
        serde_json::from_slice(&claims).ok()
    }

    /// For whom it is; `None` if it does not say so.
    pub(super) fn audiences(&self) -> Option<Vec<&str>> {
        match self.aud.as_ref()? {
            Value::String(one) => Some(vec![one]),
            Value::Array(all) => Some(all.iter().filter_map(Value::as_str).collect()),
            _ => Some(vec![]),
        }
    }

    /// For how long it was issued, in seconds: no clock of this machine has a part in it.
    pub(super) fn lifetime(&self) -> Option<f64> {
        Some(self.expires()? - self.iat.as_ref()?.as_f64()?)
    }

    /// Until when it is valid, in seconds since 1970.
    pub(super) fn expires(&self) -> Option<f64> {
        self.exp.as_ref()?.as_f64()
    }
}
