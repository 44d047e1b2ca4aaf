//! Jobs that outlive their calls, for the subjects that have started them.

use std::{
    collections::{HashMap, hash_map::RandomState},
    fmt,
    hash::BuildHasher as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use tower_toolcall::{
    ToolCall,
    answer::json_bytes,
    call::{JobRef, Secret},
};

/// How many jobs are kept.
const MAX_JOBS: usize = 1_000;

/// How many of one subject. Those of callers without a token are one subject's.
const MAX_OF_SUBJECT: usize = 100;

/// The arguments of a job that is kept, in bytes of JSON.
const MAX_ARGUMENTS: u64 = 64 << 10;

/// For how long a job is kept at most.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The time to keep a job after its end, because its answer may have been lost on the way.
const AFTER_END: Duration = Duration::from_secs(60);

/// Jobs by ids that cannot be guessed. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Inner>);

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jobs")
    }
}

#[derive(Default)]
struct Inner {
    /// The oldest first.
    kept: Mutex<Vec<Entry>>,
    /// The source of ids, with how many there were.
    hasher: RandomState,
    count: AtomicU64,
}

struct Entry {
    id: u128,
    /// Hash of its subject, or of its principal where tokens are not taken. Tokens are long, and
    /// are not compared under the lock.
    subject: u64,
    is_unverified: bool,
    until: Instant,
    job: Arc<Job>,
}

/// A job and the call that has started it, without the parts of its request outside the body.
struct Job {
    tool: Box<str>,
    /// From a parameter `{server}` of an outer `nest`.
    server: Option<Box<str>>,
    /// As JSON: parsed, they can take 100 times their bytes.
    arguments: Box<str>,
    job: JobRef,
    subject: Option<Secret>,
}

impl Jobs {
    /// Keeps the job of a call, unless it is kept under `id` already. Returns its id, or `None` if
    /// the arguments are too long or all places are taken.
    ///
    /// `has_subjects`: callers have tokens, or could have.
    pub(super) fn keep(
        &self,
        call: &ToolCall,
        job: JobRef,
        id: Option<u128>,
        has_subjects: bool,
    ) -> Option<u128> {
        json_bytes(call.arguments(), MAX_ARGUMENTS).ok()?;
        let arguments = serde_json::to_string(call.arguments()).ok()?;
        let id = id.unwrap_or_else(|| self.new_id());
        let subject = self.subject_of(call, has_subjects);
        let mut kept = self.lock();
        if kept.iter().any(|entry| entry.id == id) {
            return Some(id);
        }
        let most = if has_subjects {
            MAX_OF_SUBJECT
        } else {
            MAX_JOBS
        };
        // Of callers without a token, the id of a job is all that matters.
        let is_unverified = has_subjects
            && subject != self.0.hasher.hash_one(None::<&str>)
            && call.has_unverified_principal();
        if lacks_place(&kept, (subject, is_unverified), most) {
            let place = place_to_clear(&kept, (subject, is_unverified), most)?;
            kept.remove(place);
        }
        kept.push(Entry {
            id,
            subject,
            is_unverified,
            until: Instant::now() + MAX_AGE,
            job: Arc::new(Job {
                tool: call.tool().into(),
                server: call.server().map(Into::into),
                arguments: arguments.into(),
                job,
                subject: call.subject_token().cloned(),
            }),
        });
        Some(id)
    }

    /// Forgets a job that is over after a minute.
    pub(super) fn end(&self, id: u128) {
        let until = Instant::now() + AFTER_END;
        if let Some(entry) = self.lock().iter_mut().find(|entry| entry.id == id) {
            entry.until = entry.until.min(until);
        }
    }

    /// Returns the call that asks for a job of this tool. `caller` adds the facts of its own
    /// request. `None` if the subject is another one, or the job does not exist.
    pub(super) fn ask(
        &self,
        tool: &str,
        id: u128,
        caller: impl FnOnce(ToolCall) -> ToolCall,
    ) -> Option<ToolCall> {
        let kept = self.lock();
        let job = Arc::clone(&kept.iter().find(|entry| entry.id == id)?.job);
        drop(kept);
        let call = ToolCall::new(tool).with_json_str(&job.arguments).ok()?;
        let call = match &job.server {
            Some(server) => call.with_server(&**server),
            None => call,
        };
        let call = caller(call.with_job(job.job.clone()));
        if call.subject_token() != job.subject.as_ref() {
            return None;
        }
        (*job.tool == *tool).then_some(call)
    }

    /// Returns the kept jobs, without expired ones.
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        let kept = self.0.kept.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        kept.retain(|entry| entry.until > now);
        kept
    }

    fn new_id(&self) -> u128 {
        let count = self.0.count.fetch_add(1, Relaxed);
        let half = |n: u8| u128::from(self.0.hasher.hash_one((count, n)));
        half(0) << 64 | half(1)
    }

    fn subject_of(&self, call: &ToolCall, has_subjects: bool) -> u64 {
        if !has_subjects {
            return self.0.hasher.hash_one(call.info().principal_hash());
        }
        let subject = call.subject_token().map(Secret::expose);
        self.0.hasher.hash_one(subject)
    }
}

/// Returns whether a job has to make room for one of this subject. Subjects that were not verified
/// have half of the places.
fn lacks_place(jobs: &[Entry], (subject, is_unverified): (u64, bool), most: usize) -> bool {
    let count = |is: &dyn Fn(&Entry) -> bool| jobs.iter().filter(|entry| is(entry)).count();
    jobs.len() >= MAX_JOBS
        || count(&|entry| entry.subject == subject) >= most
        || is_unverified && count(&|entry| entry.is_unverified) >= MAX_JOBS / 2
}

/// The place of the job that makes room for one of this subject: its own oldest, if it has as many
/// as one may have; else that of the one with the most. For a subject that was not verified, only
/// others that were not.
fn place_to_clear(
    jobs: &[Entry],
    (subject, is_unverified): (u64, bool),
    most: usize,
) -> Option<usize> {
    let is_own = |entry: &Entry| entry.subject == subject;
    if jobs.iter().filter(|entry| is_own(entry)).count() >= most {
        return jobs.iter().position(is_own);
    }
    let may_go = |entry: &Entry| entry.is_unverified || !is_unverified;
    let mut counts = HashMap::<u64, usize>::new();
    for entry in jobs.iter().filter(|entry| may_go(entry)) {
        *counts.entry(entry.subject).or_default() += 1;
    }
    let most = counts.values().max()?;
    jobs.iter()
        .position(|entry| may_go(entry) && counts[&entry.subject] == *most)
}
