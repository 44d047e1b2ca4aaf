use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use tokio::{sync::watch, time::Instant};

use super::{
    layer::{HealthBuilder, HealthLayer},
    state::{Admission, Availability, Reason, Rules, Sign, State},
};
use crate::{
    call::{CallInfo, ToolCall},
    event::Listener,
    in_flight::{Abandoned, Report},
    key::Key,
    registry::{Entry, Evict, Keep, Registry},
    text::Short,
};

/// What is known of servers. Cheap to clone. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct Health {
    servers: Registry<Cell>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rules: Rules,
    /// Made by the first who watches them all.
    all: OnceLock<watch::Sender<Vec<ServerHealth>>>,
}

/// What is known of one server.
///
/// With serde: `server`, `state`, `reason`, `failures`, and `for_ms`: how long it has been in this state, at the moment of writing.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerHealth {
    /// The server's name, its first 256 bytes; none for calls that name none.
    pub server: Option<Arc<str>>,
    /// Whether it is there.
    pub state: Availability,
    /// Why not.
    pub reason: Option<Reason>,
    /// Timeouts and connection failures in a row.
    pub failures: u32,
    /// Since when it is in this state; for one that is available from the start, since its first call.
    pub since: Instant,
}

/// One server.
#[derive(Debug)]
pub(super) struct Cell {
    /// Available, without failures: a success has nothing to change.
    calm: AtomicBool,
    state: Mutex<State>,
    changed: watch::Sender<ServerHealth>,
    /// The one of all servers for which there is no place.
    overflow: bool,
}

