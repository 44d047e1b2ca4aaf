use tokio::time::Instant;

use super::guard::{Guard, MaybeWatched};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::{Ends, Gate, Readiness, Step, Ticket, service},
    outcome::{Classify, Outcome},
};

service! {
    /// Stops a caller that makes the same failing call again and again. See the [module docs](super) for an example.
    RepeatGuard<S, C>, Watch<C> => Repeatable<C>, where S::Response: 'static
}

/// The guard of one layer value.
#[derive(Clone)]
pub(super) struct Watch<C> {
    pub(super) guard: Guard,
    pub(super) classifier: C,
}

/// A call, and what it is compared with.
pub(super) struct Repeatable<C> {
    info: CallInfo,
    watched: MaybeWatched,
    classifier: C,
}

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
