//! A call and the state of its attempts.

use std::sync::{Arc, Mutex, PoisonError};

use tower_service::Service;

use crate::{
    call::{CallInfo, Claim, ToolCall},
    error::{ErrorKind, Execution, ToolError},
    kit::{lane::Kept, preparing::GivenUp},
};

/// The part of a call that its layer needs.
pub(crate) enum Request<S, T> {
    /// It was sent, and is not sent again.
    Once {
        info: CallInfo,
        attempt: u32,
    },
    Again(Resend<S, T>),
}

/// A call that may be sent again, and the state of its attempts.
pub(crate) struct Resend<S, T> {
    pub(crate) call: ToolCall,
    template: Arc<Kept<Template<S, T>>>,
    /// Attempts so far, those of other layers included.
    pub(crate) made: u32,
    /// The error of the previous attempt.
    pub(crate) failed: Option<ToolError>,
    /// The claim under which the layer repeats the call; `None` if it only holds it back.
    claim: Option<Claim>,
    /// Whether the recording that the call's attempts share was begun here, and ends here.
    pub(crate) records: bool,
}

/// What the calls of a service share: an instance to clone for further attempts, and the layer's settings.
///
/// A mutex, because `S` need not be `Sync`; only a call that is sent again takes it.
#[derive(Debug)]
pub(crate) struct Template<S, T> {
    svc: Mutex<S>,
    pub(crate) settings: T,
}

impl<S, T> Template<S, T> {
    pub(crate) fn new(svc: S, settings: T) -> Self {
        Self {
            svc: Mutex::new(svc),
            settings,
        }
    }

