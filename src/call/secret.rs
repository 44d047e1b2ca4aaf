use std::{
    fmt,
    hash::{Hash, Hasher},
    hint::black_box,
    sync::Arc,
};

use serde::{Deserialize, Deserializer};
use zeroize::{Zeroize as _, Zeroizing};

/// A token or a password: never printed, never serialised, wiped when the last clone of it is
/// dropped.
///
/// A `String` that it was made of is wiped; a `&str` is the caller's to wipe. Copies of
/// [`expose`](Self::expose) are not wiped: headers, buffers of an HTTP client and of TLS. A
/// comparison takes the same time wherever two secrets differ.
///
/// ```
/// use tower_toolcall::call::Secret;
///
/// let secret = Secret::from("t0k3n");
/// assert_eq!(format!("{secret} {secret:?}"), "[REDACTED] [REDACTED]");
/// assert_eq!(secret.expose(), "t0k3n");
/// ```
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<Box<str>>>);

impl Secret {
    /// Returns the secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether this is a clone of that one: the same value is not enough.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self(Arc::new(Zeroizing::new(secret.into())))
    }
}

impl From<String> for Secret {
    fn from(mut secret: String) -> Self {
        // Not `into_boxed_str`: it may leave a copy behind.
        let copy = Self::from(&*secret);
        secret.zeroize();
        copy
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.expose().as_bytes(), other.expose().as_bytes());
        let differ = |all: u8, (a, b): (&u8, &u8)| black_box(all | (a ^ b));
        a.len() == b.len() && a.iter().zip(b).fold(0, differ) == 0
    }
}

impl Eq for Secret {}

impl Hash for Secret {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expose().hash(state);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// The token with which a call signs in upstream: an extension of the call, and the variable
/// `upstream_token` of an HTTP tool's headers.
///
/// ```
/// use tower_toolcall::{ToolCall, call::UpstreamToken};
///
/// let mut call = ToolCall::new("order");
/// call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
/// assert_eq!(format!("{:?}", UpstreamToken::new("t0k3n")), "UpstreamToken([REDACTED])");
/// ```
#[derive(Clone, Debug)]
pub struct UpstreamToken(Secret);

impl UpstreamToken {
    /// Makes a token, without its scheme (`Bearer`).
    pub fn new(token: impl Into<Secret>) -> Self {
        Self(token.into())
    }

    /// Returns the token itself.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}
