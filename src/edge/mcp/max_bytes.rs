use rmcp::model::CallToolResponse;

use super::json::AsJson;
use crate::{
    answer::{NoSize, json_bytes},
    call::CallInfo,
    check::{Check, within},
    error::BoxError,
};

/// How many bytes an MCP result may have, as compact JSON: for a
/// [`CheckLayer`](crate::check::CheckLayer).
///
/// ```
/// use tower_toolcall::{check::CheckLayer, mcp::McpMaxBytes};
///
/// let layer = CheckLayer::new(McpMaxBytes::new(256 << 10));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct McpMaxBytes(u64);

impl McpMaxBytes {
    /// Results may have `max` bytes.
    pub fn new(max: u64) -> Self {
        Self(max)
    }
}

impl Check<CallToolResponse> for McpMaxBytes {
    fn check(&self, call: &CallInfo, response: &CallToolResponse) -> Result<(), BoxError> {
        within(call, self.0, response_bytes(response, self.0))
    }
}

/// How many bytes the result has as compact JSON, if not more than `max`.
pub(super) fn response_bytes(response: &CallToolResponse, max: u64) -> Result<u64, NoSize> {
    json_bytes(&AsJson(response), max)
}
