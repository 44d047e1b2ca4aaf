use tower_service::Service;

use super::{
    job::Job,
    poller::{Poller, Shared},
};
use crate::{
    call::ToolCall,
    error::ToolError,
    flow::again::{Enter, Repeated, Repeats},
    kit::lane::Spread,
};

/// Waits for the jobs that calls start. See the [module docs](super) for an example.
pub type Polling<S, J> = Repeats<S, Spread<Shared<S, J>>>;

/// Response future for [`Polling`].
pub type ResponseFuture<S, F, J> = Repeated<S, F, Poller<S, J>>;

impl<S, J> Enter<S> for Spread<Shared<S, J>>
where
    S: Service<ToolCall> + Clone + Send + 'static,
    S::Future: Send,
    J: Job<S::Response> + 'static,
{
    type Ticket = Poller<S, J>;

    const PASSES: bool = true;

    fn enter(&self, call: &mut ToolCall) -> Result<Poller<S, J>, ToolError> {
        Poller::begin(call, self.keep())
    }
}
