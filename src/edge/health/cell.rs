use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{
    ServerHealth,
    sign::Sign,
    state::{Admission, Pass, Rules, State},
};
use crate::{
    event::availability::AvailabilityChange,
    kit::registry::{Evict, Keep},
};

/// One server, for all threads.
#[derive(Debug)]
pub(super) struct Cell {
    server: Option<Arc<str>>,
    /// What a call has to know that finds the server well, and may change nothing: [`State::mark`].
    mark: AtomicU64,
    state: Mutex<State>,
    changed: watch::Sender<ServerHealth>,
    /// The one of all servers for which there is no place.
    overflow: bool,
}

impl Cell {
    pub(super) fn new(server: Option<&str>, rules: &Rules) -> Self {
        let server = server.map(|s| &s[..crate::text::floor(s, crate::MAX_NAME_BYTES)]);
        let server = server.map(Arc::from);
        let state = State::new(Instant::now());
        Self {
            mark: AtomicU64::new(state.mark()),
            changed: watch::Sender::new(state.read(server.clone(), rules)),
            state: Mutex::new(state),
            server,
            overflow: false,
        }
    }

    pub(super) fn overflow(rules: &Rules) -> Self {
        Self {
            overflow: true,
            ..Self::new(None, rules)
        }
    }

    pub(super) fn is_overflow(&self) -> bool {
        self.overflow
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self, rules: &Rules) -> ServerHealth {
        let mut health = self.lock().read(self.server.clone(), rules);
        if !self.may_refuse(rules) {
            health.probe_at = None;
        }
        health
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<ServerHealth> {
        self.changed.subscribe()
    }

    /// Calls that name no server may be for anybody: none is refused.
    fn may_refuse(&self, rules: &Rules) -> bool {
        rules.refuses && self.server.is_some()
    }

    /// Whether a call may pass, and what it has to bring along. A probe is news for watchers.
    #[inline]
    pub(super) fn admit(&self, rules: &Rules) -> Result<Pass, Duration> {
        let mark = Mark(self.mark.load(SeqCst));
        let pass = Pass {
            recoveries: mark.recoveries(),
            probe: None,
        };
        if mark.is_calm() || !self.may_refuse(rules) {
            return Ok(pass);
        }
        self.admit_or_refuse(rules, pass)
    }

    #[cold]
    fn admit_or_refuse(&self, rules: &Rules, pass: Pass) -> Result<Pass, Duration> {
        let (admission, _) = self.change(rules, |state| state.admit(rules, Instant::now()));
        match admission {
            Admission::Pass => Ok(pass),
            Admission::Probe(number) => Ok(Pass {
                probe: Some(number),
                ..pass
            }),
            Admission::Refused(wait) => Err(wait),
        }
    }

    /// A look, that reserves nothing.
    pub(super) fn refuses(&self, rules: &Rules) -> Option<Duration> {
        if self.is_calm() || !self.may_refuse(rules) {
            return None;
        }
        self.lock().refusal(rules, Instant::now())
    }

    /// An answer changes nothing, because there were no failures: while all is well that is one load.
    #[inline]
    pub(super) fn is_calm(&self) -> bool {
        Mark(self.mark.load(SeqCst)).is_calm()
    }

    /// A call has ended. Tells how the availability has changed, and whether there is news for watchers.
    pub(super) fn ended(
        &self,
        sign: Sign,
        pass: Pass,
        rules: &Rules,
    ) -> (Option<AvailabilityChange>, bool) {
        let nothing_new = match sign {
            Sign::Answer => self.is_calm(),
            Sign::Failure(_) => false,
            Sign::Nothing => pass.probe.is_none(),
        };
        if nothing_new || self.overflow {
            return (None, false);
        }
        let end = |state: &mut State| state.ended(sign, pass, rules, Instant::now());
        let (change, is_news) = self.change(rules, end);
        (change.map(|change| change.of(self.server.clone())), is_news)
    }

    /// Changes the state, and tells those who watch the server; and whether there was anything to tell.
    fn change<T>(&self, rules: &Rules, change: impl FnOnce(&mut State) -> T) -> (T, bool) {
        let mut state = self.lock();
        let before = state.watched();
        let output = change(&mut state);
        self.mark.store(state.mark(), SeqCst);
        let is_news = before != state.watched();
        // Whoever looks at what he watches must hold up nobody else.
        drop(state);
        if is_news {
            // Read while it is written: the last one to write has read what is the case then.
            self.changed.send_modify(|seen| *seen = self.read(rules));
        }
        (output, is_news)
    }
}

impl Evict for Cell {
    fn keep(&self) -> Keep {
        if self.changed.receiver_count() > 0 {
            return Keep::Always;
        }
        self.lock().keep(Instant::now())
    }
}

/// [`State::mark`], read.
#[derive(Clone, Copy)]
struct Mark(u64);

impl Mark {
    fn is_calm(self) -> bool {
        self.0 & 1 == 0
    }

    fn recoveries(self) -> u64 {
        self.0 >> 1
    }
}
