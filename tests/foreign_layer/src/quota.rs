//! A layer that refuses.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use tower::{Layer, Service, util::BoxCloneSyncService};
use tower_toolcall::{ErrorKind, ToolCall, ToolError, middleware};

/// Lets a number of calls pass, and refuses all that come after them.
#[derive(Clone, Debug)]
pub struct QuotaLayer(Arc<AtomicU32>);

impl QuotaLayer {
    /// So many calls pass.
    pub fn new(calls: u32) -> Self {
        Self(Arc::new(AtomicU32::new(calls)))
    }
}

impl<S, Res> Layer<S> for QuotaLayer
where
    S: Service<ToolCall, Response = Res, Error: Into<ToolError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    Res: Send + 'static,
{
    type Service = BoxCloneSyncService<ToolCall, Res, ToolError>;

    fn layer(&self, inner: S) -> Self::Service {
        let left = Arc::clone(&self.0);
        let quota = middleware::from_fn(move |call: ToolCall, mut next: middleware::Next<Res>| {
            let one_less = |left: u32| left.checked_sub(1);
            let passes = left.fetch_update(Relaxed, Relaxed, one_less).is_ok();
            async move {
                if !passes {
                    let text = "the quota of this agent is used up";
                    return Err(ToolError::refusal(ErrorKind::Overloaded, text));
                }
                next.run(call).await
            }
        });
        BoxCloneSyncService::new(quota.layer(inner))
    }
}
