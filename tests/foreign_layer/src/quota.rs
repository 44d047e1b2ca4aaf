//! A layer that refuses.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use tower::Layer;
use tower_toolcall::{
    CallInfo, ErrorKind, ToolCall, ToolError,
    flow::{Ends, Gate, Gated, Readiness, Step, Ticket},
};

/// Lets a number of calls pass, and refuses all that come after them.
#[derive(Clone, Debug)]
pub struct QuotaLayer(Arc<AtomicU32>);

impl QuotaLayer {
    /// So many calls pass.
    pub fn new(calls: u32) -> Self {
        Self(Arc::new(AtomicU32::new(calls)))
    }
}

impl<S> Layer<S> for QuotaLayer {
    type Service = Gated<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, self.clone())
    }
}

impl<Res> Gate<Res> for QuotaLayer {
    type Ticket = Counted;

    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Counted, ToolError> {
        let (info, left) = (call.info(), Arc::clone(&self.0));
        Ok(Counted { info, left })
    }
}

/// A call, and how many may pass.
#[derive(Debug)]
pub struct Counted {
    info: CallInfo,
    left: Arc<AtomicU32>,
}

impl Ticket for Counted {
    type Times = ();

    fn info(&self) -> &CallInfo {
        &self.info
    }
}

impl<Res> Ends<Res> for Counted {
    type Class = ();

    fn admit(&mut self, _: &mut ToolCall) -> Result<Step, ToolError> {
        let one_less = |left: u32| left.checked_sub(1);
        let passes = self.left.fetch_update(Relaxed, Relaxed, one_less);
        let text = "the quota of this agent is used up";
        let refusal = |_| ToolError::refusal(ErrorKind::Overloaded, text);
        passes.map(|_| Step::Go).map_err(refusal)
    }
}
