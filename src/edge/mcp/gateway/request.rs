use std::sync::Arc;

use rmcp::{
    model::{CallToolRequestParams, JsonObject},
    service::{RequestContext, RoleServer},
};

use super::{elicit, handler::Settings, relay::Relayed, session::Session};
use crate::{
    call::ToolCall,
    edge::{
        headers::is_usable_id,
        mcp::{IDEMPOTENCY_KEY_META, McpExtras},
    },
};

/// The header in which a client over HTTP names its session.
const SESSION_HEADER: &str = "mcp-session-id";

/// The call that a client asks for. What the request says itself is nearer than the headers that it
/// came with.
pub(super) fn call(
    params: CallToolRequestParams,
    cx: &RequestContext<RoleServer>,
    settings: &Settings,
    session: &Session,
) -> ToolCall {
    let mut call = ToolCall::new(params.name)
        .with_arguments(params.arguments.unwrap_or_default())
        .with_id(session.call_id(&cx.id));
    let http = cx.extensions.get::<http::request::Parts>();
    if let Some(http) = http {
        call = call
            .with_request_headers(&http.headers)
            .with_request_extensions(&http.extensions);
        if let Some(trust) = settings.deadlines {
            call = call.with_request_deadline(&http.headers, trust);
        }
    }
    // Over HTTP without a session each request may have a handler of its own.
    if http.is_none_or(|http| http.headers.contains_key(SESSION_HEADER)) {
        call = call.with_unverified_session(session.id());
    }
    #[cfg(feature = "otel")]
    if let Some(parent) = crate::otel::parent_from_meta(&cx.meta) {
        call = call.with_remote_parent(parent);
    }
    elicit::note_client(&mut call, cx);
    let key = settings.takes_idempotency_keys.then(|| key(cx)).flatten();
    let (asked, state) = (params.input_responses, params.request_state);
    let extras = McpExtras::received(asked, state, key, meta(cx));
    if let Some(extras) = extras {
        call.extensions_mut().insert(extras);
    }
    call
}

/// Relays the progress of the call to the client, if it has asked for that.
pub(super) fn relay(call: &mut ToolCall, cx: &RequestContext<RoleServer>) -> Option<Relayed> {
    let token = cx.meta.get_progress_token()?;
    let (relay, relayed) = Relayed::to(cx.peer.clone(), token);
    call.extensions_mut().insert(relay);
    Some(relayed)
}

/// The client's `_meta` without its trace context, of which the call's span is the child.
fn meta(cx: &RequestContext<RoleServer>) -> JsonObject {
    #[cfg_attr(not(feature = "otel"), expect(unused_mut))]
    let mut meta = cx.meta.0.0.clone();
    #[cfg(feature = "otel")]
    meta.retain(|key, _| !["traceparent", "tracestate", "baggage"].contains(&key.as_str()));
    meta
}

fn key(cx: &RequestContext<RoleServer>) -> Option<Arc<str>> {
    let key = cx.meta.get(IDEMPOTENCY_KEY_META)?.as_str()?;
    is_usable_id(key).then(|| key.into())
}
