//! Jobs: work that goes on after the answer to the call that has started it.

use std::sync::{Arc, atomic::AtomicU8};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{CallExt, Observation, ToolCall};
use crate::{
    answer::json_bytes,
    call::{Record, ReplaySafety},
    error::ToolError,
    text::Short,
};

/// How many bytes of JSON a [`JobRef`] may have.
pub const MAX_JOB_BYTES: usize = 4096;

/// A reference to a job that a tool has started and that may still run.
///
/// [`PollLayer`](crate::poll::PollLayer) leaves it on the call's [record](super::Observation::job)
/// and on the [error](ToolError::job) of a call that ended before its job. A call that carries it
/// ([`ToolCall::with_job`]) goes on waiting, starts no second job, and cancels none.
///
/// It is data: the tool's name, its server's, and values of the answer that has started the job, 4
/// KiB of JSON at most. Any holder can ask for the job, so it is in no text or serialised error.
/// The events of an HTTP tool's requests (`tool.http_request`, DEBUG) show the URL in which it
/// stands.
///
/// ```
/// use serde_json::json;
/// use tower_toolcall::{ToolCall, call::JobRef};
///
/// let call = ToolCall::new("report").with_server("stats");
/// let serde_json::Value::Object(values) = json!({ "job_id": "j-17" }) else { unreachable!() };
/// let job = JobRef::new(&call, values)?;
///
/// let stored = serde_json::to_string(&job)?;
/// let again = call.with_job(serde_json::from_str(&stored)?);
/// assert_eq!(again.job(), Some(job));
/// # Ok::<_, tower_toolcall::AnyError>(())
/// ```
#[derive(Clone, PartialEq, Deserialize)]
#[serde(try_from = "Data")]
pub struct JobRef(Arc<Data>);

impl Serialize for JobRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    values: Map<String, Value>,
}

impl JobRef {
    /// Makes a reference to the job that this call has started, by the values with which it can be
    /// polled.
    ///
    /// # Errors
    ///
    /// `Reported`: it would have more than [`MAX_JOB_BYTES`] bytes. The tool ran.
    pub fn new(call: &ToolCall, values: Map<String, Value>) -> Result<Self, ToolError> {
        let data = Data {
            tool: call.tool().to_owned(),
            server: call.server().map(str::to_owned),
            values,
        };
        Self::try_from(data).map_err(ToolError::unusable)
    }

    /// Returns the values with which it can be polled. Not redacted.
    pub fn values(&self) -> &Map<String, Value> {
        &self.0.values
    }

    /// Returns whether a call with these names has started it.
    pub(crate) fn is_of(&self, call: &ToolCall) -> bool {
        self.0.tool == call.tool() && self.0.server.as_deref() == call.server()
    }
}

impl TryFrom<Data> for JobRef {
    type Error = String;

    fn try_from(data: Data) -> Result<Self, String> {
        match json_bytes(&data, MAX_JOB_BYTES as u64) {
            Ok(_) => Ok(Self(Arc::new(data))),
            Err(_) => Err(format!("the job has more than {MAX_JOB_BYTES} bytes")),
        }
    }
}

crate::text::debug_fields! {
    /// Shows no value.
    {} |this| JobRef {
        tool: Short::name(&this.0.tool),
        server: this.0.server.as_deref().map(Short::name),
        values: format_args!("{} keys", this.0.values.len()),
        ..
    }
}

impl Record {
    /// Leaves the job that the tool has started, for further attempts at this call and for
    /// observers above.
    pub fn set_job(&self, job: JobRef) {
        let job = (self.recording(), job);
        drop(self.put(|rare| rare.job.replace(job)));
    }

    /// Forgets a job that is over, or was cancelled.
    pub(crate) fn clear_job(&self, job: &JobRef) {
        // Unless there is another one by now.
        drop(self.put(|rare| rare.job.take_if(|(_, current)| current == job)));
    }

    /// Returns the job that an attempt at this call has started, and that may still run.
    pub fn job(&self) -> Option<JobRef> {
        let rare = self.get_rare()?;
        let (of, job) = rare.job.as_ref()?;
        (*of == self.recording()).then(|| job.clone())
    }
}

impl Observation {
    /// Returns the job that the call has started, and that may still run: see
    /// [`PollLayer`](crate::poll::PollLayer).
    pub fn job(&self) -> Option<JobRef> {
        self.record().job()
    }
}

impl ToolCall {
    /// Goes on waiting for a job that an earlier call has started, and does not start one.
    ///
    /// A [`PollLayer`](crate::poll::PollLayer) refuses the job of another tool, and tools below one
    /// refuse a call with a job that did not pass through it. Never take it from a caller over a
    /// wire.
    pub fn with_job(mut self, job: JobRef) -> Self {
        let data = self.data_mut();
        (data.job, data.is_own_job) = (Some(job), false);
        self
    }

    /// Returns the job that this call waits for: set by [`with_job`](Self::with_job), or started by
    /// an earlier attempt at a call of the same names.
    pub fn job(&self) -> Option<JobRef> {
        if self.data.job.is_some() {
            return self.data.job.clone();
        }
        let mut job = None;
        self.record(|r| job = r.job());
        job.filter(|job| job.is_of(self))
    }

    /// The job that another attempt after this error waits for.
    pub(crate) fn job_after(&self, error: Option<&ToolError>) -> Option<JobRef> {
        let of_error = error.and_then(ToolError::job);
        let of_error = of_error.filter(|job| job.is_of(self));
        of_error.cloned().or_else(|| self.job())
    }

    /// Another attempt after this error waits for the job of this one, even if that is cancelled
    /// until then: it starts none.
    pub(crate) fn keep_job(&mut self, error: Option<&ToolError>) {
        let Some(job) = self.job_after(error) else {
            return;
        };
        let is_own = self.data.job.is_none() || self.data.is_own_job;
        let data = self.data_mut();
        (data.job, data.is_own_job) = (Some(job), is_own);
    }

    /// Returns whether its job, if it has one, was started by an earlier attempt at it. One that
    /// was given to it [from elsewhere](Self::with_job), or that a clone has started which is sent
    /// beside it, is not its own.
    pub(crate) fn has_own_job(&self) -> bool {
        match self.data.job {
            Some(_) => self.data.is_own_job,
            None => self.attempt > 1,
        }
    }

    /// Returns another call of the same tool for the same caller, to ask for what this one has
    /// started. For a [`Job`](crate::poll::Job).
    ///
    /// Names, arguments, extensions, rules, cancellation and deadline are those of this call. It
    /// has a record of its own, no claims, no timeout of its own and no job, is attempt 1, and may
    /// run twice.
    pub fn follow_up(&self) -> Self {
        self.clone().following()
    }

    pub(super) fn following(mut self) -> Self {
        self.detach();
        self.attempt = 1;
        self.limit_ms = 0;
        (self.replay, self.is_replay_listed) = (ReplaySafety::Safe, false);
        self.claims = AtomicU8::default();
        let data = self.data_mut();
        data.job = None;
        let ident = data.ident_mut();
        (ident.timeout, ident.is_timeout_listed) = (None, false);
        ident.record = Arc::default();
        self
    }

    /// Returns the call of a caller who has gone: without their cancellation, with deadline `at`.
    pub(crate) fn left_behind(mut self, at: Option<Instant>) -> Self {
        self.deadline = at;
        if self.cancellation().is_some() {
            self.data_mut().cancellation = None;
        }
        self
    }
}
