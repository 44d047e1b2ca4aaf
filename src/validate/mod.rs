//! A layer that checks the arguments of calls against the JSON Schemas of their tools, before
//! anything is sent.
//!
//! | at a glance | |
//! |---|---|
//! | does | checks arguments, and repairs them if configured |
//! | place | inside observers and `identity`, outside all layers that wait, repeat or count |
//! | default | arguments that do not fit are refused; tools without a schema pass |
//! | the caller sees | [`InvalidInput`](crate::ErrorKind::InvalidInput), not started |
//! | method | `ServiceBuilderExt::tool_validate` |
//!
//! Arguments that fit pass unchanged. For others the answer is
//! [`InvalidInput`](crate::ErrorKind::InvalidInput), with the errors and their places, so that a
//! model can correct itself. Such a call is not sent or retried, takes no units of a limit, and no
//! breaker counts it. With [`ValidateLayer::repair`] arguments that are only written differently
//! (`"5"` for 5) are corrected instead. Calls of a tool without a schema pass. Dropping the
//! response future drops the inner one.
//!
//! # Example
//!
//! ```
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_toolcall::{
//!     AnyError, BoxError, ErrorKind, ToolCall,
//!     validate::{Schema, Schemas, ValidateLayer},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! let schemas = Schemas::new();
//! schemas.insert(
//!     None,
//!     "search",
//!     Schema::compile(&json!({
//!         "type": "object",
//!         "properties": {
//!             "query": { "type": "string" },
//!             "limit": { "type": "integer", "maximum": 100 }
//!         },
//!         "required": ["query"],
//!     }))?,
//! );
//!
//! let tool = service_fn(|call: ToolCall| async move {
//!     Ok::<_, AnyError>(
//!         call.arguments().get("limit").cloned(),
//!     )
//! });
//! let tools = ServiceBuilder::new()
//!     .layer(ValidateLayer::new(&schemas))
//!     .service(tool);
//!
//! let call = ToolCall::new("search")
//!     .with_json(json!({ "limit": "5" }))?;
//! let error = tools.oneshot(call).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::InvalidInput);
//! assert_eq!(
//!     error.message(),
//!     "root: \"query\" is a required property; \
//!      limit: is not of type \"integer\""
//! );
//! assert_eq!(
//!     error.model_message(),
//!     "Tool 'search' refused its arguments: root: \"query\" is a required property; \
//!      limit: is not of type \"integer\". Correct them and call it again."
//! );
//!
//! // Arguments as models write them:
//! let layer = ValidateLayer::new(&schemas).repair();
//! let tool = service_fn(|call: ToolCall| async move {
//!     Ok::<_, AnyError>(
//!         call.arguments().get("limit").cloned(),
//!     )
//! });
//! let call = ToolCall::new("search")
//!     .with_json(json!({ "query": "tower", "limit": "5" }))?;
//! let stack =
//!     ServiceBuilder::new().layer(layer).service(tool);
//! assert_eq!(stack.oneshot(call).await?, Some(json!(5)));
//! # Ok(()) }
//! ```
//!
//! `McpServer::with_schemas` of `tower-toolcall-mcp` keeps the schemas of a server's list of tools
//! in such a table, and follows the list.
//!
//! The check is switched for all tools, for one tool, or for one call:
//!
//! ```
//! use tower_toolcall::{ToolCall, validate::{Schemas, ValidateLayer, Validation}};
//!
//! let schemas = Schemas::new();
//! let layer = ValidateLayer::new(&schemas)
//!     .with_validation(Validation::Repair)
//!     .with_tool("legacy", Validation::Off);
//!
//! let mut call = ToolCall::new("legacy");
//! call.extensions_mut().insert(Validation::On); // this call is checked
//! # let _ = (layer, call);
//! ```
//!
//! # Errors
//!
//! `InvalidInput`, with the validation errors as the detail `errors`: a list of `path`, `keyword`
//! and `message`. It has no value of the caller's, and no key that the schema does not name. With
//! [`ValidateLayer::strict`], `Internal` for a tool with a refused schema, and `InvalidInput` for
//! arguments that are too large to be checked in full. Errors of the inner service pass, stamped
//! with the call's names.
//!
//! # Cancel safety
//!
//! Nothing is lost or leaked when the future is dropped.
//!
//! # Details
//!
//! Schemas are compiled when a list of tools is read, never in a call; [`Schemas`] has those of all
//! tools. A schema from a server that is not trusted is [measured](Schema#limits) before it is
//! compiled. One that is too large, or refers to itself, is [refused](Schemas::refused): it is not
//! enforced, and calls of its tool pass. [`Schema::compile_trusted`] has one limit: 256 levels.
//!
//! ## Order
//!
//! Inside trace and metrics, which see the refusal; outside all that waits, repeats or counts
//! (deadline, retry, rate limit, circuit breaker), so that arguments are checked once for each
//! call, and a refused call takes no place anywhere. Inside an [identity layer](crate::identity):
//! schemas are found by the tool's server and name.
//!
//! ## Readiness
//!
//! Always ready. A call is refused immediately, even while the inner service is not ready; the
//! layer then gives back what the inner service has reserved.
//!
//! ## Clone
//!
//! Clones share the settings and the schemas.
//!
//! ## Cost
//!
//! Arguments that fit cost no allocation, unless the schema has `uniqueItems` or a fractional
//! `multipleOf`, or is trusted and refers to itself or has look-around or a back reference. What
//! does not fit allocates.

mod errors;
mod layer;
mod measure;
mod parts;
mod path;
mod repair;
mod schema;
mod schemas;
mod service;

pub use self::{
    errors::{ValidationError, ValidationErrors},
    layer::{ValidateLayer, Validation},
    schema::{Draft, Schema},
    schemas::Schemas,
    service::{ResponseFuture, Validate},
};