impl Cell {
    fn new(server: Option<&str>, overflow: bool) -> Self {
        let now = Instant::now();
        let server = server.map(|s| &s[..crate::text::floor(s, crate::MAX_NAME_BYTES)]);
        Self {
            calm: AtomicBool::new(true),
            state: Mutex::new(State::new(now)),
            changed: watch::Sender::new(ServerHealth {
                server: server.map(Arc::from),
                state: Availability::Available,
                reason: None,
                failures: 0,
                since: now,
            }),
            overflow,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> ServerHealth {
        let state = self.lock();
        ServerHealth {
            server: self.changed.borrow().server.clone(),
            state: state.availability,
            reason: state.reason,
            failures: state.failures,
            since: state.since,
        }
    }
}

impl Evict for Cell {
    fn keep(&self) -> Keep {
        if self.changed.receiver_count() > 0 {
            return Keep::Always;
        }
        match self.lock().availability {
            Availability::Unavailable => Keep::Always,
            Availability::Degraded => Keep::IfPossible,
            Availability::Available => Keep::IfUsed,
        }
    }
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

    pub(super) fn with(rules: Rules, max_servers: usize) -> Self {
        let overflow = Cell::new(None, true);
        Self {
            servers: Registry::new(Key::Server, max_servers, overflow, Listener::default()),
            shared: Arc::new(Shared {
                rules,
                all: OnceLock::new(),
            }),
        }
    }

    /// The layer that feeds it.
    pub fn layer(&self) -> HealthLayer {
        HealthLayer::new(self.clone())
    }

    /// What is known of a server; `None` if it was never called.
    pub fn server(&self, server: &str) -> Option<ServerHealth> {
        let entry = self.servers.peek(&named(server))?;
        Some(entry.value.read())
    }

    /// Every server that is known, in the order of their names.
    pub fn snapshot(&self) -> Vec<ServerHealth> {
        let entries = self.servers.entries();
        let mut all: Vec<_> = entries.iter().map(|e| e.value.read()).collect();
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
    }

    /// Watches a server, known or not: the receiver has the present state, and each one after it. It learns when state or
    /// reason change, not of each failure. A server that is watched is not forgotten.
    ///
    /// If there is no place for another one, nothing ever changes.
    pub fn subscribe(&self, server: &str) -> watch::Receiver<ServerHealth> {
        self.cell(&named(server)).value.changed.subscribe()
    }

    /// Watches all servers: the receiver has the present [snapshot](Self::snapshot), and one for each change.
    pub fn subscribe_all(&self) -> watch::Receiver<Vec<ServerHealth>> {
        let all = self.shared.all.get_or_init(watch::Sender::default);
        // First: from now on it is told of changes.
        let mut receiver = all.subscribe();
        self.tell_all(all);
        receiver.mark_unchanged();
        receiver
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    pub(super) fn cell(&self, call: &CallInfo) -> Arc<Entry<Cell>> {
        self.servers.get(call, || Cell::new(call.server(), false))
    }

    /// Whether a call to this server may pass, and the place of the one that does.
    pub(super) fn admit(&self, info: CallInfo, cell: Arc<Entry<Cell>>) -> Result<Visit, Duration> {
        let probe = if cell.value.calm.load(SeqCst) || !self.rules().refuses {
            None
        } else {
            match cell.value.lock().admit(self.rules(), Instant::now()) {
                Admission::Pass => None,
                Admission::Probe(number) => Some(number),
                Admission::Refused(wait) => return Err(wait),
            }
        };
        Ok(Visit {
            health: self.clone(),
            cell,
            info,
            probe,
        })
    }

    /// A look, that reserves nothing.
    pub(super) fn refuses(&self, cell: &Entry<Cell>) -> Option<Duration> {
        if cell.value.calm.load(SeqCst) || !self.rules().refuses {
            return None;
        }
        cell.value.lock().refusal(self.rules(), Instant::now())
    }

    fn ended(&self, cell: &Cell, sign: Sign, probe: Option<u64>) {
        let nothing_new = match sign {
            Sign::Answer => cell.calm.load(SeqCst),
            Sign::Failure(_) => false,
            Sign::Nothing => probe.is_none(),
        };
        if nothing_new || cell.overflow {
            return;
        }
        let mut state = cell.lock();
        let changed = state.ended(sign, probe, self.rules(), Instant::now());
        cell.calm.store(state.failures == 0, SeqCst);
        if !changed {
            return;
        }
        // Under the lock: watchers see the states in their order.
        cell.changed.send_modify(|seen| {
            seen.state = state.availability;
            seen.reason = state.reason;
            seen.failures = state.failures;
            seen.since = state.since;
        });
        drop(state);
        if let Some(all) = self.shared.all.get()
            && all.receiver_count() > 0
        {
            self.tell_all(all);
        }
    }

    fn tell_all(&self, all: &watch::Sender<Vec<ServerHealth>>) {
        // Read while it is written: the last one to write has read what is the case then.
        all.send_if_modified(|seen| {
            let before = std::mem::replace(seen, self.snapshot());
            before != *seen
        });
    }
}

fn named(server: &str) -> CallInfo {
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
            .field("rules", &self.shared.rules)
            .field("servers", &self.servers.len())
            .finish_non_exhaustive()
    }
}

/// A call at its server. However it ends, it is told once, and a probe gives its place back.
pub(super) struct Visit {
    health: Health,
    cell: Arc<Entry<Cell>>,
    pub(super) info: CallInfo,
    probe: Option<u64>,
}

impl Visit {
    pub(super) fn ended(self, sign: Sign) {
        self.health.ended(&self.cell.value, sign, self.probe);
    }
}

impl Report for Visit {
    fn abandoned(self, how: Abandoned) {
        self.ended(match how.past_deadline {
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
            .field("probe", &self.probe)
            .finish_non_exhaustive()
    }
}

impl Serialize for ServerHealth {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let elapsed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut to = to.serialize_struct("ServerHealth", 5)?;
        to.serialize_field("server", &self.server)?;
        to.serialize_field("state", &self.state)?;
        to.serialize_field("reason", &self.reason)?;
        to.serialize_field("failures", &self.failures)?;
        to.serialize_field("for_ms", &elapsed)?;
        to.end()
    }
}

/// Shows the name short and redacted, as events do.
impl fmt::Debug for ServerHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHealth")
            .field("server", &self.server.as_deref().map(Short::name))
            .field("state", &self.state)
            .field("reason", &self.reason)
            .field("failures", &self.failures)
            .field("since", &self.since)
            .finish()
    }
}
