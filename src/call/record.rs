use std::{
    any::Any,
    fmt,
    hash::{BuildHasher, RandomState},
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    time::Duration,
};

use super::{JobRef, listeners::Listeners, way::Way};
use crate::lock::lock;
use crate::{error::ToolError, redact::Rules};

/// A record of one logical call: inner layers write it, outer ones read it through an
/// [`Observation`](super::Observation).
///
/// It exists because a *success* alone does not show attempts, the timeout in force, slowness,
/// waits and refusals.
///
/// Each call allocates one. The clones of a call that are sent one after the other reuse it. A
/// recording has a number, and late writes to an earlier recording are ignored. A write that races
/// with the start of the next recording may be counted there.
#[derive(Debug, Default)]
pub struct Record {
    /// `number << 1 | in use`.
    state: AtomicU32,
    pub(super) attempts: AtomicU32,
    /// 0 if unknown.
    pub(super) max_attempts: AtomicU32,
    pub(super) refusals: AtomicU32,
    pub(super) slow: AtomicBool,
    /// An observer reads the recording. False if a layer keeps it for its own attempts.
    pub(super) observed: AtomicBool,
    /// The answer is an error in the tool's own words.
    pub(super) reported: AtomicBool,
    /// The answer is that of another call.
    pub(super) reused: AtomicBool,
    /// A table knows the tool.
    pub(super) known: AtomicBool,
    pub(super) listeners: Listeners,
    pub(super) dispatched: AtomicBool,
    /// The timeouts, in nanoseconds, and the size: one more than the number, or 0 if it is not
    /// known.
    pub(super) timeout: AtomicU64,
    pub(super) configured: AtomicU64,
    pub(super) output_bytes: AtomicU64,
    pub(super) waited_nanos: AtomicU64,
    pub(super) wants_output_bytes: AtomicBool,
    pub(super) way: Way,
    /// The shortest timeout on the way of the attempt that runs, in milliseconds; 0 if there is
    /// none. Circuit breakers judge by it whether a call that was dropped has timed out.
    ///
    /// - A call carries the limit of its outer layers, `ToolCall::limit_ms`. Each layer that ends
    ///   calls shortens it ([`CallExt::limit`](crate::flow::CallExt::limit)), and writes it here: a
    ///   breaker outside that layer has only the call's record. So it is written without an
    ///   observer too, and clones that run at the same time without one share it.
    /// - A breaker keeps that of the last call that it has judged, `Circuit::limit_ms`, because it
    ///   chooses the next probe before the inner layers have written theirs.
    pub(super) limit_ms: AtomicU32,
    /// The beginning of the idempotency keys of its recordings; 0 before the first one is asked
    /// for.
    key: AtomicU64,
    rare: Mutex<Rare>,
    /// Something was put into `rare`. Most calls take no lock.
    pub(super) has_rare: AtomicBool,
}

/// A value of any type. It is cloned without a lock, because its `Clone` may use the record.
type Extension = Arc<dyn Any + Send + Sync>;

/// The facts that few calls have, each with the number of the recording or the attempt.
#[derive(Default)]
pub(super) struct Rare {
    /// The values that a tool service or a layer leaves about one attempt.
    extensions: Option<((u32, u32), Vec<Extension>)>,
    pub(super) job: Option<(u32, JobRef)>,
    /// The error of the previous attempt. Written also without an observer.
    pub(super) failed: Option<(u32, ToolError)>,
    /// The redaction rules that a layer inside the outermost observer has put on the call.
    rules: Option<(u32, Rules)>,
}

crate::text::debug_fields! { {} |_| Rare { .. } }

/// Distinguishes repetitions of a call from other calls; see
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

/// Returns a number that a record keeps as one more, or as 0 if nothing has written it.
pub(crate) fn written(number: u64) -> Option<u64> {
    number.checked_sub(1)
}

