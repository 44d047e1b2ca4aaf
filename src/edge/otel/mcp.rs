//! OpenTelemetry's conventions for MCP, on the spans that are there already.

use std::sync::Arc;

use opentelemetry::KeyValue;
use rmcp::model::{NumberOrString, ProtocolVersion, RequestId};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{call::CallInfo, text::Short};

const METHOD_NAME: &str = "mcp.method.name";
const PROTOCOL_VERSION: &str = "mcp.protocol.version";
const REQUEST_ID: &str = "jsonrpc.request.id";
const STATUS_CODE: &str = "rpc.response.status_code";

/// The tool service's knowledge of the request that it sent, for the hooks of outer layers.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) request_id: RequestId,
    pub(crate) protocol_version: Option<ProtocolVersion>,
    /// Attributes of the connection, set by the user.
    pub(crate) attributes: Arc<[KeyValue]>,
}

/// At the start.
pub(crate) fn method(span: &Span) {
    span.set_attribute(METHOD_NAME, "tools/call");
}

/// At the end: what the tool service has left on the call's record, and the code that a server
/// answered with.
pub(crate) fn sent(call: &CallInfo, code: Option<i32>, span: &Span) {
    if let Some(code) = code {
        span.set_attribute(STATUS_CODE, code.to_string());
    }
    let mut sent = None;
    call.record(|record| sent = record.extension::<Sent>());
    let Some(sent) = sent else { return };
    let id = match &sent.request_id {
        NumberOrString::Number(id) => id.to_string(),
        NumberOrString::String(id) => Short::name(id).to_string(),
    };
    span.set_attribute(REQUEST_ID, id);
    if let Some(version) = &sent.protocol_version {
        span.set_attribute(PROTOCOL_VERSION, Short::name(version.as_str()).to_string());
    }
    for attribute in &*sent.attributes {
        span.set_attribute(attribute.key.clone(), attribute.value.clone());
    }
}
