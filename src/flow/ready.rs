//! Readiness for layers that answer by the call.
//!
//! Such a layer is always ready: it must be able to refuse although the inner service is not. So
//! its `poll_ready` polls the inner service and keeps the result; its `call` finds the inner
//! service ready and calls it in place, or moves the very instance that was polled, with its place
//! in the queue, into the future. A refusal gives the reservation back immediately.

use std::{
    mem,
    task::{Context, Poll},
};

use tower_service::Service;

use crate::error::ToolError;

/// An inner service and its readiness, as last polled.
#[derive(Debug)]
pub(crate) struct Prepared<S> {
    pub(crate) svc: S,
    ready: Readiness,
}

/// The readiness of an inner service, as last polled.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a service has no other states")]
pub enum Readiness {
    /// Not polled yet, or pending.
    No,
    /// Ready.
    Yes,
    /// The service failed to become ready, and does not recover.
    Failed(ToolError),
}

impl Readiness {
    /// Returns whether a call would find the inner service ready.
    #[inline]
    pub fn is_yes(&self) -> bool {
        matches!(self, Self::Yes)
    }
}

impl<S> Prepared<S> {
    pub(crate) fn new(svc: S) -> Self {
        Self {
            svc,
            ready: Readiness::No,
        }
    }

    /// Polls the inner service. A service that failed is not polled again before a call has met its
    /// error.
    #[inline]
    pub(crate) fn poll<R>(&mut self, cx: &mut Context<'_>)
    where
        S: Service<R>,
        S::Error: Into<ToolError>,
    {
        if matches!(self.ready, Readiness::Failed(_)) {
            return;
        }
        self.ready = match self.svc.poll_ready(cx) {
            Poll::Ready(Ok(())) => Readiness::Yes,
            Poll::Pending => Readiness::No,
            Poll::Ready(Err(error)) => Readiness::Failed(error.into()),
        };
    }

    #[inline]
    pub(super) fn readiness(&self) -> &Readiness {
        &self.ready
    }

    /// Returns whether the inner service is ready for this call, which uses that up.
    #[inline]
    pub(super) fn take_ready(&mut self) -> bool {
        let is_ready = self.ready.is_yes();
        if is_ready {
            self.ready = Readiness::No;
        }
        is_ready
    }

    /// Takes the instance that was polled out, with its place in the queue. Returns the error of an
    /// instance that failed; [`renew`](Self::renew) has to follow.
    #[inline(never)]
    pub(super) fn take_unready(&mut self) -> Result<S, ToolError>
    where
        S: Clone,
    {
        match mem::replace(&mut self.ready, Readiness::No) {
            Readiness::Failed(error) => Err(error),
            _ => {
                let fresh = self.svc.clone();
                Ok(mem::replace(&mut self.svc, fresh))
            }
        }
    }

    /// Gives back what the inner service has reserved.
    pub(crate) fn renew(&mut self)
    where
        S: Clone,
    {
        self.svc = self.svc.clone();
        self.ready = Readiness::No;
    }
}

/// Readiness belongs to an instance: a clone has none.
impl<S: Clone> Clone for Prepared<S> {
    fn clone(&self) -> Self {
        Self::new(self.svc.clone())
    }
}
