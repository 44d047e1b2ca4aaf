//! A call and its job: what comes after each answer. The flow around it sends and waits.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;
use tower_service::Service;

use super::{
    cancel::Abandoned,
    job::{Job, Polled, Started},
    layer::PollLayer,
};
use crate::{
    call::{CallExt, JobRef, Observation, ToolCall},
    error::{ErrorKind, ToolError, code},
    event::{InertReason, Listener},
    flow::{
        PollTurn, Step,
        again::{After, Again, Before, Enter, Repeated, Repeats, Shared, Way},
    },
    kit::{attempts::Template, cold::Cold, lane::Kept, limit::Caller, timer::Timer},
};

/// Waits that are added one by one.
const STEPS: u32 = 64;

/// The last poll begins so long before the time is over, ...
const LAST_POLL: Duration = Duration::from_millis(500);

/// ... and is given up so long before.
const LAST_WORD: Duration = Duration::from_millis(100);

/// A server is asked again after this time, whatever it has asked for.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// Polls that may answer `NotFound` before the job counts as lost.
const NOT_THERE_YET: u32 = 3;

/// The longest note, in characters.
const MAX_NOTE: usize = 200;

/// The result of a call.
type End<Res> = Result<Res, ToolError>;

/// Waits for the jobs that calls start. See the [module docs](super) for an example.
pub type Polling<S, J> = Repeats<S, PollLayer<J>>;

/// Response future for [`Polling`].
pub type ResponseFuture<S, F, J> = Repeated<S, F, Poller<S, J>>;

/// A call and its job.
pub struct Poller<S, J> {
    call: ToolCall,
    shared: Arc<Kept<Template<S, PollLayer<J>>>>,
    /// When the last poll has to have its answer.
    end: Option<Instant>,
    work: Cold<Box<Work>>,
}

crate::text::debug_fields! { {S, J} |_| Poller<S, J> { .. } }

/// A job, and how it is asked for.
struct Work {
    job: JobRef,
    /// The job was there before the call, and nothing was done for it yet.
    resumes: bool,
    polls: u32,
    /// The last note of the job.
    note: Option<String>,
    /// Of the poll that runs.
    observation: Option<Observation>,
    abandoned: Abandoned,
    /// When the next poll begins.
    at: Option<Instant>,
    timer: Timer,
    /// Of a poll that runs.
    caller: Option<Caller>,
}

impl Work {
    fn new(job: JobRef, resumes: bool) -> Cold<Box<Self>> {
        Cold::new(Self {
            job,
            resumes,
            polls: 0,
            note: None,
            observation: None,
            abandoned: Abandoned::default(),
            at: None,
            timer: Timer::default(),
            caller: None,
        })
    }
}

impl<S, J> Enter<S> for PollLayer<J>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    J: Job<S::Response> + 'static,
{
    type Ticket = Poller<S, J>;

    const PASSES: bool = true;

    /// The call is sent first: itself, or as a poll of the job that it carries.
    fn enter(shared: &Shared<S, Self>, call: &mut ToolCall) -> Result<Self::Ticket, ToolError> {
        let limits = &shared.settings.limits;
        let budget = limits.budget.and_then(|b| Instant::now().checked_add(b));
        let end = [call.deadline(), budget].into_iter().flatten().min();
        let mut poller = Poller {
            end: end.map(|end| end.checked_sub(LAST_WORD).unwrap_or(end)),
            call: call.copy(),
            shared: shared.keep(),
            work: Cold::default(),
        };
        if let Some(job) = call.job() {
            if !job.is_of(call) {
                let text = "the job is another tool's";
                return Err(ToolError::refusal(ErrorKind::InvalidInput, text));
            }
            poller.work = Work::new(job, true);
            *call = poller.ask();
        }
        Ok(poller)
    }
}

