use std::{
    fmt,
    future::{Future, poll_fn},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use rmcp::{
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResponse, CancelledNotification,
        CancelledNotificationParam, ClientCapabilities, ClientRequest, InputRequiredResult,
        MetaObject, RequestId, RequestMetaObject, ServerResult, Tool,
    },
    service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError, ServiceRole},
};
use serde_json::{Map, Value};
use tower_service::Service;
use tower_toolcall::{
    answer::json_bytes,
    call::ToolCall,
    error::{ErrorKind, Execution, Outage, ToolError},
    flow::CallExt,
    flow::WaitLimit,
};

use super::{
    McpAnswer, McpExtras, McpProgress, catalog, errors, extras::TaskRequest, progress::Reports,
};
use crate::{future::first, register};

/// The longest message that rmcp's line-based transports let through.
const MAX_MESSAGE_BYTES: u64 = 16 << 20;

/// The longest arguments that are kept for a repetition.
const MAX_KEPT_BYTES: u64 = 64 << 10;

/// Room for the rest of a request beside its arguments: name, ids, protocol metadata.
const ENVELOPE_BYTES: u64 = 4 << 10;

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#metaobject
//# Optional — if specified, MUST be a series of labels separated by dots (.), followed by a slash
//# (/).
//# Labels MUST start with a letter and end with a letter or digit.
//# Unless empty, MUST start and end with an alphanumeric character ([a-z0-9A-Z]).
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/index#_meta
//# If specified, MUST be a series of labels separated by dots (`.`), followed by a slash (`/`).
//# Labels MUST start with a letter and end with a letter or digit; interior characters can be
//# letters, digits, or hyphens (`-`).
//# Unless empty, MUST begin and end with an alphanumeric character (`[a-z0-9A-Z]`).
/// The key in a request's `_meta` under which [`McpService`] sends a call's [idempotency
/// key](tower_toolcall::ToolCall::idempotency_key), if the call may be repeated, or the one in its
/// [`McpExtras`].
pub const IDEMPOTENCY_KEY_META: &str = "tower-toolcall/idempotency-key";

/// The tools of one MCP server. See the [module docs](super) for an example.
///
/// Always ready; cheap to clone; clones share the connection. Errors come from the response future
/// only, a closed connection included.
///
/// If a server refuses the headers of a call (-32020), the service reads its list of tools. It
/// sends the call once more if the tool's definition has `x-mcp-header`, because such a call was
/// not executed. No other call is sent twice. The wait for the list ends at the call's deadline or
/// when its caller cancels. A call with arguments of more than 64 KiB is not kept for this, and
/// fails: the next call succeeds.
///
/// Calls that are lost with the connection have one [`Outage`]: a breaker counts them once. Later
/// calls each count by themselves.
///
/// # Secrets
///
/// This crate redacts its logs, rmcp does not. Its target `rmcp::service` prints every message at
/// TRACE, with unredacted arguments and answers; its other events print unredacted errors. Filter
/// it, with `EnvFilter` of `tracing-subscriber` by `info,rmcp=off`.
#[derive(Clone)]
pub struct McpService {
    peer: Peer<RoleClient>,
    server: Option<Arc<str>>,
    progress: Option<McpProgress>,
    /// The capabilities that the connection declares.
    own: Option<Arc<ClientCapabilities>>,
    /// That of the connection, once it is lost.
    outage: Outage,
    #[cfg(feature = "otel")]
    pub(super) otel: super::otel::Otel,
}

impl McpService {
    /// Makes a service that calls the tools of `peer`.
    pub fn new(peer: Peer<RoleClient>) -> Self {
        register();
        Self {
            peer,
            server: None,
            progress: None,
            own: None,
            outage: Outage::new(),
            #[cfg(feature = "otel")]
            otel: super::otel::Otel::default(),
        }
    }

