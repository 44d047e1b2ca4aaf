use std::sync::Arc;

use tower_layer::Layer;

use super::{
    Resolve,
    service::{IdentityService, Shared},
};
use crate::event::{Audience, Listen, Listener};

/// Layer that resolves the names of calls. See the [module docs](super) for an example.
#[derive(Clone)]
#[must_use]
pub struct IdentityLayer {
    tools: Arc<dyn Resolve>,
    listener: Listener,
    audience: Arc<Audience>,
}

impl IdentityLayer {
    /// A layer that asks this table.
    pub fn new(tools: impl Resolve) -> Self {
        Self {
            tools: Arc::new(tools),
            listener: Listener::default(),
            audience: Arc::default(),
        }
    }

    /// Sets the listener for calls that are refused ([`Event::NotStarted`](crate::Event::NotStarted)). Default: none; the
    /// `tool.rejected` event is emitted either way, and metrics below count such calls once another call has passed.
    pub fn with_listener(mut self, listen: impl Listen + 'static) -> Self {
        self.listener = Listener::new(listen);
        self
    }
}

impl<S> Layer<S> for IdentityLayer {
    type Service = IdentityService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let shared = Shared {
            tools: Arc::clone(&self.tools),
            listener: self.listener.clone(),
            audience: Arc::clone(&self.audience),
        };
        IdentityService::new(inner, Arc::new(shared))
    }
}

crate::text::opaque_debug!({} IdentityLayer);
