//! The token endpoint of an identity provider (RFC 8693), for the
//! [`TokenLayer`](tower_toolcall::token::TokenLayer) of the collection.
//!
//! [The layer's docs](tower_toolcall::token) have an example, and say which layers belong around
//! the endpoint. With the feature `settings`, `layer_from_settings` makes both of `[token]`.

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
