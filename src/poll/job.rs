use std::{borrow::Cow, time::Duration};

use crate::{
    call::{JobRef, ToolCall},
    error::ToolError,
};

/// What the answers of a tool with long jobs mean, and what to ask it next. Pure: it sends nothing.
///
/// `Res` is the tool's answer. The calls that it makes are [follow-ups](ToolCall::follow_up) with
/// an extension that the leaf knows.
pub trait Job<Res>: Send + Sync {
    /// What the answer to the call that starts the job means.
    ///
    /// # Errors
    ///
    /// The error of the call: the job has failed already, or cannot be asked for.
    fn started(&self, call: &ToolCall, answer: Res) -> Result<Started<Res>, ToolError>;

    /// The call that asks how the job of `call` is getting on.
    fn ask(&self, call: &ToolCall, job: &JobRef) -> ToolCall;

    /// What the answer to [`ask`](Self::ask) means.
    ///
    /// # Errors
    ///
    /// The error of the call: the job has failed. A server that could not be asked is an error of
    /// `ask`'s own call.
    fn read(&self, call: &ToolCall, answer: Res) -> Result<Polled<Res>, ToolError>;

    /// The call that ends the job, sent when nobody waits for it any more. Default: `None`, it runs
    /// on.
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

/// What a call has started.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Started<Res> {
    /// Nothing that outlives it: the answer of the call.
    Done(Res),
    /// A job, which may be asked for after this time at the earliest.
    Running(JobRef, Option<Duration>),
}

/// How a job is getting on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Polled<Res> {
    /// It has ended: the answer of the call.
    Done(Res),
    /// It waits for its caller, who has this as the answer of the call: the job stays on the call's
    /// record.
    Paused(Res),
    /// It goes on.
    Running {
        /// When it may be asked for again, at the earliest.
        after: Option<Duration>,
        /// What it says of itself, in a few words, for the error of a call that stops waiting.
        /// Redacted and cut there.
        note: Option<Cow<'static, str>>,
    },
}