    /// Names the server in the spans and errors of calls that do not name one. Outer layers do not
    /// know this name: for their events, metrics and keys set it on the call, with
    /// [`ToolCall::with_server`].
    #[must_use]
    pub fn with_server(mut self, name: impl Into<Arc<str>>) -> Self {
        self.server = Some(name.into());
        self
    }

    /// Passes the server's progress notifications on to the idle timeout of a
    /// [`TimeoutLayer`](tower_toolcall::timeout::TimeoutLayer::with_idle_timeout), and to the
    /// client of a gateway.
    ///
    /// `progress` has to be the client handler of this very connection, or get its reports from
    /// that handler.
    #[must_use]
    pub fn with_progress(mut self, progress: McpProgress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Sets the capabilities that the client of this connection declares. A call that brings
    /// [others](McpExtras::with_capabilities) declares their extensions as well. Default: none; an
    /// [`McpServer`](super::McpServer) and an [`McpReconnect`](super::McpReconnect) know theirs.
    #[must_use]
    pub fn with_capabilities(mut self, own: ClientCapabilities) -> Self {
        self.own = Some(Arc::new(own));
        self
    }

    pub(super) fn server(&self) -> Option<&Arc<str>> {
        self.server.as_ref()
    }

    /// Returns the rmcp peer.
    pub fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Makes a call; its errors name the call and the server.
    pub(super) async fn answer(self, call: ToolCall) -> Result<McpAnswer, ToolError> {
        let (info, server) = (call.info(), self.server.clone());
        // Of a call that names its server the span has that.
        if let Some(server) = server.as_ref().filter(|_| info.server().is_none()) {
            info.record(|r| r.set_server(Arc::clone(server)));
        }
        let answer = self.run(call).await;
        answer.map_err(|error| errors::named(error, &info, server.as_ref()))
    }

    async fn run(self, call: ToolCall) -> Result<McpAnswer, ToolError> {
        call.check()?;
        let bytes = check_size(call.arguments())?;
        let has_headers = has_session(&self.peer) == Some(false);
        if !has_headers || TaskRequest::of(&call).is_some() {
            return self.send(call).await;
        }
        let mut limit = WaitLimit::of(&call);
        limit.release();
        let again = (bytes <= MAX_KEPT_BYTES).then(|| call.copy_to_read());
        let answer = self.send(call).await;
        let code = answer.as_ref().err().and_then(errors::protocol_code);
        if code != Some(errors::HEADER_MISMATCH) {
            return answer;
        }
        // The transport makes headers by the newest definition that it has seen.
        let list = catalog::list(&self.peer, self.server.as_deref());
        let listed = within(&mut limit, list).await.and_then(Result::ok);
        let has_any = |call: &ToolCall| {
            let mut tools = listed.iter().flatten();
            tools.any(|tool| has_headers_of(tool, call))
        };
        match again.filter(has_any) {
            Some(call) => self.send(call.clone()).await,
            None => answer,
        }
    }

    async fn send(&self, mut call: ToolCall) -> Result<McpAnswer, ToolError> {
        let (info, reports) = (call.info(), Reports::of(&call));
        let options = self.options(&call);
        let asks = TaskRequest::of(&call).cloned();
        let request = match &asks {
            Some(asks) => asks.request(),
            None => request(&mut call)?,
        };
        // Nothing below needs the call, and the result may be long in coming.
        drop(call);

        let reports = reports.zip(self.progress.as_ref());
        let mut route = reports.map(|(to, all)| all.expect(to));
        let sent = self.peer.send_cancellable_request(request, options).await;
        // What could not be sent has not run.
        let handle =
            sent.map_err(|e| errors::from_service(e).with_execution(Execution::NotStarted))?;
        #[cfg(feature = "otel")]
        info.record(|r| r.insert_extension(self.sent(&handle.id)));
        if let Some(route) = &mut route {
            route.take(handle.progress_token.clone());
        }

        let answer = answer(handle).await;
        let answer = answer.map_err(|error| match error {
            ServiceError::TransportClosed => errors::from_service(error).with_outage(&self.outage),
            _ => errors::from_service(error),
        });
        let mut answer: McpAnswer = match (asks, answer?) {
            (Some(asks), result) => asks.answer(result)?,
            (_, ServerResult::CallToolResult(result)) => result.into(),
            (_, ServerResult::InputRequiredResult(result)) if asks_something(&result) => {
                result.into()
            }
            (_, ServerResult::CreateTaskResult(result)) => CallToolResponse::Task(result).into(),
            _ => return Err(errors::from_service(ServiceError::UnexpectedResponse)),
        };
        if let Some(result) = answer.result_mut() {
            // Servers that serialise an empty field mean that there is none.
            result.structured_content.take_if(|json| json.is_null());
        }
        info.record(|r| {
            r.set_reported(answer.result().is_some_and(|r| r.is_error == Some(true)));
            if r.wants_output_bytes()
                && let Ok(bytes) = json_bytes(&answer, u64::MAX)
            {
                r.set_output_bytes(bytes);
            }
        });
        Ok(answer)
    }

    /// The request's `_meta`.
    fn options(&self, call: &ToolCall) -> PeerRequestOptions {
        let own = || call.idempotency_key().map(|key| key.to_string());
        // A question for a task is none of the call's repetitions.
        let extras = McpExtras::of(call).filter(|_| TaskRequest::of(call).is_none());
        let free = extras.map(McpExtras::meta).unwrap_or_default();
        let mut meta = RequestMetaObject(MetaObject(free));
        let given = extras.and_then(McpExtras::idempotency_key);
        if let Some(key) = given.map(str::to_owned).or_else(own) {
            let _ = meta.insert(IDEMPOTENCY_KEY_META.to_owned(), key.into());
        }
        let brought = McpExtras::of(call).and_then(McpExtras::capabilities);
        if let Some(brought) = brought.filter(|_| has_session(&self.peer) == Some(false)) {
            meta.set_client_capabilities(with_extensions(brought, self.own.as_deref()));
        }
        #[cfg(feature = "otel")]
        self.propagate(&mut meta);
        let mut options = PeerRequestOptions::no_options();
        options.meta = (!meta.is_empty()).then_some(meta);
        options
    }
}

impl fmt::Debug for McpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpService")
            .field("server", &self.server)
            .field("closed", &self.peer.is_transport_closed())
            .finish_non_exhaustive()
    }
}

