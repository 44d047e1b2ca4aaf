//! Bearer authentication: who calls, by a static token or a JWT.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use axum::{
    Json, Router,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
    routing::get,
};
use ring::hmac;
use serde::Deserialize;
use serde_json::json;
use tower_toolcall::{VerifiedCaller, call::Secret};

use super::{
    config::Text,
    current::Live,
    jwt::{Jwt, Refused},
};

/// Where clients find the authorization servers (RFC 9728).
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The header in which a client names its session.
const SESSION: &str = "mcp-session-id";

/// The section `[auth]` of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthFile {
    /// The address of the gateway's `/mcp`, as its clients write it.
    resource: Option<String>,
    #[serde(default)]
    authorization_servers: Vec<String>,
    /// Static tokens by principal.
    #[serde(default)]
    pub(crate) tokens: BTreeMap<String, Text>,
    jwt: Option<super::jwt::JwtFile>,
}

/// Who may call. The file names at least one.
#[derive(Debug)]
pub(crate) struct Auth {
    tokens: Vec<(Arc<str>, Secret)>,
    jwt: Option<Jwt>,
    resource: Option<String>,
    authorization_servers: Vec<String>,
}

impl Auth {
    pub(crate) fn new(file: AuthFile) -> anyhow::Result<Self> {
        anyhow::ensure!(
            !file.tokens.is_empty() || file.jwt.is_some(),
            "auth: it has neither `tokens` nor `jwt`: no request could be taken"
        );
        anyhow::ensure!(
            file.authorization_servers.is_empty() || file.resource.is_some(),
            "auth.resource is missing: valid is the address of `/mcp` as clients write it"
        );
        let resource = file.resource.as_deref();
        anyhow::ensure!(
            resource.is_none_or(|it| it.starts_with("https://") || it.starts_with("http://")),
            "auth.resource: valid is an address with https:// or http://"
        );
        let mut tokens: Vec<(Arc<str>, Secret)> = Vec::new();
        for (principal, text) in &file.tokens {
            let field = format!("auth.tokens.{principal}");
            let token = text.read().context(field.clone())?;
            anyhow::ensure!(
                token.expose().len() >= 16,
                "{field} has {} bytes: valid are 16 or more",
                token.expose().len()
            );
            if let Some((other, _)) = tokens.iter().find(|(_, own)| *own == token) {
                anyhow::bail!("{field} is the token of {other}, too");
            }
            tokens.push((Arc::from(&**principal), token));
        }
        let jwt = file.jwt.map(|jwt| Jwt::new(jwt, resource)).transpose()?;
        Ok(Self {
            tokens,
            jwt,
            resource: file.resource,
            authorization_servers: file.authorization_servers,
        })
    }

    /// Takes over what has been read of the same authorization server.
    pub(crate) fn keep_keys(&mut self, of: &Self) {
        if let (Some(own), Some(before)) = (&mut self.jwt, &of.jwt) {
            own.keep_keys(before);
        }
    }

    /// Reads the keys of tokens.
    pub(crate) async fn load(&self) -> anyhow::Result<()> {
        match &self.jwt {
            Some(jwt) => jwt.load().await,
            None => Ok(()),
        }
    }

    /// Says who may call, without secrets.
    pub(crate) fn shown(&self) -> Vec<String> {
        let tokens = self.tokens.iter();
        let tokens = tokens.map(|(principal, _)| format!("token of {principal}"));
        let jwt = self.jwt.iter().map(Jwt::shown);
        tokens.chain(jwt).collect()
    }

    /// Returns the caller that a token names, or why there is none.
    async fn caller(&self, token: &str) -> Result<Arc<str>, Refused> {
        let token = Secret::from(token);
        // Compares all of them, so that the time does not say which it is.
        let mut found = None;
        for (principal, own) in &self.tokens {
            if *own == token {
                found = Some(Arc::clone(principal));
            }
        }
        match (found, &self.jwt) {
            (Some(principal), _) => Ok(principal),
            (None, Some(jwt)) => jwt.caller(token.expose()).await,
            (None, None) => Err(Refused::Token("the token is not known".to_owned())),
        }
    }

