use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{
    ServerHealth,
    layer::{HealthBuilder, HealthLayer, Rules},
    server::{Server, Shared},
    sign::Sign,
};
use crate::{
    call::{CallInfo, Claim, ToolCall},
    circuit_breaker::{self, Pass},
    error::{ErrorKind, Outage, ToolError},
    event::{Event, Listener, availability::Reason},
    flow::{Ends, Gate, Readiness, Step, Ticket},
    key::Key,
    kit::{
        in_flight::Abandoned,
        registry::{Entry, Registry},
    },
};

/// What is known of servers. Cheap to clone. See the [module docs](super) for an example.
#[derive(Clone)]
pub struct Health(Arc<Servers>);

struct Servers {
    servers: Registry<Server>,
    shared: Shared,
    listener: Listener,
    /// Under its key, all calls that name no server share one state.
    nameless: CallInfo,
    /// Made by the first call of `subscribe_all`.
    all: OnceLock<watch::Sender<Vec<ServerHealth>>>,
}

impl Health {
    /// A registry that only observes: a server is unavailable after 3 timeouts or connection failures in a row.
    pub fn new() -> Self {
        HealthBuilder::new().build_checked()
    }

    /// A builder with the default settings.
    pub fn builder() -> HealthBuilder {
        HealthBuilder::new()
    }

    pub(super) fn with(rules: Rules, max_servers: usize, listener: Listener) -> Self {
        let shared = Shared {
            rules,
            breaker: circuit_breaker::Rules::of_one_failure(rules.period),
            origin: Instant::now(),
        };
        let overflow = Server::new(None, &shared);
        Self(Arc::new(Servers {
            servers: Registry::new(Key::Server, max_servers, overflow, listener.clone()),
            shared,
            listener,
            nameless: ToolCall::new("").info(),
            all: OnceLock::new(),
        }))
    }

    /// The layer that feeds it.
    pub fn layer(&self) -> HealthLayer {
        HealthLayer::new(self.clone())
    }

    /// The health of a server; `None` if it was never called and belongs to no router.
    pub fn server(&self, server: &str) -> Option<ServerHealth> {
        let entry = self.0.servers.peek(&named(server))?;
        Some(entry.value().read(self.shared()))
    }

    /// Every server that is known, in the order of their names.
    pub fn snapshot(&self) -> Vec<ServerHealth> {
        let entries = self.0.servers.entries();
        let mut all: Vec<_> = entries
            .iter()
            .map(|e| e.value().read(self.shared()))
            .collect();
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
    }

    /// Watches a server, known or not: the receiver has the present state, and each one after it. It learns when state,
    /// reason or the time of the next probe change, not of each failure. A server that is watched is not forgotten.
    ///
    /// If there is no place for another one, nothing ever changes. Borrow its value for a moment only: a call whose end
    /// changes the value waits for the borrow to end, as with any [`watch`].
    pub fn subscribe(&self, server: &str) -> watch::Receiver<ServerHealth> {
        let make = || Server::new(Some(server), self.shared());
        let servers = &self.0.servers;
        servers.with_kept(&named(server), make, |entry| entry.value().subscribe())
    }

    /// Watches all servers: the receiver has the present [snapshot](Self::snapshot), and one for each change. A server
    /// that was called for the first time and is available appears in the next one.
    pub fn subscribe_all(&self) -> watch::Receiver<Vec<ServerHealth>> {
        let all = self.0.all.get_or_init(watch::Sender::default);
        // First: from now on it receives changes.
        let mut receiver = all.subscribe();
        self.tell_all(all);
        receiver.mark_unchanged();
        receiver
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// The call's server; the overflow entry, which records nothing, if a layer above has claimed the call.
    #[inline]
    fn entry(&self, call: &ToolCall, info: &CallInfo) -> Arc<Entry<Server>> {
        if call.is_claimed(Claim::Health) {
            return Arc::clone(self.0.servers.overflow());
        }
        let make = || Server::new(info.server(), self.shared());
        let key = info.server().map_or(&self.0.nameless, |_| info);
        self.0.servers.keep(key, make)
    }

    /// Adds a server to the known ones; it is available until calls fail. If it is added twice, the first `has_more_tools` is
    /// used.
    #[cfg(feature = "router")]
    pub(crate) fn add(
        &self,
        server: &CallInfo,
        has_more_tools: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        let make = || Server::new(server.server(), self.shared());
        let entry = self.0.servers.get_known(server, make);
        let _ = entry.value().has_more.set(Box::new(has_more_tools));
    }

    /// Whether calls to this server are refused now. Does not make the server known.
    #[cfg(feature = "router")]
    pub(crate) fn is_refusing(&self, server: &CallInfo) -> bool {
        let entry = self.0.servers.peek(server);
        entry.is_some_and(|entry| entry.value().refuses(self.shared()).is_some())
    }

    /// Notifies the watchers of all servers.
    #[cold]
    fn changed(&self) {
        let all = self.0.all.get();
        if let Some(all) = all.filter(|all| all.receiver_count() > 0) {
            self.tell_all(all);
        }
    }

    fn tell_all(&self, all: &watch::Sender<Vec<ServerHealth>>) {
        // The snapshot is taken under the sender's lock, as for one server.
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
            .field("rules", &self.0.shared.rules)
            .field("servers", &self.0.servers.len())
            .finish_non_exhaustive()
    }
}

impl<Res> Gate<Res> for Health {
    type Ticket = Visit;

