use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{
    ServerHealth,
    layer::{HealthBuilder, HealthLayer},
};
use crate::{
    call::{CallExt, CallInfo, Claim, ToolCall},
    circuit_breaker::{Breaker, CircuitBreakerHandle, Pass, SERVER, Sign},
    error::{ErrorKind, Outage, ToolError},
    event::availability::Reason,
    flow::{Abandoned, Ends, Gate, Readiness, Step, Ticket, Times},
    lock::lock,
};

/// A registry of the availability of servers. Cheap to clone. See the [module docs](super) for an
/// example.
#[derive(Clone)]
pub struct Health(Arc<Servers>);

struct Servers {
    breakers: CircuitBreakerHandle,
    /// Calls of an unavailable server may be refused.
    refuses: bool,
    /// Under its key, all calls that name no server share one state.
    nameless: CallInfo,
    /// By the hash of the server.
    lists: Mutex<HashMap<u64, HasMore>>,
    all: watch::Sender<Vec<ServerHealth>>,
}

/// Returns whether a server has more than one tool.
type HasMore = Arc<dyn Fn() -> bool + Send + Sync>;

impl Health {
    /// Returns a registry that only observes: a server is unavailable after 3 timeouts or
    /// connection failures in a row.
    pub fn new() -> Self {
        HealthBuilder::new().build_checked()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> HealthBuilder {
        HealthBuilder::new()
    }

    pub(super) fn with(breakers: CircuitBreakerHandle, refuses: bool) -> Self {
        Self(Arc::new(Servers {
            breakers,
            refuses,
            nameless: ToolCall::new("").info(),
            lists: Mutex::default(),
            all: watch::Sender::default(),
        }))
    }

    /// Returns the layer that feeds the registry.
    pub fn layer(&self) -> HealthLayer {
        HealthLayer(self.clone())
    }

    /// Returns the health of a server; `None` if it was never called and belongs to no router.
    pub fn server(&self, server: &str) -> Option<ServerHealth> {
        Some(self.0.breakers.find(&named(server))?.health())
    }

    /// Returns the health of every known server, in the order of their names.
    pub fn snapshot(&self) -> Vec<ServerHealth> {
        let breakers = self.0.breakers.breakers();
        breakers.iter().map(Breaker::health).collect()
    }

    /// Watches a server, known or not: the receiver has the present state, and each one after it.
    /// It is notified when state, reason or the time of the next probe change, not of each failure.
    /// A watched server is not evicted.
    ///
    /// If all places are taken, the state of a new server never changes. Borrow its value for a
    /// moment only: a call that changes the value waits for the borrow to end, as with any
    /// [`watch`].
    pub fn subscribe(&self, server: &str) -> watch::Receiver<ServerHealth> {
        self.0.breakers.breaker(&named(server)).watch()
    }

    /// Watches all servers: the receiver has the present [snapshot](Self::snapshot), and one for
    /// each change of a server's state, reason or time of the next probe. Another failure alone is
    /// not a change. A server that was called for the first time and is available appears in the
    /// next one.
    pub fn subscribe_all(&self) -> watch::Receiver<Vec<ServerHealth>> {
        // First: from now on it receives changes.
        let mut receiver = self.0.all.subscribe();
        self.tell_all();
        receiver.mark_unchanged();
        receiver
    }

    /// Adds a server to the known ones; it is available until calls fail. If it is added twice, the
    /// first `has_more_tools` is used.
    pub(crate) fn add(
        &self,
        server: &ToolCall,
        has_more_tools: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        self.0.breakers.breaker(server);
        let mut lists = lock(&self.0.lists);
        let list = lists.entry(server.info().server_hash());
        list.or_insert_with(|| Arc::new(has_more_tools));
    }

    /// Returns whether calls to this server are refused now. Does not make the server known.
    pub(crate) fn is_refusing(&self, server: &ToolCall) -> bool {
        let breaker = self.0.breakers.find(server);
        breaker.is_some_and(|breaker| breaker.is_open())
    }

    /// Returns what a failure is evidence against; `None` if it refuses no calls.
    fn against(&self, reason: Reason, call: &CallInfo, breaker: &Breaker) -> Option<u64> {
        let refuses = self.0.refuses && call.server().is_some();
        refuses.then(|| match reason {
            Reason::ConnectionFailed => SERVER,
            Reason::Timeout => {
                let lists = lock(&self.0.lists);
                let list = lists.get(&call.server_hash()).cloned();
                // A list has locks of its own.
                drop(lists);
                breaker.suspect(call, list.is_some_and(|has_more| has_more()))
            }
        })
    }

    /// Returns the names by which a call's breaker is kept.
    #[inline]
    fn key<'a>(&'a self, info: &'a CallInfo) -> &'a CallInfo {
        info.server().map_or(&self.0.nameless, |_| info)
    }

    /// Notifies the watchers of a server, and after a change those of all servers.
    #[cold]
    fn publish(&self, breaker: &Breaker, has_changed: bool) {
        breaker.publish();
        if has_changed && self.0.all.receiver_count() > 0 {
            self.tell_all();
        }
    }

    fn tell_all(&self) {
        self.0.all.send_if_modified(|seen| {
            let before = mem::replace(seen, self.snapshot());
            let news = ServerHealth::news;
            !before.iter().map(news).eq(seen.iter().map(news))
        });
    }
}

/// Returns a call that names this server.
pub(crate) fn named(server: &str) -> ToolCall {
    ToolCall::new("").with_server(server)
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

crate::text::debug_fields! {
    {} |this| Health {
        breakers: this.0.breakers,
        refuses: this.0.refuses,
        servers: this.0.breakers.len(),
        ..
    }
}

impl<Res> Gate<Res> for Health {
    type Ticket = Visit;

    #[inline]
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Visit, ToolError> {
        let info = call.info();
        let is_claimed = call.is_claimed(Claim::Health);
        let breaker = (!is_claimed).then(|| self.0.breakers.breaker_for(self.key(&info)));
        if let Some(breaker) = &breaker
            && !ready.is_yes()
            && let Some(wait) = breaker.refuses()
        {
            return Err(unavailable(wait));
        }
        Ok(Visit {
            health: self.clone(),
            breaker,
            info,
            pass: Pass::FIRST,
        })
    }
}

/// A call to a server. However it ends, its end is recorded once, and a probe gives its place back.
pub struct Visit {
    health: Health,
    /// `None` if an outer layer records the call.
    breaker: Option<Breaker>,
    info: CallInfo,
    pass: Pass,
}

crate::text::debug_fields! { {} |_| Visit { .. } }

impl Visit {
    #[inline]
    fn admit(&mut self) -> Result<(), ToolError> {
        if let Some(breaker) = &self.breaker {
            self.pass = breaker.enter().map_err(unavailable)?;
            if self.pass.is_probe() {
                self.health.publish(breaker, true);
            }
        }
        Ok(())
    }

    /// Returns the breaker that records the call; `None` if its server has no place.
    fn recorder(&self) -> Option<&Breaker> {
        self.breaker
            .as_ref()
            .filter(|breaker| !breaker.is_overflow())
    }

    /// Records an error, and marks it if it counts.
    #[cold]
    fn failed(&self, error: &mut ToolError) {
        let sign = Sign::of(error);
        self.record(sign, error.outage());
        if matches!(sign, Sign::Failure(_)) && self.recorder().is_some() {
            error.set_counted();
        }
    }

    #[inline(never)]
    fn record(&self, sign: Sign, outage: Option<&Outage>) {
        let Some(breaker) = self.recorder() else {
            return;
        };
        let call = &self.info;
        let against = match sign {
            Sign::Failure(reason) => self.health.against(reason, call, breaker),
            Sign::Nothing if !self.pass.is_probe() => return,
            _ => None,
        };
        let has_changed = breaker.end_visit((self.pass, call), sign, against, outage);
        self.health.publish(breaker, has_changed);
    }
}

impl Ticket for Visit {
    type Times = Times;

    #[inline]
    fn info(&self) -> &CallInfo {
        &self.info
    }

    fn dropped(&mut self, how: Abandoned) {
        // A call that was not sent, or had not begun to wait, says nothing of the server.
        let has_waited = !how.pending.is_zero() && !self.info.is_unsent();
        let is_late = how.past_deadline && !how.was_held || how.pending >= self.info.patience();
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
        call.take_claim(Claim::Health);
        Ok(Step::Go)
    }

    /// Counts as a result, if the call is admitted.
    fn not_ready(&mut self, _: &ToolCall, mut error: ToolError) -> ToolError {
        if let Err(refusal) = Visit::admit(self) {
            return refusal;
        }
        self.failed(&mut error);
        error
    }

    #[inline]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        match (result, &self.breaker) {
            (Ok(_), Some(breaker))
                if !breaker.succeeded(self.pass, self.health.key(&self.info)) =>
            {
                self.record(Sign::Answer, None);
            }
            (Ok(_), _) => {}
            (Err(error), _) => self.failed(error),
        }
    }
}

/// Returns the refusal of a call to an unavailable server.
#[cold]
fn unavailable(wait: Duration) -> ToolError {
    ToolError::refusal(ErrorKind::ConnectionFailed, "the server is unavailable")
        .with_retry_after(wait)
}
