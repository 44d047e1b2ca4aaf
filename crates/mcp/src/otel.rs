//! OpenTelemetry in [`McpService`].

use std::sync::Arc;

use opentelemetry::KeyValue;
use rmcp::model::{NumberOrString, ProtocolVersion, RequestId, RequestMetaObject};
use tower_toolcall::{call::CallInfo, event::shown_name, otel::inject_meta};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::McpService;

/// The connection's attributes in spans of calls, and whether requests carry the trace context.
#[derive(Clone, Default)]
pub(super) struct Otel {
    is_propagation_off: bool,
    attributes: Arc<[KeyValue]>,
}

impl McpService {
    /// Sets whether each request carries the trace context in its `_meta`, if there is one: that of
    /// the span in which the request is made. Default: yes. See
    /// [`otel`](tower_toolcall::otel#propagation).
    #[must_use]
    pub fn with_propagation(mut self, propagate: bool) -> Self {
        self.otel.is_propagation_off = !propagate;
        self
    }

    /// Says what only you know of the connection, for the spans that [`McpHooks`](super::McpHooks)
    /// look after: `network.transport` (`pipe`, `tcp`), `server.address`, `mcp.session.id`. Not
    /// redacted.
    #[must_use]
    pub fn with_span_attributes(mut self, attributes: impl IntoIterator<Item = KeyValue>) -> Self {
        self.otel.attributes = attributes.into_iter().collect();
        self
    }

    /// Puts the context of the current span into a request's `_meta`.
    pub(super) fn propagate(&self, meta: &mut RequestMetaObject) {
        if !self.otel.is_propagation_off {
            inject_meta(meta);
        }
    }

    /// The facts that the hooks read from the call's record.
    pub(super) fn sent(&self, request_id: &RequestId) -> Sent {
        let server = self.peer().peer_info();
        Sent {
            request_id: request_id.clone(),
            protocol_version: server.map(|s| s.protocol_version.clone()),
            attributes: Arc::clone(&self.otel.attributes),
        }
    }
}

const METHOD_NAME: &str = "mcp.method.name";
const PROTOCOL_VERSION: &str = "mcp.protocol.version";
const REQUEST_ID: &str = "jsonrpc.request.id";
const STATUS_CODE: &str = "rpc.response.status_code";

/// The tool service's knowledge of the request that it sent, for the hooks of outer layers.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) request_id: RequestId,
    pub(super) protocol_version: Option<ProtocolVersion>,
    /// Attributes of the connection, set by the user.
    pub(super) attributes: Arc<[KeyValue]>,
}

/// At the start.
pub(super) fn method(span: &Span) {
    span.set_attribute(METHOD_NAME, "tools/call");
}

/// At the end: what the tool service has left on the call's record, and the code that a server
/// answered with.
pub(super) fn sent(call: &CallInfo, code: Option<i32>, span: &Span) {
    if let Some(code) = code {
        span.set_attribute(STATUS_CODE, code.to_string());
    }
    let mut sent = None;
    call.record(|record| sent = record.extension::<Sent>());
    let Some(sent) = sent else { return };
    let id = match &sent.request_id {
        NumberOrString::Number(id) => id.to_string(),
        NumberOrString::String(id) => shown_name(id).to_string(),
    };
    span.set_attribute(REQUEST_ID, id);
    if let Some(version) = &sent.protocol_version {
        span.set_attribute(PROTOCOL_VERSION, shown_name(version.as_str()).to_string());
    }
    for attribute in &*sent.attributes {
        span.set_attribute(attribute.key.clone(), attribute.value.clone());
    }
}