    /// Returns the answer to a request without a valid token.
    fn challenge(&self, why: Option<&str>) -> Response {
        let mut parts = Vec::new();
        if let Some(why) = why {
            // A token's own text may be in it.
            let is_plain = |c: &char| matches!(c, ' '..='~') && !['"', '\\'].contains(c);
            let why: String = why.chars().filter(is_plain).collect();
            parts.push("error=\"invalid_token\"".to_owned());
            parts.push(format!("error_description=\"{why}\""));
        }
        if let Some(metadata) = self.metadata_url() {
            parts.push(format!("resource_metadata=\"{metadata}\""));
        }
        let challenge = format!("Bearer {}", parts.join(", "));
        let mut answer = (StatusCode::UNAUTHORIZED, "a bearer token is needed\n").into_response();
        if let Ok(challenge) = HeaderValue::try_from(challenge.trim_end()) {
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        answer
    }

    /// Returns the address of the metadata, if it names an authorization server.
    fn metadata_url(&self) -> Option<String> {
        let resource = self.resource.as_ref()?;
        let (scheme, rest) = resource.split_once("://")?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = if path.is_empty() {
            ""
        } else {
            &format!("/{path}")
        };
        let is_named = !self.authorization_servers.is_empty();
        is_named.then(|| format!("{scheme}://{host}{METADATA}{path}"))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer
        .then_some(token.trim())
        .filter(|it| !it.is_empty())
}

/// The current callers, and a key that binds sessions to them.
#[derive(Clone)]
pub(crate) struct Callers {
    live: Live,
    sessions: hmac::Key,
}

impl Callers {
    pub(crate) fn new(live: Live) -> anyhow::Result<Self> {
        let random = ring::rand::SystemRandom::new();
        let sessions = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        let sessions = sessions.map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        Ok(Self { live, sessions })
    }

    /// Returns the id of a session for the client that began it: of no use to other callers.
    fn bind(&self, session: &HeaderValue, caller: &str) -> Option<HeaderValue> {
        let session = session.to_str().ok()?;
        let tag = hmac::sign(&self.sessions, format!("{session}\n{caller}").as_bytes());
        let mut bound = format!("{session}.");
        for byte in tag.as_ref() {
            bound.push_str(&format!("{byte:02x}"));
        }
        HeaderValue::try_from(bound).ok()
    }

    /// Returns the id of the caller's own session.
    fn unbind(&self, bound: &HeaderValue, caller: &str) -> Option<HeaderValue> {
        let (session, _) = bound.to_str().ok()?.rsplit_once('.')?;
        let session = HeaderValue::try_from(session).ok()?;
        let own = self.bind(&session, caller)?;
        let secret = |value: &HeaderValue| value.to_str().ok().map(Secret::from);
        (secret(&own) == secret(bound)).then_some(session)
    }
}

/// Refuses requests without a valid token, if the file has `[auth]`. The caller becomes the
/// principal of calls. The token goes no further.
pub(crate) async fn check(
    State(callers): State<Callers>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(auth) = callers.live.now().auth.clone() else {
        return next.run(request).await;
    };
    let Some(token) = bearer(request.headers()) else {
        return auth.challenge(None);
    };
    let caller = match auth.caller(token).await {
        Ok(caller) => caller,
        Err(Refused::Token(why)) => return auth.challenge(Some(&why)),
        Err(Refused::NoKeys) => {
            let why = "the keys of the authorization server are not known yet\n";
            return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], why).into_response();
        }
    };
    if let Some(bound) = request.headers().get(SESSION) {
        let Some(session) = callers.unbind(bound, &caller) else {
            return (StatusCode::NOT_FOUND, "the session is not known\n").into_response();
        };
        request.headers_mut().insert(SESSION, session);
    }
    request.headers_mut().remove(AUTHORIZATION);
    let verified = VerifiedCaller::new(Arc::clone(&caller));
    request.extensions_mut().insert(verified);
    let mut response = next.run(request).await;
    let session = response.headers().get(SESSION);
    if let Some(bound) = session.and_then(|session| callers.bind(session, &caller)) {
        response.headers_mut().insert(SESSION, bound);
    }
    response
}

/// The page that names the authorization servers.
pub(crate) fn metadata(live: Live) -> Router {
    let page = get(move || async move {
        let auth = live.now().auth.clone();
        let auth = auth.filter(|auth| auth.metadata_url().is_some());
        auth.map(|auth| {
            Json(json!({
                "resource": auth.resource,
                "authorization_servers": auth.authorization_servers,
                "bearer_methods_supported": ["header"],
            }))
        })
        .ok_or(StatusCode::NOT_FOUND)
    });
    let router = Router::new().route(METADATA, page.clone());
    router.route(&format!("{METADATA}/{{*path}}"), page)
}