impl<S, J> Poller<S, J>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    J: Job<S::Response> + 'static,
{
    /// Returns the next poll.
    fn ask(&mut self) -> ToolCall {
        let work = self.work.0.as_mut().expect("a job was started");
        let mut ask = self.shared.settings.job.ask(&self.call, &work.job);
        if let Some(end) = self.end {
            ask.tighten(end);
        }
        let observation = ask.observe();
        self.call.record(|r| {
            if r.wants_output_bytes() {
                observation.want_output_bytes();
            }
        });
        work.observation = Some(observation);
        work.polls += 1;
        ask
    }

    /// Returns when the next poll begins, or the result of the call.
    fn after(
        &mut self,
        result: Result<S::Response, ToolError>,
    ) -> Result<Instant, End<S::Response>> {
        let kind = &self.shared.settings.job;
        let work = self.work.0.as_mut();
        let seen = work.and_then(|work| work.observation.take());
        let after = match (seen, result) {
            (None, Err(error)) => return Err(Err(error)),
            (None, Ok(answer)) => match kind.started(&self.call, answer) {
                Err(error) => return Err(Err(error)),
                Ok(Started::Done(answer)) => return Err(Ok(answer)),
                Ok(Started::Running(job, after)) => {
                    self.work = Work::new(job, false);
                    self.attend(true);
                    after
                }
            },
            (Some(seen), Ok(answer)) => match kind.read(&self.call, answer) {
                Ok(Polled::Running { after, note }) => {
                    let rules = self.call.rules();
                    let note = note.map(|note| rules.text(&note, MAX_NOTE).to_string());
                    if let Some(work) = self.work() {
                        work.note = note;
                    }
                    after
                }
                Ok(Polled::Paused(answer)) => {
                    self.tell(&seen);
                    return Err(Ok(answer));
                }
                Ok(Polled::Done(answer)) => return Err(self.over(&seen, Ok(answer))),
                Err(error) => return Err(self.over(&seen, Err(error))),
            },
            (Some(_), Err(error)) => self.bear(error).map_err(Err)?,
        };
        self.report();
        self.next_poll(after).ok_or_else(|| Err(self.timed_out()))
    }

    /// Lets the call wait for its next poll, or returns its result.
    fn wait(&mut self, result: Result<S::Response, ToolError>) -> Result<Way, End<S::Response>> {
        self.resume();
        match self.after(result) {
            Ok(at) => {
                if let Some(work) = self.work() {
                    work.timer.reset();
                    work.at = Some(at);
                }
                self.call.info().end_attempt(true);
                Ok(Way::Wait)
            }
            Err(end) => {
                self.ended();
                Err(end.map_err(|error| self.own(error)))
            }
        }
    }

    /// Takes over the job of a call that is polled: before that no caller has waited for it.
    fn resume(&mut self) {
        if let Some(work) = self.work()
            && mem::take(&mut work.resumes)
        {
            self.attend(self.call.has_own_job());
        }
    }

    /// There is a job now. If it is another call's, that call's end is its end.
    fn attend(&mut self, is_own: bool) {
        self.check_timeout();
        let work = self.work.0.as_mut().expect("a job was started");
        let job = &work.job;
        self.call.record(|r| r.set_job(job.clone()));
        let PollLayer {
            job: kind, limits, ..
        } = &self.shared.settings;
        let cancels = is_own && limits.cancels;
        let cancel = cancels.then(|| kind.cancel(&self.call, job));
        if let Some(cancel) = cancel.flatten() {
            let (shared, info, over) = (Arc::clone(&self.shared), self.call.info(), job.clone());
            // Who tries again starts another one.
            let leave = move || info.record(|r| r.clear_job(&over));
            work.abandoned = Abandoned::then(cancel, leave, move || shared.fresh());
        }
    }
}

impl<S, J> Poller<S, J> {
    fn work(&mut self) -> Option<&mut Work> {
        self.work.0.as_deref_mut()
    }

