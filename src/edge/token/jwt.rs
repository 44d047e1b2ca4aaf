//! The claims of a JSON Web Token (RFC 7519), as far as they say for whom it is and how long.
//! Signatures are the services' to check.

use base64::{
    Engine as _,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode::Indifferent, GeneralPurpose, GeneralPurposeConfig},
};
use serde::Deserialize;
use serde_json::Value;

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
