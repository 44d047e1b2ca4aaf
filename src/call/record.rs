use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    time::Duration,
};

use super::{
    extension::{Attempt, AttemptExtensions},
    job::JobSlot,
    listeners::Listeners,
};
use crate::{error::ToolError, redact::Rules};

/// What happened below an observer during one logical call: layers write it, those above read it
/// through an [`Observation`](super::Observation).
///
/// It exists because a *success* does not say what it took: attempts, the timeout in force,
/// slowness, waits, refusals.
///
/// One is allocated with each call and reused by the clones of that call that are sent one after
/// the other. A recording has a number; what a straggler of an earlier recording writes is ignored,
/// unless it comes in the very moment in which the next one begins.
#[derive(Debug, Default)]
pub struct Record {
    /// `number << 1 | in use`.
    state: AtomicU32,
    pub(super) attempts: AtomicU32,
    /// 0 if unknown.
    pub(super) max_attempts: AtomicU32,
    pub(super) refusals: AtomicU32,
    pub(super) slow: AtomicBool,
    /// Whether there is an observation: not so of a recording that a layer keeps for its own
    /// attempts.
    observed: AtomicBool,
    /// Whether the answer is an error in the tool's own words.
    pub(super) reported: AtomicBool,
    /// Whether the answer is one that another call has got.
    pub(super) reused: AtomicBool,
    /// Whether a table knows the tool.
    pub(super) known: AtomicBool,
    pub(super) listeners: Listeners,
    pub(super) dispatched: AtomicBool,
    pub(super) timeout: Shared,
    pub(super) configured: Shared,
    pub(super) waited_nanos: AtomicU64,
    pub(super) output_bytes: Shared,
    pub(super) wants_output_bytes: AtomicBool,
    /// Where the attempt that runs is: [`HELD`], [`BETWEEN`], [`AGAIN`], [`IN_FUNCTION`],
    /// and the number of [`HOLDER`]s. Written also without an observer.
    way: AtomicU32,
    /// The shortest timeout on the way of the attempt that runs, in milliseconds; 0 if there is
    /// none. Written also without an observer, as circuit breakers judge by it.
    limit_ms: AtomicU32,
    /// The beginning of the idempotency keys of its recordings; 0 before the first one is asked
    /// for.
    key: AtomicU64,
    extensions: AttemptExtensions,
    pub(super) job: JobSlot,
    /// Whether there are `rules` of this recording.
    has_rules: AtomicBool,
    /// The number and the error of the attempt before the one that runs. Written also without an
    /// observer.
    failed: Mutex<Option<(u32, ToolError)>>,
    /// The redaction rules that a layer below the outermost observer has put on the call.
    rules: Mutex<Rules>,
}

/// A layer holds the call back: this attempt was not sent.
const HELD: u32 = 1;
/// The attempt before has ended, and the next one has no number yet.
const BETWEEN: u32 = 2;
/// The call was copied, or an attempt before may have run.
const AGAIN: u32 = 4;
/// A function has the call. It was not sent, unless the function sends it elsewhere.
const IN_FUNCTION: u32 = 8;
/// A future that holds the call back is alive.
const HOLDER: u32 = 16;

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

/// A number that may not be known, in the space of a number: the largest stands for that, and what
/// is as large counts as one less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known(u64);

impl Known {
    const NONE: Self = Self(u64::MAX);

    #[inline]
    pub(crate) fn get(self) -> Option<u64> {
        (self != Self::NONE).then_some(self.0)
    }

    pub(crate) fn duration(self) -> Option<Duration> {
        self.get().map(Duration::from_nanos)
    }
}

impl Default for Known {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<Option<u64>> for Known {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::NONE, |number| Self(number.min(u64::MAX - 1)))
    }
}

impl From<Option<Duration>> for Known {
    fn from(d: Option<Duration>) -> Self {
        d.map(nanos).into()
    }
}

/// The same, shared.
#[derive(Debug)]
pub(super) struct Shared(AtomicU64);

impl Shared {
    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    #[inline]
    fn forget(&self) {
        self.set(Known::NONE.0);
    }

    #[inline]
    pub(super) fn get(&self) -> Known {
        Known(self.0.load(Relaxed))
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self(AtomicU64::new(Known::NONE.0))
    }
}

