use tokio::time::Instant;

use super::{layer::MetricsLayer, observer::Observer};
use crate::{
    call::ToolCall,
    error::{ErrorKind, ToolError},
    flow::{Ends, Gate, Readiness, Sent, Watched},
    outcome::{ByError, Classify},
};

/// Counts and times calls. See the [module docs](super) for an example.
pub type MetricsService<S, C = ByError> = Watched<S, MetricsLayer<C>>;

/// Response future for [`MetricsService`].
pub type ResponseFuture<F, C> = Sent<F, Observer<C>>;

impl<Res, C: Classify<Res> + Clone> Gate<Res> for MetricsLayer<C> {
    type Ticket = Observer<C>;

    #[inline]
    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Observer<C>, ToolError> {
        Ok(Observer::start(call, self))
    }
}

impl<Res, C: Classify<Res>> Ends<Res> for Observer<C> {
    type Class = Option<ErrorKind>;

    #[inline]
    fn judge(&self, result: &Result<Res, ToolError>) -> Option<ErrorKind> {
        let outcome = self.classifier.classify(result.as_ref());
        outcome.failure_of_answer().map(|(kind, _)| kind)
    }

    #[inline]
    fn ended(
        &mut self,
        result: &mut Result<Res, ToolError>,
        failure_of_answer: Option<ErrorKind>,
        _: Option<Instant>,
    ) {
        match (result, failure_of_answer) {
            (Ok(_), None) if self.below.is_reported() => self.failed(ErrorKind::Reported),
            (Ok(_), None) => self.succeeded(),
            (Err(error), _) => self.ended_with(error),
            (Ok(_), Some(kind)) => self.failed(kind),
        }
    }
}
