//! Identity providers that no one here wrote: `idpyoidc` (PyPI) and `@jmondi/oauth2-server` (npm),
//! by their own token exchange.

use std::{process::Stdio, time::Duration};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use expect_test::expect;
use http::{
    Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_toolcall::{
    ErrorKind, ToolCall, ToolError,
    token::{Target, TokenLayer, UpstreamToken},
};
use tower_toolcall_http::{
    ReqwestClient,
    token::{ClientAuth, TokenEndpoint},
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

struct Provider {
    url: String,
    _process: Child,
}

impl Provider {
    async fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = timeout(Duration::from_secs(60), said.next_line()).await;
        let url = url.expect("the provider hangs").unwrap();
        let url = url.expect("is it installed? Run `tests/run --no-run` once");
        Self {
            url: format!("{url}/token"),
            _process: process,
        }
    }

    async fn idpyoidc() -> Self {
        let mut command = Command::new("python3");
        let script =
            format!("{ROOT}/tests/whole/tests/stacks/token/providers/idpyoidc_provider.py");
        let packages = format!("{ROOT}/target/identity-provider-python");
        Self::start(command.arg(script).env("PYTHONPATH", packages)).await
    }

    async fn jmondi() -> Self {
        let mut command = Command::new("node");
        let script = format!("{ROOT}/tests/whole/tests/stacks/token/providers/jmondi_provider.mjs");
        let packages = format!("{ROOT}/target/identity-provider-node");
        Self::start(command.arg(script).arg(packages)).await
    }

    fn auth(client: &str) -> ClientAuth {
        ClientAuth::basic(
            client,
            format!("{client}-secret-0123456789abcdef0123456789"),
        )
    }

    fn endpoint(&self, auth: ClientAuth) -> TokenEndpoint<ReqwestClient, Bytes> {
        TokenEndpoint::new(&self.url, auth, ReqwestClient::new().unwrap()).unwrap()
    }

    /// The token of an agent, as it signs in by itself.
    async fn subject(&self) -> String {
        let form = "grant_type=client_credentials&scope=read%20write";
        let agent = STANDARD.encode("agent:agent-secret-0123456789abcdef0123456789");
        let request = Request::post(&self.url)
            .header(AUTHORIZATION, format!("Basic {agent}"))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Bytes::from(form));
        let answer = ReqwestClient::new().unwrap().oneshot(request.unwrap());
        let body = answer.await.unwrap().into_body().collect().await.unwrap();
        let answer: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        answer["access_token"].as_str().unwrap().to_owned()
    }

    /// The token that a tool gets for this subject.
    async fn token(
        &self,
        auth: ClientAuth,
        target: Target,
        subject: &str,
    ) -> Result<String, ToolError> {
        let tool = service_fn(|call: ToolCall| async move {
            let token = call.extensions().get::<UpstreamToken>();
            Ok::<_, ToolError>(token.unwrap().expose().to_owned())
        });
        let layer = TokenLayer::new(self.endpoint(auth)).with_tool("order", target);
        let stack = layer.layer(tool);
        let call = ToolCall::new("order").with_subject_token(subject);
        let token = stack.clone().oneshot(call.clone()).await?;
        // The second call has the same one.
        assert_eq!(stack.oneshot(call).await?, token);
        assert_eq!(layer.handle().counts().exchanged, 1);
        Ok(token)
    }

    /// The code of the error for what it refuses.
    async fn refusal(&self, auth: ClientAuth, target: Target, subject: &str) -> String {
        let error = self.token(auth, target, subject).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TokenExchange, "{error:?}");
        assert!(!error.is_retryable() && !error.message().contains(subject));
        let details = serde_json::to_value(error.details().unwrap()).unwrap();
        details["oauth_error"].as_str().unwrap().to_owned()
    }
}

fn gateway() -> ClientAuth {
    Provider::auth("gateway")
}

fn post() -> ClientAuth {
    ClientAuth::post("gateway", "gateway-secret-0123456789abcdef0123456789")
}

fn orders() -> Target {
    Target::audience("orders").with_scope("read")
}

fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

