use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    future::{Gated, ResponseFuture},
    handle::RateLimitHandle,
    keyed::KeyGate,
};
use crate::{
    call::{Claim, Signal, ToolCall},
    error::ToolError,
    kit::{
        attempts::{Next, Repeat, Request, Resend, State, Template, Wait},
        inner::call_in_place,
        lane::Spread,
        ready::{Prepared, Taken},
    },
    outcome::{ByError, Classify},
};

/// Waits out rate limits. See the [module docs](super) for an example.
pub struct RateLimitBackoff<S, C = ByError> {
    inner: Prepared<S>,
    shared: Spread<Template<S, RateLimitHandle>>,
    classifier: C,
}

impl<S, C> RateLimitBackoff<S, C> {
    pub(super) fn new(
        inner: S,
        shared: Spread<Template<S, RateLimitHandle>>,
        classifier: C,
    ) -> Self {
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

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let gates = &self.shared.settings;
        let settings = &*gates.settings;
        // A layer above that repeats calls waits out their limits as well.
        let ours = !call.is_claimed(Claim::Retry) && !call.claim(Claim::RateLimit);
        let repeats = ours && settings.attempts > 1;
        call.record(|record| {
            record.announce(Signal::RateLimits);
            if repeats {
                record.set_max_attempts(settings.attempts);
            }
        });
        let make = || KeyGate::new(&gates.settings);
        let info = call.info();
        let entry = gates.registry.keep(&info, make);
        let classifier = self.classifier.clone();
        // Nothing cools: the call is sent in place.
        if let Some(round) = entry.value().open_round()
            && self.inner.readiness().is_yes()
            && let Taken::Ready = self.inner.take()
        {
            let request = match repeats {
                true => Request::Again(Resend::sent(
                    call.copy(),
                    self.shared.keep(),
                    Claim::RateLimit,
                )),
                false => Request::Once {
                    info,
                    attempt: call.attempt(),
                },
            };
            let layer = Gated::new(entry, classifier, Some(round));
            let mut rest = Some((request, layer));
            call.release();
            return call_in_place(self.inner.get(), call, |fut| ResponseFuture {
                state: State::Called { fut },
                rest: rest.take(),
            });
        }
        let claim = repeats.then_some(Claim::RateLimit);
        let resend = Resend::unsent(call, self.shared.keep(), claim);
        self.call_or_wait(resend, Gated::new(entry, classifier, None))
    }
}

impl<S, C> RateLimitBackoff<S, C>
where
    S: Service<ToolCall> + Clone,
    S::Error: Into<ToolError>,
    C: Classify<S::Response>,
{
    #[cold]
    fn call_or_wait(
        &mut self,
        mut resend: Resend<S, RateLimitHandle>,
        mut gated: Gated<C>,
    ) -> ResponseFuture<S, S::Future, C> {
        let next = Repeat::<_, _, S::Response>::admit(&mut gated, &mut resend);
        if !matches!(next, Next::Send) {
            // Gives back the reservation below: the call does not run now.
            self.inner.renew();
        }
        let wait = match next {
            Next::Send => match self.inner.take() {
                Taken::Ready => {
                    let mut request = Request::Again(resend);
                    let fut = request.send(self.inner.get());
                    return ResponseFuture {
                        state: State::Called { fut },
                        rest: Some((request, gated)),
                    };
                }
                Taken::Wait(svc) => Wait::preparing(svc, &resend.call),
                Taken::Failed(error) => Wait::refused(resend.not_sent(error)),
            },
            Next::WaitUntil(at) => Wait::until(at, &resend.call),
            Next::Refuse(error) => Wait::refused(error),
        };
        ResponseFuture {
            state: State::before(wait),
            rest: Some((Request::Again(resend), gated)),
        }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for RateLimitBackoff<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBackoff")
            .field("inner", &self.inner)
            .field("settings", &self.shared.settings.settings)
            .finish_non_exhaustive()
    }
}
