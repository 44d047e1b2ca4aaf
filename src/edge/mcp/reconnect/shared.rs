use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::{
    McpConnection,
    attempt::{Attempt, Connect, Ended},
    connection::Live,
    history::{self, History},
    settings::Settings,
};
use crate::{
    error::{ErrorKind, ToolError},
    event::{TARGET, ms, names},
    kit::backoff::Random,
    text::Short,
};

/// What clones share: the connection, and the way to a new one.
pub(super) struct Shared {
    pub(super) server: Arc<str>,
    pub(super) connect: Connect,
    /// One that is not known to be lost is replaced by nobody. Written under the lock of the state only.
    current: ArcSwapOption<Live>,
    state: Mutex<State>,
    random: Random,
}

#[derive(Default)]
struct State {
    history: History,
    /// The attempt that goes on.
    attempt: Option<Attempt>,
}

impl Shared {
    pub(super) fn new(server: Arc<str>, connect: Connect) -> Self {
        Self {
            server,
            connect,
            current: ArcSwapOption::empty(),
            state: Mutex::default(),
            random: Random::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if it is up for all that is known.
    pub(super) fn current(&self) -> Option<Arc<Live>> {
        self.current.load_full().filter(|live| live.is_up())
    }

    /// The same, and takes note if it is lost.
    pub(super) fn usable(&self, settings: &Settings) -> Option<Arc<Live>> {
        let live = self.current.load_full()?;
        if live.is_up() {
            return Some(live);
        }
        let closed = "the connection to the MCP server is closed";
        let error = ToolError::new(ErrorKind::ConnectionFailed, closed);
        self.lose(&live, settings, &error);
        None
    }

    /// A connection is of no use any more: it is let go, and others do not find it.
    pub(super) fn lose(&self, live: &Arc<Live>, settings: &Settings, error: &ToolError) {
        let mut state = self.state();
        if !live.lose() {
            return;
        }
        state.history.lose(
            live.since,
            live.has_answered(),
            &settings.backoff,
            self.random.next(),
            // Not the call's own, which names it.
            lost_early(),
        );
        let dropped = self.current.swap(None);
        drop(state);
        // Both may run code of others.
        self.tell_lost(error);
        drop(dropped);
    }

    /// The attempt that goes on, or a new one, and whether it is new; `None` if there is a connection after all.
    pub(super) fn join(
        self: &Arc<Self>,
        settings: &Settings,
    ) -> Result<Option<(Ended, bool)>, ToolError> {
        let mut state = self.state();
        if self.current.load().is_some() {
            return Ok(None);
        }
        if let Some(attempt) = state.attempt.as_ref().filter(|a| a.goes_on()) {
            return Ok(Some((attempt.ended.clone(), false)));
        }
        if let Some(refusal) = state.history.refuses(Instant::now()) {
            return Err(refusal);
        }
        let attempt = state.attempt.insert(Attempt::begin(self, settings));
        Ok(Some((attempt.ended.clone(), true)))
    }

    /// An attempt has ended, and this is what those who waited for it are told.
    pub(super) fn ended(
        &self,
        result: Result<McpConnection, ToolError>,
        since: Instant,
        settings: &Settings,
    ) -> Result<(), ToolError> {
        let now = Instant::now();
        let mut state = self.state();
        let attempt = state.attempt.take();
        match result {
            Ok(connection) => {
                let attempts = state.history.failures().saturating_add(1);
                state.history.connected();
                let live = Live::new(connection, &self.server, now);
                self.current.store(Some(Arc::new(live)));
                drop(state);
                self.tell_connected(attempts, now.saturating_duration_since(since));
                drop(attempt);
                Ok(())
            }
            Err(error) => {
                let random = self.random.next();
                let delay = state
                    .history
                    .fail(now, &settings.backoff, random, error.clone());
                let attempts = state.history.failures();
                drop(state);
                self.tell_failed(&error, attempts, delay);
                drop(attempt);
                Err(error)
            }
        }
    }

    /// The error of a call that has waited for an attempt that failed.
    pub(super) fn failed(&self, error: ToolError) -> ToolError {
        self.state().history.shares(Instant::now(), error)
    }

    /// The error of a call whose connection was made and lost before it could use it.
    pub(super) fn lost(&self) -> ToolError {
        let refusal = self.state().history.refuses(Instant::now());
        refusal.unwrap_or_else(|| history::refused(lost_early(), Duration::ZERO))
    }

    /// The window that is open now, for the error of a call that lost its connection.
    pub(super) fn window(&self) -> Option<Duration> {
        self.state().history.window(Instant::now())
    }

    /// The error of a call that does not wait for the attempt that goes on: it makes sense to come back after the first
    /// delay, or sooner, when the attempt is over.
    pub(super) fn busy(&self, settings: &Settings) -> ToolError {
        let first = settings.backoff.delay(1, 0);
        let until = self.state().attempt.as_ref().and_then(|a| a.until);
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        let error = ToolError::new(
            ErrorKind::ConnectionFailed,
            "the connection to the MCP server is still being made",
        );
        history::refused(error, left.map_or(first, |left| left.min(first)))
    }

    fn tell_lost(&self, error: &ToolError) {
        tracing::event!(
            name: names::event::DISCONNECTED,
            target: TARGET,
            tracing::Level::WARN,
            { names::field::SERVER } = %Short::name(&self.server),
            { names::field::CODE } = error.code(),
            { names::field::ERROR } = error.message(),
            "{}", names::event::DISCONNECTED
        );
    }

    fn tell_connected(&self, attempts: u32, took: Duration) {
        tracing::event!(
            name: names::event::CONNECTED,
            target: TARGET,
            tracing::Level::INFO,
            { names::field::SERVER } = %Short::name(&self.server),
            { names::field::ATTEMPTS } = attempts,
            { names::field::DURATION_MS } = ms(took),
            "{}", names::event::CONNECTED
        );
    }

    fn tell_failed(&self, error: &ToolError, attempts: u32, delay: Duration) {
        tracing::event!(
            name: names::event::CONNECT_FAILED,
            target: TARGET,
            tracing::Level::WARN,
            { names::field::SERVER } = %Short::name(&self.server),
            { names::field::ATTEMPTS } = attempts,
            { names::field::DELAY_MS } = ms(delay),
            { names::field::CODE } = error.code(),
            { names::field::ERROR } = error.message(),
            "{}", names::event::CONNECT_FAILED
        );
    }
}

fn lost_early() -> ToolError {
    ToolError::new(
        ErrorKind::ConnectionFailed,
        "the connection to the MCP server was lost before it had answered a call",
    )
}