/// Whole nanoseconds; a duration of 584 years and more is the largest number.
#[inline]
pub(crate) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the rules for what both hold: the outer ones, unless they are the built-in ones, and the
/// secrets of both.
pub(super) fn both(outer: &Rules, inner: Rules) -> Rules {
    match outer.are_built_in() {
        true => inner.with_secrets_of(outer),
        false => outer.clone().with_secrets_of(&inner),
    }
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
        if !self.way.forget() {
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
        Some(recording)
    }

    /// Returns whether an [observation](crate::flow::CallExt::observe) reads the record. A layer
    /// that repeats a call has a record too, which no observation reads; then a fact that costs a
    /// reading of the clock need not be recorded.
    pub(crate) fn is_observed(&self) -> bool {
        self.observed.load(Relaxed)
    }

    /// Ends the recording. Called by the layer that started it.
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
        if in_force < self.timeout.load(Relaxed).wrapping_sub(1) {
            self.timeout.store(in_force + 1, Relaxed);
            self.configured
                .store(nanos(configured).wrapping_add(1), Relaxed);
        }
    }

    /// Puts something into what few calls have. Returns what `put` does, to be dropped after the
    /// lock.
    pub(super) fn put<T>(&self, put: impl FnOnce(&mut Rare) -> T) -> T {
        let before = put(&mut lock(&self.rare));
        self.has_rare.store(true, Release);
        before
    }

    /// Returns what few calls have, if it ever was there.
    pub(super) fn get_rare(&self) -> Option<MutexGuard<'_, Rare>> {
        self.has_rare.load(Acquire).then(|| lock(&self.rare))
    }

    /// Returns whether this recording may write, or no other one runs.
    pub(super) fn is_free_for(&self, recording: u32) -> bool {
        let state = self.state.load(SeqCst);
        state & 1 == 0 || state == recording
    }

    /// Sets how many attempts there may be.
    #[inline]
    pub(crate) fn set_max_attempts(&self, n: u32) {
        self.max_attempts.store(n, Relaxed);
    }

    /// Returns whether an observer asks for the size of the answer. A layer or tool service checks
    /// this before it measures the size.
    pub fn wants_output_bytes(&self) -> bool {
        self.wants_output_bytes.load(Relaxed)
    }

    /// Sets how many bytes the answer has, as compact JSON. For code that knows the size: the tool
    /// itself, or a layer that has measured it.
    pub fn set_output_bytes(&self, bytes: u64) {
        self.output_bytes.store(bytes.saturating_add(1), Relaxed);
    }

    /// Marks the call as slow.
    pub fn set_slow(&self) {
        self.slow.store(true, Relaxed);
    }

    /// Sets whether the answer of this attempt is an error in the tool's own words (MCP's
    /// `isError`): an answer that the model reads, and that every observer counts as a failure.
    /// Written by the tool service, and by a layer that replaces the answer. Default: `false`, at
    /// the beginning of each attempt.
    pub fn set_reported(&self, reported: bool) {
        self.reported.store(reported, Relaxed);
    }

    /// Notes that a table or a schema has a tool of this name. A call that is refused before it is
    /// sent then counts for its tool in [metrics](crate::tool_metrics); names that a model invents
    /// do not. A [resolved](crate::flow::CallExt::is_resolved) name needs no note.
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
    /// from a call that was cut short.
    pub(crate) fn set_dispatched(&self) {
        self.dispatched.store(true, Relaxed);
    }

    /// Keeps the first rules of a recording, those of the outermost layer. Later ones may be from
    /// another stack that the tool calls.
    pub(super) fn set_rules(&self, rules: Rules) {
        let recording = self.recording();
        self.put(|rare| {
            rare.rules = Some(match rare.rules.take() {
                Some((of, first)) if of == recording => (of, both(&first, rules)),
                _ => (recording, rules),
            });
        });
    }

    pub(super) fn rules(&self) -> Option<Rules> {
        let rare = self.get_rare()?;
        let (of, rules) = rare.rules.as_ref()?;
        (*of == self.recording()).then(|| rules.clone())
    }

    /// Begins attempt `n`: its timeout and its answer are not known yet.
    #[inline]
    pub fn begin_attempt(&self, n: u32) {
        self.attempts.store(n, Relaxed);
        self.way.begin_attempt();
        self.timeout.store(0, Relaxed);
        self.configured.store(0, Relaxed);
        self.output_bytes.store(0, Relaxed);
        self.reported.store(false, Relaxed);
        self.reused.store(false, Relaxed);
    }

    /// Leaves a value about this attempt for observers above that know its type, such as
    /// [`TraceHooks`](crate::trace::TraceHooks) of the same author. It replaces one of the same
    /// type, and is gone with the next attempt.
    pub fn insert_extension<T: Clone + Send + Sync + 'static>(&self, value: T) {
        let (attempt, value) = (self.attempt(), Arc::new(value) as Extension);
        self.put(|rare| {
            let before = rare.extensions.take_if(|(of, _)| *of != attempt);
            let (_, values) = rare.extensions.get_or_insert_with(|| (attempt, Vec::new()));
            let Some(old) = values.iter_mut().find(|old| old.is::<T>()) else {
                values.push(value);
                return (before, None);
            };
            (before, Some(mem::replace(old, value)))
        });
    }

    /// Returns the value of this type that the last attempt has left.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        let rare = self.get_rare()?;
        let (of, values) = rare.extensions.as_ref()?;
        if *of != self.attempt() {
            return None;
        }
        let value = values.iter().find(|value| value.is::<T>()).cloned();
        drop(rare);
        value?.downcast_ref().cloned()
    }

    pub(super) fn recording(&self) -> u32 {
        self.state.load(Relaxed)
    }

    /// The numbers of the recording and of the attempt in it.
    fn attempt(&self) -> (u32, u32) {
        (self.recording(), self.attempts.load(Relaxed))
    }

    /// Names the server of this attempt, for the span of a call that names none. Set by the tool
    /// service.
    pub fn set_server(&self, name: Arc<str>) {
        self.insert_extension(LeafServer(name));
    }

    /// Returns the server that the tool service of the last attempt has named.
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