    /// Counts a call with an outer timeout that ends before its wait.
    fn check_timeout(&self) {
        let Some(timeout) = self.call.outer_timeout() else {
            return;
        };
        let PollLayer { limits, inert, .. } = &self.shared.settings;
        let ends_later = |end: Instant| end.saturating_duration_since(Instant::now()) > timeout;
        // No wait is shorter than one before it.
        let (steps, wait) = (limits.polls.min(STEPS), |n| limits.interval.delay(n, 0));
        let first: Duration =
            (1..=steps).fold(Duration::ZERO, |all, n| all.saturating_add(wait(n)));
        let rest = wait(steps).saturating_mul(limits.polls - steps);
        if self.end.is_none_or(ends_later) && first.saturating_add(rest) > timeout {
            let (call, reason) = (self.call.info(), InertReason::OuterTimeout);
            let help = "give the tool a longer timeout, or a `TimeoutLayer` inside";
            inert.pass(&Listener::default(), &call, reason, help);
        }
    }

    fn polls(&self) -> u32 {
        self.work.0.as_ref().map_or(0, |work| work.polls)
    }

    /// Takes the error of a poll: returns when to ask again at the earliest, or the error of the
    /// call.
    fn bear(&mut self, error: ToolError) -> Result<Option<Duration>, ToolError> {
        let is_borne = match error.kind() {
            ErrorKind::Cancelled if self.call.is_cancelled() => {
                return Err(self.cancelled());
            }
            // The time of one poll: that of the job is looked at next.
            ErrorKind::DeadlineExceeded => true,
            ErrorKind::NotFound if self.polls() <= NOT_THERE_YET => true,
            _ => error.is_retryable(),
        };
        if !is_borne {
            // If a poll cannot be sent, none ever can be. The job is cancelled, as far as that can
            // be sent, so the error names it all the same.
            if error.kind() == ErrorKind::Internal && error.is_own_refusal() {
                self.leave();
            }
            // It proves nothing of the call that has started the job.
            return Err(self.with_job(error.into_inferred().with_attempts(0)));
        }
        if let Some(work) = self.work() {
            work.note = Some(error.code().to_owned());
        }
        Ok(error.retry_after())
    }

    /// Returns when the next poll begins, if there is one. The last wait is shortened, so that the
    /// job has its last look.
    fn next_poll(&self, after: Option<Duration>) -> Option<Instant> {
        let limits = &self.shared.settings.limits;
        if self.polls() >= limits.polls {
            return None;
        }
        let wait = limits.interval.delay(self.polls() + 1, 0);
        let asked = after.unwrap_or_default().min(MAX_WAIT);
        let now = Instant::now();
        let at = now.checked_add(wait.max(asked))?;
        let Some(end) = self.end else { return Some(at) };
        let last = end.checked_sub(LAST_POLL - LAST_WORD)?;
        (last > now).then(|| at.min(last))
    }

    /// The job is over.
    fn over<Res>(&self, seen: &Observation, result: End<Res>) -> End<Res> {
        self.tell(seen);
        if let Some(work) = &*self.work.0 {
            self.call.record(|r| r.clear_job(&work.job));
        }
        result
    }

    /// Leaves the facts of the last answer on the call's record.
    fn tell(&self, seen: &Observation) {
        self.call.record(|r| {
            r.set_reported(seen.is_reported());
            if let Some(bytes) = seen.output_bytes() {
                r.set_output_bytes(bytes);
            }
        });
    }

    /// Returns when to [report](Self::report) next while the call waits until `at`.
    fn wake(&self, at: Instant) -> Instant {
        let next = self.call.progress().and_then(|progress| {
            let often = (progress.allowed() / 2).max(Duration::from_millis(1));
            Instant::now().checked_add(often)
        });
        next.map_or(at, |next| next.min(at))
    }

    /// Tells those who wait for signs of life that the job is waited for.
    fn report(&self) {
        if let Some(progress) = self.call.progress() {
            progress.report();
        }
    }

    /// Returns an error with the names of the call.
    fn own(&self, error: ToolError) -> ToolError {
        error.for_call(&self.call.info())
    }

