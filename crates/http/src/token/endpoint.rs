use std::{
    borrow::Cow,
    marker::PhantomData,
    str::from_utf8,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use http_body::Body as HttpBody;
use tower_service::Service;

use tower_toolcall::{
    AnyError, ConfigError, ErrorKind, ToolCall, ToolError,
    call::CallInfo,
    event::{
        TARGET,
        names::{event, field},
    },
    hint,
    redact::TRUNCATED,
    token::{self, Secret, Token, TokenRequest},
};
use tracing::Level;
use zeroize::Zeroizing;

use super::{
    answer::{ACCESS_TOKEN, Gap, issued, refused},
    auth::{ClientAuth, Form},
};
use crate::{
    body::{Exchanged, exchange, wall_clock},
    refuse_if,
};

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// The most characters of an error's description that are shown.
const MAX_DESCRIPTION: usize = 200;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// The token endpoint of an identity provider: exchanges the token of a [`TokenRequest`] for a
/// token of its target (RFC 8693), by one POST of a form over any HTTP client.
///
/// A tool service with its own layers, used by a [`TokenLayer`](tower_toolcall::token::TokenLayer):
/// a breaker, a timeout, trace and metrics see it as the tool `token_exchange` of the provider's
/// host. It repeats nothing.
///
/// The provider's answers are checked:
///
/// - **a token that is not a bearer access token; that has characters outside visible ASCII, or
///   more than 16 KiB; that lacks a requested scope; a JWT that lacks the requested audience in
///   `aud` (a resource is not checked)**: `TokenExchange`, not retryable
/// - **400, 401, 403 and other 4xx but 408, 429 and 499**: `TokenExchange`, not retryable, with the
///   OAuth error as the detail `oauth_error`; its description redacted and cut at 200 characters
/// - **408, 429, 499, 5xx, a lost connection**: an error of its kind, which layers act on;
///   `Retry-After` is read
/// - **3xx**: `TokenExchange`: a redirect is not followed, so that no secret goes elsewhere. The
///   client must not follow it either
/// - **more than 64 KiB**: `TokenExchange`
///
/// If `issued_token_type` is missing, the token counts as an access token. A JWT may lack `aud` or
/// have unreadable claims. Each case logs one warning. The service that takes the token checks
/// signatures.
///
/// # Readiness, cancel safety
///
/// Always ready; errors come from the response future only. Dropping that drops the request.
///
/// # Clone
///
/// Clones share everything but the client, of which they hold clones.
pub struct TokenEndpoint<C, B> {
    settings: Arc<Settings>,
    client: C,
    body: PhantomData<fn() -> B>,
}

#[derive(Clone)]
struct Settings {
    uri: Uri,
    url: Arc<str>,
    host: Arc<str>,
    auth: ClientAuth,
    needs_audience: bool,
    /// A warning has reported this [`Gap`].
    warned: Arc<[AtomicBool; 2]>,
}

impl<C, B> TokenEndpoint<C, B> {
    /// Creates the endpoint at this URL: `https://`, or `http://` on this machine (`localhost`,
    /// `127.0.0.1`, `[::1]`).
    ///
    /// # Errors
    ///
    /// `endpoint`, if it is not such a URL, or has a user or a query. `client_id`, if it is empty.
    pub fn new(url: &str, auth: ClientAuth, client: C) -> Result<Self, ConfigError> {
        let uri = token::endpoint_uri(url)?;
        let host = uri.host().unwrap_or_default().to_owned();
        refuse_if(auth.id().is_empty(), "client_id", "is empty")?;
        Ok(Self {
            settings: Arc::new(Settings {
                uri,
                url: url.into(),
                host: host.into(),
                auth,
                needs_audience: false,
                warned: Default::default(),
            }),
            client,
            body: PhantomData,
        })
    }

    /// Refuses JWTs that name no audience, or cannot be read. Default: they are accepted, with one
    /// warning.
    #[must_use]
    pub fn require_audience(mut self) -> Self {
        Arc::make_mut(&mut self.settings).needs_audience = true;
        self
    }
}

impl<C: Clone, B> Clone for TokenEndpoint<C, B> {
    fn clone(&self) -> Self {
        Self {
            settings: Arc::clone(&self.settings),
            client: self.client.clone(),
            body: PhantomData,
        }
    }
}

impl<C, B> std::fmt::Debug for TokenEndpoint<C, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenEndpoint")
            .field("host", &self.settings.host)
            .field("auth", &self.settings.auth)
            .finish_non_exhaustive()
    }
}

impl<C, B, R> Service<ToolCall> for TokenEndpoint<C, B>
where
    C: Service<Request<B>, Response = Response<R>, Error: Into<AnyError>> + Clone + Send + 'static,
    C::Future: Send,
    B: From<Bytes> + Send + 'static,
    R: HttpBody<Data: Send, Error: Into<AnyError>> + Send + 'static,
{
    type Response = Token;
    type Error = ToolError;
    type Future = ExchangeFuture;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> ExchangeFuture {
        let (settings, client) = (Arc::clone(&self.settings), self.client.clone());
        Box::pin(async move {
            let info = call.info();
            info.record(|r| r.set_server(Arc::clone(&settings.host)));
            let token = ask(&settings, client, call, &info).await;
            token.map_err(|error| error.for_call(&info))
        })
    }
}

