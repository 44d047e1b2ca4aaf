//! Callers that are known by their tokens.

use std::fs;

use axum::{Router, routing::get};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::{Client, Response};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    kit::beside,
    product::{folder, with_file},
    servers::Program,
    wire::initialize,
};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrap/server.py");
const TOKEN: &str = "token-of-alice-0123456789";
const OTHER: &str = "token-of-bob-0123456789ab";

/// A program with this `[auth]` and one call for each caller, and the address of its `/mcp`.
async fn started(name: &str, auth: &str) -> (Program, String) {
    let folder = folder(name);
    let file = folder.join("gateway.toml");
    let quota = "[settings.quota]\nunits = 1\nperiod = '1h'\nkey = 'agent'\nfail_fast = true\n";
    let text = format!("{quota}[servers.own]\ncommand = ['python3', '{SERVER}']\n{auth}");
    fs::write(&file, text).unwrap();
    let mut program = Program::of(with_file(&file));
    let url = program.url().await;
    fs::remove_dir_all(folder).unwrap();
    (program, url)
}

async fn post(url: &str, token: Option<&str>, session: Option<&str>, body: &Value) -> Response {
    let request = Client::new().post(url).body(body.to_string());
    let request = request.header("content-type", "application/json");
    let mut request = request.header("accept", "application/json, text/event-stream");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    request.send().await.unwrap()
}

/// Calls a tool over plain HTTP.
async fn call(url: &str, token: Option<&str>) -> Response {
    let url = url.replace("/mcp", "/tools/own__echo/call");
    post(&url, token, None, &json!({})).await
}

fn challenge(response: &Response) -> &str {
    assert_eq!(response.status(), 401);
    response.headers()["www-authenticate"].to_str().unwrap()
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#protocol-requirements
//# Implementations using an HTTP-based transport SHOULD conform to this specification.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#auth
//# Implementations using an HTTP-based transport SHOULD conform to this specification, whereas
//# implementations using STDIO transport SHOULD NOT follow this specification, and instead retrieve
//# credentials from the environment.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security--endpoint
//# Servers SHOULD implement proper authentication for all connections.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#access-token-privilege-restriction
//# MCP servers MUST validate access tokens before processing the request, ensuring the access token
//# is issued specifically for the MCP server, and take all necessary steps to ensure no data is
//# returned to unauthorized parties.
//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#security-considerations
//# Implement proper access controls
/// Only known callers, on each route; a call is that of its caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_known_token_is_refused() {
    let _beside = beside().await;
    let tokens = format!("[auth.tokens]\nalice = '{TOKEN}'\nbob = '{OTHER}'");
    let (_program, url) = started("tokens", &tokens).await;
    for path in [
        "/mcp",
        "/rpc",
        "/tools/own__echo/call",
        "/metrics",
        "/health",
    ] {
        let url = url.replace("/mcp", path);
        let refused = post(&url, None, None, &json!({})).await;
        assert_eq!(challenge(&refused), "Bearer", "{path}");
        let refused = post(&url, Some("token-of-nobody-0123456789"), None, &json!({})).await;
        let why = r#"Bearer error="invalid_token", error_description="the token is not known""#;
        assert_eq!(challenge(&refused), why, "{path}");
    }
    for (token, status) in [(TOKEN, 200), (TOKEN, 429), (OTHER, 200)] {
        assert_eq!(call(&url, Some(token)).await.status(), status);
    }
    let metrics = Client::new().get(url.replace("/mcp", "/metrics"));
    let metrics = metrics.bearer_auth(OTHER).send().await.unwrap();
    assert_eq!(metrics.status(), 200);
}

/// A session id is of no use to another caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_that_of_its_caller() {
    let _beside = beside().await;
    let tokens = format!("[auth.tokens]\nalice = '{TOKEN}'\nbob = '{OTHER}'");
    let (_program, url) = started("sessions", &tokens).await;
    let mut begin = initialize();
    begin["jsonrpc"] = "2.0".into();
    let begun = post(&url, Some(TOKEN), None, &begin).await;
    assert_eq!(begun.status(), 200);
    let session = begun.headers()["mcp-session-id"].to_str().unwrap();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    for (token, session, status) in [
        (TOKEN, session, 202),
        (OTHER, session, 404),
        (TOKEN, session.rsplit_once('.').unwrap().0, 404),
    ] {
        let answer = post(&url, Some(token), Some(session), &ready).await;
        assert_eq!(answer.status(), status);
    }
}

