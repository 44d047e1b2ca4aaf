use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tower_toolcall::{
    error::{AnyError, ErrorKind, Execution, Outage, ToolError},
    event::{TARGET, names::span, shown_name},
};
use tracing::instrument::{Instrument as _, WithSubscriber as _};

use super::{
    McpConnection, McpReconnect,
    connection::Live,
    history::{self, History},
    service::Settings,
};
use crate::{errors, events, future::lock, register};

/// The state that clones share: the connection, and the way to a new one.
pub(super) struct Shared {
    pub(super) server: Arc<str>,
    pub(super) connect: Connect,
    /// The connection that is not known to be lost. Written under the lock of the state only.
    current: ArcSwapOption<Live>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: History,
    /// That of the connection, or of the attempts to make one.
    outage: Outage,
    /// The attempt that goes on.
    attempt: Option<Attempt>,
}

/// The service, for tasks that do not keep it alive.
pub(super) type WeakLeaf = (Weak<Shared>, Settings);

impl Shared {
    pub(super) fn new(server: Arc<str>, connect: Connect) -> Self {
        register();
        Self {
            server,
            connect,
            current: ArcSwapOption::empty(),
            state: Mutex::default(),
        }
    }
}

/// Returns a random number.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

impl McpReconnect {
    pub(super) fn downgrade(&self) -> WeakLeaf {
        (Arc::downgrade(&self.shared), self.settings)
    }

