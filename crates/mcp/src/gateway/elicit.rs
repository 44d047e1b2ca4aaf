use std::{
    borrow::Cow,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use rmcp::{
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema,
        ServerRequest,
    },
    service::{Peer, PeerRequestOptions, RequestContext, RoleServer, ServiceError},
};
use tower_service::Service;
use tower_toolcall::{
    error::{APPROVAL_MISSING, APPROVAL_UNANSWERED, ErrorKind, ToolError},
    policy::{Approval, ApprovalDecision},
};

use super::rounds::Round;
use crate::{capabilities::has_forms, errors, service::answer};

/// Asks the user of the MCP client that makes the call: an approver for a
/// [`PolicyLayer`](tower_toolcall::policy::PolicyLayer::with_approver) in the stack of a
/// [`GatewayHandler`](super::GatewayHandler).
///
/// The client gets an `elicitation/create` with the line that [`Approval`] displays and an empty
/// form. The text says first whether the line is incomplete. `accept` approves the call, `decline`
/// denies it, and `cancel` leaves it unanswered. Clients that have not declared forms, and calls
/// from outside a gateway, have no approver. A client chooses whom it asks: use this only where the
/// client's user may approve the call.
///
/// A client of a revision before 2026-07-28 is asked while the call waits. Dropping the future, as
/// the layer does at the end of its time limit, withdraws the question at the client.
///
/// A client of 2026-07-28 is asked by the answer to its call, which is `input_required` and ends
/// the call with the code [`APPROVAL_UNANSWERED`] for all layers. The client repeats the call with
/// the answer and the `requestState` of the question. The state is sealed: it holds for this
/// caller, tool and arguments, until the layer's time limit or the call's deadline, and once. Any
/// other is refused, and so is a client without forms: -32021. See
/// [`with_request_states`](super::GatewayHandler::with_request_states) for several processes.
///
/// ```
/// use tower_toolcall::policy::PolicyLayer;
/// use tower_toolcall_mcp::McpElicitation;
///
/// let policy = PolicyLayer::new().ask("delete_*").with_approver(McpElicitation);
/// # assert!(policy.check().is_ok());
/// ```
///
/// `cargo run -p tower-toolcall-mcp --features server --example elicitation` shows it at work.
///
/// # Errors
///
/// Errors of the connection, and of a client that answers with an error: the call is not sent.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "it has no settings")]
pub struct McpElicitation;

/// The way in which the client that makes a call is asked.
#[derive(Clone)]
pub(super) enum Client {
    /// On its connection, while the call waits.
    Now(Peer<RoleServer>),
    /// By the answer to its request.
    Later(Arc<Round>),
}

impl Client {
    //= https://modelcontextprotocol.io/specification/2026-07-28/schema#cancellednotification
    //# Servers MUST NOT use this notification to cancel any other request.
    //= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation
    //# Servers MUST NOT send `notifications/cancelled` for any other purpose.
    //= https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation#behavior-requirements
    //# Server-sent cancellation notifications MUST reference a `subscriptions/listen` request, to
    //# terminate that subscription stream
    /// The client of a revision that has server requests, if it has forms.
    pub(super) fn of(cx: &RequestContext<RoleServer>) -> Option<Self> {
        let info = cx.peer.peer_info();
        let can_ask = info.as_ref().is_some_and(|i| has_forms(&i.capabilities));
        can_ask.then(|| Self::Now(cx.peer.clone()))
    }
}

impl Service<Approval> for McpElicitation {
    type Response = ApprovalDecision;
    type Error = ToolError;
    type Future = BoxFuture<'static, Result<ApprovalDecision, ToolError>>;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, approval: Approval) -> Self::Future {
        Box::pin(async move {
            let client = approval.call().extensions().get::<Client>();
            let peer = match client.cloned() {
                Some(Client::Now(peer)) => peer,
                Some(Client::Later(round)) => return round.decide(approval),
                None => return Err(missing()),
            };
            let action = ask(&peer, question(&approval)).await;
            match action.map_err(errors::from_service)? {
                ElicitationAction::Accept => Ok(approval.approve()),
                ElicitationAction::Decline => Ok(approval.deny("")),
                _ => Err(closed()),
            }
        })
    }
}

pub(super) fn missing() -> ToolError {
    let why = "the client that makes the call cannot ask a person";
    ToolError::refusal(ErrorKind::Internal, why).with_code(APPROVAL_MISSING)
}

pub(super) fn closed() -> ToolError {
    unanswered("the client's user has closed the question without an answer")
}

pub(super) fn unanswered(why: impl Into<Cow<'static, str>>) -> ToolError {
    ToolError::refusal(ErrorKind::Overloaded, why).with_code(APPROVAL_UNANSWERED)
}

pub(super) fn question(approval: &Approval) -> String {
    // First, because a user would miss it after a line of 16 KiB.
    let warning = match approval.is_shown_in_full() {
        true => "",
        false => " Not all of it is shown here:",
    };
    format!("Allow this call?{warning} {approval}.")
}

//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#user-interaction-model
//# Servers MUST NOT use form mode elicitation to request sensitive information such as passwords,
//# API keys, access tokens, or payment credentials
//= https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#form-mode-security
//# Servers MUST NOT request sensitive information (passwords, API keys, etc.) via form mode
/// A question with an empty form.
pub(super) fn form(message: String) -> ElicitRequestParams {
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: ElicitationSchema::new(Default::default()),
    }
}

async fn ask(peer: &Peer<RoleServer>, message: String) -> Result<ElicitationAction, ServiceError> {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(form(message)));
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_cancellable_request(request, options).await?;
    match answer(handle).await? {
        ClientResult::ElicitResult(result) => Ok(result.action),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}
