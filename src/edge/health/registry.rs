use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::sync::watch;

use super::{
    ServerHealth,
    cell::Cell,
    layer::{HealthBuilder, HealthLayer},
    sign::Sign,
    state::{Pass, Rules},
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    event::{Event, Listener, availability::Reason},
    key::Key,
    kit::{
        in_flight::{Abandoned, Report},
        registry::{Entry, Registry},
    },
};

/// What is known of servers. Cheap to clone. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct Health(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    servers: Registry<Cell>,
    rules: Rules,
    listener: Listener,
    /// Made by the first who watches them all.
    all: OnceLock<watch::Sender<Vec<ServerHealth>>>,
}

impl Health {
    /// A registry that only looks on: a server is unavailable after 3 timeouts or connection failures in a row.
    pub fn new() -> Self {
        HealthBuilder::new().build_checked()
    }

    /// The settings, to be changed.
    pub fn builder() -> HealthBuilder {
        HealthBuilder::new()
    }

    pub(super) fn with(rules: Rules, max_servers: usize, listener: Listener) -> Self {
        let overflow = Cell::overflow(&rules);
        Self(Arc::new(Shared {
            servers: Registry::new(Key::Server, max_servers, overflow, listener.clone()),
            rules,
            listener,
            all: OnceLock::new(),
        }))
    }

    /// The layer that feeds it.
    pub fn layer(&self) -> HealthLayer {
        HealthLayer::new(self.clone())
    }

    /// What is known of a server; `None` if it was never called and is none of a router's.
    pub fn server(&self, server: &str) -> Option<ServerHealth> {
        let entry = self.0.servers.peek(&named(server))?;
        Some(entry.value().read(self.rules()))
    }

    /// Every server that is known, in the order of their names.
    pub fn snapshot(&self) -> Vec<ServerHealth> {
        let entries = self.0.servers.entries();
        let mut all: Vec<_> = entries
            .iter()
            .map(|e| e.value().read(self.rules()))
            .collect();
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
    }

    /// Watches a server, known or not: the receiver has the present state, and each one after it. It learns when state,
    /// reason or the time of the next probe change, not of each failure. A server that is watched is not forgotten.
    ///
    /// If there is no place for another one, nothing ever changes. Borrow its value for a moment only: a call whose end
    /// changes it waits for that, as with any [`watch`].
    pub fn subscribe(&self, server: &str) -> watch::Receiver<ServerHealth> {
        let make = || Cell::new(Some(server), self.rules());
        let cells = &self.0.servers;
        cells.with_kept(&named(server), make, |cell| cell.value().subscribe())
    }

    /// Watches all servers: the receiver has the present [snapshot](Self::snapshot), and one for each change. A server
    /// that was called for the first time, and is well, comes with the next one.
    pub fn subscribe_all(&self) -> watch::Receiver<Vec<ServerHealth>> {
        let all = self.0.all.get_or_init(watch::Sender::default);
        // First: from now on it is told of changes.
        let mut receiver = all.subscribe();
        self.tell_all(all);
        receiver.mark_unchanged();
        receiver
    }

    fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// The cell of the call's server; if a layer above has looked it up, that of which nothing is told.
    #[inline]
    pub(super) fn cell(&self, call: &ToolCall, info: &CallInfo) -> Arc<Entry<Cell>> {
        if call.is_watched() {
            return Arc::clone(self.0.servers.overflow());
        }
        let make = || Cell::new(info.server(), self.rules());
        self.0.servers.keep(info, make)
    }

    /// Whether a call to this server may pass, and the place of the one that does.
    #[inline]
    pub(super) fn admit(&self, info: CallInfo, cell: Arc<Entry<Cell>>) -> Result<Visit, Duration> {
        let pass = cell.value().admit(self.rules())?;
        let visit = Visit {
            health: self.clone(),
            cell,
            info,
            pass,
        };
        if pass.probe.is_some() {
            self.changed();
        }
        Ok(visit)
    }

    /// A look, that reserves nothing.
    pub(super) fn refuses(&self, cell: &Entry<Cell>) -> Option<Duration> {
        cell.value().refuses(self.rules())
    }

    /// It is one of those that are known from now on, available until a call tells otherwise.
    #[cfg(feature = "router")]
    pub(crate) fn add(&self, server: &CallInfo) {
        let make = || Cell::new(server.server(), self.rules());
        self.0.servers.get_known(server, make);
    }

    /// Whether calls to this server are refused now. That it was asked for makes it none that is known.
    #[cfg(feature = "router")]
    pub(crate) fn is_refusing(&self, server: &CallInfo) -> bool {
        let entry = self.0.servers.peek(server);
        entry.is_some_and(|cell| self.refuses(&cell).is_some())
    }

    /// There is news of a server.
    #[cold]
    fn changed(&self) {
        let all = self.0.all.get();
        if let Some(all) = all.filter(|all| all.receiver_count() > 0) {
            self.tell_all(all);
        }
    }

    fn tell_all(&self, all: &watch::Sender<Vec<ServerHealth>>) {
        // Read while it is written, as in a cell.
        all.send_if_modified(|seen| {
            let before = std::mem::replace(seen, self.snapshot());
            before != *seen
        });
    }
}

/// A call that names this server.
pub(crate) fn named(server: &str) -> CallInfo {
    ToolCall::new("").with_server(server).info()
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("rules", &self.0.rules)
            .field("servers", &self.0.servers.len())
            .finish_non_exhaustive()
    }
}

/// A call at its server. However it ends, it is told once, and a probe gives its place back.
pub(super) struct Visit {
    health: Health,
    cell: Arc<Entry<Cell>>,
    pub(super) info: CallInfo,
    pass: Pass,
}

impl Visit {
    #[inline]
    pub(super) fn answered(&self) {
        if !self.cell.value().is_calm() {
            self.ended(Sign::Answer);
        }
    }

    /// The same error, marked if it has been counted.
    #[cold]
    pub(super) fn failed(&self, error: ToolError) -> ToolError {
        let sign = Sign::of(&error);
        let is_overflow = self.cell.value().is_overflow();
        self.ended(sign);
        match sign {
            Sign::Failure(_) if !is_overflow => error.into_counted(),
            _ => error,
        }
    }

    #[inline(never)]
    fn ended(&self, sign: Sign) {
        let shared = &*self.health.0;
        let (change, is_news) = self.cell.value().ended(sign, self.pass, &shared.rules);
        if is_news {
            self.health.changed();
        }
        if let Some(change) = &change {
            let call = &self.info;
            shared.listener.tell(&Event::Health { change, call });
        }
    }
}

impl Report for Visit {
    fn abandoned(self, how: Abandoned) {
        // What had not begun to wait says nothing of the server.
        let has_waited = !how.pending.is_zero();
        let is_late = how.past_deadline || how.pending >= self.info.patience();
        self.ended(match has_waited && is_late {
            true => Sign::Failure(Reason::Timeout),
            false => Sign::Nothing,
        });
    }

    fn panicked(self) {
        self.ended(Sign::Nothing);
    }
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visit")
            .field("pass", &self.pass)
            .finish_non_exhaustive()
    }
}
