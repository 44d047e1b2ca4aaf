use tower_service::Service;

use super::{job::Job, layer::PollLayer, poller::Poller};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::again::{Enter, Repeated, Repeats},
    kit::{attempts::Template, lane::Spread},
};

/// Waits for the jobs that calls start. See the [module docs](super) for an example.
pub type Polling<S, J> = Repeats<S, PollLayer<J>>;

/// Response future for [`Polling`].
pub type ResponseFuture<S, F, J> = Repeated<S, F, Poller<S, J>>;

impl<S, J> Enter<S> for PollLayer<J>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    J: Job<S::Response> + 'static,
{
    type Ticket = Poller<S, J>;

    const PASSES: bool = true;

    fn enter(
        shared: &Spread<Template<S, Self>>,
        call: &mut ToolCall,
    ) -> Result<Poller<S, J>, ToolError> {
        Poller::begin(call, shared.keep())
    }
}