    #[inline]
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Visit, ToolError> {
        let info = call.info();
        let entry = self.entry(call, &info);
        if !ready.is_yes()
            && let Some(wait) = entry.value().refuses(self.shared())
        {
            return Err(unavailable(wait));
        }
        Ok(Visit {
            health: self.clone(),
            entry,
            info,
            pass: None,
        })
    }
}

/// A call to a server. However it ends, its end is recorded once, and a probe gives its place back.
pub(crate) struct Visit {
    health: Health,
    entry: Arc<Entry<Server>>,
    info: CallInfo,
    /// Once it is admitted.
    pass: Option<Pass>,
}

impl Visit {
    fn admit(&mut self) -> Result<(), ToolError> {
        let pass = self.entry.value().admit(self.health.shared());
        let pass = pass.map_err(unavailable)?;
        self.pass = Some(pass);
        if pass.is_probe() {
            self.health.changed();
        }
        Ok(())
    }

    #[inline]
    fn answered(&self) {
        let server = self.entry.value();
        if !server.is_quiet() {
            server.learn(&self.info);
            self.record(Sign::Answer, None);
        }
    }

    /// Records an error, and marks it if it counts.
    #[cold]
    fn failed(&self, error: &mut ToolError) {
        let sign = Sign::of(error);
        self.record(sign, error.outage());
        if matches!(sign, Sign::Failure(_)) && !self.is_overflow() {
            error.set_counted();
        }
    }

    /// Whether there was no place for the server.
    fn is_overflow(&self) -> bool {
        Arc::ptr_eq(&self.entry, self.health.0.servers.overflow())
    }

    #[inline(never)]
    fn record(&self, sign: Sign, outage: Option<&Outage>) {
        let (false, Some(pass)) = (self.is_overflow(), self.pass) else {
            return;
        };
        let (server, call) = (self.entry.value(), &self.info);
        let (change, is_news) = server.ended(sign, outage, pass, call, self.health.shared());
        if is_news {
            self.health.changed();
        }
        if let Some(change) = &change {
            let event = Event::Health { change, call };
            self.health.0.listener.tell(&event);
        }
    }
}

impl Ticket for Visit {
    #[inline]
    fn info(&self) -> &CallInfo {
        &self.info
    }

    fn dropped(&mut self, how: Abandoned) {
        // A call that was not sent, or had not begun to wait, says nothing of the server.
        let has_waited = !how.pending.is_zero() && !self.info.is_held();
        let is_late = how.past_deadline || how.pending >= self.info.patience();
        let sign = match has_waited && is_late {
            true => Sign::Failure(Reason::Timeout),
            false => Sign::Nothing,
        };
        self.record(sign, None);
    }

    fn panicked(&mut self) {
        self.record(Sign::Nothing, None);
    }
}

impl<Res> Ends<Res> for Visit {
    type Class = ();

    #[inline]
    fn admit(&mut self, call: &mut ToolCall) -> Result<Step, ToolError> {
        Visit::admit(self)?;
        call.share_limit();
        call.claim(Claim::Health);
        Ok(Step::Go)
    }

    /// Counts as a result, if the call is admitted.
    fn not_ready(&mut self, _: &ToolCall, mut error: ToolError) -> ToolError {
        match Visit::admit(self) {
            Ok(()) => {
                self.failed(&mut error);
                error
            }
            Err(refusal) => refusal.for_call(&self.info),
        }
    }

    #[inline]
    fn judge(&self, _: &Result<Res, ToolError>) {}

    #[inline]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        match result {
            Ok(_) => self.answered(),
            Err(error) => self.failed(error),
        }
    }
}

/// The refusal of a call whose server is unavailable.
#[cold]
fn unavailable(wait: Duration) -> ToolError {
    ToolError::refusal(ErrorKind::ConnectionFailed, "the server is unavailable")
        .with_retry_after(wait)
}