    /// A service for a further call, not ready yet.
    pub(crate) fn fresh(&self) -> S
    where
        S: Clone,
    {
        let svc = self.svc.lock();
        svc.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S, T> Request<S, T> {
    #[inline]
    pub(crate) fn once(call: &ToolCall) -> Self {
        Self::Once {
            info: call.info(),
            attempt: call.attempt(),
        }
    }

    pub(crate) fn resend(&mut self) -> &mut Resend<S, T> {
        match self {
            Self::Again(resend) => resend,
            Self::Once { .. } => unreachable!("a call that is sent once has been sent"),
        }
    }

    /// Sends the call: a copy of it, if it may have to be sent again.
    pub(crate) fn send(&mut self, svc: &mut S) -> S::Future
    where
        S: Service<ToolCall>,
    {
        let resend = self.resend();
        resend.begin_attempt();
        let call = resend.call.copy();
        if !resend.is_repeated() {
            // So the tool can take the arguments without a copy, and no service is kept.
            *self = Self::once(&call);
        }
        svc.call(call)
    }

    pub(crate) fn info(&self) -> CallInfo {
        match self {
            Self::Once { info, .. } => info.clone(),
            Self::Again(resend) => resend.call.info(),
        }
    }

    /// The number of the last attempt.
    pub(crate) fn attempt(&self) -> u32 {
        match self {
            Self::Once { attempt, .. } => *attempt,
            Self::Again(resend) => resend.made,
        }
    }

    /// The error of an attempt.
    pub(super) fn met(&mut self, error: ToolError) -> ToolError {
        match self {
            Self::Once { info, attempt } => {
                let error = error.for_call(info);
                *attempt = (*attempt).max(made_below(&error, info.tool()));
                error
            }
            Self::Again(resend) => resend.met(error),
        }
    }

    /// The error of the call, from that of its last attempt.
    pub(super) fn end(&mut self, error: ToolError) -> ToolError {
        match self {
            Self::Once { .. } => error,
            Self::Again(resend) => resend.end(error),
        }
    }
}

impl<S, T> Resend<S, T> {
    /// A call that is yet to be sent.
    #[inline]
    pub(crate) fn unsent(
        call: ToolCall,
        template: Arc<Kept<Template<S, T>>>,
        claim: Option<Claim>,
    ) -> Self {
        Self {
            made: call.attempt().saturating_sub(1),
            call,
            template,
            failed: None,
            claim,
            records: false,
        }
    }

    /// A call of which a copy is now being sent, by a layer with this claim.
    #[inline]
    pub(crate) fn sent(call: ToolCall, template: Arc<Kept<Template<S, T>>>, claim: Claim) -> Self {
        let mut resend = Self::unsent(call, template, Some(claim));
        resend.made = resend.call.attempt();
        resend
    }

    /// Whether its layer repeats it.
    pub(crate) fn is_repeated(&self) -> bool {
        self.claim.is_some()
    }

    pub(crate) fn settings(&self) -> &T {
        &self.template.settings
    }

    pub(super) fn fresh(&self) -> S
    where
        S: Clone,
    {
        self.template.fresh()
    }

    pub(crate) fn begin_attempt(&mut self) {
        self.made += 1;
        // The first attempt has begun in a layer above.
        if self.made > self.call.attempt() {
            self.call.begin_attempt(self.made);
        }
    }

    /// Takes the error of an attempt; a refused one does not count as an attempt. Adds attempts that a layer below has made.
    pub(crate) fn met(&mut self, error: ToolError) -> ToolError {
        let error = error.for_call(&self.call.info());
        if error.is_own_refusal() {
            self.made = self.made.saturating_sub(1);
        }
        if self.claim != Some(Claim::Retry) {
            self.made = self.made.max(made_below(&error, self.call.tool()));
        }
        if error.is_after_ambiguous() {
            self.call.set_ambiguous();
        }
        error
    }

    /// Marks on the call that an attempt has ended, and another one follows.
    pub(super) fn end_attempt(&mut self, error: Option<ToolError>) {
        let replay = self.call.replay_safety();
        let is_unsent = |e: &ToolError| e.is_surely_not_started(replay) && !e.is_after_ambiguous();
        let may_have_run = !error.as_ref().is_some_and(is_unsent);
        let info = self.call.info();
        info.end_attempt(may_have_run);
        // A refused attempt is not counted in `made`.
        let attempt = self.made.max(self.call.attempt());
        info.set_failed(error.clone().map(|error| (attempt, error)));
        self.failed = error;
    }

    /// The error of the previous attempt, which no other layer needs any more.
    fn take_failed(&mut self) -> Option<ToolError> {
        let failed = self.failed.take()?;
        self.call.info().set_failed(None);
        Some(failed)
    }

    /// The error of the call, from that of its last attempt: if this side refused that one, the error before it.
    pub(crate) fn end(&mut self, error: ToolError) -> ToolError {
        // A caller who has cancelled has to see `Cancelled`.
        let is_refused = error.is_own_refusal() && error.kind() != ErrorKind::Cancelled;
        let error = match self.take_failed() {
            Some(failed) if is_refused => failed.before(&error),
            Some(failed) if error.is_of_deadline() => error.after(failed),
            _ => error,
        };
        self.last(error)
    }

    /// The attempt is not made: the error before it is the result, or else `why`.
    pub(crate) fn not_sent(&mut self, why: ToolError) -> ToolError {
        let error = self.take_failed().unwrap_or(why);
        self.last(error.for_call(&self.call.info()))
    }

    /// The error of the call, when a wait was ended and the attempt is not made.
    pub(crate) fn given_up(&mut self, why: GivenUp) -> ToolError {
        let error = match (why, self.take_failed()) {
            (GivenUp::Deadline, Some(failed)) => return self.last(failed),
            (why, None) if self.claim != Some(Claim::Retry) || self.made < self.call.attempt() => {
                why.error()
            }
            (why, failed) => {
                let error = why.between_attempts();
                match failed {
                    Some(failed) => error.after(failed),
                    None => error,
                }
            }
        };
        self.last(error.for_call(&self.call.info()))
    }

    /// The last error of the call.
    pub(crate) fn last(&self, error: ToolError) -> ToolError {
        match self.claim {
            Some(claim) => last(&self.call, claim, self.made, error),
            None => error,
        }
    }
}

impl<S, T> Drop for Resend<S, T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.take_failed());
        // From now on another call may use the record.
        if self.records {
            self.call.end_recording();
        }
    }
}

/// The attempts that a layer below has made, without those at calls that the tool itself made.
fn made_below(error: &ToolError, tool: &str) -> u32 {
    let ours = error.attempts().filter(|_| error.tool() == Some(tool));
    ours.unwrap_or_default()
}

/// The last error of a call that a layer repeats: it says how many attempts there were, and that an earlier one may have run.
pub(crate) fn last(call: &ToolCall, claim: Claim, made: u32, error: ToolError) -> ToolError {
    let error = error.with_attempts(made);
    if !call.is_ambiguous() || error.execution() != Execution::NotStarted {
        return error;
    }
    // A layer above that waits out limits needs to see that this attempt did not run.
    let waits_above = claim == Claim::Retry && call.is_claimed(Claim::RateLimit);
    if waits_above && error.kind() == ErrorKind::RateLimited {
        error.after_ambiguous()
    } else {
        error.with_execution(Execution::Unknown)
    }
}
