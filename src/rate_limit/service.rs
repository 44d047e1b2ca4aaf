use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::{ResponseFuture, State},
    keyed::{Gates, Keyed, Settings},
    session::{Next, Session, Turn},
};
use crate::{
    call::{Claim, Signal, ToolCall},
    error::ToolError,
    kit::{
        lane::Spread,
        ready::{Prepared, Taken},
        template::Template,
    },
    outcome::{ByError, Classify},
};

/// Waits out rate limits. See the [module docs](super) for an example.
pub struct RateLimitBackoff<S, C = ByError> {
    inner: Prepared<S>,
    shared: Spread<Shared<S>>,
    classifier: C,
}

/// What a call that may be sent again keeps one count of.
pub(super) struct Shared<S> {
    pub(super) template: Template<S>,
    pub(super) gates: Gates,
    pub(super) settings: Arc<Settings>,
}

impl<S, C> RateLimitBackoff<S, C> {
    pub(super) fn new(inner: S, shared: Spread<Shared<S>>, classifier: C) -> Self {
        Self {
            inner: Prepared::new(inner),
            shared,
            classifier,
        }
    }
}

/// Clones share the gates; readiness belongs to an instance.
impl<S: Clone, C: Clone> Clone for RateLimitBackoff<S, C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: self.shared.clone(),
            classifier: self.classifier.clone(),
        }
    }
}

crate::kit::inner::accessors!(@kept {S, C} RateLimitBackoff<S, C>, inner.svc);

impl<S, C> Service<ToolCall> for RateLimitBackoff<S, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S, S::Future, C>;

    /// Always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll(cx);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        let (shared, spread) = (&*self.shared, &self.shared);
        let settings = &*shared.settings;
        // Whoever repeats calls above waits out their limits as well.
        let ours = !call.is_claimed(Claim::Retry) && !call.claim(Claim::RateLimit);
        let repeats = ours && settings.waits && settings.attempts > 1;
        let info = call.info();
        info.record(|record| {
            record.announce(Signal::RateLimits);
            if repeats {
                record.set_max_attempts(settings.attempts);
            }
        });
        let make = || Keyed::new(&shared.settings);
        let entry = shared.gates.keep(&info, make);
        let classifier = self.classifier.clone();
        let next = |call| Next {
            call,
            shared: spread.keep(),
        };
        // Nothing cools: the call is sent in place. The session is made after it, where it stays.
        if let Some(round) = entry.value().open_round()
            && self.inner.is_ready()
            && let Taken::Ready = self.inner.take()
        {
            let made = call.attempt();
            let again = (repeats && made < settings.attempts).then(|| next(call.clone()));
            let fut = self.inner.get().call(call);
            let session = Session::new(again, info, entry, repeats, made, Some(round));
            return ResponseFuture::new(State::Called { fut }, session, classifier);
        }
        let made = call.attempt().saturating_sub(1);
        let session = Session::new(Some(next(call)), info, entry, repeats, made, None);
        self.call_or_wait(session, classifier)
    }
}

impl<S, C> RateLimitBackoff<S, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
{
    #[cold]
    fn call_or_wait(
        &mut self,
        mut session: Session<S>,
        classifier: C,
    ) -> ResponseFuture<S, S::Future, C> {
        let state = match session.turn() {
            Turn::Now => match self.inner.take() {
                Taken::Ready => State::Called {
                    fut: session.send(self.inner.get()),
                },
                Taken::Wait(svc) => State::preparing(&session, svc),
                Taken::Failed(error) => State::refused(session.not_sent(error)),
            },
            // What was reserved below is for calls that run.
            Turn::At(until) => {
                self.inner.renew();
                State::waiting(&session, until)
            }
            Turn::Never(error) => {
                self.inner.renew();
                State::refused(error)
            }
        };
        ResponseFuture::new(state, session, classifier)
    }
}

impl<S: fmt::Debug, C> fmt::Debug for RateLimitBackoff<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBackoff")
            .field("inner", &self.inner)
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}
