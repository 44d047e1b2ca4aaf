use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, InputResponses, JsonObject};

use super::IDEMPOTENCY_KEY_META;
use crate::call::ToolCall;

/// The parts of a request to an MCP server beside name and arguments: put them into a call's
/// [extensions](ToolCall::extensions_mut), and [`McpService`](super::McpService) sends them.
///
/// With it a call answers a server that has asked for input:
///
/// ```
/// use rmcp::model::{CallToolResponse, InputResponses};
/// use tower_toolcall::{ToolCall, mcp::McpExtras};
///
/// /// The same call once more, with what the server has asked for.
/// fn again(
///     mut call: ToolCall,
///     asked: &CallToolResponse,
///     responses: InputResponses,
/// ) -> ToolCall {
///     if let CallToolResponse::InputRequired(asked) = asked {
///         let mut extras = McpExtras::new().with_input_responses(responses);
///         if let Some(state) = &asked.request_state {
///             extras = extras.with_request_state(state.clone());
///         }
///         call.extensions_mut().insert(extras);
///     }
///     call
/// }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct McpExtras(Arc<Inner>);

#[derive(Clone, Default)]
struct Inner {
    input_responses: Option<InputResponses>,
    request_state: Option<String>,
    idempotency_key: Option<Arc<str>>,
    meta: JsonObject,
}

impl McpExtras {
    /// Without any of them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the answers to what the server has asked for.
    pub fn with_input_responses(self, responses: InputResponses) -> Self {
        self.set(|e| e.input_responses = Some(responses))
    }

    /// Sets the state that the server has sent with its questions, unchanged.
    pub fn with_request_state(self, state: impl Into<String>) -> Self {
        self.set(|e| e.request_state = Some(state.into()))
    }

    /// Sets the [idempotency key](super::IDEMPOTENCY_KEY_META), instead of that of a retry layer:
    /// the caller repeats the call under the same one.
    pub fn with_idempotency_key(self, key: impl Into<Arc<str>>) -> Self {
        self.set(|e| e.idempotency_key = Some(key.into()))
    }

    /// Sets members of the request's `_meta`. What the client and this crate write there themselves
    /// takes precedence. Not redacted.
    pub fn with_meta(self, meta: JsonObject) -> Self {
        self.set(|e| e.meta = free(meta))
    }

    /// The extras of a client's request; `None` if it has none.
    #[cfg(feature = "mcp-server")]
    pub(super) fn received(
        input_responses: Option<InputResponses>,
        request_state: Option<String>,
        idempotency_key: Option<Arc<str>>,
        meta: JsonObject,
    ) -> Option<Self> {
        let meta = free(meta);
        let is_empty = input_responses.is_none()
            && request_state.is_none()
            && idempotency_key.is_none()
            && meta.is_empty();
        let extras = Inner {
            input_responses,
            request_state,
            idempotency_key,
            meta,
        };
        (!is_empty).then(|| Self(Arc::new(extras)))
    }

    pub(super) fn meta(&self) -> JsonObject {
        self.0.meta.clone()
    }

    pub(super) fn of(call: &ToolCall) -> Option<&Self> {
        call.extensions().get()
    }

    pub(super) fn idempotency_key(&self) -> Option<&str> {
        self.0.idempotency_key.as_deref()
    }

    pub(super) fn fill(&self, params: &mut CallToolRequestParams) {
        params.input_responses.clone_from(&self.0.input_responses);
        params.request_state.clone_from(&self.0.request_state);
    }

    fn set(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

/// The members that are not the protocol's on one connection, nor written by this crate.
fn free(mut meta: JsonObject) -> JsonObject {
    meta.retain(|key, _| {
        !key.starts_with("io.modelcontextprotocol/")
            && !["progressToken", IDEMPOTENCY_KEY_META].contains(&key.as_str())
    });
    meta
}

crate::text::debug_fields! {
    /// Shows what is there, never what it says.
    {} |this| McpExtras {
        input_responses: this.0.input_responses.is_some(),
        request_state: this.0.request_state.is_some(),
        idempotency_key: this.0.idempotency_key.is_some(),
        meta: this.0.meta.len(),
    }
}
