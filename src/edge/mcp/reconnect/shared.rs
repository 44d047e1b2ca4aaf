use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::{
    attempt::{Attempt, Connecting, timed_out},
    connection::Live,
    history::History,
    service::Settings,
};
use crate::{
    backoff::Random,
    error::{ErrorKind, Execution, ToolError},
    event::{TARGET, ms, names},
    text::Short,
};

/// What clones share: the connection, and the way to a new one.
pub(super) struct Shared {
    pub(super) server: Arc<str>,
    pub(super) connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    current: ArcSwapOption<Live>,
    /// The driver's seat. Who is dropped in it leaves the attempt to the next one.
    pub(super) seat: tokio::sync::Mutex<Option<Attempt>>,
    history: Mutex<History>,
    random: Random,
}

impl Shared {
    pub(super) fn new(
        server: Arc<str>,
        connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    ) -> Self {
        Self {
            server,
            connect,
            current: ArcSwapOption::empty(),
            seat: tokio::sync::Mutex::default(),
            history: Mutex::default(),
            random: Random::default(),
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut history = self.history();
        if !live.lose() {
            return;
        }
        history.lose(
            live.since,
            live.has_answered(),
            &settings.backoff,
            self.random.next(),
            // Not the call's own, which names it.
            ToolError::new(
                ErrorKind::ConnectionFailed,
                "the connection to the MCP server was lost before it had answered a call",
            ),
        );
        let dropped = self.current.swap(None);
        drop(history);
        // Both may run code of others.
        self.tell_lost(error);
        drop(dropped);
    }

    /// How many attempts have failed; see [`check`](Self::check).
    pub(super) fn failed(&self) -> u64 {
        self.history().failed()
    }

    /// Refuses a call as long as no attempt may be made, or if one has failed since `seen`.
    pub(super) fn check(&self, seen: u64) -> Result<(), ToolError> {
        let (history, now) = (self.history(), Instant::now());
        let refusal = history.refusal(now);
        match refusal.or_else(|| history.shared_failure(seen, now)) {
            Some((wait, error)) => Err(refused(error.clone(), wait)),
            None => Ok(()),
        }
    }

    /// The window that is open now, for the error of a call that lost its connection.
    pub(super) fn window(&self) -> Option<Duration> {
        let history = self.history();
        history.refusal(Instant::now()).map(|(wait, _)| wait)
    }

    /// The error of a call that does not wait for an attempt that goes on.
    pub(super) fn busy(&self, settings: &Settings) -> ToolError {
        let wait = self.history().busy(Instant::now(), &settings.backoff);
        let error = ToolError::new(
            ErrorKind::ConnectionFailed,
            "the connection to the MCP server is still being made",
        );
        refused(error, wait)
    }

    /// Polls the attempt that goes on, or begins one.
    pub(super) fn drive(
        &self,
        seat: &mut Option<Attempt>,
        settings: &Settings,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Arc<Live>, ToolError>> {
        // Not in its place meanwhile: one that panics is not polled again.
        let mut attempt = seat.take().unwrap_or_else(|| self.begin(settings));
        match attempt.poll(cx) {
            Poll::Pending => {
                *seat = Some(attempt);
                Poll::Pending
            }
            Poll::Ready(Ok(connection)) => {
                let live = Arc::new(Live::new(connection, &self.server, Instant::now()));
                let mut history = self.history();
                let attempts = history.failures().saturating_add(1);
                history.connected();
                self.current.store(Some(Arc::clone(&live)));
                drop(history);
                self.tell_connected(attempts, attempt.since.elapsed());
                Poll::Ready(Ok(live))
            }
            Poll::Ready(Err(error)) => {
                let delay = self.fail(&error, Instant::now(), settings);
                Poll::Ready(Err(error.with_retry_after(delay)))
            }
        }
    }

    /// An attempt that nobody drove to its end has failed at its timeout.
    pub(super) fn give_up_overdue(&self, seat: &mut Option<Attempt>, settings: &Settings) {
        let now = Instant::now();
        if let Some(attempt) = seat.take_if(|attempt| attempt.until.is_some_and(|at| at <= now)) {
            let at = attempt.until.unwrap_or(now);
            drop(attempt);
            self.fail(&timed_out(settings.connect_timeout), at, settings);
        }
    }

    /// Returns how long there is no other attempt.
    fn fail(&self, error: &ToolError, at: Instant, settings: &Settings) -> Duration {
        let mut history = self.history();
        let random = self.random.next();
        let delay = history.fail(at, &settings.backoff, random, error.clone());
        let attempts = history.failures();
        drop(history);
        self.tell_failed(error, attempts, delay);
        delay
    }

    fn begin(&self, settings: &Settings) -> Attempt {
        let attempt = Attempt::new(&self.connect, &self.server, settings.connect_timeout);
        self.history().begin(attempt.until);
        attempt
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

/// The error of a call for which the server was not asked.
fn refused(error: ToolError, wait: Duration) -> ToolError {
    error
        .with_retry_after(wait)
        .with_execution(Execution::NotStarted)
        .into_own_refusal()
}
