use std::sync::Arc;

/// The token with which a call signs in upstream: an extension of the call, and the variable `upstream_token` of templates of
/// headers.
///
/// ```
/// use tower_toolcall::{ToolCall, http_tool::UpstreamToken};
///
/// let mut call = ToolCall::new("order");
/// call.extensions_mut().insert(UpstreamToken::new("t0k3n"));
/// assert_eq!(format!("{:?}", UpstreamToken::new("t0k3n")), "UpstreamToken { .. }");
/// ```
#[derive(Clone)]
pub struct UpstreamToken(Arc<str>);

impl UpstreamToken {
    /// A token, without its scheme (`Bearer`).
    pub fn new(token: impl Into<Arc<str>>) -> Self {
        Self(token.into())
    }

    /// The token itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

crate::text::opaque_debug!({} UpstreamToken);
