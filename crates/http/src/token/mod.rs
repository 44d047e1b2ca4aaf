//! The token endpoint of an identity provider (RFC 8693), for the
//! [`TokenLayer`](tower_toolcall::token::TokenLayer) of the collection.
//!
//! ```
//! use bytes::Bytes;
//! use tower_toolcall::token::{Secret, Target, TokenLayer};
//! use tower_toolcall_http::{ReqwestClient, token::{ClientAuth, TokenEndpoint}};
//!
//! # use http::{Request, Response};
//! # use http_body_util::Full;
//! # use tower::{Layer, ServiceExt, service_fn};
//! # use tower_toolcall::{AnyError, ToolCall, token::UpstreamToken};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
//! let client = ReqwestClient::new()?; // or another HTTP client
//! # let client = service_fn(|_: Request<Bytes>| async {
//! #     let answer = r#"{"access_token": "for-orders", "token_type": "Bearer", "expires_in": 300,
//! #         "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}"#;
//! #     Ok::<_, std::io::Error>(Response::new(Full::<Bytes>::from(answer)))
//! # });
//! // Out of a file, or the environment.
//! let auth = ClientAuth::basic("gateway", Secret::from("s3cr3t"));
//! let endpoint = TokenEndpoint::<_, Bytes>::new("https://id.example.com/token", auth, client)?;
//! let tokens = TokenLayer::new(endpoint).with_tool("order", Target::audience("orders"));
//! # let tool = service_fn(|call: ToolCall| async move {
//! #     let token = call.extensions().get::<UpstreamToken>().expect("put there by the layer");
//! #     Ok::<_, AnyError>(token.expose().to_owned())
//! # });
//! # let call = ToolCall::new("order").with_subject_token("the agent's own");
//! # assert_eq!(tokens.layer(tool).oneshot(call).await?, "for-orders");
//! # Ok(()) }
//! ```
//!
//! [The layer's docs](tower_toolcall::token) say which layers belong outside the endpoint. With the
//! feature `settings`, `layer_from_settings` makes both of `[token]`.

mod answer;
mod auth;
mod endpoint;
#[cfg(feature = "settings")]
mod settings;

#[cfg(feature = "settings")]
#[cfg_attr(docsrs, doc(cfg(feature = "settings")))]
pub use self::settings::{TokenExchange, layer_from_settings};
pub use self::{
    auth::{Assertion, ClientAuth, Signer},
    endpoint::{ExchangeFuture, TokenEndpoint},
};