    fn with_job(&self, error: ToolError) -> ToolError {
        match &*self.work.0 {
            Some(work) => error.with_job(work.job.clone()),
            None => error,
        }
    }

    /// Cancels the job. Returns whether that could be done.
    fn leave(&mut self) -> bool {
        self.work().is_some_and(|work| work.abandoned.act())
    }

    /// Returns the error of a call after its polls, or its time, are used up.
    fn timed_out(&self) -> ToolError {
        let polls = self.polls();
        let limit = match polls >= self.shared.settings.limits.polls {
            true => code::LIMIT_POLLS,
            false => code::LIMIT_TIME,
        };
        let note = self.work.0.as_ref().and_then(|work| work.note.as_ref());
        let note = note.map(|note| format!(": {note}")).unwrap_or_default();
        let text = format!("the job has not ended after {polls} polls{note}");
        let error = ToolError::new(ErrorKind::PollTimeout, text);
        self.with_job(error.with_detail(code::POLL_LIMIT, limit))
    }

    /// The caller does not wait any more: the job is cancelled, or it runs on.
    fn cancelled(&mut self) -> ToolError {
        let error = ToolError::new(ErrorKind::Cancelled, "cancelled by the caller");
        match self.leave() {
            true => error,
            false => self.with_job(error),
        }
    }

    /// Records that the call has its result: its caller has not left it.
    fn ended(&mut self) {
        if let Some(work) = self.work() {
            work.abandoned.forget();
        }
    }
}

impl<S, J> Before<S> for Poller<S, J>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    J: Job<S::Response> + 'static,
{
    /// A poll has other names.
    fn stamp(&self, _: &ToolCall, error: ToolError) -> ToolError {
        self.own(error)
    }

    fn poll_turn(&mut self, call: &mut ToolCall, cx: &mut Context<'_>) -> PollTurn<S::Response> {
        // It has run, and its job runs meanwhile.
        call.release();
        while let Some(at) = self.work().and_then(|work| work.at) {
            let wake = self.wake(at);
            if let Some(work) = self.work() {
                ready!(work.timer.poll(cx, || Some(wake)));
                work.timer.reset();
                work.at = Some(at).filter(|at| *at > Instant::now());
            }
            self.report();
        }
        *call = self.ask();
        Poll::Ready(Ok(None))
    }

    fn gave_up(&mut self, error: ToolError, _: Step) -> ToolError {
        let error = match error.kind() {
            ErrorKind::Cancelled => self.cancelled(),
            _ => self.timed_out(),
        };
        self.ended();
        error
    }

    fn not_ready(&mut self, _: &mut ToolCall, error: ToolError) -> Result<(S, Way), ToolError> {
        match self.wait(Err(error)) {
            Ok(way) => Ok((self.shared.fresh(), way)),
            Err(Err(error)) => Err(error),
            Err(Ok(_)) => unreachable!("an error gives no answer"),
        }
    }
}

impl<S, J> Again<S> for Poller<S, J>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    J: Job<S::Response> + 'static,
{
    /// The inner layers bound the call that starts the job; a poll is bounded here.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<ToolError> {
        self.resume();
        let Some(work) = &mut *self.work.0 else {
            return Poll::Pending;
        };
        let call = &self.call;
        let caller = work.caller.get_or_insert_with(|| Caller::of(call));
        let error = match caller.poll_cancelled(cx) {
            Poll::Ready(()) => self.cancelled(),
            Poll::Pending => {
                ready!(work.timer.poll(cx, || self.end));
                self.timed_out()
            }
        };
        self.ended();
        Poll::Ready(self.own(error))
    }

    fn again(&mut self, result: Result<S::Response, ToolError>) -> After<S, S::Response> {
        match self.wait(result) {
            Ok(step) => After::Again(self.shared.fresh(), self.call.copy(), step),
            Err(end) => After::End(end),
        }
    }
}
