use tokio::time::Instant;

use super::{guard::Watched, layer::RepeatGuardLayer};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::{Ends, Flow, Gate, Gated, Held, Readiness, Step},
    outcome::{ByError, Classify, Outcome},
};

/// Stops a caller that makes the same failing call again and again.
/// See the [module docs](super) for an example.
pub type RepeatGuard<S, C = ByError> = Gated<S, RepeatGuardLayer<C>>;

/// Response future for [`RepeatGuard`].
pub type ResponseFuture<S, F, C> = Flow<S, F, Held<Repeatable<C>>>;

/// The values to compare a call with, if it is watched.
pub struct Repeatable<C> {
    watched: Option<Watched>,
    classifier: C,
}

crate::text::debug_fields! { {C} |_| Repeatable<C> { .. } }

impl<Res: 'static, C: Classify<Res> + Clone> Gate<Res> for RepeatGuardLayer<C> {
    type Ticket = Held<Repeatable<C>>;

    #[inline]
    fn look(&self, call: &mut ToolCall, ready: &Readiness) -> Result<Self::Ticket, ToolError> {
        let info = call.info();
        let watched = self.watch(call, &info);
        if !ready.is_yes()
            && let Some(watched) = &watched
        {
            watched.admit(false)?;
        }
        let classifier = self.classifier.clone();
        let own = Repeatable {
            watched,
            classifier,
        };
        Ok(Held { info, own })
    }
}

impl<Res: 'static, C: Classify<Res>> Ends<Res> for Held<Repeatable<C>> {
    type Class = Option<Outcome>;

    /// Judged again: calls that were queued here may have failed too often by now.
    #[inline]
    fn admit(&mut self, _: &mut ToolCall) -> Result<Step, ToolError> {
        if let Some(watched) = &self.own.watched {
            watched.admit(true)?;
        }
        Ok(Step::Go)
    }

    #[inline]
    fn judge(&self, result: &Result<Res, ToolError>) -> Option<Outcome> {
        let answer = self.own.watched.as_ref().and(result.as_ref().ok());
        answer.map(|answer| self.own.classifier.classify(Ok(answer)))
    }

    #[inline]
    fn ended(
        &mut self,
        result: &mut Result<Res, ToolError>,
        answer: Option<Outcome>,
        _: Option<Instant>,
    ) {
        if let Some(watched) = &self.own.watched {
            match (&*result, &answer) {
                (Ok(res), Some(outcome)) => watched.answered(&self.info, res, outcome),
                (Ok(_), None) => {}
                (Err(error), _) => watched.erred(error),
            }
        }
    }
}
