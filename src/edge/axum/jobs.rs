//! Jobs that outlive their calls, for the subjects that have started them.

use std::{
    collections::{HashMap, VecDeque, hash_map::RandomState},
    hash::BuildHasher as _,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Map, Value};

#[cfg(feature = "token")]
use crate::edge::token::Secret;
use crate::{
    answer::json_bytes,
    call::{JobRef, ToolCall},
};

/// How many jobs are kept; the oldest makes room.
const MAX_JOBS: usize = 1_000;

/// How many of one subject, so that nobody pushes out the jobs of all others.
#[cfg(feature = "token")]
const MAX_OF_SUBJECT: usize = 100;

/// The arguments of a job that is kept, in bytes of JSON.
const MAX_ARGUMENTS: u64 = 64 << 10;

/// Jobs by ids that nobody can guess. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Inner>);

#[derive(Default)]
struct Inner {
    ids: RandomState,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    jobs: HashMap<String, Arc<Entry>>,
    /// The ids, the oldest first.
    order: VecDeque<String>,
    /// How many there were.
    count: u64,
}

impl Kept {
    /// The place of the job that makes room for this one, if one has to.
    fn oldest_beside(&self, new: &Entry) -> Option<usize> {
        #[cfg(feature = "token")]
        if new.subject.is_some() {
            let is_own = |id: &String| self.jobs[id].subject == new.subject;
            let mut own = self.order.iter().enumerate().filter(|(_, id)| is_own(id));
            let oldest = own.next();
            if own.count() + 1 >= MAX_OF_SUBJECT {
                return oldest.map(|(place, _)| place);
            }
        }
        let _ = new;
        (self.order.len() >= MAX_JOBS).then_some(0)
    }
}

/// A job, and what is asked for it: the call that has started it, without what its request had beside the body.
struct Entry {
    tool: Box<str>,
    arguments: Map<String, Value>,
    job: JobRef,
    #[cfg(feature = "token")]
    subject: Option<Secret>,
}

impl Jobs {
    /// Keeps a job of a call: its id. `None`: the arguments are too long.
    pub(super) fn keep(&self, call: &ToolCall, job: JobRef) -> Option<String> {
        json_bytes(call.arguments(), MAX_ARGUMENTS).ok()?;
        let entry = Entry {
            tool: call.tool().into(),
            arguments: call.arguments().clone(),
            job,
            #[cfg(feature = "token")]
            subject: call.subject_token().cloned(),
        };
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.count += 1;
        let half = |n: u8| self.0.ids.hash_one((kept.count, n));
        let id = format!("{:016x}{:016x}", half(0), half(1));
        if let Some(oldest) = kept.oldest_beside(&entry) {
            let oldest = kept.order.remove(oldest);
            oldest.and_then(|id| kept.jobs.remove(&id));
        }
        kept.order.push_back(id.clone());
        kept.jobs.insert(id.clone(), Arc::new(entry));
        Some(id)
    }

    /// The call that asks for a job of this tool. `caller` gives it what its own request has: `None`, if that is another subject's, or there is no
    /// such job.
    pub(super) fn ask(
        &self,
        tool: &str,
        id: &str,
        caller: impl FnOnce(ToolCall) -> ToolCall,
    ) -> Option<ToolCall> {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Arc::clone(kept.jobs.get(id)?);
        drop(kept);
        let call = ToolCall::new(tool).with_arguments(entry.arguments.clone());
        let call = caller(call.with_job(entry.job.clone()));
        #[cfg(feature = "token")]
        if call.subject_token() != entry.subject.as_ref() {
            return None;
        }
        (*entry.tool == *tool).then_some(call)
    }
}
