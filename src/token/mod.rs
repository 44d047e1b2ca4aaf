//! A layer that exchanges the caller's token for a token of the tool's service (RFC 8693), and
//! keeps it.
//!
//! | at a glance | |
//! |---|---|
//! | does | exchanges the caller's token for that of a tool, and keeps it |
//! | place | inside deadline, retry and `identity`, outside the tool's breaker |
//! | default | a token is used until 30 s before its end; 10,000 are kept |
//! | the caller sees | [`TokenExchange`](crate::ErrorKind::TokenExchange), not started |
//! | method | `ServiceBuilder::layer` |
//!
//! The caller puts their own token on the call,
//! [`ToolCall::with_subject_token`](crate::ToolCall::with_subject_token). The layer knows the
//! [`Target`] of each tool's tokens. It asks an identity provider for a token, and puts it on the
//! call as an [`UpstreamToken`]. For an HTTP tool that is the variable `upstream_token` of its
//! headers. The caller's own token goes to no tool.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_toolcall::{
//!     AnyError, ServiceBuilderExt, ToolCall,
//!     token::{Target, Token, TokenLayer, UpstreamToken},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
//! // An identity provider.
//! let provider = tower::service_fn(|_: ToolCall| async {
//!     Ok::<_, AnyError>(Token::new("for-orders"))
//! });
//! let exchange = ServiceBuilder::new()
//!     .concurrency_limit(32) // see "Untrusted callers"
//!     .tool_circuit_breaker() // of the provider
//!     .tool_timeout(Duration::from_secs(5))
//!     .tool(provider);
//! let orders = Target::audience("orders").with_scope("write");
//! let tokens = TokenLayer::new(exchange)
//!     .with_tool("order", orders);
//!
//! let tool = tower::service_fn(|call: ToolCall| async move {
//!     let token = call.extensions().get::<UpstreamToken>();
//!     let token = token.expect("the layer puts it there");
//!     let header = format!("Bearer {}", token.expose());
//!     Ok::<_, AnyError>(header)
//! });
//! let stack = ServiceBuilder::new()
//!     .layer(tokens)
//!     .tool_circuit_breaker()
//!     .tool_timeout(Duration::from_secs(30))
//!     .tool(tool);
//!
//! let call = ToolCall::new("order");
//! let call = call.with_subject_token("the agent's own");
//! let sent = stack.oneshot(call).await?;
//! assert_eq!(sent, "Bearer for-orders");
//! # Ok(()) }
//! ```
//!
//! `TokenEndpoint` of `tower-toolcall-http` asks an identity provider over HTTP (RFC 8693).
//!
//! # Errors
//!
//! - **the call has no subject's token, or a longer one than 16 KiB**: `Denied`, a refusal; not
//!   retryable
//! - **the provider refuses, or issues what was not asked for**: `TokenExchange`; not retryable
//! - **it is down, slow or busy, or its breaker is open**: `TokenExchange`, with that error as its
//!   source and its delay; retryable if its source is
//! - **the call's time is over, or its caller cancels, before there is a token**:
//!   `DeadlineExceeded`, `Cancelled`; not retryable
//!
//! In each case the tool was not called. The tool's own errors pass, stamped with the call's names.
//!
//! # Cancel safety
//!
//! Dropping the response future ends the wait, and the exchange if this call has begun it. Nothing
//! is lost or leaked.
//!
//! # Details
//!
//! ## The key of a token
//!
//! The key of a kept token is all that it was asked for: the subject's token itself, audience,
//! resources and scopes, each compared in full. Session, agent and user id do not matter. A call is
//! refused if its subject's token is missing, empty, or longer than 16 KiB. The layer keeps nothing
//! of a token that its provider refuses.
//!
//! It is used until 30 s before its end ([`with_leeway`](TokenLayer::with_leeway); half of its
//! lifetime at most), which is what its provider says, 300 s if it does not, 24 h at most. A JWT is
//! used no longer than the time from its `iat` to its `exp`; if it has no `iat`, or its provider
//! does not say how long it is valid, until its `exp` by the clock of this machine. No token is
//! used after the `exp` of its subject's. A token without remaining time is used for one call.
//! 10,000 are kept at most ([`with_max_keys`](TokenLayer::with_max_keys)); expired ones are wiped
//! when others come, a sixteenth of all at a time.
//!
//! Of many calls that need the same token, one asks. If that call is dropped, or its time is over,
//! the next one asks; if the exchange fails, all that waited for it share the failure, and the next
//! call asks again. Calls with a token for one call do not wait for others. Waiting ends with the
//! call's own deadline or cancellation. Poll the future of a call or drop it, because the asking
//! call holds up the others.
//!
//! A 401 on the tool service's own connection, for a token that was kept for 30 s or more, forgets
//! that token. The layer asks for another token, and sends the call once more, as another attempt.
//! A 401 has done nothing, so this holds whatever the call's replay safety. A second 401 is the
//! answer, and so is the first if there is only the same token.
//!
//! ## Order
//!
//! Inside the deadline, retry and whatever changes the names of calls; outside the tool's own
//! breaker and timeout: a provider that is down opens no tool's breaker and uses up no tool's time.
//! The exchange has layers of its own; a retry there would multiply with the outer one. Its calls
//! are those of the tool `token_exchange`, with the ids, the rules, the deadline and the
//! cancellation of the call for which they are made, and without its arguments.
//!
//! ## Limits per user
//!
//! An upstream that knows the user by this token may limit each user. Key the
//! [rate limit](crate::rate_limit) by principal: `Key::Tool.per_principal()`. Settings with
//! `token.endpoint` do so by default. Beside a layer that code adds to a stack of settings, set
//! `rate_limit.per_principal`.
//!
//! ## Untrusted callers
//!
//! Only the provider knows whether a token is genuine: each invented token is a request to it,
//! signed in as this program. With too many of them the provider answers all callers with a 429 or
//! a 5xx, and a 5xx opens the circuit breaker for all. Refusals are not cached, because an invented
//! token rarely comes twice. So, where untrusted callers can call:
//!
//! - Check callers first, in a layer of the router: the signature and the `exp` of their JWTs, or
//!   how many requests an address may send.
//! - Set a limit around the exchange, as the example does. It bounds how many requests the provider
//!   has at the same time. The others wait, each until its own deadline; a call with a kept token
//!   needs no place. Use a rate limit in the same place to bound requests by the second.
//!
//! ## Metrics
//!
//! An outer `metrics::MetricsLayer` counts what becomes of tokens, and times the exchanges
//! (`token_exchange_total`, `token_exchange_failures_total`, `token_exchange_duration_ms`), with
//! nothing to wire; [`TokenHandle::counts`] has the same of this layer alone. No label has a token,
//! a subject or a name. For the state of the provider's breaker (`circuit_breaker_state`, of the
//! tool `token_exchange`), put a `MetricsLayer` around the exchange; if `layer_from_settings` made
//! it, by [`TokenLayer::map_exchange`].
//!
//! ## Secrets
//!
//! A [`Secret`] is in no text, `Debug`, event or serialised call, and is wiped when its last clone
//! is dropped. Copies elsewhere are not wiped: headers and bodies of requests, buffers of the HTTP
//! client, TLS and the JSON parser, the output of a template engine. Nor are the keys of
//! [`once`](crate::once) and [`cache`](crate::cache), which have the subject's token, and the
//! copies by which texts are searched for it.
//!
//! If an upstream repeats a secret, its owner decides where it is hidden. HTTP tools and
//! `McpHttpClient` take the exchanged token, and other secrets of headers, out of everything, also
//! out of a successful answer. Your own tool service takes them out of its answers by
//! [`Rules::without_secrets`](crate::redact::Rules::without_secrets). The caller's own secrets may
//! come back to the caller in a successful answer. They are hidden in errors, events, spans and
//! records of answers. They are the subject's token, arguments with the name of a secret, and those
//! that the tool's schema marks by `writeOnly` or `format: password`. Values of less than 8 bytes
//! are not looked for, and neither is what the client adds inside an HTTP tool, or a transport
//! other than `McpHttpClient` sends. Layers outside the layer that knows the schema have already
//! shown the arguments: give their names to a [`SanitizeLayer`](crate::sanitize::SanitizeLayer).
//! See [`Rules::with_secrets`](crate::redact::Rules::with_secrets) for the forms and bounds.
//!
//! ## Readiness
//!
//! Always ready. While a token is asked for, nothing is reserved inside. The call is then sent by
//! a fresh instance.
//!
//! ## Clone
//!
//! Clones, and services of one layer value, share the tokens. A call with a token that is kept
//! allocates what its names and extensions do.

mod answer;
mod exchange;
mod layer;
mod service;
mod target;

pub use self::{
    answer::{Claims, Token},
    exchange::{TokenCounts, TokenHandle},
    layer::TokenLayer,
    service::{ResponseFuture, Tokens},
    target::{Target, TokenRequest, endpoint_uri},
};
pub use crate::call::{Secret, UpstreamToken};