/// Response future of [`TokenEndpoint`].
pub type ExchangeFuture = BoxFuture<'static, Result<Token, ToolError>>;

async fn ask<C, B, R>(
    settings: &Settings,
    client: C,
    call: ToolCall,
    info: &CallInfo,
) -> Result<Token, ToolError>
where
    C: Service<Request<B>, Response = Response<R>, Error: Into<AnyError>>,
    B: From<Bytes>,
    R: HttpBody<Error: Into<AnyError>>,
{
    let Some(asked) = call.extensions().get::<TokenRequest>().cloned() else {
        let text = "the call asks for no token";
        return Err(ToolError::refusal(ErrorKind::Internal, text));
    };
    drop(call);
    let request = settings.request(&asked)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_ANSWER));
    let Exchanged { head, whole, .. } =
        exchange(client, request, MAX_ANSWER, &mut bytes, |_| true).await?;
    if !head.status.is_success() {
        let error = ToolError::from_http(head.status, &head.headers, "", wall_clock());
        if error.is_retryable() {
            // Of this body only the delay is kept.
            return Err(delayed(error, from_utf8(&bytes).unwrap_or_default()));
        }
        return Err(refusal(head.status, &bytes, &settings.sent(&asked), info));
    }
    whole.map_err(|error| match error.kind() {
        ErrorKind::Reported => invalid(error.message().to_owned()),
        _ => error,
    })?;
    let (token, gaps) = issued(&bytes, asked.target(), settings.needs_audience).map_err(invalid)?;
    for gap in gaps {
        settings.warn(gap);
    }
    Ok(token)
}

/// Takes over the delay that a body asks for, in JSON or in words, if no other is known.
fn delayed(error: ToolError, body: &str) -> ToolError {
    let json = serde_json::from_str(body).ok();
    let delay = |hint: hint::Hint| hint.delay;
    let asked = json.and_then(|json| hint::from_json(&json)).and_then(delay);
    let asked = asked.or_else(|| hint::from_text(body).and_then(delay));
    match asked.filter(|_| error.retry_after().is_none()) {
        Some(delay) => error.with_retry_after(delay),
        None => error,
    }
}

/// An error that is the same each time.
fn invalid(text: impl Into<Cow<'static, str>>) -> ToolError {
    ToolError::new(ErrorKind::TokenExchange, text)
}

impl Settings {
    fn request(&self, asked: &TokenRequest) -> Result<Request<Bytes>, ToolError> {
        let subject = asked.subject().expose();
        let mut form = Form::with_capacity(MAX_ANSWER + 3 * subject.len());
        form.add("grant_type", GRANT);
        form.add("subject_token", subject);
        form.add("subject_token_type", ACCESS_TOKEN);
        if let Some(audience) = asked.target().name() {
            form.add("audience", audience);
        }
        for resource in asked.target().resources() {
            form.add("resource", resource);
        }
        let scopes: Vec<&str> = asked.target().scopes().collect();
        if !scopes.is_empty() {
            form.add("scope", &scopes.join(" "));
        }
        let signed = self.auth.sign_in(&mut form, &self.url);
        let signed =
            signed.map_err(|error| invalid("the client cannot sign in").with_source(error))?;
        let mut request = Request::new(Bytes::copy_from_slice(form.text().as_bytes()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        let form = "application/x-www-form-urlencoded";
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(form));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(value) = signed {
            headers.insert(AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// The secrets that a request has.
    fn sent<'s>(&'s self, asked: &'s TokenRequest) -> Vec<&'s Secret> {
        let all = [Some(asked.subject()), self.auth.secret()];
        let mut all: Vec<_> = all.into_iter().flatten().collect();
        all.retain(|secret| !secret.expose().is_empty());
        all
    }

    /// Once for each endpoint.
    fn warn(&self, gap: Gap) {
        if self.warned[gap as usize].swap(true, Relaxed) {
            return;
        }
        let text = match gap {
            Gap::Type => "the answer has no `issued_token_type`",
            Gap::Audience => "the token looks like a JWT and has no audience that can be read",
        };
        tracing::event!(
            name: event::TOKEN,
            target: TARGET,
            Level::WARN,
            { field::SERVER } = &*self.host,
            { field::ERROR } = text,
            "{}", event::TOKEN
        );
    }
}

/// The error that the body of another status explains.
fn refusal(status: StatusCode, body: &[u8], sent: &[&Secret], info: &CallInfo) -> ToolError {
    let error = match refused(body) {
        _ if status.is_redirection() => invalid("the provider redirects, which is not followed"),
        Some((code, description)) => {
            let why = description.map(|text| {
                // A provider may quote what it was sent.
                let text = sent.iter().fold(text, |text, secret| {
                    text.replace(secret.expose(), "[REDACTED]")
                });
                let (text, is_cut) = info.rules().head(&text, MAX_DESCRIPTION);
                format!(": {text}{}", if is_cut { TRUNCATED } else { "" })
            });
            let why = why.unwrap_or_default();
            invalid(format!("refused by the identity provider: {code}{why}"))
                .with_detail(tower_toolcall::error::OAUTH_ERROR, code)
        }
        None => invalid(format!("refused by the identity provider: HTTP {status}")),
    };
    error.with_status(status)
}
