//! A layer that allows calls, denies them, or asks a person before they are sent.
//!
//! | at a glance | |
//! |---|---|
//! | does | decides by rules, or asks an approver |
//! | place | inside `identity`, observers and `validate`, outside deadline and retry |
//! | default | a call without a matching rule is allowed |
//! | the caller sees | [`Denied`](crate::ErrorKind::Denied), not started |
//! | method | `ServiceBuilderExt::tool_policy` |
//!
//! Rules are tried in the order in which they were set, and the first rule that matches a call
//! decides. A call without a matching rule is allowed, or denied with
//! [`PolicyLayer::deny_by_default`]. A [`Rule`] has a pattern for the tool's name, and may have
//! conditions: the tool's server and annotations, the agent, a function of the call.
//!
//! A call that needs an approval waits for it: the approver is your service that gets an
//! [`Approval`] and answers it. The call is sent only if it is approved in time. An approval is for
//! one call with its arguments, and is used once.
//!
//! # Example
//!
//! ```
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ErrorKind, ToolCall, ToolError,
//!     policy::{Approval, PolicyLayer, Rule},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! // A person, a chat, a ticket; here a function.
//! let approver = service_fn(|asked: Approval| async move {
//!     let path = asked.arguments_in_full()["path"].as_str();
//!     let below = path.is_some_and(|p| p.starts_with("/tmp/"));
//!     Ok::<_, ToolError>(match below {
//!         true => asked.approve(),
//!         false => asked.deny("delete only below /tmp"),
//!     })
//! });
//! let deletes = Rule::ask("delete_*").because("it is final");
//! let policy = PolicyLayer::new()
//!     .allow("read_*")
//!     .rule(deletes)
//!     .deny_by_default()
//!     .with_approver(approver);
//! policy.check()?;
//!
//! let tool = service_fn(|_: ToolCall| async {
//!     Ok::<_, AnyError>("done")
//! });
//! let tools = ServiceBuilder::new()
//!     .layer(policy)
//!     .service(tool);
//!
//! let read = ToolCall::new("read_file");
//! assert_eq!(tools.clone().oneshot(read).await?, "done");
//!
//! let delete = ToolCall::new("delete_file");
//! let call = delete.clone().with_json(json!({ "path": "/tmp/a" }))?;
//! assert_eq!(tools.clone().oneshot(call).await?, "done");
//!
//! let call = delete.with_json(json!({ "path": "/etc" }))?;
//! let error = tools.clone().oneshot(call).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Denied);
//! assert_eq!(
//!     error.model_message(),
//!     "The call of tool 'delete_file' was not approved: \
//!      delete only below /tmp. Do not repeat it as it is."
//! );
//!
//! let pay = ToolCall::new("pay");
//! let error = tools.oneshot(pay).await.unwrap_err();
//! let text = "no rule of the policy allows the call";
//! assert_eq!(error.message(), text);
//! # Ok(()) }
//! ```
//!
//! By annotations and by agent:
//!
//! ```
//! use tower_toolcall::{
//!     ToolCall,
//!     policy::{Annotations, PolicyLayer, Rule},
//! };
//!
//! let layer = PolicyLayer::new()
//!     .rule(Rule::deny("*").for_agent("intern-*").may_write())
//!     .rule(
//!         Rule::deny("*")
//!             .of_server("billing")
//!             .when(|call| call.arguments().contains_key("iban")),
//!     )
//!     .rule(Rule::allow("*").read_only())
//!     .deny_by_default()
//!     // Of MCP servers: a `Catalog` or `McpTools` with trusted annotations.
//!     .with_annotations(|call: &ToolCall| match call.tool() {
//!         "search" => Some(Annotations::default().with_read_only(true)),
//!         _ => None,
//!     });
//! # let _ = layer;
//! ```
//!
//! `cargo run --example approval` asks a person at a terminal. `McpElicitation` of
//! `tower-toolcall-mcp` is an approver that asks the user of the MCP client that makes the call:
//! `cargo run -p tower-toolcall-mcp --features server --example elicitation`.
//!
//! # Errors
//!
//! All are [refusals](crate::ToolError::refusal): the tool has not started.
//!
//! - A call that is denied, by a rule or by the approver: [`Denied`](crate::ErrorKind::Denied),
//!   `TOOL_UNAVAILABLE`; not retryable; HTTP 403, gRPC 7.
//! - A call that was not answered in time: [`Overloaded`](crate::ErrorKind::Overloaded),
//!   [`APPROVAL_UNANSWERED`]; may be repeated later; HTTP 503, gRPC 14.
//! - A call that met an approver that failed, or answered something else: `Overloaded`,
//!   [`APPROVAL_FAILED`]; may be repeated later; HTTP 503, gRPC 14.
//! - A call that needs an approval, and no approver is set or can be asked:
//!   [`Internal`](crate::ErrorKind::Internal), [`APPROVAL_MISSING`]; not retryable; HTTP 500, gRPC
//!   13.
//!
//! [`Cancelled`](crate::ErrorKind::Cancelled) and
//! [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded), not started, if the caller's token or
//! the call's deadline ends the wait. [`InvalidInput`](crate::ErrorKind::InvalidInput), not
//! started, for a call that needs an approval but that no tool service would send
//! ([`ToolCall::check`](crate::ToolCall::check)). Errors of the inner service pass, stamped with
//! the call's names.
//!
//! # Cancel safety
//!
//! The approver's future is dropped with the response future, and nothing is sent. It is dropped
//! before an approved call is sent.
//!
//! # Details
//!
//! The text for the model says "denied" only after a denial, with the person's reason. A [repeat
//! guard](crate::repeat_guard) counts denials, and none of the others. The detail `policy` of an
//! error is the decision, one of the names of [`PolicyOutcome`]. The rule's reason is in the
//! message for developers.
//!
//! A call that is denied is not sent, and nothing counts it against its tool. Dropping the response
//! future drops the inner one, or the approver's.
//!
//! ## Order
//!
//! Inside an [identity layer](crate::identity), so that rules know tools by their real names;
//! inside trace and metrics, which see the refusal; inside validation (`validate::ValidateLayer`),
//! so that the approver sees repaired arguments. No inner layer may change arguments.
//!
//! Outside [`DeadlineLayer`](crate::deadline::DeadlineLayer): the time in which a person thinks is
//! not the tool's. An approval has its own time limit, and ends at the deadline of the call.
//! Outside all that repeats calls (retry, rate limit, poll): one approval is for all attempts at
//! one call. Inside retry each attempt would need one.
//!
//! ## Events
//!
//! Each decision is an [`Event::Policy`](crate::Event::Policy), `tool.policy`: a call that waits
//! has one when the approver is asked, and another one with its answer, unless it was given up
//! before. A call that is allowed without an approval is an event at DEBUG, and none if neither the
//! listener nor a subscriber takes DEBUG. An outer trace reports a refusal as `tool.rejected` too.
//!
//! ## Readiness
//!
//! Always ready. A call that is denied, or waits for an approval, gives back what the inner service
//! has reserved for it; once it is approved it waits for the inner service like any other, until
//! its deadline.
//!
//! ## Panics
//!
//! A panic of the approver, or of a function of a rule, is a panic of the call, which is not sent.
//!
//! ## Clone
//!
//! Clones share the policy. The approver is cloned for each question.
//!
//! ## Cost
//!
//! A call that is allowed allocates nothing. It costs one match for each rule up to the deciding
//! one, each in a time that grows with the lengths of pattern and name. A call that waits
//! allocates.

mod annotations;
mod approval;
mod asking;
mod layer;
mod rules;

pub use self::{
    annotations::{Annotate, Annotations},
    approval::{Approval, ApprovalDecision},
    asking::{PolicyService, ResponseFuture},
    layer::PolicyLayer,
    rules::{Decision, Rule},
};
#[doc(inline)]
pub use crate::error::{APPROVAL_FAILED, APPROVAL_MISSING, APPROVAL_UNANSWERED};
#[doc(inline)]
pub use crate::event::PolicyOutcome;
