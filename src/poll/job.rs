use std::{borrow::Cow, time::Duration};

use crate::{
    call::{JobRef, ToolCall},
    error::ToolError,
};

/// Reads the answers of a tool with long jobs, and makes the next calls. Pure: it sends nothing.
///
/// `Res` is the tool's answer. The calls that it makes are [follow-ups](ToolCall::follow_up) with
/// an extension that the tool service knows.
pub trait Job<Res>: Send + Sync {
    /// Reads the answer to the call that starts the job.
    ///
    /// # Errors
    ///
    /// The error of the call: the job has failed already, or cannot be asked for.
    fn started(&self, call: &ToolCall, answer: Res) -> Result<Started<Res>, ToolError>;

    /// Makes the call that asks for the state of the job of `call`.
    fn ask(&self, call: &ToolCall, job: &JobRef) -> ToolCall;

    /// Reads the answer to [`ask`](Self::ask).
    ///
    /// # Errors
    ///
    /// The error of the call: the job has failed. A server that could not be asked is an error of
    /// `ask`'s own call.
    fn read(&self, call: &ToolCall, answer: Res) -> Result<Polled<Res>, ToolError>;

    /// Makes the call that ends the job, sent when no caller waits for it any more. Default:
    /// `None`, the job goes on.
    fn cancel(&self, call: &ToolCall, job: &JobRef) -> Option<ToolCall> {
        let _ = (call, job);
        None
    }
}

/// Knows no jobs: each answer is the result.
impl<Res> Job<Res> for () {
    fn started(&self, _: &ToolCall, answer: Res) -> Result<Started<Res>, ToolError> {
        Ok(Started::Done(answer))
    }

    fn ask(&self, call: &ToolCall, _: &JobRef) -> ToolCall {
        call.follow_up()
    }

    fn read(&self, _: &ToolCall, answer: Res) -> Result<Polled<Res>, ToolError> {
        Ok(Polled::Done(answer))
    }
}

/// The beginning of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Started<Res> {
    /// Nothing that outlives it: the answer of the call.
    Done(Res),
    /// A job, which may be asked for after this time at the earliest.
    Running(JobRef, Option<Duration>),
}

/// The state of a job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Polled<Res> {
    /// The job has ended: the answer of the call.
    Done(Res),
    /// The job needs its caller, who gets this as the answer of the call. The job stays on the
    /// call's record.
    Paused(Res),
    /// The job is running.
    Running {
        /// When it may be asked for again, at the earliest.
        after: Option<Duration>,
        /// The job's own words about its state, for the error of a call that stops waiting.
        /// Redacted and cut there.
        note: Option<Cow<'static, str>>,
    },
}
