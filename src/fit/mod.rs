//! A layer that shortens answers that are too long for a model.
//!
//! | at a glance | |
//! |---|---|
//! | does | keeps the beginning and the end of a long answer, with a mark between them |
//! | place | outside `check`, inside observers |
//! | default | the limit is yours |
//! | the caller sees | a shorter answer; `Reported` if it cannot be shortened |
//! | method | `ServiceBuilderExt::tool_fit` |
//!
//! An answer that [fits](Shorten::fits) passes as it is; measuring it allocates nothing. A longer
//! one keeps its beginning, three quarters of the room, and its end. Between them stands a mark
//! that says how much is missing and what to do. The cut is at a line break if one is near, and
//! never inside a Unicode scalar value, which is what *character* means here: a combined emoji may
//! be cut. With the mark, the answer has at most as many characters as the limit says.
//!
//! Reported errors (MCP's `isError`) are shortened as well. Errors of the call pass; their texts
//! have their own limits.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{AnyError, ToolCall, fit::FitLayer};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let log = service_fn(|_call: ToolCall| async {
//!     Ok::<_, AnyError>("a line\n".repeat(1_000))
//! });
//! let tools = ServiceBuilder::new()
//!     .layer(FitLayer::new(100))
//!     .service(log);
//!
//! let answer =
//!     tools.oneshot(ToolCall::new("log")).await.unwrap();
//! assert_eq!(
//!     answer,
//!     "a line\na line\na line\na line\n\
//!      \n[... 6,965 of 7,000 characters left out; ask for less]\n\
//!      a line\n"
//! );
//! # }
//! ```
//!
//! The whole answer is kept, and the model learns how to read it and how to ask for less:
//!
//! ```
//! use tower_toolcall::fit::FitLayer;
//!
//! let layer = FitLayer::new(40_000)
//!     .with_advice("ask for less by `offset` and `limit`")
//!     .with_keep(|call, whole| {
//!         let name = format!("{}-{}.txt", call.tool(), call.id()?);
//!         // Into a store of your own: a file, an object store,
//!         // a map that the tool `read` looks at.
//!         # let _ = whole;
//!         Some(name)
//!     });
//! // [... 4,960,123 of 5,000,000 characters left out; ask for less
//! // by `offset` and `limit`, or read the whole as log-7.txt]
//! # let _ = layer;
//! ```
//!
//! # Errors
//!
//! [`Reported`](crate::ErrorKind::Reported) for an answer that is too long and [cannot be
//! shortened](Shorten::shorten): the tool ran, so that is never retried and says nothing to a
//! breaker. Those of the inner service, stamped with the call's names.
//!
//! # Cancel safety
//!
//! Dropping the response future drops the inner one. An answer is measured and shortened in one
//! poll.
//!
//! # Details
//!
//! The shortened part of an answer:
//!
//! - `String`, `Cow<str>`: the text
//! - **a JSON string**: its text
//! - **other JSON**: data in Base64, which become a line each; then its long strings, all to one
//!   length, if it fits then; else the whole becomes a text, which is cut
//! - `McpAnswer` of `tower-toolcall-mcp`: its text blocks, as one text. An image counts as 4,000
//!   characters, or a 50th of its Base64 if that is more; an image that does not fit becomes a
//!   line. Other blocks pass, and do not count. Structured content that is too long is dropped if a
//!   text block carries the same
//! - `HttpAnswer` (crate `tower-toolcall-http`): its body; kept headers that take more than half of
//!   the limit are left out, with a note
//! - **numbers, `()`**: nothing
//!
//! [`Shorten`] is for answers of your own type.
//!
//! ## Order
//!
//! Outside a [`CheckLayer`](crate::check::CheckLayer), which judges an answer as the tool gave it,
//! by its bytes too; inside the observers (trace, metrics, result), so that they see the caller's
//! answer. The size that a check has measured stays that of the whole answer.
//!
//! The text after a mark may begin in the middle of a secret, or without the name by which
//! redaction finds it; redaction then leaves it as it is. If others than the model see answers, let
//! tools leave secrets out of them.
//!
//! ## Events
//!
//! An answer that was shortened is the event `tool.shortened`, INFO, through `tracing`: see
//! [`event`](crate::event).
//!
//! ## Panics
//!
//! A panic of the hook is a panic of the call, although its tool has answered. An inner
//! [`CatchPanicLayer`](crate::catch_panic) does not catch it.
//!
//! ## Clone
//!
//! Clones share the hook.

mod cut;
mod layer;
mod shorten;

pub use self::{
    cut::Cut,
    layer::{Fit, FitLayer, ResponseFuture},
    shorten::Shorten,
};
