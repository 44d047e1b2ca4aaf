//! OpenTelemetry in [`McpService`].

use std::sync::Arc;

use opentelemetry::KeyValue;
use rmcp::model::{RequestId, RequestMetaObject};

use super::McpService;
use crate::edge::otel::{inject_meta, mcp::Sent};

/// The connection's attributes in spans of calls, and whether requests carry the trace context.
#[derive(Clone, Default)]
pub(super) struct Otel {
    is_propagation_off: bool,
    attributes: Arc<[KeyValue]>,
}

impl McpService {
    /// Sets whether each request carries the trace context in its `_meta`, if there is one: that of
    /// the span in which the request is made. Default: yes. See
    /// [`otel`](crate::otel#propagation).
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
