use tokio::time::Instant;

use super::guard::{Guard, MaybeWatched};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::{Ends, Flow, Gate, Gated, Readiness, Step, Ticket},
    outcome::{ByError, Classify, Outcome},
};

/// Stops a caller that makes the same failing call again and again.
/// See the [module docs](super) for an example.
pub type RepeatGuard<S, C = ByError> = Gated<S, Watch<C>>;

/// Response future for [`RepeatGuard`].
pub type ResponseFuture<S, F, C> = Flow<S, F, Repeatable<C>>;

/// The guard of one layer value.
#[derive(Clone)]
pub struct Watch<C> {
    pub(super) guard: Guard,
    pub(super) classifier: C,
}

crate::text::opaque_debug!({C} Watch<C>);

/// A call, and what it is compared with.
pub struct Repeatable<C> {
    info: CallInfo,
    watched: MaybeWatched,
    classifier: C,
}

crate::text::opaque_debug!({C} Repeatable<C>);

impl<Res: 'static, C: Classify<Res> + Clone> Gate<Res> for Watch<C> {
    type Ticket = Repeatable<C>;

    #[inline]
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Repeatable<C>, ToolError> {
        let info = call.info();
        let watched = self.guard.watch(call, &info);
        let refusal = match &watched {
            Some(watched) if !ready.is_yes() => watched.refusal(&info),
            _ => None,
        };
        match refusal {
            Some(refusal) => Err(refusal),
            None => Ok(Repeatable {
                info,
                watched,
                classifier: self.classifier.clone(),
            }),
        }
    }
}

impl<C> Ticket for Repeatable<C> {
    const REPORTS: bool = false;

    #[inline]
    fn info(&self) -> &CallInfo {
        &self.info
    }
}

impl<Res: 'static, C: Classify<Res>> Ends<Res> for Repeatable<C> {
    type Class = Option<Outcome>;

    /// Judged again: calls that were queued here may have failed too often by now.
    #[inline]
    fn admit(&mut self, _: &mut ToolCall) -> Result<Step, ToolError> {
        let admitted = self.watched.as_ref().map(|w| w.admit(&self.info));
        admitted.transpose().map(|_| Step::Go)
    }

    #[inline]
    fn judge(&self, result: &Result<Res, ToolError>) -> Option<Outcome> {
        let answer = self.watched.as_ref().and(result.as_ref().ok());
        answer.map(|answer| self.classifier.classify(Ok(answer)))
    }

    #[inline]
    fn ended(
        &mut self,
        result: &mut Result<Res, ToolError>,
        answer: Option<Outcome>,
        _: Option<Instant>,
    ) {
        if let Some(watched) = &self.watched {
            match (&*result, &answer) {
                (Ok(res), Some(outcome)) => watched.answered(&self.info, res, outcome),
                (Ok(_), None) => {}
                (Err(error), _) => watched.erred(error),
            }
        }
    }
}
