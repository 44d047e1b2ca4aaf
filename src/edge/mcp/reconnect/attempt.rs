use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use super::McpConnection;
use crate::{
    error::{BoxError, ErrorKind, Execution, ToolError},
    event::{TARGET, names::span},
    text::Short,
};

/// What the user's function returns, its types erased.
pub(super) type Connecting<E = BoxError> =
    Pin<Box<dyn Future<Output = Result<McpConnection, E>> + Send>>;

/// An attempt to connect. Whoever needs the connection drives it; it is none the worse for a pause.
pub(super) struct Attempt {
    future: Option<Connecting<ToolError>>,
    /// rmcp keeps the span in which it connects until the connection ends. That of a call would last as long.
    span: tracing::Span,
    runtime: Option<Handle>,
    pub(super) since: Instant,
    /// When it is over; `None`: so late that no clock reaches it.
    pub(super) until: Option<Instant>,
}

impl Attempt {
    pub(super) fn new(connect: impl FnOnce() -> Connecting, server: &str, limit: Duration) -> Self {
        let span = tracing::info_span!(
            target: TARGET,
            parent: None,
            span::CONNECTION,
            { span::OTEL_KIND } = "internal",
            { span::SERVER } = %Short::name(server),
        );
        let future = span.in_scope(connect);
        let since = Instant::now();
        let future: Connecting<ToolError> = Box::pin(async move {
            match tokio::time::timeout(limit, future).await {
                Ok(connected) => connected.map_err(failure),
                Err(_) => Err(timed_out(limit)),
            }
        });
        Self {
            future: Some(future),
            span,
            runtime: Handle::try_current().ok(),
            since,
            until: since.checked_add(limit),
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<McpConnection, ToolError>> {
        let Some(future) = self.future.as_mut() else {
            return Poll::Pending;
        };
        self.span.in_scope(|| future.as_mut().poll(cx))
    }
}

/// rmcp's child process is killed in a task that its `drop` spawns, and we may be dropped outside the runtime.
impl Drop for Attempt {
    fn drop(&mut self) {
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        self.future = None;
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

/// The error of the calls that needed the connection. Nothing was sent, whatever went wrong.
fn failure(error: BoxError) -> ToolError {
    let cause = ToolError::from_box(error);
    let kind = match cause.kind() {
        // These tell a caller more than that there is no connection. Others would mislead: the program of a
        // server that is not found is no missing tool.
        kind @ (ErrorKind::Denied | ErrorKind::RateLimited | ErrorKind::TokenExchange) => kind,
        _ => ErrorKind::ConnectionFailed,
    };
    let message = format!("cannot connect to the MCP server: {}", cause.message());
    let told = cause.retry_after();
    let error = ToolError::new(kind, message).with_source(cause);
    error.hinted(told).with_execution(Execution::NotStarted)
}

pub(super) fn timed_out(limit: Duration) -> ToolError {
    let ms = limit.as_millis();
    let message = format!("cannot connect to the MCP server: no connection after {ms}ms");
    ToolError::new(ErrorKind::ConnectionFailed, message).with_execution(Execution::NotStarted)
}