/// H2: its JWTs have no `aud`.
#[tokio::test]
async fn idpyoidc_exchanges_tokens() {
    let provider = Provider::idpyoidc().await;
    let subject = provider.subject().await;
    for auth in [gateway(), post()] {
        let token = provider.token(auth, orders(), &subject).await.unwrap();
        let claims = claims(&token);
        assert_eq!(
            (&claims["client_id"], &claims["scope"]),
            (&json!("gateway"), &json!("read"))
        );
        assert!(token != subject && claims.get("aud").is_none());
    }
}

/// H2.
#[tokio::test]
async fn idpyoidc_refuses_what_it_should() {
    let provider = Provider::idpyoidc().await;
    let subject = provider.subject().await;
    let other = Target::audience("unknown");
    let admin = Target::audience("orders").with_scope("admin");
    for (auth, target, subject, code) in [
        (gateway(), other, &*subject, "invalid_target"),
        (gateway(), admin, &subject, "invalid_scope"),
        (gateway(), orders(), "garbage", "invalid_request"),
        (
            ClientAuth::basic("gateway", "wrong"),
            orders(),
            &subject,
            "invalid_client",
        ),
    ] {
        assert_eq!(provider.refusal(auth, target, subject).await, code);
    }
}

/// H2: it leaves out the scope that it does not grant, and says so.
#[tokio::test]
async fn a_narrower_scope_of_idpyoidc_is_no_token() {
    let provider = Provider::idpyoidc().await;
    let subject = provider.subject().await;
    let target = orders().with_scope("admin");
    let error = provider.token(gateway(), target, &subject).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    expect!["the token lacks a scope that was asked for"].assert_eq(error.message());
}

#[tokio::test]
async fn a_jwt_of_idpyoidc_is_refused_where_an_audience_is_required() {
    let provider = Provider::idpyoidc().await;
    let subject = provider.subject().await;
    let endpoint = provider.endpoint(gateway()).require_audience();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, ToolError>(()) });
    let stack = TokenLayer::new(endpoint)
        .with_tool("order", orders())
        .layer(tool);
    let call = ToolCall::new("order").with_subject_token(subject);
    let error = stack.oneshot(call).await.unwrap_err();
    expect!["the token names no audience"].assert_eq(error.message());
}

/// H2: it answers without `issued_token_type`.
#[tokio::test]
async fn jmondi_exchanges_tokens() {
    let provider = Provider::jmondi().await;
    let subject = provider.subject().await;
    for auth in [gateway(), post()] {
        let token = provider.token(auth, orders(), &subject).await.unwrap();
        let claims = claims(&token);
        assert_eq!(
            (&claims["aud"], &claims["sub"]),
            (&json!("orders"), &json!("agent"))
        );
    }
}

/// H2.
#[tokio::test]
async fn jmondi_refuses_what_it_should() {
    let provider = Provider::jmondi().await;
    let subject = provider.subject().await;
    let admin = orders().with_scope("admin");
    for (auth, target, subject, code) in [
        (
            gateway(),
            Target::audience("unknown"),
            &*subject,
            "invalid_request",
        ),
        (gateway(), admin, &subject, "invalid_scope"),
        (gateway(), orders(), "garbage", "invalid_request"),
        (
            ClientAuth::basic("gateway", "wrong"),
            orders(),
            &subject,
            "invalid_client",
        ),
        (
            ClientAuth::public("nobody"),
            orders(),
            &subject,
            "invalid_client",
        ),
    ] {
        assert_eq!(provider.refusal(auth, target, subject).await, code);
    }
}

/// A provider that is not there: nothing was sent, and the tool may be called again.
#[tokio::test]
async fn a_provider_that_is_gone_is_a_failed_exchange() {
    let provider = Provider::idpyoidc().await;
    let subject = provider.subject().await;
    let url = provider.url.clone();
    drop(provider);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let endpoint =
        TokenEndpoint::<_, Bytes>::new(&url, gateway(), ReqwestClient::new().unwrap()).unwrap();
    let tool = service_fn(|_: ToolCall| async { Ok::<_, ToolError>(()) });
    let stack = TokenLayer::new(endpoint)
        .with_tool("order", orders())
        .layer(tool);
    let call = ToolCall::new("order").with_subject_token(subject);
    let error = stack.oneshot(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExchange);
    assert!(error.is_retryable());
    let cause = std::error::Error::source(&error).unwrap();
    let cause: &ToolError = cause.downcast_ref().unwrap();
    assert_eq!(cause.kind(), ErrorKind::ConnectionFailed);
}