/// Whole nanoseconds; a duration of 584 years and more is the largest number.
#[inline]
pub(crate) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Record {
    /// Starts a recording and returns its number, never 0; `None` while another one runs.
    #[inline]
    pub(super) fn start(&self) -> Option<u32> {
        let state = self.state.load(Relaxed);
        if state & 1 == 1 {
            return None;
        }
        // In use, and the next number: the low bit is set, so it is never 0.
        let recording = state.wrapping_add(2) | 1;
        self.state
            .compare_exchange(state, recording, SeqCst, Relaxed)
            .ok()?;
        if self.way.load(SeqCst) != 0 && !self.forget_way() {
            self.end(recording);
            return None;
        }
        self.begin_attempt(1);
        self.max_attempts.store(0, Relaxed);
        self.refusals.store(0, Relaxed);
        self.slow.store(false, Relaxed);
        self.known.store(false, Relaxed);
        self.observed.store(false, Relaxed);
        self.listeners.clear();
        self.dispatched.store(false, Relaxed);
        self.wants_output_bytes.store(false, Relaxed);
        self.waited_nanos.store(0, Relaxed);
        self.has_rules.store(false, Relaxed);
        Some(recording)
    }

    /// Forgets where an earlier call was. Returns false for a clone that is held: its hold comes
    /// before this, or sees that the record is in use.
    #[cold]
    fn forget_way(&self) -> bool {
        let forget = |way| (way & HELD == 0 || way < HOLDER).then_some(way & !(HOLDER - 1));
        self.way.fetch_update(SeqCst, SeqCst, forget).is_ok()
    }

    /// An observation begins.
    #[inline]
    pub(super) fn set_observed(&self) {
        self.observed.store(true, Relaxed);
    }

    /// Returns whether an [observation](super::ToolCall::observe) reads the record. A layer that
    /// repeats a call has a record too, which no observation reads; then a fact that costs a
    /// reading of the clock need not be recorded.
    #[inline]
    pub fn is_observed(&self) -> bool {
        self.observed.load(Relaxed)
    }

    /// Ends the recording. Called by the one that started it.
    #[inline]
    pub(super) fn end(&self, recording: u32) {
        self.state.store(recording & !1, Release);
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
    #[inline]
    pub fn set_timeout(&self, in_force: Duration, configured: Duration) {
        let in_force = nanos(in_force);
        // What is not known is the largest.
        if in_force < self.timeout.get().0 {
            self.timeout.set(in_force);
            self.configured.set(nanos(configured));
        }
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout.get().duration()
    }

    /// Returns whether this recording may write, or no other one runs.
    fn is_free_for(&self, recording: u32) -> bool {
        let state = self.state.load(SeqCst);
        state & 1 == 0 || state == recording
    }

    /// Returns whether the call is held now. It is not if a clone is being recorded.
    pub(super) fn hold(&self, recording: u32) -> bool {
        let hold = |way| Some((way | HELD) + HOLDER);
        let _ = self.way.fetch_update(SeqCst, Relaxed, hold);
        let is_free = self.is_free_for(recording);
        if !is_free {
            self.way.fetch_and(!HELD, Relaxed);
            self.end_hold();
        }
        is_free
    }

    pub(super) fn end_hold(&self) {
        self.way.fetch_sub(HOLDER, Relaxed);
    }

    pub(super) fn enter_function(&self, recording: u32) {
        if self.is_free_for(recording) {
            self.way.fetch_or(IN_FUNCTION, Relaxed);
        }
    }

    pub(super) fn set_copied(&self) {
        self.way.fetch_or(AGAIN, Relaxed);
    }

    /// The attempt is sent to the inner service.
    #[inline]
    pub(super) fn release(&self, recording: u32) {
        const UNSENT: u32 = HELD | IN_FUNCTION;
        if self.way.load(Relaxed) & UNSENT != 0 && self.is_free_for(recording) {
            self.way.fetch_and(!UNSENT, Relaxed);
        }
    }

    /// An attempt has ended, and another one follows.
    pub(super) fn end_attempt(&self, recording: u32, may_have_run: bool) {
        if !self.is_free_for(recording) {
            return;
        }
        let again = if may_have_run { AGAIN } else { 0 };
        self.way.fetch_or(BETWEEN | again, Relaxed);
    }

    /// Sets the number and the error of the attempt before the one that runs.
    pub(super) fn set_failed(&self, recording: u32, failed: Option<(u32, ToolError)>) {
        if self.is_free_for(recording) {
            let mut kept = self.failed();
            let before = std::mem::replace(&mut *kept, failed);
            drop(kept);
            drop(before);
        }
    }

    pub(super) fn failed(&self) -> MutexGuard<'_, Option<(u32, ToolError)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_held(&self) -> bool {
        self.way.load(Relaxed) & HELD != 0
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.way.load(Relaxed) & (HELD | IN_FUNCTION) != 0
    }

    /// Returns whether no attempt has run and none will: the only copy was held back, and the
    /// future that held it is gone. Not so of a function, which may have sent the call elsewhere.
    pub(super) fn is_lost_unsent(&self) -> bool {
        self.way.load(Relaxed) & !BETWEEN == HELD
    }

    /// Returns whether the attempt with the last number was not sent.
    pub(super) fn is_last_unsent(&self) -> bool {
        self.is_unsent() && self.way.load(Relaxed) & BETWEEN == 0
    }

    #[inline]
    pub(super) fn set_limit_ms(&self, ms: u32) {
        self.limit_ms.store(ms, Relaxed);
    }

    #[inline]
    pub(super) fn limit_ms(&self) -> u32 {
        self.limit_ms.load(Relaxed)
    }

    /// Sets how many attempts there may be.
    #[inline]
    pub fn set_max_attempts(&self, n: u32) {
        self.max_attempts.store(n, Relaxed);
    }

    /// Returns whether an observer asks for the size of the answer: a layer or leaf that would have
    /// to measure it checks this first.
    pub fn wants_output_bytes(&self) -> bool {
        self.wants_output_bytes.load(Relaxed)
    }

    /// Sets how many bytes the answer has, as compact JSON. For code that knows it: the tool
    /// itself, or a layer that has measured it.
    pub fn set_output_bytes(&self, bytes: u64) {
        self.output_bytes.set(bytes);
    }

    /// Marks the call as slow.
    pub fn set_slow(&self) {
        self.slow.store(true, Relaxed);
    }

    /// Sets whether the answer of this attempt is an error in the tool's own words (MCP's
    /// `isError`): an answer that the model reads, and that every observer counts as a failure.
    /// Written by the leaf that gives the answer, and by a layer that replaces it with another
    /// answer. Default: `false`, at the beginning of each attempt.
    pub fn set_reported(&self, reported: bool) {
        self.reported.store(reported, Relaxed);
    }

    /// Notes that there is a tool of this name: a table or a schema has it. A call that is refused
    /// before it is sent then counts for its tool in [metrics](crate::metrics), as names that a
    /// model invents do not. A [resolved](super::ToolCall::is_resolved) name needs no note.
    pub fn set_known(&self) {
        self.known.store(true, Relaxed);
    }

    /// Notes that this attempt is not sent, as it has the answer, or the error, that another call
    /// has got. For layers that keep answers. Observers do not count it as
    /// [sent](super::Observation::sent).
    pub fn set_reused(&self) {
        self.reused.store(true, Relaxed);
    }

    /// Notes that the call has left the queue of what runs it, so that its tool may have run. For
    /// executors that hold calls back: their observer can distinguish a call that waited in vain
    /// from one that was cut short.
    pub fn set_dispatched(&self) {
        self.dispatched.store(true, Relaxed);
    }

    /// The first ones stay: those of the outermost layer, and not of another stack to which the
    /// tool sends its call on.
    #[cold]
    pub(super) fn set_rules(&self, rules: Rules) {
        let mut slot = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_rules() {
            *slot = rules;
            self.has_rules.store(true, Release);
        }
    }

    #[inline]
    pub(super) fn has_rules(&self) -> bool {
        self.has_rules.load(Acquire)
    }

    pub(super) fn rules(&self) -> Rules {
        let rules = self.rules.lock();
        rules.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins attempt `n`: its timeout and its answer are not known yet.
    #[inline]
    pub fn begin_attempt(&self, n: u32) {
        self.attempts.store(n, Relaxed);
        const BEFORE: u32 = HELD | IN_FUNCTION | BETWEEN;
        if self.way.load(Relaxed) & BEFORE != 0 {
            self.way.fetch_and(!BEFORE, Relaxed);
        }
        self.timeout.forget();
        self.configured.forget();
        self.output_bytes.forget();
        self.reported.store(false, Relaxed);
        self.reused.store(false, Relaxed);
    }

    /// Leaves a value about this attempt for observers above that know its type, such as
    /// [`TraceHooks`](crate::trace::TraceHooks) of the same author. It replaces one of the same
    /// type, and is gone with the next attempt.
    pub fn insert_extension<T: Clone + Send + Sync + 'static>(&self, value: T) {
        self.extensions.insert(self.attempt(), value);
    }

    /// The value of this type that the last attempt has left.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.extensions.get(self.attempt())
    }

    pub(super) fn recording(&self) -> u32 {
        self.state.load(Relaxed)
    }

    fn attempt(&self) -> Attempt {
        (self.recording(), self.attempts.load(Relaxed))
    }

    /// Names the server that a leaf sends this attempt to, for the span of a call that names none.
    pub fn set_server(&self, name: Arc<str>) {
        self.insert_extension(LeafServer(name));
    }

    /// The server that the leaf of the last attempt has named.
    pub fn server(&self) -> Option<Arc<str>> {
        self.extension().map(|LeafServer(name)| name)
    }

    /// Adds time spent waiting for a backoff or a cooldown.
    pub fn add_wait(&self, waited: Duration) {
        let waited = nanos(waited);
        let _ = self
            .waited_nanos
            .fetch_update(Relaxed, Relaxed, |w| Some(w.saturating_add(waited)));
    }

    /// Counts a retry that was refused.
    pub fn add_refusal(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }
}

#[derive(Clone)]
struct LeafServer(Arc<str>);
