//! The quota of one key, and the units of a call.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    bucket::Bucket,
    gcra::{Rate, Turn},
    handle::QuotaHandle,
    rate::Quota,
};
use crate::{
    call::{CallInfo, ToolCall, nanos},
    error::{ErrorKind, QUOTA_IMPOSSIBLE, ToolError, Words},
    flow::{Ends, Flow, Gate, Gated, Held, PollTurn, Readiness, Step},
    kit::{
        limit,
        per_tool::PerTool,
        registry::{Entry, Evict, Eviction},
        timer::Timer,
    },
};

/// Limits the calls of a key per period. See the [module docs](super) for an example.
pub type QuotaService<S> = Gated<S, QuotaHandle>;

/// Response future for [`QuotaService`].
pub type ResponseFuture<S, F> = Flow<S, F, Held<Units>>;

impl<Res> Gate<Res> for QuotaHandle {
    type Ticket = Held<Units>;

    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Held<Units>, ToolError> {
        let info = call.info();
        let entry = self
            .registry
            .entry(&info, || KeyQuota::new(&self.settings, call));
        let own = Units {
            entry,
            cost: self.settings.cost(call),
            turn: None,
            timer: Timer::default(),
        };
        if !ready.is_yes() {
            limit::check(call)?;
            own.refusal(call).map_or(Ok(()), Err)?;
        }
        Ok(Held { info, own })
    }
}

/// The units that a call costs.
pub(super) type CostFn = dyn Fn(&CallInfo) -> u32 + Send + Sync;

/// Shared by all quotas of one layer value.
#[derive(Clone)]
pub struct Settings {
    pub(super) quota: Quota,
    /// Those of tools that have their own.
    pub(super) tools: PerTool<Quota>,
    pub(super) costs: PerTool<u32>,
    /// `None`: each call of another tool costs one unit.
    pub(super) cost: Option<Arc<CostFn>>,
    pub(super) waits: bool,
    pub(super) max_wait: Duration,
    pub(super) origin: Instant,
}

impl Settings {
    pub(super) fn now(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    /// Returns the units that the key of this call has, and the rate at which they come back.
    pub(super) fn rate(&self, call: &ToolCall) -> Rate {
        let own = self.tools.get_of_key(call);
        Rate::of(own.unwrap_or(&self.quota))
    }

    pub(super) fn cost(&self, call: &ToolCall) -> u32 {
        self.tools.look(call);
        let own = match self.costs.is_empty() {
            true => None,
            false => self.costs.get(call),
        };
        match (own, &self.cost) {
            (Some(own), _) => *own,
            (None, Some(cost)) => cost(&call.info()),
            (None, None) => 1,
        }
    }

    /// Returns the largest burst of all quotas.
    pub(super) fn largest_burst(&self) -> u32 {
        let own = self.tools.values().map(Quota::burst);
        own.fold(self.quota.burst(), u32::max)
    }

    /// Returns the latest turn for a call that comes now, which is never too late for one now;
    /// nothing is sent at the deadline itself.
    fn latest(&self, now: u64, call: &ToolCall) -> u64 {
        let latest = now.saturating_add(nanos(self.max_wait));
        let deadline = call.deadline().map(|at| {
            let at = at.saturating_duration_since(self.origin);
            nanos(at).saturating_sub(1)
        });
        latest.min(deadline.unwrap_or(u64::MAX)).max(now)
    }
}

crate::text::debug_fields! { {} |_| Settings { quota, max_wait, .. } }

/// The value of a key in the registry.
#[derive(Debug)]
pub(super) struct KeyQuota {
    pub(super) bucket: Bucket,
    settings: Arc<Settings>,
}

impl KeyQuota {
    pub(super) fn new(settings: &Arc<Settings>, call: &ToolCall) -> Self {
        Self::of(settings.rate(call), settings)
    }

    fn of(rate: Rate, settings: &Arc<Settings>) -> Self {
        Self {
            bucket: Bucket::new(rate),
            settings: Arc::clone(settings),
        }
    }

    /// Returns the quota of the keys beyond the bound: one of them must not use up that of all
    /// others there. Its burst is the largest that one of them could have.
    pub(super) fn overflow(settings: &Arc<Settings>) -> Self {
        let burst = settings.largest_burst();
        let rate = Rate::of(&settings.quota);
        Self::of(Rate { burst, ..rate }, settings)
    }
}

impl Evict for KeyQuota {
    const IS_KNOWN: bool = false;

