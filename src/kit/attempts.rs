//! The attempts at one call, in a layer that sends it again.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use crate::{
    call::{CallExt, CallInfo, Claim, ToolCall},
    config::{ConfigError, refuse_if},
    error::{ErrorKind, Execution, ToolError},
    flow::again::{After, Way},
    kit::lane::Kept,
    lock::lock,
};

/// The attempts at a call.
pub enum Attempts<S, T> {
    /// A call that is sent once: its names, and the attempts so far.
    Once(CallInfo, u32),
    /// A call that may be sent again.
    Many(Resend<S, T>),
}

/// A call that may be sent again.
pub struct Resend<S, T> {
    pub(crate) call: ToolCall,
    pub(crate) template: Arc<Kept<Template<S, T>>>,
    /// Attempts so far, those of other layers included.
    made: u32,
    /// The error of the previous attempt.
    pub(crate) failed: Option<ToolError>,
    /// The claim under which the layer repeats the call.
    claim: Claim,
    /// Set if the recording that the call's attempts share began here, and ends here.
    records: bool,
}

crate::text::debug_fields! { {S, T} |_| Attempts<S, T> { .. } }
crate::text::debug_fields! { {S, T} |_| Resend<S, T> { .. } }

/// The state that the calls of a service share: an instance to clone for further attempts, and the
/// layer's settings.
///
/// A mutex, because `S` need not be `Sync`; only a call that is sent again takes it.
pub struct Template<S, T> {
    svc: Mutex<S>,
    pub(crate) settings: T,
}

impl<S, T: fmt::Debug> fmt::Debug for Template<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl<S, T> Template<S, T> {
    pub(crate) fn new(svc: S, settings: T) -> Self {
        Self {
            svc: Mutex::new(svc),
            settings,
        }
    }

    /// Returns a service for a further call, not ready yet.
    pub(crate) fn fresh(&self) -> S
    where
        S: Clone,
    {
        lock(&self.svc).clone()
    }
}

impl<S, T> Resend<S, T> {
    /// `made`: the attempts so far.
    #[inline]
    pub(crate) fn new(
        call: ToolCall,
        template: Arc<Kept<Template<S, T>>>,
        (claim, made): (Claim, u32),
        records: bool,
    ) -> Self {
        Self {
            call,
            template,
            made,
            failed: None,
            claim,
            records,
        }
    }

    /// Returns the error of the previous attempt, which no other layer needs any more.
    fn take_failed(&mut self) -> Option<ToolError> {
        let failed = self.failed.take()?;
        self.call.info().set_failed(None);
        Some(failed)
    }

    /// Returns the last error of the call.
    fn last(&self, error: ToolError) -> ToolError {
        last(&self.call, self.claim, self.made, error)
    }

    /// Ends an attempt that another one follows.
    #[cold]
    fn again<Res>(&mut self, way: Way, error: Option<ToolError>) -> After<S, Res>
    where
        S: Clone,
    {
        let replay = self.call.replay_safety();
        let is_unsent = |e: &ToolError| e.is_surely_not_started(replay) && !e.is_after_ambiguous();
        let may_have_run = !error.as_ref().is_some_and(is_unsent);
        let info = self.call.info();
        info.end_attempt(may_have_run);
        // A refused attempt is not counted in `made`.
        let attempt = self.made.max(self.call.attempt());
        info.set_failed(error.clone().map(|error| (attempt, error)));
        self.failed = error;
        After::Again(self.template.fresh(), self.call.copy(), way)
    }
}

impl<S, T> Attempts<S, T> {
    /// Returns the part of a call that may be sent again.
    pub(crate) fn resend(&mut self) -> Option<&mut Resend<S, T>> {
        match self {
            Self::Many(resend) => Some(resend),
            Self::Once(..) => None,
        }
    }

    /// Returns the number of attempts so far, those of other layers included.
    pub(crate) fn made(&self) -> u32 {
        match self {
            Self::Many(Resend { made, .. }) | Self::Once(_, made) => *made,
        }
    }

    pub(crate) fn info(&self) -> CallInfo {
        match self {
            Self::Many(resend) => resend.call.info(),
            Self::Once(info, _) => info.clone(),
        }
    }

    /// Begins an attempt.
    #[inline]
    pub(crate) fn begin(&mut self, call: &mut ToolCall) {
        match self {
            Self::Once(_, made) => *made += 1,
            Self::Many(resend) => {
                resend.made = resend.made.wrapping_add(1);
                // The first attempt has begun in an outer layer.
                if resend.made > resend.call.attempt() {
                    resend.call.begin_attempt(resend.made);
                    call.begin_attempt(resend.made);
                }
            }
        }
    }

