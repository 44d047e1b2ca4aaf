//! The two adapters between [rig](https://docs.rs/rig) and `tower-toolcall`, to be copied.
//!
//! - [`dynamic_tool`]: a stack as a tool of a rig agent. What the stack answers, and the text that
//!   it has for the model when it fails, is what rig shows to the model.
//! - [`leaf`]: a tool of rig's as the leaf of a stack. Its typed errors become ours.
//!
//! Together they put layers around a tool that an agent has already:
//!
//! ```
//! use std::time::Duration;
//! use rig::tool::{Tool, DynamicTool, tool_definition};
//! use tower::ServiceBuilder;
//! use tower_toolcall::ServiceBuilderExt as _;
//!
//! fn protected<T: Tool + 'static>(tool: T) -> DynamicTool {
//!     let definition = tool_definition(&tool);
//!     let stack = ServiceBuilder::new()
//!         .tool_trace()
//!         .tool_circuit_breaker()
//!         .tool_timeout(Duration::from_secs(10))
//!         .service(example_rig::leaf(tool));
//!     example_rig::dynamic_tool(definition, stack) // for `AgentBuilder::dynamic_tool`
//! }
//! ```

use std::sync::Arc;

use rig::{
    completion::ToolDefinition,
    tool::{
        ContextValue, DynamicTool, ErasedTool, IntoToolOutput, ToolContext, ToolErrorKind as Rig,
        ToolExecutionError, ToolOutput,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower::{Service, ServiceExt as _, service_fn};
use tower_toolcall::{ErrorKind, Execution, ToolCall, ToolError};

/// The conversation that a run of the agent belongs to: the calls of one are compared by a repeat
/// guard, for example. The host sets it for a run, with `AgentRunner::tool_context`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session(pub String);

impl ContextValue for Session {
    const KEY: &'static str = "session";
}

/// A stack as a tool of a rig agent: the tool of this name among those that the stack serves.
///
/// An answer is passed on as rig does it: a string as text, images as images, anything else as
/// JSON. For answers that have a text for the model ([`ModelText`](tower_toolcall::ModelText)), an
/// MCP server's for example, let `map_response(|answer| answer.model_text().into_owned())` be the
/// outermost layer.
///
/// A run that is dropped drops its calls, as a stack expects it.
pub fn dynamic_tool<S>(definition: ToolDefinition, stack: S) -> DynamicTool
where
    S: Service<ToolCall, Error = ToolError> + Clone + Send + Sync + 'static,
    S::Response: IntoToolOutput + Send,
    S::Future: Send,
{
    let name: Arc<str> = definition.name.as_str().into();
    DynamicTool::new_with_context(
        definition.name,
        definition.description,
        definition.parameters,
        move |context, arguments| {
            let stack = stack.clone();
            let mut call = ToolCall::new(name.clone());
            if let Ok(Some(Session(id))) = context.get() {
                call = call.with_session_id(id);
            }
            call.extensions_mut().insert(context.clone());
            Box::pin(async move {
                let call = call.with_json(arguments).map_err(to_rig)?;
                let answer = stack.oneshot(call).await.map_err(to_rig)?;
                answer.into_tool_output()
            })
        },
    )
}

/// An error of a stack's as rig has it. The model reads [`ToolError::model_message`]; hooks find
/// the whole error with `downcast_ref::<ToolError>()`.
pub fn to_rig(error: ToolError) -> ToolExecutionError {
    let kind = match error.kind() {
        ErrorKind::Timeout | ErrorKind::DeadlineExceeded | ErrorKind::PollTimeout => Rig::Timeout,
        ErrorKind::RateLimited | ErrorKind::Overloaded => Rig::RateLimited,
        ErrorKind::Cancelled => Rig::Cancelled,
        ErrorKind::NotFound => Rig::NotFound,
        ErrorKind::Denied | ErrorKind::TokenExchange => Rig::PermissionDenied,
        ErrorKind::InvalidInput => Rig::InvalidArgs,
        ErrorKind::ConnectionFailed => Rig::Network,
        ErrorKind::Upstream | ErrorKind::CircuitOpen => Rig::Provider,
        _ => Rig::Other,
    };
    // Who repeats what rig calls retryable does not ask whether the tool may run twice: so only a
    // call that did not run is.
    let retryable = error.is_retryable() && error.execution() == Execution::NotStarted;
    let mut theirs = ToolExecutionError::new(kind, error.message())
        .with_model_feedback(error.model_message())
        .with_code(error.code())
        .with_retryable(retryable);
    if let Some(status) = error.status() {
        theirs = theirs.with_http_status(status.as_u16());
    }
    theirs.with_source(error)
}

/// A tool of rig's as the leaf of a stack. Several of them go behind one stack as the tools of a
/// `Router<ToolOutput>`.
///
/// Below [`dynamic_tool`] it has the context of its run. What it attaches to its result there stays
/// below the stack.
pub fn leaf<T>(
    tool: T,
) -> impl Service<ToolCall, Response = ToolOutput, Error = ToolError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static
where
    T: ErasedTool + 'static,
{
    let tool = Arc::new(tool);
    service_fn(move |mut call: ToolCall| {
        let tool = tool.clone();
        async move {
            let arguments = Value::Object(call.take_arguments()).to_string();
            let context = call.extensions().get::<ToolContext>().cloned();
            let mut context = context.unwrap_or_default();
            let result = tool.execute(arguments, &mut context).await;
            result.into_result().map_err(from_rig)
        }
    })
}

/// An error of a rig tool as ours.
///
/// It is [inferred](tower_toolcall::Evidence::Inferred), whatever the tool says of itself: one that
/// was rate limited, or timed out, may have met that in the middle of its work, at a service of its
/// own. So it delays no other call, and rig's "retryable" can hold a retry layer back, but has a
/// call repeated only if its tool may run twice ([replay safety](tower_toolcall::ReplaySafety)).
///
/// rig keeps a tool's diagnostics from the model, and has another text for it. That one is kept
/// where the tool speaks of its own work; of timeouts and lost connections ours says more: that the
/// tool may still run.
pub fn from_rig(error: ToolExecutionError) -> ToolError {
    let (kind, in_its_words) = match error.kind() {
        Rig::InvalidArgs => (ErrorKind::InvalidInput, true),
        // Not the tool, but what it looked for.
        Rig::NotFound => (ErrorKind::Reported, true),
        Rig::PermissionDenied => (ErrorKind::Denied, true),
        Rig::Other => (ErrorKind::Failed, true),
        Rig::Timeout => (ErrorKind::Timeout, false),
        Rig::RateLimited => (ErrorKind::RateLimited, false),
        Rig::Network => (ErrorKind::ConnectionFailed, false),
        // A cancellation that did not come from the caller.
        Rig::Provider | Rig::Cancelled => (ErrorKind::Upstream, false),
    };
    let retryable = error.retryable().unwrap_or(kind.is_retryable());
    let mut ours = ToolError::new(kind, error.message().to_owned())
        .into_inferred()
        .with_retryable(retryable);
    if in_its_words {
        ours = ours.with_model_message(error.model_output().render());
    }
    if let Some(status) = error.http_status().and_then(|s| s.try_into().ok()) {
        ours = ours.with_status(status);
    }
    if let Some(code) = error.code() {
        ours = ours.with_code(code.to_owned());
    }
    ours.with_source(error)
}