impl Service<ToolCall> for McpService {
    type Response = McpAnswer;
    type Error = ToolError;
    type Future = ResponseFuture;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        Box::pin(self.clone().answer(call))
    }
}

/// Response future of [`McpService`] and [`McpReconnect`](super::McpReconnect).
pub type ResponseFuture = BoxFuture<'static, Result<McpAnswer, ToolError>>;

/// A request that waits for its answer. Dropping it cancels the request at the peer, and lets rmcp
/// forget it.
struct Pending<R: ServiceRole> {
    peer: Peer<R>,
    id: Option<RequestId>,
}

/// Waits for the answer to a request, and cancels the request if it is dropped before.
pub(super) async fn answer<R: ServiceRole>(
    request: RequestHandle<R>,
) -> Result<R::PeerResp, ServiceError> {
    let mut pending = Pending {
        peer: request.peer.clone(),
        id: Some(request.id.clone()),
    };
    let answer = request.await_response().await;
    pending.id = None;
    answer
}

//= https://modelcontextprotocol.io/specification/2025-11-25/schema#cancellednotificationparams
//# This MUST correspond to the ID of a request previously issued in the same direction.
//= https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation#behavior-requirements
//# Were previously issued in the same direction
//= https://modelcontextprotocol.io/specification/2026-07-28/schema#cancellednotificationparams
//# This MUST correspond to the ID of a request the client previously issued.
//= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#behavior-requirements
//# Cancellation notifications MUST only reference requests that:
//# Were previously issued by the client
impl<R: ServiceRole> Drop for Pending<R> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let params = CancelledNotificationParam::new(
            Some(id),
            Some("the caller does not wait for the result any more".to_owned()),
        );
        let peer = self.peer.clone();
        let mut notify = Box::pin(tokio::task::coop::unconstrained(async move {
            let cancelled = CancelledNotification::new(params);
            peer.send_notification(cancelled.into()).await
        }));
        // The first poll puts the notification into rmcp's queue, before anything that is sent
        // later. Unconstrained, because the task that drops us may have used up its budget.
        // If the queue was full, the rest needs a task that waits for it. It ends with the
        // connection.
        if (&mut notify).now_or_never().is_none()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(notify);
        }
    }
}

