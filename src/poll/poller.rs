//! A call and its job: what comes after each answer. The future around it sends and waits.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tower_service::Service;

use super::{
    cancel::Abandoned,
    job::{Job, Polled, Started},
    layer::Limits,
};
use crate::{
    call::{CallInfo, JobRef, Observation, ToolCall},
    error::{ErrorKind, ToolError},
    kit::{attempts::Template, caller::Caller, lane::Kept},
};

/// The last poll begins so long before the time is over, ...
const LAST_POLL: Duration = Duration::from_millis(500);

/// ... and is given up so long before.
const LAST_WORD: Duration = Duration::from_millis(100);

/// A server is asked again after this time, whatever it has asked for.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// So many polls may not find the job yet.
const NOT_THERE_YET: u32 = 3;

/// The longest note, in characters.
const MAX_NOTE: usize = 200;

/// What the services of a layer share.
pub(super) type Shared<S, J> = Template<S, (J, Limits)>;

pub(super) struct Poller<S, J> {
    call: ToolCall,
    shared: Arc<Kept<Shared<S, J>>>,
    /// When the last poll has to have its answer.
    end: Option<Instant>,
    job: Option<JobRef>,
    /// The job was there before the call, and nothing was done for it yet.
    resumes: bool,
    polls: u32,
    /// What the job said last.
    note: Option<String>,
    /// Of the poll that runs.
    observation: Option<Observation>,
    abandoned: Abandoned,
}

/// What comes after an answer.
pub(super) enum Next<Res> {
    /// A poll at this time.
    Wait(Instant),
    End(Result<Res, ToolError>),
}

impl<S, J> Poller<S, J>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    J: Job<S::Response> + 'static,
{
    /// A call, and what is sent first: the call itself, or a poll of the job that it carries.
    pub(super) fn begin(
        call: ToolCall,
        shared: Arc<Kept<Shared<S, J>>>,
    ) -> (Self, Result<ToolCall, ToolError>) {
        let (_, limits) = &shared.settings;
        let budget = limits.budget.and_then(|b| Instant::now().checked_add(b));
        let end = [call.deadline(), budget].into_iter().flatten().min();
        let mut poller = Self {
            end: end.map(|end| end.checked_sub(LAST_WORD).unwrap_or(end)),
            call,
            shared,
            job: None,
            resumes: false,
            polls: 0,
            note: None,
            observation: None,
            abandoned: Abandoned::default(),
        };
        let first = match poller.call.job() {
            None => Ok(poller.call.copy()),
            Some(job) if !job.is_of(&poller.call) => Err(ToolError::refusal(
                ErrorKind::InvalidInput,
                "the job is another tool's",
            )),
            Some(job) => {
                poller.job = Some(job);
                poller.resumes = true;
                Ok(poller.ask())
            }
        };
        (poller, first)
    }

    /// The next poll.
    pub(super) fn ask(&mut self) -> ToolCall {
        let job = self.job.as_ref().expect("a job was started");
        let mut ask = self.shared.settings.0.ask(&self.call, job);
        if let Some(end) = self.end {
            ask.tighten(end);
        }
        let observation = ask.observe();
        self.call.record(|r| {
            if r.wants_output_bytes() {
                observation.want_output_bytes();
            }
        });
        self.observation = Some(observation);
        self.polls += 1;
        ask
    }

    pub(super) fn next(&mut self, result: Result<S::Response, ToolError>) -> Next<S::Response> {
        let (kind, _) = &self.shared.settings;
        let seen = self.observation.take();
        let after = match (seen, result) {
            (None, Err(error)) => return Next::End(Err(error)),
            (None, Ok(answer)) => match kind.started(&self.call, answer) {
                Err(error) => return Next::End(Err(error)),
                Ok(Started::Done(answer)) => return Next::End(Ok(answer)),
                Ok(Started::Running(job, after)) => {
                    self.attend(job, true);
                    after
                }
            },
            (Some(seen), Ok(answer)) => match kind.read(&self.call, answer) {
                Err(error) => return self.over(&seen, Err(error)),
                Ok(Polled::Done(answer)) => return self.over(&seen, Ok(answer)),
                Ok(Polled::Paused(answer)) => {
                    self.tell(&seen);
                    return Next::End(Ok(answer));
                }
                Ok(Polled::Running { after, note }) => {
                    let rules = self.call.rules();
                    self.note = note.map(|note| rules.text(&note, MAX_NOTE).to_string());
                    after
                }
            },
            (Some(_), Err(error)) => match self.bear(&error) {
                Ok(after) => after,
                Err(Some(instead)) => return Next::End(Err(instead)),
                Err(None) => return Next::End(Err(self.given_up(error))),
            },
        };
        self.report();
        match self.next_poll(after) {
            Some(at) => Next::Wait(at),
            None => Next::End(Err(self.timed_out())),
        }
    }

    /// Begins to care for the job of a call that was polled: until then nobody has waited for it.
    pub(super) fn resume(&mut self) {
        if std::mem::take(&mut self.resumes)
            && let Some(job) = self.job.take()
        {
            let is_own = self.call.has_own_job();
            self.attend(job, is_own);
        }
    }

