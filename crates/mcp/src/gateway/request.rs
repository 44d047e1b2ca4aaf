//! A client's request as a call.

use std::sync::Arc;

use rmcp::{
    RoleServer,
    model::{CallToolRequestParams, ClientCapabilities, ErrorData, JsonObject},
    service::RequestContext,
};
use serde_json::json;
use tower_toolcall::call::{Secret, ToolCall, VerifiedCaller};

use super::{
    elicit::Client,
    handler::Settings,
    rounds::Round,
    session::{Relayed, Session, is_usable_id},
};
use crate::{IDEMPOTENCY_KEY_META, McpExtras, capabilities::relayed};

/// The header in which a client over HTTP names its session.
const SESSION_HEADER: &str = "mcp-session-id";

/// The call that a client asks for. What the request says itself is nearer than the headers that it
/// came with.
pub(super) fn call_of(
    mut params: CallToolRequestParams,
    cx: &RequestContext<RoleServer>,
    settings: &Settings,
    session: &Session,
) -> Result<(ToolCall, Option<Arc<Round>>), ErrorData> {
    let tool = std::mem::take(&mut params.name);
    let mut call = received(tool, cx, settings, session)
        .with_arguments(params.arguments.take().unwrap_or_default());
    let (mut round, mut can) = (None, None);
    if !can_be_asked(cx) {
        let all = cx.client_capabilities().unwrap_or_default();
        can = Some(relayed(all.clone(), settings.tasks.is_some()))
            .filter(|can| *can != ClientCapabilities::default());
        let caller = caller(&call, cx);
        let begun = Round::begin(&settings.states, &call, caller, all, &mut params)?;
        round = Some(Arc::new(begun));
    }
    let client = round.clone().map(Client::Later);
    if let Some(client) = client.or_else(|| Client::of(cx)) {
        call.extensions_mut().insert(client);
    }
    let key = settings.takes_idempotency_keys.then(|| key(cx)).flatten();
    let (asked, state) = (params.input_responses, params.request_state);
    let extras = McpExtras::received(asked, state, key, can, meta(cx));
    if let Some(extras) = extras {
        call.extensions_mut().insert(extras);
    }
    Ok((call, round))
}

/// A call of the client of a request, without what only `tools/call` has.
pub(super) fn received(
    tool: impl Into<Arc<str>>,
    cx: &RequestContext<RoleServer>,
    settings: &Settings,
    session: &Session,
) -> ToolCall {
    let mut call = ToolCall::new(tool).with_id(session.call_id(&cx.id));
    let http = cx.extensions.get::<http::request::Parts>();
    if let Some(http) = http {
        call = call
            //= https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#access-token-privilege-restriction
            //# The MCP server MUST NOT pass through the token it received from the MCP client.
            .with_request_headers(&http.headers)
            .with_request_extensions(&http.extensions);
        if let Some(trust) = settings.deadlines {
            call = call.with_request_deadline(&http.headers, trust);
        }
    }
    //= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#identifying-the-user
    //# Servers MUST NOT rely on client-provided user identification without server verification, as
    //# this can be forged.
    //# Instead, servers SHOULD follow security best practices.
    // Over HTTP without a session each request may have a handler of its own.
    if http.is_none_or(|http| http.headers.contains_key(SESSION_HEADER)) {
        call = call.with_unverified_session(session.id());
    }
    #[cfg(feature = "otel")]
    if let Some(parent) = tower_toolcall::otel::parent_from_meta(&cx.meta) {
        call = call.with_remote_parent(parent);
    }
    call
}

/// Returns whether the client's revision has requests of servers.
pub(super) fn can_be_asked(cx: &RequestContext<RoleServer>) -> bool {
    cx.protocol_version()
        .is_none_or(|version| version.has_initialize())
}

/// Names the caller, for states that no other caller may use: as the program's server has verified
/// it, or as the request says.
pub(super) fn caller(call: &ToolCall, cx: &RequestContext<RoleServer>) -> String {
    let http = cx.extensions.get::<http::request::Parts>();
    let verified = http.and_then(|http| http.extensions.get::<VerifiedCaller>());
    let caller = match verified {
        Some(caller) => json!(caller.id()),
        None => {
            let token = call.subject_token().map(Secret::expose);
            json!([token, call.agent_id(), call.session_id()])
        }
    };
    caller.to_string()
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