fn request(call: &mut ToolCall) -> Result<ClientRequest, ToolError> {
    call.check_job()?;
    let mut params = CallToolRequestParams::new(call.tool().to_owned());
    if let Some(extras) = McpExtras::of(call) {
        extras.fill(&mut params);
    }
    let params = params.with_arguments(call.take_arguments());
    Ok(ClientRequest::CallToolRequest(CallToolRequest::new(params)))
}

/// Adds the extensions of a connection to the capabilities of a call.
fn with_extensions(
    can: &ClientCapabilities,
    own: Option<&ClientCapabilities>,
) -> ClientCapabilities {
    let mut can = can.clone();
    if let Some(own) = own.and_then(|own| own.extensions.clone()) {
        can.extensions.get_or_insert_default().extend(own);
    }
    can
}

fn asks_something(result: &InputRequiredResult) -> bool {
    let mut requests = result.input_requests.iter().flatten();
    requests.next().is_some() || result.request_state.is_some()
}

/// Returns whether a connection has a session, which `initialize` began. Revisions from 2026-07-28
/// on have neither.
pub(super) fn has_session(peer: &Peer<RoleClient>) -> Option<bool> {
    Some(peer.peer_info()?.protocol_version.has_initialize())
}

/// Returns whether this is the definition of the call's tool, and puts arguments into headers.
fn has_headers_of(tool: &Tool, call: &ToolCall) -> bool {
    fn has_headers(schema: &Value) -> bool {
        match schema {
            Value::Object(object) => {
                object.contains_key("x-mcp-header") || object.values().any(has_headers)
            }
            _ => false,
        }
    }
    tool.name == call.tool() && tool.input_schema.values().any(has_headers)
}

/// Waits for a future until the wait has to end; `None` if it had to.
pub(super) async fn within<F: Future>(limit: &mut WaitLimit, waited: F) -> Option<F::Output> {
    first(waited, poll_fn(|cx| limit.poll(cx))).await.ok()
}

/// Refuses what the server's transport would drop without a word. Returns the size.
fn check_size(arguments: &Map<String, Value>) -> Result<u64, ToolError> {
    json_bytes(arguments, MAX_MESSAGE_BYTES - ENVELOPE_BYTES).map_err(|error| {
        let why = match error.is_io() {
            true => "the arguments exceed the 16 MiB that an MCP message may have".to_owned(),
            false => error.to_string(),
        };
        ToolError::refusal(ErrorKind::InvalidInput, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn size(value: Value) -> Result<(), ErrorKind> {
        let Value::Object(map) = value else {
            panic!("an object")
        };
        check_size(&map).map(drop).map_err(|e| e.kind())
    }

    #[test]
    fn arguments_over_16_mebibytes_are_refused() {
        assert_eq!(size(json!({})), Ok(()));
        assert_eq!(size(json!({ "a": ["x", { "b": 1 }] })), Ok(()));
        assert_eq!(size(json!({ "a": "x".repeat(15 << 20) })), Ok(()));
        let refused = Err(ErrorKind::InvalidInput);
        assert_eq!(size(json!({ "a": "x".repeat(16 << 20) })), refused);
        // It is the escaped length that counts.
        assert_eq!(size(json!({ "a": "\n".repeat(9 << 20) })), refused);
    }
}