/// An authorization server: its keys, and tokens that it signs.
struct Issuer {
    key: Ed25519KeyPair,
    id: &'static str,
}

impl Issuer {
    fn new(id: &'static str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        Self { key, id }
    }

    fn key(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key.public_key().as_ref());
        json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.id, "x": x })
    }

    fn signed(&self, header: &Value, claims: &Value) -> String {
        let parts = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = parts.join(".");
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(message.as_bytes()).as_ref());
        format!("{message}.{signature}")
    }

    fn token(&self, changed: Value) -> String {
        let header = json!({ "alg": "EdDSA", "typ": "JWT", "kid": self.id });
        self.signed(&header, &claims(changed))
    }
}

/// The claims of a valid token, with these changes. Those that are null are left out.
fn claims(changed: Value) -> Value {
    let mut claims = json!({
        "iss": "https://login.example.com",
        "aud": "https://tools.example.com/mcp",
        "sub": "carol",
        "exp": 4_102_444_800_u64,
    });
    let all = claims.as_object_mut().unwrap();
    all.extend(changed.as_object().unwrap().clone());
    all.retain(|_, value| !value.is_null());
    claims
}

/// Serves keys, and counts how often.
async fn serve_keys(keys: Value) -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&asked);
    let page = get(move || async move {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        keys.to_string()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/jwks", listener.local_addr().unwrap());
    let app = Router::new().route("/jwks", page);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, asked)
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery#authorization-server-location
//# MCP servers MUST implement the OAuth 2.0 Protected Resource Metadata (RFC9728) specification to
//# indicate the locations of authorization servers.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery#authorization-server-location
//# The Protected Resource Metadata document returned by the MCP server MUST include the
//# `authorization_servers` field containing at least one authorization server.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
//# WWW-Authenticate Header: Include the resource metadata URL in the `WWW-Authenticate` HTTP header
//# under `resource_metadata` when returning `401 Unauthorized` responses, as described in RFC9728
//# Section 5.1.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
//# At the path of the server's MCP endpoint: `https://example.com/public/mcp` could host metadata
//# at `https://example.com/.well-known/oauth-protected-resource/public/mcp`
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
//# At the root: `https://example.com/.well-known/oauth-protected-resource`
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#overview
//# MCP servers MUST implement OAuth 2.0 Protected Resource Metadata (RFC9728).
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#token-handling
//# MCP servers, acting in their role as an OAuth 2.1 resource server, MUST validate access tokens
//# as described in OAuth 2.1 Section 5.2.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#token-handling
//# MCP servers MUST validate that access tokens were issued specifically for them as the intended
//# audience, according to RFC 8707 Section 2.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#token-handling
//# If validation fails, servers MUST respond according to OAuth 2.1 Section 5.3 error handling
//# requirements.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#token-handling
//# Invalid or expired tokens MUST receive a HTTP 401 response.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#token-handling
//# MCP servers MUST only accept tokens that are valid for use with their own resources.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#token-audience-binding-and-validation
//# MCP servers MUST validate that tokens presented to them were specifically issued for their use
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#access-token-privilege-restriction
//# A MCP server MUST follow the guidelines in OAuth 2.1 - Section 5.2 to validate inbound tokens.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#access-token-privilege-restriction
//# MCP servers MUST only accept tokens specifically intended for themselves and MUST reject tokens
//# that do not include them in the audience claim or otherwise verify that they are the intended
//# recipient of the token.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
//# Well-Known URI: Serve metadata at a well-known URI as specified in RFC9728. This can be either:
//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#statefulness
//# For remote MCP servers, user identification MUST be derived from credentials acquired via MCP
//# authorization when possible (e.g. `sub` claim)
/// Signature, issuer, audience and times; the metadata of RFC 9728.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_is_known_by_a_token_of_the_authorization_server() {
    let _beside = beside().await;
    let (issuer, stranger) = (Issuer::new("a"), Issuer::new("a"));
    let (jwks, asked) = serve_keys(json!({ "keys": [issuer.key()] })).await;
    let auth = format!(
        "[auth]\nresource = 'https://tools.example.com/mcp'\n\
         authorization_servers = ['https://login.example.com']\n\
         [auth.jwt]\nissuer = 'https://login.example.com'\njwks = '{jwks}'"
    );
    let (_program, url) = started("jwt", &auth).await;
    let several = json!(["x", "https://tools.example.com/mcp"]);
    for (changed, status) in [
        (json!({}), 200),
        // Another token of the same caller.
        (json!({ "aud": several }), 429),
        (json!({ "sub": "dave", "aud": several }), 200),
    ] {
        let token = issuer.token(changed);
        assert_eq!(call(&url, Some(&token)).await.status(), status);
    }

    let metadata = "https://tools.example.com/.well-known/oauth-protected-resource/mcp";
    let named = format!("resource_metadata=\"{metadata}\"");
    let refused = call(&url, None).await;
    assert_eq!(challenge(&refused), format!("Bearer {named}"));
    let old = 1_000_000_000;
    let none = json!({ "alg": "none", "kid": "a" });
    let secret = json!({ "alg": "HS256", "kid": "a" });
    for (token, why) in [
        (
            issuer.token(json!({ "aud": "https://other.example.com" })),
            "InvalidAudience",
        ),
        (issuer.token(json!({ "aud": null })), "aud"),
        (
            issuer.token(json!({ "iss": "https://evil.example.com" })),
            "InvalidIssuer",
        ),
        (issuer.token(json!({ "iss": null })), "iss"),
        (issuer.token(json!({ "exp": old })), "ExpiredSignature"),
        (issuer.token(json!({ "exp": null })), "exp"),
        (issuer.token(json!({ "exp": "soon" })), "exp"),
        (
            issuer.token(json!({ "nbf": 99_999_999_999_u64 })),
            "ImmatureSignature",
        ),
        (issuer.token(json!({ "sub": null })), "refused"),
        (issuer.token(json!({ "sub": "" })), "its `sub` is empty"),
        (stranger.token(json!({})), "the token's signature is wrong"),
        (
            Issuer::new("b").token(json!({})),
            "the key of the token is not known",
        ),
        (issuer.signed(&none, &claims(json!({}))), "not a JWT"),
        (
            issuer.signed(&secret, &claims(json!({}))),
            "its algorithm is HS256: valid are",
        ),
        ("not.a.token".to_owned(), "not a JWT"),
    ] {
        let refused = call(&url, Some(&token)).await;
        let challenge = challenge(&refused);
        assert!(
            challenge.contains(r#"error="invalid_token""#),
            "{challenge}"
        );
        assert!(challenge.contains(why), "{why}: {challenge}");
        assert!(challenge.contains(&named), "{challenge}");
    }
    // However many keys tokens name, they are asked for once in a minute.
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);

    for path in ["", "/mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let page = reqwest::get(url.replace("/mcp", &path)).await.unwrap();
        let page: Value = serde_json::from_str(&page.text().await.unwrap()).unwrap();
        assert_eq!(page["resource"], "https://tools.example.com/mcp");
        assert_eq!(
            page["authorization_servers"],
            json!(["https://login.example.com"])
        );
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/index#token-handling
//# MCP servers MUST NOT accept or transit any other tokens.
/// A server over HTTP, with a header that is in the environment: here another gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_over_http_gets_its_headers() {
    let _beside = beside().await;
    let tokens = format!("[auth.tokens]\nalice = '{TOKEN}'");
    let (_behind, url) = started("behind", &tokens).await;
    let folder = folder("before");
    let file = folder.join("gateway.toml");
    let text = format!(
        "[servers.web]\nurl = '{url}'\nheaders = {{ authorization = {{ env = 'WEB' }} }}\n\
         [auth.tokens]\nbob = '{OTHER}'"
    );
    fs::write(&file, text).unwrap();
    let mut command = with_file(&file);
    command.env("WEB", format!("Bearer {TOKEN}"));
    let mut program = Program::of(command);
    let url = program.url().await;
    let url = url.replace("/mcp", "/tools/web__own__echo/call");
    // The server would refuse the token of the client.
    let answer = post(&url, Some(OTHER), None, &json!({})).await;
    assert_eq!(answer.status(), 200);
    fs::remove_dir_all(folder).unwrap();
}

/// A JWT is not called wrong while the keys of its issuer are not known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_waits_for_the_first_keys_of_its_issuer() {
    let _beside = beside().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let auth = format!("[auth.jwt]\nissuer = 'i'\naudience = 'a'\njwks = 'http://{nobody}/jwks'");
    let (_program, url) = started("keyless", &auth).await;
    let answer = call(&url, Some(&Issuer::new("a").token(json!({})))).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
}
