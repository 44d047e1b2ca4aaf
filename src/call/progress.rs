use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::nanos;
use crate::lock::lock;
use tokio::time::Instant;

/// Receives a tool's reports that it is still at work; see
/// [`TimeoutLayer::with_idle_timeout`](crate::timeout::TimeoutLayer::with_idle_timeout).
///
/// Cheap to clone and to report to; a report wakes no task.
///
/// ```
/// # use tower_toolcall::{AnyError, ToolCall};
/// async fn import(call: ToolCall) -> Result<u32, AnyError> {
///     let progress = call.progress(); // `None` unless a layer waits for it
///     for _batch in 0..3 {
///         // ... work ...
///         if let Some(progress) = &progress {
///             progress.report();
///         }
///     }
///     Ok(3)
/// }
/// ```
#[derive(Clone)]
pub struct Progress(Arc<Inner>);

struct Inner {
    since: Instant,
    /// How long a call may go without a report.
    allowed: Duration,
    /// Nanoseconds from `since` to the last report.
    last: AtomicU64,
    pauses: Mutex<Pauses>,
    outer: Option<Progress>,
}

/// The time that does not count.
#[derive(Default)]
struct Pauses {
    /// How many guards there are, and since when there is one.
    held: usize,
    since: Option<Instant>,
    ended: Duration,
}

impl Progress {
    pub(super) fn new(allowed: Duration, outer: Option<Progress>) -> Self {
        Self(Arc::new(Inner {
            since: Instant::now(),
            allowed,
            last: AtomicU64::new(0),
            pauses: Mutex::default(),
            outer,
        }))
    }

    /// Reports progress: every idle timeout above starts anew. Hard limits are not moved.
    pub fn report(&self) {
        self.report_at(Instant::now());
    }

    fn report_at(&self, now: Instant) {
        for inner in self.all() {
            let at = nanos(now.saturating_duration_since(inner.since));
            // `fetch_max`: reports may come from several threads, and time must not go back.
            inner.last.fetch_max(at, Relaxed);
        }
    }

    /// Stops the clocks of all timeouts above, hard limits too, until the guard is dropped: a
    /// person's time to answer is not the tool's. Deadlines are not moved. Guards may overlap.
    ///
    /// ```
    /// # use tower_toolcall::{AnyError, ToolCall};
    /// # async fn ask_the_user() -> bool { true }
    /// async fn pay(call: ToolCall) -> Result<bool, AnyError> {
    ///     let progress = call.progress();
    ///     let pause = progress.as_ref().map(|progress| progress.pause());
    ///     let agrees = ask_the_user().await;
    ///     drop(pause);
    ///     Ok(agrees)
    /// }
    /// ```
    pub fn pause(&self) -> Pause {
        let now = Instant::now();
        for inner in self.all() {
            let mut pauses = lock(&inner.pauses);
            pauses.held += 1;
            pauses.since.get_or_insert(now);
        }
        Pause(self.clone())
    }

    /// Yields this layer's clock and those of the outer layers.
    fn all(&self) -> impl Iterator<Item = &Inner> {
        std::iter::successors(Some(&*self.0), |inner| inner.outer.as_ref().map(|o| &*o.0))
    }

    /// How long the clocks have stood still.
    pub(crate) fn paused(&self) -> Duration {
        let pauses = lock(&self.0.pauses);
        let current = pauses.since.map(|since| since.elapsed());
        pauses.ended + current.unwrap_or_default()
    }

    /// How long a call may go without a report.
    pub(crate) fn allowed(&self) -> Duration {
        self.0.allowed
    }

    /// When that time is currently over for a call that has waited since `since`.
    pub(crate) fn limit(&self, since: Instant) -> Option<Instant> {
        self.limit_while(since, || ())
    }

    /// `meanwhile` is what another thread may do between the two reads.
    pub(super) fn limit_while(&self, since: Instant, meanwhile: impl FnOnce()) -> Option<Instant> {
        // First, because a pause reports before it ends.
        let is_paused = lock(&self.0.pauses).since.is_some();
        meanwhile();
        let last = match is_paused {
            true => Instant::now(),
            false => self.0.since + Duration::from_nanos(self.0.last.load(Relaxed)),
        };
        last.max(since).checked_add(self.0.allowed)
    }
}

/// Keeps the clocks of a call's timeouts stopped; see [`Progress::pause`].
#[must_use = "the clocks go on when it is dropped"]
pub struct Pause(Progress);

impl Drop for Pause {
    fn drop(&mut self) {
        let now = Instant::now();
        self.0.report_at(now);
        for inner in self.0.all() {
            let mut pauses = lock(&inner.pauses);
            pauses.held -= 1;
            if pauses.held == 0
                && let Some(since) = pauses.since.take()
            {
                pauses.ended += now.saturating_duration_since(since);
            }
        }
    }
}

crate::text::debug_fields! { {} |_| Pause { .. } }

crate::text::debug_fields! { {} |_| Progress { .. } }