    /// Takes the error of an attempt; a refused one does not count. Adds the attempts that an inner
    /// layer has made.
    pub(crate) fn met(&mut self, error: ToolError) -> ToolError {
        let error = error.for_call(&self.info());
        match self {
            Self::Once(info, made) => *made = (*made).max(made_below(&error, info.tool())),
            Self::Many(resend) => {
                if error.is_own_refusal() {
                    resend.made = resend.made.saturating_sub(1);
                }
                if resend.claim != Claim::Retry {
                    resend.made = resend.made.max(made_below(&error, resend.call.tool()));
                }
                if error.is_after_ambiguous() {
                    resend.call.set_ambiguous();
                }
            }
        }
        error
    }

    /// Ends an attempt: another one follows after this way, if there is one.
    #[inline]
    pub(crate) fn next<Res>(
        &mut self,
        way: Option<Way>,
        result: Result<Res, ToolError>,
    ) -> After<S, Res>
    where
        S: Clone,
    {
        match (way, self) {
            (Some(way), Self::Many(resend)) => resend.again(way, result.err()),
            (_, attempts) => After::End(result.map_err(|e| attempts.end(e))),
        }
    }

    /// Returns the error of the call, from that of its last attempt: if this side refused that one,
    /// the error before it.
    pub(crate) fn end(&mut self, error: ToolError) -> ToolError {
        let Self::Many(resend) = self else {
            return error;
        };
        let error = ended(resend.take_failed(), error);
        resend.last(error)
    }

    /// Returns the error of a call if its next attempt is not made: the error of the last attempt,
    /// or else `why`.
    pub(crate) fn not_sent(&mut self, why: ToolError) -> ToolError {
        let Self::Many(resend) = self else {
            return why;
        };
        let error = resend.take_failed().unwrap_or(why);
        resend.last(error)
    }

    /// Returns the error of a call if its wait for an attempt was ended.
    pub(crate) fn gave_up(&mut self, why: ToolError) -> ToolError {
        let Self::Many(resend) = self else {
            return why;
        };
        let is_first = resend.made < resend.call.attempt();
        let kind = match why.kind() {
            ErrorKind::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::Timeout,
        };
        let between = || ToolError::new(kind, "ended between two attempts").unsent();
        let error = match resend.take_failed() {
            Some(failed) if kind == ErrorKind::Timeout => failed,
            Some(failed) => between().after(failed),
            None if is_first => why,
            None => between(),
        };
        resend.last(error)
    }
}

impl<S, T> Drop for Resend<S, T> {
    #[inline]
    fn drop(&mut self) {
        if self.failed.is_some() {
            drop(self.take_failed());
        }
        // From now on another call may use the record.
        if self.records {
            self.call.end_recording();
        }
    }
}

/// Checks a number of attempts. The number of an attempt has 16 bits.
pub(crate) fn check(attempts: u32) -> Result<(), ConfigError> {
    refuse_if(attempts == 0, "attempts", "it is zero: no call is made")?;
    let most = u32::from(u16::MAX);
    let reason = format!("{attempts} is more than {most}");
    refuse_if(attempts > most, "attempts", reason)
}

/// Returns the attempts that an inner layer has made, without those at calls of the tool itself.
pub(crate) fn made_below(error: &ToolError, tool: &str) -> u32 {
    let ours = error.attempts().filter(|_| error.tool() == Some(tool));
    ours.unwrap_or_default()
}

/// Returns the error of a call from that of its last attempt, after an attempt that has `failed`.
pub(crate) fn ended(failed: Option<ToolError>, error: ToolError) -> ToolError {
    // A caller who has cancelled has to see `Cancelled`.
    let is_refused = error.is_own_refusal() && error.kind() != ErrorKind::Cancelled;
    match failed {
        Some(failed) if is_refused => failed.before(&error),
        Some(failed) if error.is_of_deadline() => error.after(failed),
        _ => error,
    }
}

/// Returns the last error of a call that a layer repeats. It has the number of attempts, and says
/// that an earlier one may have run.
pub(crate) fn last(call: &ToolCall, claim: Claim, made: u32, error: ToolError) -> ToolError {
    let error = error.with_attempts(made);
    if !call.is_ambiguous() || error.execution() != Execution::NotStarted {
        return error;
    }
    // An outer layer that waits out limits needs to see that this attempt did not run.
    let waits_above = claim == Claim::Retry && call.is_claimed(Claim::RateLimit);
    if waits_above && error.kind() == ErrorKind::RateLimited {
        error.after_ambiguous()
    } else {
        error.with_execution(Execution::Unknown)
    }
}
