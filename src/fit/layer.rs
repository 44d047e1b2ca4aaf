use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{Cut, Shorten};
use crate::{
    call::{CallInfo, ToolCall},
    error::{ErrorKind, ToolError},
    event::emit,
    kit::inner::{self, call_in_place},
    text::Bounded,
};

/// How much of a reason is printed, in bytes, before it is redacted and cut.
const MAX_REASON: usize = 16 << 10;

type Keep = dyn Fn(&CallInfo, &str) -> Option<String> + Send + Sync;

/// Layer that shortens answers. See the [module docs](super) for an example.
#[derive(Clone)]
#[must_use]
pub struct FitLayer {
    max_chars: usize,
    advice: Option<Arc<str>>,
    keep: Option<Arc<Keep>>,
}

impl FitLayer {
    /// A layer that shortens answers to `max_chars` characters, the mark included. The mark has about 60 characters, and with
    /// advice and a reference of the greatest length 620. Where there is no room for more, nothing else is left of an answer.
    pub fn new(max_chars: usize) -> Self {
        Self {
            max_chars,
            advice: None,
            keep: None,
        }
    }

    /// Sets what the mark advises, its first 256 characters. Default: `ask for less`.
    pub fn with_advice(mut self, advice: &str) -> Self {
        self.advice = Some(Cut::plain(advice).into());
        self
    }

    /// Sets a function that keeps the whole answer, as a [text](Shorten::whole), and returns a reference to it for the mark.
    /// Default: nothing is kept.
    ///
    /// It is called in the response future, for answers that are too long alone, so it should not block. The text is not redacted.
    /// A reference has no line breaks or hidden characters, and one of more than 256 characters is not shown: a part of it
    /// would lead nowhere.
    pub fn with_keep(
        mut self,
        keep: impl Fn(&CallInfo, &str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.keep = Some(Arc::new(keep));
        self
    }

    #[cold]
    fn shorten<Res: Shorten>(&self, call: &CallInfo, mut answer: Res) -> Result<Res, ToolError> {
        let keep = self.keep.as_ref();
        let reference = keep.and_then(|keep| keep(call, &answer.whole()));
        let cut = Cut::new(self.max_chars, self.advice.as_deref(), reference);
        let (max, advice) = (self.max_chars, cut.advice());
        let Err(why) = answer.shorten(&cut) else {
            emit!(DEBUG SHORTENED, call, MAX_CHARS = max);
            return Ok(answer);
        };
        let why = why.into_inner();
        let message = Bounded::print(
            MAX_REASON,
            &format_args!(
                "the answer has more than {max} characters; {advice}. It cannot be shortened: {why}"
            ),
        );
        let error = ToolError::new(ErrorKind::Reported, message);
        Err(error.with_source(why).for_call(call))
    }
}

impl<S> Layer<S> for FitLayer {
    type Service = Fit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Fit {
            inner,
            layer: self.clone(),
        }
    }
}

crate::text::debug_fields! {
    {} |this| FitLayer {
        max_chars: this.max_chars,
        advice: this.advice,
        keep: this.keep.is_some(),
    }
}

/// Shortens answers. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
pub struct Fit<S> {
    inner: S,
    layer: FitLayer,
}

crate::kit::inner::accessors!({S} Fit<S>, inner);

impl<S> Service<ToolCall> for Fit<S>
where
    S: Service<ToolCall, Response: Shorten, Error: Into<ToolError>>,
{
    type Response = S::Response;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline(never)]
    fn call(&mut self, call: ToolCall) -> Self::Future {
        let mut parts = Some((self.layer.clone(), call.info()));
        call_in_place(&mut self.inner, call, |fut| ResponseFuture {
            fut: Some(fut),
            parts: parts.take(),
        })
    }
}

pin_project! {
    /// Response future for [`Fit`].
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        fut: Option<F>,
        // None after completion.
        parts: Option<(FitLayer, CallInfo)>,
    }
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    Res: Shorten,
    E: Into<ToolError>,
{
    type Output = Result<Res, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(inner::poll(this.fut, cx));
        let (layer, call) = this.parts.take().expect("polled after completion");
        let answer = result.map_err(|e| e.into().for_call(&call))?;
        Poll::Ready(match answer.fits(layer.max_chars) {
            true => Ok(answer),
            false => layer.shorten(&call, answer),
        })
    }
}

impl<F: fmt::Debug> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ResponseFuture");
        shown.field("fut", &self.fut).finish_non_exhaustive()
    }
}
