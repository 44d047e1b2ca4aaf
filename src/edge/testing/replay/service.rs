use serde::Serialize;
use tokio::time::Instant;
use tower_layer::Layer;

use super::{
    Capture,
    line::{Asked, End},
};
use crate::{
    call::{CallInfo, ToolCall},
    error::ToolError,
    flow::{Abandoned, Ends, Gate, Readiness, Sent, Ticket, Watched},
};

/// Layer that writes down calls and how they end: [`Capture::layer`].
///
/// # Order
///
/// Directly around the tool that a [`Replay`](super::Replay) is to replace, and below a
/// [`SanitizeLayer`](crate::sanitize::SanitizeLayer), whose rules then hold for the lines.
///
/// # Errors
///
/// Those of the inner service, stamped with the call's names.
#[derive(Clone, Debug)]
#[must_use]
pub struct CaptureLayer(Capture);

impl CaptureLayer {
    pub(super) fn new(capture: Capture) -> Self {
        Self(capture)
    }
}

impl<S> Layer<S> for CaptureLayer {
    type Service = CaptureService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CaptureService::new(inner, self.clone())
    }
}

/// Writes down calls and how they end. See [`Capture`].
pub type CaptureService<S> = Watched<S, CaptureLayer>;

/// Response future for [`CaptureService`].
pub type ResponseFuture<F> = Sent<F, Open>;

/// A line without its end.
pub struct Open {
    info: CallInfo,
    asked: Asked,
    capture: Capture,
}

crate::text::debug_fields! { {} |this| Open { info: this.info, .. } }

impl<Res: Serialize> Gate<Res> for CaptureLayer {
    type Ticket = Open;

    fn look(&self, call: &mut ToolCall, _: &Readiness) -> Result<Open, ToolError> {
        Ok(Open {
            info: call.info(),
            asked: Asked::of(call),
            capture: self.0.clone(),
        })
    }
}

impl Ticket for Open {
    fn info(&self) -> &CallInfo {
        &self.info
    }

    fn dropped(&mut self, _: Abandoned) {
        self.capture.write(&self.asked, End::Unfinished);
    }

    fn panicked(&mut self) {
        self.capture.write(&self.asked, End::Panicked);
    }
}

impl<Res: Serialize> Ends<Res> for Open {
    type Class = End;

    fn judge(&self, result: &Result<Res, ToolError>) -> End {
        End::of(&self.info, result.as_ref())
    }

    fn ended(&mut self, _: &mut Result<Res, ToolError>, end: End, _: Option<Instant>) {
        self.capture.write(&self.asked, end);
    }
}
