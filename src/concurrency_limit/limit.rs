//! The limit of one key, and the place that a call takes in it.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::handle::ConcurrencyLimitHandle;
use crate::{
    call::{CallExt, Claim, ToolCall},
    error::{ErrorKind, ToolError},
    flow::{Ends, Flow, Gate, Gated, Held, PollTurn, Readiness, Step},
    kit::{
        limit,
        per_tool::PerTool,
        registry::{Entry, Evict, Eviction},
    },
};

/// Bounds how many calls of a key run at a time. See the [module docs](super) for an example.
pub type ConcurrencyLimit<S> = Gated<S, ConcurrencyLimitHandle>;

/// Response future for [`ConcurrencyLimit`].
pub type ResponseFuture<S, F> = Flow<S, F, Held<Place>>;

impl<Res> Gate<Res> for ConcurrencyLimitHandle {
    type Ticket = Held<Place>;

    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Held<Place>, ToolError> {
        let info = call.info();
        self.settings.tools.look(call);
        let entry = self
            .registry
            .entry(&info, || KeyLimit::new(&self.settings, call));
        let stage = Stage::Outside;
        let own = Place { entry, stage };
        if !ready.is_yes() {
            limit::check(call)?;
            own.refusal(call).map_or(Ok(()), Err)?;
        }
        Ok(Held { info, own })
    }
}

/// Shared by all limits of one layer value.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) max: usize,
    /// Those of tools that have their own.
    pub(super) tools: PerTool<usize>,
    pub(super) max_queue: usize,
}

/// The value of a key in the registry.
#[derive(Debug)]
pub(super) struct KeyLimit {
    /// Gives permits in the order in which they were asked for.
    permits: Semaphore,
    /// How many calls wait: those that count for the bound of the queue, and those of batches.
    waiting: [AtomicUsize; 2],
    /// The places in the queue for calls of batches, as many as for all others.
    batch_queue: Semaphore,
    max: usize,
    settings: Arc<Settings>,
}

impl KeyLimit {
    pub(super) fn new(settings: &Arc<Settings>, call: &ToolCall) -> Self {
        let max = settings.tools.get_of_key(call);
        Self::of(*max.unwrap_or(&settings.max), settings)
    }

    /// Returns the limit of the keys beyond the bound: it lets calls pass, so that those of one key
    /// there do not hold back all others.
    pub(super) fn overflow(settings: &Arc<Settings>) -> Self {
        let max = match settings.max {
            0 => 0,
            _ => usize::MAX,
        };
        Self::of(max, settings)
    }

    fn of(max: usize, settings: &Arc<Settings>) -> Self {
        // More calls than that fit into no memory.
        let max = max.min(Semaphore::MAX_PERMITS);
        Self {
            permits: Semaphore::new(max),
            waiting: Default::default(),
            batch_queue: Semaphore::new(settings.max_queue.min(Semaphore::MAX_PERMITS)),
            max,
            settings: Arc::clone(settings),
        }
    }

    pub(super) fn running(&self) -> usize {
        self.max.saturating_sub(self.permits.available_permits())
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
            .iter()
            .map(|waiting| waiting.load(Relaxed))
            .sum()
    }

    /// Returns how many calls wait that count for this one, and how many may. Without a permit that
    /// could come back none may.
    fn queue(&self, is_claimed: bool) -> (&AtomicUsize, usize) {
        let most = match (self.max, self.settings.max_queue) {
            (0, _) | (_, 0) => 0,
            _ if is_claimed => usize::MAX,
            (_, most) => most,
        };
        (&self.waiting[usize::from(is_claimed)], most)
    }
}

impl Evict for KeyLimit {
    const IS_KNOWN: bool = false;

    fn eviction(&self) -> Eviction {
        match self.running() + self.waiting() {
            0 => Eviction::Free,
            _ => Eviction::Forbidden,
        }
    }
}

/// The place of a call: outside, in the queue, or among those that run.
pub struct Place {
    entry: Arc<Entry<KeyLimit>>,
    stage: Stage,
}

crate::text::debug_fields! { {} |_| Place { .. } }

enum Stage {
    Outside,
    Queued(Pin<Box<dyn Future<Output = ()> + Send + Sync>>),
    Running,
}

/// A call that waits counts until this is dropped.
struct Queued {
    entry: Arc<Entry<KeyLimit>>,
    is_claimed: bool,
}

impl Drop for Queued {
    fn drop(&mut self) {
        let (waiting, _) = self.entry.value().queue(self.is_claimed);
        waiting.fetch_sub(1, Relaxed);
    }
}

impl Place {
    fn limit(&self) -> &KeyLimit {
        self.entry.value()
    }

    /// Takes a place among those that run, if one is free.
    fn take(&mut self) -> bool {
        let permit = self.limit().permits.try_acquire();
        let is_free = permit.map(SemaphorePermit::forget).is_ok();
        if is_free {
            self.stage = Stage::Running;
        }
        is_free
    }

    /// Returns the refusal of a call that comes now. Takes nothing.
    pub(super) fn refusal(&self, call: &ToolCall) -> Option<ToolError> {
        let limit = self.limit();
        let (waiting, most) = limit.queue(call.is_claimed(Claim::Queue));
        let is_full = limit.permits.available_permits() == 0 && waiting.load(Relaxed) >= most;
        is_full.then(overloaded)
    }

    /// Takes a place in the queue, or refuses the call.
    fn enter(&mut self, call: &ToolCall) -> Result<(), ToolError> {
        let is_claimed = call.is_claimed(Claim::Queue);
        let (waiting, most) = self.limit().queue(is_claimed);
        let one_more = |waiting| (waiting < most).then_some(waiting + 1);
        let entered = waiting.fetch_update(Relaxed, Relaxed, one_more);
        entered.map_err(|_| overloaded())?;
        let entry = Arc::clone(&self.entry);
        let queued = Queued { entry, is_claimed };
        self.stage = Stage::Queued(Box::pin(async move {
            let limit = queued.entry.value();
            let _place = match is_claimed {
                true => Some(limit.batch_queue.acquire().await),
                false => None,
            };
            let permit = limit.permits.acquire().await;
            permit.expect("never closed").forget();
        }));
        Ok(())
    }
}

impl<Res> Ends<Res> for Held<Place> {
    type Class = ();

    fn admit(&mut self, call: &mut ToolCall) -> Result<Step, ToolError> {
        if matches!(self.own.stage, Stage::Running) || self.own.take() {
            return Ok(Step::Go);
        }
        limit::check(call)?;
        self.own.enter(call)?;
        Ok(Step::Wait)
    }

    fn poll_turn(&mut self, _: &mut ToolCall, cx: &mut Context<'_>) -> PollTurn<Res> {
        if let Stage::Queued(turn) = &mut self.own.stage {
            ready!(turn.as_mut().poll(cx));
            self.own.stage = Stage::Running;
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

impl Drop for Place {
    fn drop(&mut self) {
        // A permit that was on its way to a call in the queue goes to the next by itself.
        if let Stage::Running = self.stage {
            self.limit().permits.add_permits(1);
        }
    }
}

fn overloaded() -> ToolError {
    let text = "the concurrency limit is reached, and no more calls may wait";
    ToolError::refusal(ErrorKind::Overloaded, text)
}
