use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

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
    outer: Option<Progress>,
}

impl Progress {
    pub(super) fn new(allowed: Duration, outer: Option<Progress>) -> Self {
        Self(Arc::new(Inner {
            since: Instant::now(),
            allowed,
            last: AtomicU64::new(0),
            outer,
        }))
    }

    /// Reports progress: every idle timeout above starts anew. Hard limits are not moved.
    pub fn report(&self) {
        let mut next = Some(self);
        let now = Instant::now();
        while let Some(Self(inner)) = next {
            let at = now.saturating_duration_since(inner.since).as_nanos();
            // `fetch_max`: reports may come from several threads, and time must not go back.
            inner
                .last
                .fetch_max(u64::try_from(at).unwrap_or(u64::MAX), Relaxed);
            next = inner.outer.as_ref();
        }
    }

    /// How long a call may go without a report.
    pub(crate) fn allowed(&self) -> Duration {
        self.0.allowed
    }

    /// When that time is currently over for a call that has waited since `since`.
    pub(crate) fn limit(&self, since: Instant) -> Option<Instant> {
        let last = self.0.since + Duration::from_nanos(self.0.last.load(Relaxed));
        last.max(since).checked_add(self.0.allowed)
    }
}

crate::text::opaque_debug!({} Progress);
