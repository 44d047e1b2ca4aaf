use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tower_service::Service;

use super::{
    future::{Limits, ResponseFuture, Watch},
    layer::Settings,
};
use crate::{
    call::{Claim, Signal, ToolCall},
    error::ToolError,
    kit::{drain::Drain, inner::call_in_place, timer::Timer},
};

/// Bounds each call's time. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> Timeout<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

crate::kit::inner::accessors!({S} Timeout<S>, inner);

impl<S> Service<ToolCall> for Timeout<S>
where
    S: Service<ToolCall>,
    S::Error: Into<ToolError>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(never)]
    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let settings = &*self.settings;
        let timeout = settings.timeout_of(&call);
        call.limit(timeout);
        call.record(|r| {
            r.set_timeout(timeout, timeout);
            r.announce(Signal::SlowCalls);
        });
        // Who is inside an idle timeout may pause this one too.
        let asks = || call.progress().map(|_| Duration::MAX);
        let allowed = settings.idle.or_else(asks);
        let mut idle = allowed.map(|allowed| call.ask_for_progress(allowed));
        let mut drain = Drain::of(&mut call, settings.drain);
        let limits = Limits {
            timeout,
            deadline: call.deadline(),
            is_deadline_owned: call.is_claimed(Claim::Drain),
            is_deadline_untrusted: call.is_deadline_untrusted(),
        };
        let mut info = Some(call.info());
        call_in_place(&mut self.inner, call, |fut| ResponseFuture {
            fut: Some(fut),
            timer: Timer::default(),
            watch: Watch {
                info: info.take(),
                limits,
                since: None,
                slow_fraction: settings.slow_fraction,
                idle: idle.take(),
                drain: drain.take(),
                listener: settings.listener.clone(),
            },
        })
    }
}
