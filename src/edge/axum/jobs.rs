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
        if kept.order.len() >= MAX_JOBS
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.jobs.remove(&oldest);
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
