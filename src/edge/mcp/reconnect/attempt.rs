use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, timeout},
};
use tracing::instrument::{Instrument as _, WithSubscriber as _};

use super::{McpConnection, McpReconnect, shared::WeakLeaf};
use crate::{
    edge::mcp::errors,
    error::{AnyError, ErrorKind, Execution, Outage, ToolError},
    event::{TARGET, names::span},
    text::Short,
};

/// The user's function, its types erased.
pub(super) type Connect = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// The future that it returns.
pub(super) type Connecting = Pin<Box<dyn Future<Output = Result<McpConnection, AnyError>> + Send>>;

/// How an attempt has ended, once it has.
pub(super) type Ended = watch::Receiver<Option<Result<(), ToolError>>>;

/// An attempt to connect, in a task of its own: a caller that is dropped, or held and not polled,
/// stops no other caller. Dropped, it ends the task.
#[derive(Debug)]
pub(super) struct Attempt {
    task: AbortHandle,
    pub(super) ended: Ended,
    /// When it is over at the latest; `None`: so late that no clock reaches it.
    pub(super) until: Option<Instant>,
}

impl Attempt {
    /// If it fails without an answer of the server, that is part of `outage`.
    pub(super) fn begin(leaf: &McpReconnect, outage: &Outage) -> Self {
        // rmcp keeps the span in which it connects until the connection ends. That of a call would
        // last as long.
        let span = tracing::info_span!(
            target: TARGET,
            parent: None,
            span::CONNECTION,
            { span::OTEL_KIND } = "internal",
            { span::SERVER } = %Short::name(&leaf.shared.server),
        );
        let (tell, ended) = watch::channel(None);
        let since = Instant::now();
        let limit = leaf.settings.connect_timeout;
        let server = Arc::clone(&leaf.shared.server);
        let (connect, leaf) = (Arc::clone(&leaf.shared.connect), leaf.downgrade());
        let outage = outage.clone();
        let connecting = async move { timeout(limit, connect()).await };
        let attempt = async move {
            // Not earlier: a runtime that is shutting down drops the task where it is spawned,
            // under a lock.
            let mut ending = Ending {
                leaf,
                since,
                tell,
                result: None,
            };
            ending.result = Some(match connecting.instrument(span).await {
                Ok(connected) => connected.map_err(|error| failure(error, &server, &outage)),
                Err(_) => Err(timed_out(limit, &server)),
            });
        };
        Self {
            task: tokio::spawn(attempt.with_current_subscriber()).abort_handle(),
            ended,
            until: since.checked_add(limit),
        }
    }

    /// Not if it has ended, or its runtime has before it had begun.
    pub(super) fn goes_on(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reports the end of an attempt when it is dropped, so also after a panic, and when the runtime
/// ends.
struct Ending {
    leaf: WeakLeaf,
    since: Instant,
    tell: watch::Sender<Option<Result<(), ToolError>>>,
    result: Option<Result<McpConnection, ToolError>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(leaf) = self.leaf.upgrade() else {
            return;
        };
        let unfinished = || match std::thread::panicking() {
            true => Err(no_connection(
                &leaf.shared.server,
                "the function that connects panicked",
            )),
            false => Err(interrupted(&leaf.shared.server)),
        };
        let result = self.result.take().unwrap_or_else(unfinished);
        let result = leaf.ended(result, self.since);
        self.tell.send_replace(Some(result));
    }
}

/// The error of the calls that needed the connection. Nothing was sent, whatever went wrong.
fn failure(error: AnyError, server: &str, outage: &Outage) -> ToolError {
    let cause = ToolError::from(error);
    let kind = match cause.kind() {
        // These tell a caller more than that there is no connection. Others would mislead: the
        // program of a server that is not found is no missing tool.
        kind @ (ErrorKind::Denied | ErrorKind::RateLimited | ErrorKind::TokenExchange) => kind,
        _ => ErrorKind::ConnectionFailed,
    };
    let message = cannot_connect(server, cause.message());
    let delay = cause.retry_after();
    let answered = errors::is_answer(&cause);
    let mut error = ToolError::new(kind, message).with_source(cause);
    if !answered {
        error = error.with_outage(outage);
    }
    error.hinted(delay).with_execution(Execution::NotStarted)
}

fn timed_out(limit: Duration, server: &str) -> ToolError {
    no_connection(
        server,
        &format!("no connection after {}ms", limit.as_millis()),
    )
}

pub(super) fn interrupted(server: &str) -> ToolError {
    no_connection(server, "the runtime of the attempt has shut down")
}

fn cannot_connect(server: &str, why: &str) -> String {
    format!("cannot connect to the MCP server `{server}`: {why}")
}

fn no_connection(server: &str, why: &str) -> ToolError {
    let message = cannot_connect(server, why);
    ToolError::new(ErrorKind::ConnectionFailed, message).with_execution(Execution::NotStarted)
}
