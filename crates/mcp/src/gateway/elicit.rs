use std::task::{Context, Poll};

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
    call::ToolCall,
    error::{APPROVAL_MISSING, APPROVAL_UNANSWERED, ErrorKind, ToolError},
    policy::{Approval, ApprovalDecision},
};

use crate::{errors, service::answer};

/// Asks the user of the MCP client that makes the call: an approver for a
/// [`PolicyLayer`](tower_toolcall::policy::PolicyLayer::with_approver) in the stack of a
/// [`GatewayHandler`](super::GatewayHandler).
///
/// The client gets an `elicitation/create` with the line that [`Approval`] displays and an empty
/// form. The text says first whether the line is incomplete. `accept` approves the call, `decline`
/// denies it, and `cancel` leaves it unanswered. Clients of the revision 2026-07-28, clients that
/// have not declared forms, and calls from outside a gateway have no approver. A client chooses
/// whom it asks: use this only where the client's user may approve the call.
///
/// Dropping the future, as the layer does at the end of its time limit, withdraws the question at
/// the client.
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

/// The client that makes a call, if it can ask its user.
#[derive(Clone)]
struct Client(Peer<RoleServer>);

/// Notes the client on the call, if it could be asked.
pub(super) fn note_client(call: &mut ToolCall, cx: &RequestContext<RoleServer>) {
    let info = cx.peer.peer_info();
    let info = info.as_ref();
    let offered = info.and_then(|i| i.capabilities.elicitation.as_ref());
    // In the revision that knew only forms, an absent field means forms.
    if offered.is_some_and(|offered| offered.form.is_some() || offered.url.is_none()) {
        call.extensions_mut().insert(Client(cx.peer.clone()));
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
            let Some(Client(peer)) = client.cloned() else {
                let why = "the client that makes the call cannot ask a person";
                return Err(
                    ToolError::refusal(ErrorKind::Internal, why).with_code(APPROVAL_MISSING)
                );
            };
            let action = ask(&peer, question(&approval)).await;
            match action.map_err(errors::from_service)? {
                ElicitationAction::Accept => Ok(approval.approve()),
                ElicitationAction::Decline => Ok(approval.deny("")),
                _ => {
                    let why = "the client's user has closed the question without an answer";
                    let error = ToolError::refusal(ErrorKind::Overloaded, why);
                    Err(error.with_code(APPROVAL_UNANSWERED))
                }
            }
        })
    }
}

fn question(approval: &Approval) -> String {
    // First, because a user would miss it after a line of 16 KiB.
    let warning = match approval.is_shown_in_full() {
        true => "",
        false => " Not all of it is shown here:",
    };
    format!("Allow this call?{warning} {approval}.")
}

async fn ask(peer: &Peer<RoleServer>, message: String) -> Result<ElicitationAction, ServiceError> {
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: ElicitationSchema::new(Default::default()),
    };
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_cancellable_request(request, options).await?;
    match answer(handle).await? {
        ClientResult::ElicitResult(result) => Ok(result.action),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}
