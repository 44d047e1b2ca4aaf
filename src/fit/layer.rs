use std::sync::Arc;

use tokio::time::Instant;
use tower_layer::Layer;

use super::{Cut, Shorten};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    event::emit,
    flow::{Ends, Gate, Held, Readiness, Sent, Watched},
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
    /// Makes a layer that shortens answers to `max_chars` characters, the mark included. The mark
    /// has about 60 characters, and with the longest advice and reference 620. If only the mark
    /// fits, it replaces the answer.
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

    /// Sets a function that keeps the whole answer, as a [text](Shorten::whole), and returns a
    /// reference to it for the mark. Default: nothing is kept.
    ///
    /// It is called in the response future, for answers that are too long alone, so it should not
    /// block. The text is not redacted. A reference has no line breaks or hidden characters, and
    /// one of more than 256 characters is not shown: a part of it would lead nowhere.
    pub fn with_keep(
        mut self,
        keep: impl Fn(&CallInfo, &str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.keep = Some(Arc::new(keep));
        self
    }

    #[cold]
    fn shorten<Res: Shorten>(&self, call: &CallInfo, answer: &mut Res) -> Result<(), ToolError> {
        let keep = self.keep.as_ref();
        let reference = keep.and_then(|keep| keep(call, &answer.whole()));
        let cut = Cut::new(self.advice.as_deref(), reference).to(self.max_chars);
        let (max, advice) = (self.max_chars, cut.advice());
        let Err(why) = answer.shorten(&cut) else {
            emit!(DEBUG SHORTENED, call, MAX_CHARS = max);
            return Ok(());
        };
        let why = why.into_inner();
        let message = Bounded::print(
            MAX_REASON,
            &format_args!(
                "the answer has more than {max} characters; {advice}. It cannot be shortened: {why}"
            ),
        );
        Err(ToolError::unusable(message).with_source(why))
    }
}

impl<S> Layer<S> for FitLayer {
    type Service = Fit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Fit::new(inner, self.clone())
    }
}

crate::text::debug_fields! { {} |this| FitLayer { max_chars, advice, keep: this.keep.is_some() } }

/// Shortens answers. See the [module docs](super) for an example.
pub type Fit<S> = Watched<S, FitLayer>;

/// Response future for [`Fit`].
pub type ResponseFuture<F> = Sent<F, Held<FitLayer>>;

impl<Res: Shorten> Gate<Res> for FitLayer {
    type Ticket = Held<Self>;

    #[inline]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Held<Self>, ToolError> {
        let (own, info) = (self.clone(), call.info());
        Ok(Held { info, own })
    }
}

impl<Res: Shorten> Ends<Res> for Held<FitLayer> {
    type Class = ();

    #[inline]
    fn ended(&mut self, result: &mut Result<Res, ToolError>, (): (), _: Option<Instant>) {
        if let Ok(answer) = result
            && !answer.fits(self.own.max_chars)
            && let Err(error) = self.own.shorten(&self.info, answer)
        {
            *result = Err(error);
        }
    }
}