    /// There is a job now. If it is another call's, that call's end is its end.
    fn attend(&mut self, job: JobRef, is_own: bool) {
        self.call.record(|r| r.set_job(job.clone()));
        let (kind, limits) = &self.shared.settings;
        let cancels = is_own && limits.cancels;
        let cancel = cancels.then(|| kind.cancel(&self.call, &job));
        if let Some(cancel) = cancel.flatten() {
            let (shared, info, over) = (Arc::clone(&self.shared), self.call.info(), job.clone());
            // Who tries again starts another one.
            let leave = move || info.record(|r| r.clear_job(&over));
            self.abandoned = Abandoned::then(cancel, leave, move || shared.fresh());
        }
        self.job = Some(job);
    }
}

impl<S, J> Poller<S, J> {
    pub(super) fn info(&self) -> CallInfo {
        self.call.info()
    }

    /// A service for a poll, not ready yet.
    pub(super) fn fresh(&self) -> S
    where
        S: Clone,
    {
        self.shared.fresh()
    }

    pub(super) fn polls(&self) -> u32 {
        self.polls
    }

    /// When a poll that has no answer is given up. The layers below bound the call that starts the job.
    pub(super) fn end_of_poll(&self) -> Option<Option<Instant>> {
        self.job.is_some().then_some(self.end)
    }

    /// An error of a poll: when to ask again at the earliest, or an error of the call: another one, or this.
    fn bear(&mut self, error: &ToolError) -> Result<Option<Duration>, Option<ToolError>> {
        match error.kind() {
            ErrorKind::Cancelled if Caller::has_cancelled(&self.call) => {
                return Err(Some(self.cancelled()));
            }
            // The time of one poll: that of the job is looked at next.
            ErrorKind::DeadlineExceeded => {}
            ErrorKind::NotFound if self.polls <= NOT_THERE_YET => {}
            _ if error.is_retryable() => {}
            _ => return Err(None),
        }
        self.note = Some(error.code().to_owned());
        Ok(error.retry_after())
    }

    /// When the next poll begins, if there is one. The last wait is shortened, so that the job has its last look.
    fn next_poll(&self, after: Option<Duration>) -> Option<Instant> {
        let (_, limits) = &self.shared.settings;
        if self.polls >= limits.polls {
            return None;
        }
        let wait = limits.interval.delay(self.polls + 1, 0);
        let asked = after.unwrap_or_default().min(MAX_WAIT);
        let now = Instant::now();
        let at = now.checked_add(wait.max(asked))?;
        let Some(end) = self.end else { return Some(at) };
        let last = end.checked_sub(LAST_POLL - LAST_WORD)?;
        (last > now).then(|| at.min(last))
    }

    /// The job is over.
    fn over<Res>(&mut self, seen: &Observation, result: Result<Res, ToolError>) -> Next<Res> {
        self.tell(seen);
        if let Some(job) = &self.job {
            self.call.record(|r| r.clear_job(job));
        }
        Next::End(result)
    }

    /// What is known of the last answer is left on the call's record.
    fn tell(&self, seen: &Observation) {
        self.call.record(|r| {
            r.set_reported(seen.is_reported());
            if let Some(bytes) = seen.output_bytes() {
                r.set_output_bytes(bytes);
            }
        });
    }

    /// When to [report](Self::report) next while the call waits until `at`.
    pub(super) fn wake(&self, at: Instant) -> Instant {
        let Some(progress) = self.call.progress() else {
            return at;
        };
        let often = (progress.allowed() / 2).max(Duration::from_millis(1));
        Instant::now()
            .checked_add(often)
            .map_or(at, |next| next.min(at))
    }

    /// Tells those who wait for signs of life that the job is waited for.
    pub(super) fn report(&self) {
        if let Some(progress) = self.call.progress() {
            progress.report();
        }
    }

    /// An error that was met while asking for the job: it proves nothing of the call that has started it.
    fn of_job(&self, error: ToolError) -> ToolError {
        let error = error.into_inferred().with_attempts(0);
        self.with_job(error)
    }

    /// The error of a poll that ends the call. One that could not be sent tells that none ever can be: the job is cancelled, as far
    /// as that can be sent, so the error names it all the same.
    fn given_up(&mut self, error: ToolError) -> ToolError {
        if error.kind() == ErrorKind::Internal && error.is_own_refusal() {
            self.abandoned.act();
        }
        self.of_job(error)
    }

    fn with_job(&self, error: ToolError) -> ToolError {
        match &self.job {
            Some(job) => error.with_job(job.clone()),
            None => error,
        }
    }

    /// The polls, or the time, are used up.
    pub(super) fn timed_out(&self) -> ToolError {
        let polls = self.polls;
        let limit = match polls >= self.shared.settings.1.polls {
            true => "polls",
            false => "time",
        };
        let note = match &self.note {
            Some(note) => format!(": {note}"),
            None => String::new(),
        };
        let text = format!("the job has not ended after {polls} polls{note}");
        let error = ToolError::new(ErrorKind::PollTimeout, text);
        self.with_job(error.with_detail("limit", limit))
    }

    /// The caller does not wait any more: the job is cancelled, or it runs on.
    pub(super) fn cancelled(&mut self) -> ToolError {
        let error = ToolError::new(ErrorKind::Cancelled, "cancelled by the caller");
        match self.abandoned.act() {
            true => error,
            false => self.with_job(error),
        }
    }

    /// The call has its result: nobody has left it.
    pub(super) fn ended(&mut self) {
        self.abandoned.forget();
    }
}
