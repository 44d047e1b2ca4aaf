//! A layer that lets calls wait.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};
use tower::Layer;
use tower_toolcall::{
    CallInfo, ToolCall, ToolError,
    flow::{Ends, Gate, Gated, Readiness, Step, Ticket},
};

/// Sends no two calls within a gap. Later calls wait.
#[derive(Clone, Debug)]
pub struct PaceLayer {
    gap: Duration,
    /// The moment at which the next call may be sent.
    next: Arc<Mutex<Instant>>,
}

impl PaceLayer {
    /// Returns a layer that leaves `gap` between two calls.
    pub fn new(gap: Duration) -> Self {
        let next = Arc::new(Mutex::new(Instant::now()));
        Self { gap, next }
    }
}

impl<S> Layer<S> for PaceLayer {
    type Service = Gated<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, self.clone())
    }
}

impl<Res> Gate<Res> for PaceLayer {
    type Ticket = Paced;

    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Paced, ToolError> {
        let (info, layer) = (call.info(), self.clone());
        Ok(Paced {
            info,
            layer,
            until: Instant::now(),
            wait: None,
        })
    }
}

/// A call, and the wait for its turn.
#[derive(Debug)]
pub struct Paced {
    info: CallInfo,
    layer: PaceLayer,
    until: Instant,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Ticket for Paced {
    type Times = ();

    fn info(&self) -> &CallInfo {
        &self.info
    }
}

impl<Res> Ends<Res> for Paced {
    type Class = ();

    fn admit(&mut self, _: &mut ToolCall) -> Result<Step, ToolError> {
        let mut next = self
            .layer
            .next
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.until = *next;
        let now = Instant::now();
        if now < *next {
            return Ok(Step::Wait);
        }
        *next = now + self.layer.gap;
        Ok(Step::Go)
    }

    fn poll_turn(
        &mut self,
        _: &mut ToolCall,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Res>, ToolError>> {
        let until = self.until;
        let wait = self
            .wait
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        let turn = wait.as_mut().poll(cx);
        if turn.is_ready() {
            self.wait = None;
        }
        turn.map(|()| Ok(None))
    }
}
