//! The two adapters between [tower-mcp](https://docs.rs/tower-mcp) and `tower-toolcall`, to be
//! copied.
//!
//! - [`ToolLayers`]: our layers on a tool of a tower-mcp server, for its builder's `.layer(..)`.
//! - [`ClientLeaf`]: a tower-mcp client as the leaf of a stack. A call that is dropped, by a
//!   timeout for example, is cancelled at the server: tower-mcp sees to that.
//!
//! In both a result with `isError` stays the answer that it is. [`is_error`] tells the layers of
//! it.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use serde_json::Value;
use tower::{Layer, Service, ServiceExt as _};
use tower_mcp::{CallToolResult, Error, RequestContext, client::McpClient, tool::ToolRequest};
use tower_toolcall::{
    BoxError, ErrorKind, ToolCall, ToolError,
    outcome::{ByError, Classify as _, Outcome},
};

type Answer<E> = Pin<Box<dyn Future<Output = Result<CallToolResult, E>> + Send>>;

/// For `classify_fn` of layers that act on failures: an answer with `isError` is no success. It
/// counts for no breaker, as it may be the caller's mistake.
pub fn is_error(result: Result<&CallToolResult, &ToolError>) -> Outcome {
    match result {
        Ok(answer) if answer.is_error => Outcome::reported(),
        other => ByError.classify(other),
    }
}

/// Layers of ours on one tool of a tower-mcp server.
///
/// ```
/// use std::time::Duration;
/// use example_tower_mcp::ToolLayers;
/// use tower::ServiceBuilder;
/// use tower_mcp::{CallToolResult, ToolBuilder};
/// use tower_toolcall::ServiceBuilderExt as _;
///
/// let layers = ServiceBuilder::new()
///     .tool_trace()
///     .tool_circuit_breaker()
///     .tool_timeout(Duration::from_secs(10));
/// let tool = ToolBuilder::new("weather")
///     .no_params_handler(|| async { Ok(CallToolResult::text("clear sky")) })
///     .layer(ToolLayers::new("weather", layers))
///     .build();
/// ```
///
/// A failure of the layers is a result with `isError` and [the text for
/// models](ToolError::model_message). A call that its client cancels is dropped, as the layers
/// expect it.
#[derive(Clone, Debug)]
pub struct ToolLayers<L> {
    tool: Arc<str>,
    layers: L,
}

impl<L> ToolLayers<L> {
    /// These layers, a `ServiceBuilder` for example, on the tool of this name. Tools that get
    /// clones of one value share what its layers know, each under its own name.
    pub fn new(tool: impl Into<Arc<str>>, layers: L) -> Self {
        let tool = tool.into();
        Self { tool, layers }
    }
}

impl<I, L: Layer<Handler<I>>> Layer<I> for ToolLayers<L> {
    type Service = Layered<L::Service>;

    fn layer(&self, handler: I) -> Self::Service {
        Layered {
            tool: self.tool.clone(),
            stack: self.layers.layer(Handler(handler)),
        }
    }
}

/// A tool of a tower-mcp server whose calls go through a stack. Made by [`ToolLayers`].
#[derive(Clone, Debug)]
pub struct Layered<S> {
    tool: Arc<str>,
    stack: S,
}

/// What tower-mcp gives a handler beside the arguments.
#[derive(Clone)]
struct Request(RequestContext);

impl<S> Service<ToolRequest> for Layered<S>
where
    S: Service<ToolCall, Response = CallToolResult, Error = ToolError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = CallToolResult;
    type Error = Infallible;
    type Future = Answer<Infallible>;

    /// Always: the stack is awaited by the call.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, ToolRequest { ctx, args, .. }: ToolRequest) -> Self::Future {
        let (stack, tool) = (self.stack.clone(), self.tool.clone());
        Box::pin(async move {
            let cancellation = ctx.cancellation_token();
            let call = async {
                let mut call = ToolCall::new(tool).with_json(args)?;
                call.extensions_mut().insert(Request(ctx));
                stack.oneshot(call).await
            };
            let result = tokio::select! {
                biased;
                result = call => result,
                () = cancellation.cancelled() => {
                    Err(ToolError::new(ErrorKind::Cancelled, "the client cancelled the call"))
                }
            };
            Ok(result.unwrap_or_else(|error| CallToolResult::error(error.model_message())))
        })
    }
}

/// A tower-mcp handler, with guards or layers of others around it, as the leaf below the layers of
/// [`ToolLayers`].
#[derive(Clone, Debug)]
pub struct Handler<I>(I);

impl<I> Service<ToolCall> for Handler<I>
where
    I: Service<ToolRequest, Response = CallToolResult> + Clone + Send + 'static,
    I::Error: Into<BoxError>,
    I::Future: Send,
{
    type Response = CallToolResult;
    type Error = ToolError;
    type Future = Answer<ToolError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let handler = self.0.clone();
        Box::pin(async move {
            let Some(Request(context)) = call.extensions().get().cloned() else {
                let why = "a layer has made a new call, without the extensions of its own";
                return Err(ToolError::refusal(ErrorKind::Internal, why));
            };
            let arguments = Value::Object(call.take_arguments());
            let answer = handler.oneshot(ToolRequest::new(context, arguments));
            // What a handler fails with may have come from anywhere: whether it ran is not known.
            answer.await.map_err(|e| ToolError::from_box(e.into()))
        })
    }
}

/// A tower-mcp client as the leaf of a stack.
#[derive(Clone)]
pub struct ClientLeaf {
    client: Arc<McpClient>,
}

impl ClientLeaf {
    /// The tools of the server that this client is connected to.
    pub fn new(client: impl Into<Arc<McpClient>>) -> Self {
        let client = client.into();
        Self { client }
    }
}

impl fmt::Debug for ClientLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientLeaf").finish_non_exhaustive()
    }
}

impl Service<ToolCall> for ClientLeaf {
    type Response = CallToolResult;
    type Error = ToolError;
    type Future = Answer<ToolError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let client = self.client.clone();
        Box::pin(async move {
            let arguments = Value::Object(call.take_arguments());
            let answer = client.call_tool(call.tool(), arguments);
            answer.await.map_err(from_tower_mcp)
        })
    }
}

/// An error of a tower-mcp client as ours, by its type and code.
///
/// Whether the tool ran is [not known](tower_toolcall::Execution::Unknown): a server passes on what
/// its tool met in its work, under any code, and a connection may be lost after it.
pub fn from_tower_mcp(error: Error) -> ToolError {
    let kind = match &error {
        Error::JsonRpc(answer) => match answer.code {
            -32601 => ErrorKind::NotFound,
            // Unknown tools have the code of wrong arguments.
            -32602 if answer.message.starts_with("Unknown tool") => ErrorKind::NotFound,
            -32700 | -32600 | -32602 => ErrorKind::InvalidInput,
            // Headers, capabilities, revision: for the program to mend.
            -32022..=-32020 => ErrorKind::Failed,
            -32007 | -32042 => ErrorKind::Denied,
            -32010 => ErrorKind::Timeout,
            _ => ErrorKind::Upstream,
        },
        Error::Transport(_) | Error::SessionExpired => ErrorKind::ConnectionFailed,
        _ => ErrorKind::Failed,
    };
    let is_theirs = matches!(error, Error::JsonRpc(_));
    let ours = ToolError::new(kind, error.to_string()).with_source(error);
    match is_theirs {
        true => ours.into_inferred(),
        false => ours,
    }
}
