//! The answers of an identity provider (RFC 8693, section 2.2; RFC 6749, section 5.2).

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tower_toolcall::token::{Claims, Secret, Target, Token};

/// Longer tokens could not be in a header.
const MAX_TOKEN: usize = 16 << 10;

/// The longest code of an error that is taken over.
const MAX_CODE: usize = 64;

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
        serde_json::from_slice(body).map_err(|_| "the answer is not a token of RFC 8693")?;
    let mut gaps = Vec::new();
    match issued.issued_token_type.as_deref() {
        Some(ACCESS_TOKEN | JWT) => {}
        Some(_) => return Err("the token is of another type than an access token"),
        None => gaps.push(Gap::Type),
    }
    if !issued.token_type.eq_ignore_ascii_case("bearer") {
        return Err("the token is not a bearer token");
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
                return Err("the token is not for the requested audience");
            }
            (Some(_), _) => {}
            (None, _) if needs_audience => return Err("the token names no audience"),
            (None, Some(_)) => gaps.push(Gap::Audience),
            (None, None) => {}
        },
        (None, _) if says_jwt || needs_audience && looks_so => {
            return Err("the token is not a JWT that can be read");
        }
        (None, Some(_)) if looks_so => gaps.push(Gap::Audience),
        (None, _) => {}
    }
    let mut token = Token::new(issued.access_token);
    if let Some(scope) = issued.scope {
        token = token.with_scope(scope);
    }
    if let Some(value) = &issued.expires_in {
        token = token.with_lifetime(lifetime(value));
    }
    Ok((token, gaps))
}

/// Reads a number of seconds, also in a text; zero if it is not a number.
fn lifetime(value: &Value) -> Duration {
    let seconds = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_f64(),
    };
    let seconds = seconds.filter(|seconds| *seconds > 0.0);
    let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    seconds.map(time).unwrap_or_default()
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
