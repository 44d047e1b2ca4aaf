//! The attempts at one call: the engine of every layer that sends a call again.
//!
//! A layer decides on each result ([`Repeat`]). The engine drops the attempt, waits, makes a fresh service ready and sends the
//! call again; the caller's token and the call's deadline end each of these waits.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    caller::Caller,
    lane::Kept,
    preparing::{GivenUp, Preparing, Unprepared},
    timer::Timer,
};
use crate::{
    call::{CallInfo, Claim, ToolCall},
    error::{ErrorKind, Execution, ToolError},
};

/// What a layer decides about the attempts at a call.
pub(crate) trait Repeat<S, T, Res> {
    /// When the call is sent again after this result; `None`: the result is the call's, as that of a refused call always is.
    fn decide(
        &mut self,
        request: &mut Request<S, T>,
        result: &mut Result<Res, ToolError>,
    ) -> Option<Instant>;

    /// Whether the attempt may begin: asked after its wait, and again when the service is ready for it.
    fn admit(&mut self, _: &mut Resend<S, T>) -> Next {
        Next::Send
    }

    /// When the call is sent instead, if the service failed to become ready for it; or the error of the call.
    fn not_ready(
        &mut self,
        resend: &mut Resend<S, T>,
        error: ToolError,
    ) -> Result<Instant, ToolError> {
        Err(resend.not_sent(error))
    }

    /// The attempt that was waited for is not made.
    fn abandon(&mut self) {}
}

/// What becomes of an attempt.
pub(crate) enum Next {
    Send,
    WaitUntil(Instant),
    /// The error of the call, from [`Resend`].
    Refuse(ToolError),
}

pin_project! {
    /// The future of all attempts at a call.
    #[project(!Unpin)]
    pub(crate) struct Attempts<S, F, W, T, L> {
        #[pin]
        pub(crate) state: State<F, W>,
        pub(crate) request: Request<S, T>,
        pub(crate) layer: L,
    }
}

