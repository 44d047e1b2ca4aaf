use super::Secret;

/// The token with which a call signs in upstream: an extension of the call, and the variable
/// `upstream_token` of an HTTP tool's headers.
///
/// ```
/// use tower_toolcall::{ToolCall, token::UpstreamToken};
///
/// let mut call = ToolCall::new("order");
/// call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
/// assert_eq!(format!("{:?}", UpstreamToken::new("t0k3n")), "UpstreamToken([REDACTED])");
/// ```
#[derive(Clone, Debug)]
pub struct UpstreamToken(Secret);

impl UpstreamToken {
    /// A token, without its scheme (`Bearer`).
    pub fn new(token: impl Into<Secret>) -> Self {
        Self(token.into())
    }

    /// The token itself.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}