    pub(super) fn upgrade((shared, settings): &WeakLeaf) -> Option<Self> {
        let (shared, settings) = (shared.upgrade()?, *settings);
        Some(Self { shared, settings })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    /// The connection, unless it is known to be lost.
    pub(super) fn current(&self) -> Option<Arc<Live>> {
        let current = self.shared.current.load_full();
        current.filter(|live| live.is_open())
    }

    /// Returns the current connection. A closed one is recorded as lost.
    pub(super) fn usable(&self) -> Option<Arc<Live>> {
        let live = self.shared.current.load_full()?;
        if live.is_open() {
            return Some(live);
        }
        let closed = "the connection to the MCP server is closed";
        let why = live.why_given_up().unwrap_or(closed).to_owned();
        let error = ToolError::new(ErrorKind::ConnectionFailed, why);
        self.lose(&live, &error);
        None
    }

    /// Lets go of a connection that is of no use any more: new calls do not find it.
    pub(super) fn lose(&self, live: &Arc<Live>, error: &ToolError) {
        let mut state = self.state();
        let current = self.shared.current.load_full();
        if !current.is_some_and(|current| Arc::ptr_eq(&current, live)) {
            return;
        }
        if live.has_answered() {
            state.history.answered();
        } else {
            let (since, random) = (live.since, random());
            // Not the error of the call, which names it.
            let error = lost_early();
            let history = &mut state.history;
            history.fail(since, &self.settings, random, error, true);
        }
        let wait = state.history.window(Instant::now());
        live.outage.retry_after(wait.unwrap_or_default());
        let dropped = self.shared.current.swap(None);
        drop(state);
        // Both may run foreign code.
        events::disconnected(&self.shared.server, error);
        drop(dropped);
    }

    /// Takes the connection away, which is not lost: it is of no use any more.
    pub(super) fn release(&self) -> Option<Arc<Live>> {
        let mut state = self.state();
        let live = self.shared.current.swap(None)?;
        if live.has_answered() {
            state.history.answered();
        }
        Some(live)
    }

    //= https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions
    //# Clients SHOULD cache the result for the lifetime of the server process (stdio) or origin
    //# (HTTP), and MAY persist it across restarts of the same server configuration, re-probing if
    //# the cached assumption later fails.
    /// The attempt that goes on, or a new one, and whether it is new; `None` if there is a
    /// connection after all.
    pub(super) fn join(&self) -> Result<Option<(Ended, bool)>, ToolError> {
        let mut state = self.state();
        if self.shared.current.load().is_some() {
            return Ok(None);
        }
        if let Some(attempt) = state.attempt.as_ref().filter(|a| a.goes_on()) {
            return Ok(Some((attempt.ended.clone(), false)));
        }
        if let Some(refusal) = state.history.refuses(Instant::now()) {
            return Err(refusal);
        }
        let attempt = Attempt::begin(self, &state.outage);
        let attempt = state.attempt.insert(attempt);
        Ok(Some((attempt.ended.clone(), true)))
    }

    /// An attempt has ended. Returns its result for the calls that waited for it.
    pub(super) fn ended(
        &self,
        result: Result<McpConnection, ToolError>,
        since: Instant,
    ) -> Result<(), ToolError> {
        let (now, server) = (Instant::now(), &self.shared.server);
        let mut state = self.state();
        let _attempt = state.attempt.take();
        match result {
            Ok(connection) => {
                let attempts = state.history.failures.saturating_add(1);
                state.history.connected();
                let lost = std::mem::take(&mut state.outage);
                let live = Live::new(connection, server, now, state.outage.clone());
                self.shared.current.store(Some(Arc::new(live)));
                drop(state);
                lost.end();
                let took = now.saturating_duration_since(since);
                events::connected(server, attempts, took);
                Ok(())
            }
            Err(error) => {
                let (random, cause) = (random(), error.clone());
                let history = &mut state.history;
                let delay = history.fail(now, &self.settings, random, cause, false);
                let attempts = history.failures;
                state.outage.retry_after(delay);
                drop(state);
                events::connect_failed(server, attempts, delay, &error);
                Err(error)
            }
        }
    }

    /// The error of a call that has waited for an attempt that failed.
    pub(super) fn failed(&self, error: ToolError) -> ToolError {
        self.state().history.shares(Instant::now(), error)
    }

    /// Returns the error of a call that lost its new connection before using it.
    pub(super) fn lost(&self) -> ToolError {
        let refusal = self.state().history.refuses(Instant::now());
        refusal.unwrap_or_else(|| history::refused(lost_early(), Duration::ZERO))
    }

    /// Returns the window that is open now, for the error of a call that lost its connection.
    pub(super) fn window(&self) -> Option<Duration> {
        self.state().history.window(Instant::now())
    }

    /// The error of a call that does not wait for the attempt that goes on: it makes sense to come
    /// back after the first delay, or sooner, when the attempt is over.
    pub(super) fn busy(&self) -> ToolError {
        let first = self.settings.backoff.delay(1, 0);
        let until = self.state().attempt.as_ref().and_then(|a| a.until);
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        let error = ToolError::new(
            ErrorKind::ConnectionFailed,
            "the connection to the MCP server is still being made",
        );
        history::refused(error, left.map_or(first, |left| left.min(first)))
    }
}

fn lost_early() -> ToolError {
    ToolError::new(
        ErrorKind::ConnectionFailed,
        "the connection to the MCP server was lost before it had answered a call",
    )
}

/// The user's function, its types erased.
pub(super) type Connect =
    Arc<dyn Fn() -> BoxFuture<'static, Result<McpConnection, AnyError>> + Send + Sync>;

/// How an attempt has ended, once it has.
pub(super) type Ended = watch::Receiver<Option<Result<(), ToolError>>>;

/// An attempt to connect, in a task of its own: a caller that is dropped, or held and not polled,
/// stops no other caller. Dropped, it ends the task.
pub(super) struct Attempt {
    task: AbortOnDropHandle<()>,
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
            { span::SERVER } = %shown_name(&leaf.shared.server),
        );
        let (tell, ended) = watch::channel(None);
        let since = Instant::now();
        let limit = leaf.settings.connect_timeout;
        let server = Arc::clone(&leaf.shared.server);
        let (connect, leaf) = (Arc::clone(&leaf.shared.connect), leaf.downgrade());
        let outage = outage.clone();
        //= https://modelcontextprotocol.io/specification/2025-11-25/schema#cancellednotification
        //# A client MUST NOT attempt to cancel its initialize request.
        //= https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation#behavior-requirements
        //# The `initialize` request MUST NOT be cancelled by clients
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
                Err(_) => {
                    let late = format!("no connection after {}ms", limit.as_millis());
                    Err(no_connection(&server, &late))
                }
            });
        };
        Self {
            task: AbortOnDropHandle::new(tokio::spawn(attempt.with_current_subscriber())),
            ended,
            until: since.checked_add(limit),
        }
    }

    /// Not if it has ended, or its runtime has before it had begun.
    pub(super) fn goes_on(&self) -> bool {
        !self.task.is_finished()
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
        let Some(leaf) = McpReconnect::upgrade(&self.leaf) else {
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
        // These kinds tell a caller more than a missing connection. Others would mislead: if the
        // program of a server is not found, that does not mean a missing tool.
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
    errors::hinted(error, delay).with_execution(Execution::NotStarted)
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