pin_project! {
    #[project = StateProj]
    pub(crate) enum State<F, W> {
        // Waiting for the response of an attempt.
        Called { #[pin] fut: F },
        // Before an attempt.
        Before { #[pin] wait: W },
        // The inner future is gone.
        Done,
    }
}

pin_project! {
    /// The wait for an attempt.
    #[project = WaitProj]
    pub(crate) enum Wait<S> {
        // For its time, without a reservation.
        Until { timer: Timer, #[pin] caller: Caller, at: Instant },
        // For the service to become ready.
        Preparing { #[pin] preparing: Preparing<S> },
        // For nothing: the call was refused, or its service failed to become ready, when it came.
        Refused { error: Option<ToolError> },
    }
}

/// Where a future keeps a wait: in place, or boxed where few calls wait and all would carry its size.
pub(crate) trait Hold<S>: From<Wait<S>> {
    fn wait(self: Pin<&mut Self>) -> Pin<&mut Wait<S>>;
}

impl<S> Hold<S> for Wait<S> {
    fn wait(self: Pin<&mut Self>) -> Pin<&mut Self> {
        self
    }
}

impl<S> Hold<S> for Pin<Box<Wait<S>>> {
    fn wait(self: Pin<&mut Self>) -> Pin<&mut Wait<S>> {
        self.as_deref_mut()
    }
}

impl<S> From<Wait<S>> for Pin<Box<Wait<S>>> {
    fn from(wait: Wait<S>) -> Self {
        Box::pin(wait)
    }
}

/// The call, as far as its layer needs it.
pub(crate) enum Request<S, T> {
    /// It was sent, and is not sent again.
    Once {
        info: CallInfo,
        attempt: u32,
    },
    Again(Resend<S, T>),
}

/// A call that is to be sent, and what is known of the attempts at it.
pub(crate) struct Resend<S, T> {
    pub(crate) call: ToolCall,
    template: Arc<Kept<Template<S, T>>>,
    /// Attempts so far, those of other layers included.
    pub(crate) made: u32,
    /// What the attempt before failed with.
    pub(crate) failed: Option<ToolError>,
    /// As what the layer repeats the call; `None` if it only holds it back.
    claim: Option<Claim>,
    /// Whether the call's recording, which its attempts share, was begun for it and ends with it.
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
}

impl<F, W> State<F, W> {
    pub(crate) fn before<S>(wait: Wait<S>) -> Self
    where
        W: From<Wait<S>>,
    {
        Self::Before { wait: wait.into() }
    }
}

impl<S> Wait<S> {
    pub(crate) fn until(at: Instant, call: &ToolCall) -> Self {
        Self::Until {
            timer: Timer::default(),
            caller: Caller::of(call),
            at,
        }
    }

    pub(crate) fn preparing(svc: S, call: &ToolCall) -> Self {
        let preparing = Preparing::new(svc, call);
        Self::Preparing { preparing }
    }

    pub(crate) fn refused(error: ToolError) -> Self {
        Self::Refused { error: Some(error) }
    }
}

impl<S, W, T, L> Future for Attempts<S, S::Future, W, T, L>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    W: Hold<S>,
    L: Repeat<S, T, S::Response>,
{
    type Output = Result<S::Response, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let (request, layer) = (this.request, this.layer);
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Called { fut } => {
                    let mut result = ready!(fut.poll(cx)).map_err(|e| request.met(e.into()));
                    match (layer.decide(request, &mut result), &mut *request) {
                        (Some(until), Request::Again(resend)) => {
                            resend.failed = result.err();
                            Ok(State::before(Wait::until(until, &resend.call)))
                        }
                        (_, request) => {
                            // The attempt is gone with its result, not with the future.
                            this.state.set(State::Done);
                            return Poll::Ready(result.map_err(|e| request.end(e)));
                        }
                    }
                }
                StateProj::Before { wait } => ready!(wait.wait().poll(cx, request.resend(), layer)),
                StateProj::Done => panic!("polled after completion"),
            };
            match next {
                // Drops the attempt before the wait, or the service that waited, with what it had reserved.
                Ok(next) => this.state.set(next),
                Err(error) => {
                    layer.abandon();
                    this.state.set(State::Done);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl<S> Wait<S>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    /// Ready with what comes after the wait, or with the error of a call that has no further attempt.
    #[cold]
    fn poll<W, T, L>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        resend: &mut Resend<S, T>,
        layer: &mut L,
    ) -> Poll<Result<State<S::Future, W>, ToolError>>
    where
        W: From<Self>,
        L: Repeat<S, T, S::Response>,
    {
        let ready = match self.project() {
            WaitProj::Until { timer, caller, at } => {
                if caller.poll_cancelled(cx).is_ready() {
                    Err(Unprepared::GivenUp(GivenUp::Cancelled))
                } else {
                    // It ends before the deadline, or it had not begun.
                    ready!(timer.poll(cx, || Some(*at)));
                    Ok(None)
                }
            }
            WaitProj::Preparing { preparing } => ready!(preparing.poll(cx)).map(Some),
            WaitProj::Refused { error } => {
                let error = error.take().expect("refused once");
                return Poll::Ready(Err(error));
            }
        };
        let next = match ready {
            Ok(svc) => match (layer.admit(resend), svc) {
                (Next::Send, Some(svc)) => {
                    let fut = resend.send(svc);
                    return Poll::Ready(Ok(State::Called { fut }));
                }
                (Next::Send, None) => Ok(Self::preparing(resend.fresh(), &resend.call)),
                (Next::WaitUntil(at), _) => Ok(Self::until(at, &resend.call)),
                (Next::Refuse(error), _) => Err(error),
            },
            Err(Unprepared::GivenUp(why)) => Err(resend.given_up(why)),
            Err(Unprepared::Failed(error)) => {
                let at = layer.not_ready(resend, error);
                at.map(|at| Self::until(at, &resend.call))
            }
        };
        Poll::Ready(next.map(State::before))
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

    fn resend(&mut self) -> &mut Resend<S, T> {
        match self {
            Self::Again(resend) => resend,
            Self::Once { .. } => unreachable!("a call that is sent once has been sent"),
        }
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
    #[cold]
    fn met(&mut self, error: ToolError) -> ToolError {
        match self {
            Self::Once { info, attempt } => {
                let error = error.about(info);
                *attempt = (*attempt).max(made_below(&error, info.tool()));
                error
            }
            Self::Again(resend) => resend.met(error),
        }
    }

    /// The error of the call, from that of its last attempt.
    #[cold]
    fn end(&mut self, error: ToolError) -> ToolError {
        match self {
            Self::Once { .. } => error,
            Self::Again(resend) => resend.end(error),
        }
    }
}

impl<S, T> Resend<S, T> {
    #[inline]
    /// A call that is yet to be sent.
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

    #[inline]
    /// A call of which a copy is sent now, as that of a layer with this claim.
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

    /// A service for a further attempt, not ready yet.
    fn fresh(&self) -> S
    where
        S: Clone,
    {
        let svc = self.template.svc.lock();
        svc.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a copy of the call.
    pub(crate) fn send(&mut self, svc: &mut S) -> S::Future
    where
        S: Service<ToolCall>,
    {
        self.begin_attempt();
        svc.call(self.call.clone())
    }

    pub(crate) fn begin_attempt(&mut self) {
        self.made += 1;
        // The first one of this layer has begun above.
        if self.made > self.call.attempt() {
            self.call.begin_attempt(self.made);
        }
    }

    /// The error of an attempt; a refused one was none. It tells of attempts that a layer below has made.
    pub(crate) fn met(&mut self, error: ToolError) -> ToolError {
        let error = error.about(&self.call.info());
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

    /// The error of the call, from that of its last attempt: if this side refused that one, the error before it.
    pub(crate) fn end(&mut self, error: ToolError) -> ToolError {
        // A caller who has cancelled wants to know that it was in time.
        let is_refused = error.is_own_refusal() && error.kind() != ErrorKind::Cancelled;
        match self.failed.take().filter(|_| is_refused) {
            Some(failed) => self.last(failed.before(&error)),
            None => self.last(error),
        }
    }

    /// The attempt is not made: the error before it is the result, or else `why`.
    pub(crate) fn not_sent(&mut self, why: ToolError) -> ToolError {
        let error = self.failed.take().unwrap_or(why);
        self.last(error.about(&self.call.info()))
    }

    /// A wait was ended, so the attempt is not made.
    pub(crate) fn given_up(&mut self, why: GivenUp) -> ToolError {
        let error = match (why, self.failed.take()) {
            (GivenUp::Deadline, Some(failed)) => return self.last(failed),
            (why, None) if self.made < self.call.attempt() => why.error(),
            (why, failed) => {
                let error = why.between_attempts();
                match failed {
                    Some(failed) => error.with_source(failed),
                    None => error,
                }
            }
        };
        self.last(error.about(&self.call.info()))
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
        // Another call may take the record now.
        if self.records {
            self.call.end_recording();
        }
    }
}

/// The attempts that a layer below has made; not those at a call that the tool made itself.
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
    // A layer above that waits limits out has to know that this attempt did not run.
    let waits_above = claim == Claim::Retry && call.is_claimed(Claim::RateLimit);
    if waits_above && error.kind() == ErrorKind::RateLimited {
        error.after_ambiguous()
    } else {
        error.with_execution(Execution::Unknown)
    }
}

impl<S, F, W, T, L> fmt::Debug for Attempts<S, F, W, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Called { .. } => "Called",
            State::Before { .. } => "Before",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

/// The public future of a layer around [`Attempts`].
macro_rules! response_future {
    ($(#[$doc:meta])* $wait:ty, $settings:ty, $layer:ty) => {
        pin_project_lite::pin_project! {
            $(#[$doc])*
            #[must_use = "futures do nothing unless polled"]
            pub struct ResponseFuture<S, F, C> {
                #[pin]
                attempts: $crate::kit::attempts::Attempts<S, F, $wait, $settings, $layer>,
            }
        }

        impl<S, F, C> ResponseFuture<S, F, C> {
            #[inline]
            pub(super) fn new(
                state: $crate::kit::attempts::State<F, $wait>,
                request: $crate::kit::attempts::Request<S, $settings>,
                layer: $layer,
            ) -> Self {
                let attempts = $crate::kit::attempts::Attempts { state, request, layer };
                Self { attempts }
            }
        }

        impl<S, C> std::future::Future for ResponseFuture<S, S::Future, C>
        where
            S: tower_service::Service<$crate::call::ToolCall> + Clone,
            S::Error: Into<$crate::error::ToolError>,
            C: $crate::outcome::Classify<S::Response>,
        {
            type Output = Result<S::Response, $crate::error::ToolError>;

            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                self.project().attempts.poll(cx)
            }
        }

        impl<S, F, C> std::fmt::Debug for ResponseFuture<S, F, C> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.attempts.fmt(f)
            }
        }
    };
}
pub(crate) use response_future;
