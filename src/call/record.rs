use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

/// What happened below an observer during one logical call: layers write it, those above read it
/// through an [`Observation`].
///
/// It exists because a *success* carries no news of what it took: attempts, the timeout in force,
/// slowness, waits, refusals.
///
/// One is allocated with each call and reused by the clones of that call that are sent one after
/// the other. A recording has a number; what a straggler of an earlier recording writes is ignored,
/// unless it comes in the very moment in which the next one begins.
#[derive(Debug, Default)]
pub struct Record {
    /// `number << 1 | in use`.
    state: AtomicU32,
    attempts: AtomicU32,
    refusals: AtomicU32,
    slow: AtomicBool,
    timeout: Nanos,
    configured: Nanos,
    waited_nanos: AtomicU64,
    /// What the idempotency keys of its recordings begin with; 0 before the first one is asked for.
    key: AtomicU64,
}

/// Tells repetitions of a call from other calls; see
/// [`ToolCall::idempotency_key`](super::ToolCall::idempotency_key).
///
/// Prints as 24 hexadecimal digits: a random number of 64 bits, and the number of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    random: u64,
    recording: u32,
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:08x}", self.random, self.recording)
    }
}

/// A duration in whole nanoseconds; none if it is not known, or 584 years and more.
#[derive(Debug)]
struct Nanos(AtomicU64);

impl Nanos {
    const NONE: u64 = u64::MAX;

    fn set(&self, d: Duration) {
        self.0
            .store(u64::try_from(d.as_nanos()).unwrap_or(Self::NONE), Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        match self.0.load(Relaxed) {
            Self::NONE => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

impl Default for Nanos {
    fn default() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }
}

impl Record {
    /// Starts a recording and returns its number, never 0; `None` while another one runs.
    pub(super) fn start(this: &Arc<Self>) -> Option<(Observation, u32)> {
        let state = this.state.load(Relaxed);
        if state & 1 == 1 {
            return None;
        }
        // In use, and the next number: the low bit is set, so it is never 0.
        let recording = state.wrapping_add(2) | 1;
        this.state
            .compare_exchange(state, recording, AcqRel, Relaxed)
            .ok()?;
        this.begin_attempt(1);
        this.refusals.store(0, Relaxed);
        this.slow.store(false, Relaxed);
        this.waited_nanos.store(0, Relaxed);
        let observation = Observation {
            record: Arc::clone(this),
            recording,
            owner: true,
        };
        Some((observation, recording))
    }

    pub(super) fn idempotency_key(&self, recording: u32) -> IdempotencyKey {
        let mut random = self.key.load(Relaxed);
        if random == 0 {
            // Another one for each value of its type.
            let fresh = RandomState::new().hash_one(recording).max(1);
            random = match self.key.compare_exchange(0, fresh, Relaxed, Relaxed) {
                Ok(_) => fresh,
                Err(first) => first,
            };
        }
        IdempotencyKey { random, recording }
    }

    #[inline]
    pub(super) fn is_current(&self, recording: u32) -> bool {
        self.state.load(Acquire) == recording
    }

    /// Sets the timeout in force, and the configured one, which a deadline may have shortened. Of
    /// several in one attempt the shortest holds.
    pub fn set_timeout(&self, in_force: Duration, configured: Duration) {
        if self.timeout.get().is_none_or(|known| in_force < known) {
            self.timeout.set(in_force);
            self.configured.set(configured);
        }
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout.get()
    }

    /// Marks the call as slow.
    pub fn set_slow(&self) {
        self.slow.store(true, Relaxed);
    }

    /// Begins attempt `n`: its timeout is not known yet.
    pub fn begin_attempt(&self, n: u32) {
        self.attempts.store(n, Relaxed);
        self.timeout.0.store(Nanos::NONE, Relaxed);
        self.configured.0.store(Nanos::NONE, Relaxed);
    }

    /// Adds time spent waiting for a backoff or a cooldown.
    pub fn add_wait(&self, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        let _ = self
            .waited_nanos
            .fetch_update(Relaxed, Relaxed, |w| Some(w.saturating_add(nanos)));
    }

    /// Counts a retry that was refused.
    pub fn add_refusal(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }
}

/// An observer's view of a call's [`Record`]; see [`ToolCall::observe`](super::ToolCall::observe).
///
/// Once the outermost observer has dropped its own, the figures of those below may be of a later
/// call; layers nest, so in a stack that does not happen.
#[derive(Debug)]
#[must_use]
pub struct Observation {
    record: Arc<Record>,
    recording: u32,
    owner: bool,
}

impl Observation {
    pub(super) fn shared(record: Arc<Record>, recording: u32) -> Self {
        Self {
            record,
            recording,
            owner: false,
        }
    }

    /// Attempts made, at least 1.
    pub fn attempts(&self) -> u32 {
        self.record.attempts.load(Relaxed).max(1)
    }

    /// The timeout in force at the last attempt; `None` without one. What a deadline leaves of it is
    /// known once the call has waited.
    pub fn timeout(&self) -> Option<Duration> {
        self.record.timeout()
    }

    /// The timeout as configured, before a deadline shortened it.
    pub fn configured_timeout(&self) -> Option<Duration> {
        self.record.configured.get()
    }

    /// Whether a timeout layer found the call slow.
    pub fn is_slow(&self) -> bool {
        self.record.slow.load(Relaxed)
    }

    /// Time spent waiting for backoffs and cooldowns.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.record.waited_nanos.load(Relaxed))
    }

    /// Retries that were refused.
    pub fn refusals(&self) -> u32 {
        self.record.refusals.load(Relaxed)
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if self.owner {
            self.record.state.store(self.recording & !1, Release);
        }
    }
}
