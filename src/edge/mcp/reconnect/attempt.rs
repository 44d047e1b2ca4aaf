use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, timeout},
};
use tracing::instrument::{Instrument as _, WithSubscriber as _};

use super::{McpConnection, settings::Settings, shared::Shared};
use crate::{
    edge::hinted,
    error::{BoxError, ErrorKind, Execution, ToolError},
    event::{TARGET, names::span},
    text::Short,
};

/// The user's function, its types erased.
pub(super) type Connect = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// What it returns.
pub(super) type Connecting = Pin<Box<dyn Future<Output = Result<McpConnection, BoxError>> + Send>>;

/// How an attempt has ended, once it has.
pub(super) type Ended = watch::Receiver<Option<Result<(), ToolError>>>;

/// An attempt to connect, in a task of its own: a caller that is dropped, or held and not polled, stops nobody else.
/// Dropped, it ends the task.
#[derive(Debug)]
pub(super) struct Attempt {
    task: AbortHandle,
    pub(super) ended: Ended,
    /// When it is over at the latest; `None`: so late that no clock reaches it.
    pub(super) until: Option<Instant>,
}

impl Attempt {
    pub(super) fn begin(shared: &Arc<Shared>, settings: &Settings) -> Self {
        // rmcp keeps the span in which it connects until the connection ends. That of a call would last as long.
        let span = tracing::info_span!(
            target: TARGET,
            parent: None,
            span::CONNECTION,
            { span::OTEL_KIND } = "internal",
            { span::SERVER } = %Short::name(&shared.server),
        );
        let (tell, ended) = watch::channel(None);
        let since = Instant::now();
        let (weak, settings) = (Arc::downgrade(shared), *settings);
        let (connect, limit) = (Arc::clone(&shared.connect), settings.connect_timeout);
        let connecting = async move { timeout(limit, connect()).await };
        let attempt = async move {
            // Not earlier: a runtime that is shutting down drops the task where it is spawned, under a lock.
            let ending = Ending {
                shared: weak,
                settings,
                since,
                tell: Some(tell),
            };
            let result = match connecting.instrument(span).await {
                Ok(connected) => connected.map_err(failure),
                Err(_) => Err(timed_out(limit)),
            };
            ending.end(result);
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

/// Reports the end of an attempt, once, also if that is a panic, or the end of the runtime.
struct Ending {
    /// If nobody has the leaf any more, nobody has to know.
    shared: Weak<Shared>,
    settings: Settings,
    since: Instant,
    tell: Option<watch::Sender<Option<Result<(), ToolError>>>>,
}

impl Ending {
    fn end(mut self, result: Result<McpConnection, ToolError>) {
        self.report(result);
    }

    fn report(&mut self, result: Result<McpConnection, ToolError>) {
        let (Some(tell), Some(shared)) = (self.tell.take(), self.shared.upgrade()) else {
            return;
        };
        let result = shared.ended(result, self.since, &self.settings);
        tell.send_replace(Some(result));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.tell.is_some() {
            let error = if std::thread::panicking() {
                no_connection("the function that connects panicked")
            } else {
                interrupted()
            };
            self.report(Err(error));
        }
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
    hinted(error, told).with_execution(Execution::NotStarted)
}

fn timed_out(limit: Duration) -> ToolError {
    no_connection(&format!("no connection after {}ms", limit.as_millis()))
}

pub(super) fn interrupted() -> ToolError {
    no_connection("the runtime of the attempt has shut down")
}

fn no_connection(why: &str) -> ToolError {
    let message = format!("cannot connect to the MCP server: {why}");
    ToolError::new(ErrorKind::ConnectionFailed, message).with_execution(Execution::NotStarted)
}
