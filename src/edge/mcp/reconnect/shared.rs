use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::{
    McpConnection, McpReconnect,
    attempt::{Attempt, Connect, Ended},
    connection::Live,
    history::{self, History},
    settings::Settings,
};
use crate::{
    error::{ErrorKind, Outage, ToolError},
    event::{event, ms, short},
    kit::backoff::Random,
};

/// The state that clones share: the connection, and the way to a new one.
pub(super) struct Shared {
    pub(super) server: Arc<str>,
    pub(super) connect: Connect,
    /// The connection that is not known to be lost. Written under the lock of the state only.
    current: ArcSwapOption<Live>,
    state: Mutex<State>,
    random: Random,
}

#[derive(Default)]
struct State {
    history: History,
    /// That of the connection, or of the attempts to make one.
    outage: Outage,
    /// The attempt that goes on.
    attempt: Option<Attempt>,
}

/// The leaf, for tasks that do not keep it alive.
pub(super) struct WeakLeaf {
    shared: Weak<Shared>,
    pub(super) settings: Settings,
}

impl WeakLeaf {
    pub(super) fn upgrade(&self) -> Option<McpReconnect> {
        Some(McpReconnect {
            shared: self.shared.upgrade()?,
            settings: self.settings,
        })
    }
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
}

impl McpReconnect {
    pub(super) fn downgrade(&self) -> WeakLeaf {
        WeakLeaf {
            shared: Arc::downgrade(&self.shared),
            settings: self.settings,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
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
        let error = ToolError::new(ErrorKind::ConnectionFailed, closed);
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
        let backoff = state.history.backoff(&self.settings);
        state.history.lose(
            live.since,
            live.has_answered(),
            backoff,
            self.shared.random.next(),
            // Not the call's own, which names it.
            lost_early(),
        );
        let wait = state.history.window(Instant::now());
        live.outage.retry_after(wait.unwrap_or_default());
        let dropped = self.shared.current.swap(None);
        drop(state);
        // Both may run foreign code.
        event!(WARN DISCONNECTED, SERVER = short(&self.shared.server), CODE = error.code(), ERROR = error.message());
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
                let attempts = state.history.failures().saturating_add(1);
                state.history.connected();
                let lost = std::mem::take(&mut state.outage);
                let live = Live::new(connection, server, now, state.outage.clone());
                self.shared.current.store(Some(Arc::new(live)));
                drop(state);
                lost.end();
                let took = now.saturating_duration_since(since);
                event!(INFO CONNECTED, SERVER = short(server), ATTEMPTS = attempts, DURATION_MS = ms(took));
                Ok(())
            }
            Err(error) => {
                let backoff = state.history.backoff(&self.settings);
                let random = self.shared.random.next();
                let delay = state.history.fail(now, backoff, random, error.clone());
                let attempts = state.history.failures();
                state.outage.retry_after(delay);
                drop(state);
                event!(WARN CONNECT_FAILED, SERVER = short(server), ATTEMPTS = attempts, DELAY_MS = ms(delay),
                    CODE = error.code(), ERROR = error.message());
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