    fn eviction(&self) -> Eviction {
        // A full bucket is as good as a new one.
        match self.bucket.full_at() > self.settings.now() {
            true => Eviction::Costly,
            false => Eviction::Free,
        }
    }
}

/// The units that a call costs, and has taken.
pub struct Units {
    entry: Arc<Entry<KeyQuota>>,
    cost: u32,
    /// Those of a call that has waited, until it is sent.
    turn: Option<Turn>,
    timer: Timer,
}

crate::text::debug_fields! { {} |_| Units { .. } }

impl Units {
    /// Returns the time in which the units come back, or the error of a call that costs more than
    /// there ever are.
    fn time(&self) -> Result<u64, ToolError> {
        let rate = self.entry.value().bucket.rate;
        rate.time(self.cost).ok_or_else(|| {
            let Rate { burst, .. } = rate;
            let text = format!(
                "the call costs {} units, and the quota has at most {burst}",
                self.cost
            );
            ToolError::refusal(ErrorKind::InvalidInput, text)
                .with_code(QUOTA_IMPOSSIBLE)
                .with_words(&IMPOSSIBLE)
        })
    }
}

static IMPOSSIBLE: Words = Words {
    user: "The call of the tool '{tool}' is larger than its quota ever allows.",
    user_later: "",
    problem: "This call of tool '{tool}' costs more than its quota ever allows.",
    stop: "Ask for less, or continue without it.",
    again: "Ask for less, or continue without it.",
};

impl Units {
    /// Takes the units of a call that does not have to wait.
    fn take(&mut self) -> bool {
        let quota = self.entry.value();
        match quota.bucket.rate.time(self.cost) {
            Some(0) => true,
            Some(time) => self.entry.is_overflow() || quota.bucket.take(quota.settings.now(), time),
            None => false,
        }
    }

    /// Returns the refusal of a call that comes now. Takes nothing.
    pub(super) fn refusal(&self, call: &ToolCall) -> Option<ToolError> {
        let time = match self.time() {
            Ok(time) => time,
            Err(error) => return Some(error),
        };
        let quota = self.entry.value();
        if self.entry.is_overflow() || time == 0 {
            return None;
        }
        let now = quota.settings.now();
        let latest = quota.settings.latest(now, call);
        let late = quota.bucket.too_late(now, latest, time);
        late.map(|at| used_up(at - now))
    }

    /// Takes a turn for a call that has to wait, or refuses it.
    fn enter(&mut self, call: &ToolCall) -> Result<(), ToolError> {
        let time = self.time()?;
        let quota = self.entry.value();
        let now = quota.settings.now();
        let latest = quota.settings.latest(now, call);
        let turn = quota.bucket.reserve(now, latest, time);
        self.turn = Some(turn.map_err(|at| used_up(at - now))?);
        Ok(())
    }
}

impl<Res> Ends<Res> for Held<Units> {
    type Class = ();

    fn admit(&mut self, call: &mut ToolCall) -> Result<Step, ToolError> {
        // The turn of a call that has waited is used up when it is sent.
        if self.own.turn.take().is_some() || self.own.take() {
            return Ok(Step::Go);
        }
        limit::check(call)?;
        self.own.enter(call)?;
        Ok(Step::Wait)
    }

    fn poll_turn(&mut self, _: &mut ToolCall, cx: &mut Context<'_>) -> PollTurn<Res> {
        let own = &mut self.own;
        let origin = own.entry.value().settings.origin;
        if let Some(turn) = own.turn {
            let at = || origin.checked_add(Duration::from_nanos(turn.at));
            ready!(own.timer.poll(cx, at));
        }
        Poll::Ready(Ok(None))
    }

    fn waited(&mut self, time: Duration) {
        self.info.record(|record| record.add_wait(time));
    }

    #[inline]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        if result.is_ok() {
            self.own.entry.prove(&self.info);
        }
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            let quota = self.entry.value();
            quota.bucket.give_back(quota.settings.now(), turn);
        }
    }
}

fn used_up(wait: u64) -> ToolError {
    let (kind, wait) = (ErrorKind::RateLimited, Duration::from_nanos(wait));
    ToolError::not_admitted(kind, "the quota is used up", wait, None)
}
