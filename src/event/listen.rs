use std::{fmt, sync::Arc};

use tracing::{Level, level_filters::LevelFilter};

use super::Event;

/// Hears of [`Event`]s. Called in the middle of a poll or a drop: must be quick, must not block and must
/// not panic.
pub trait Listen: Send + Sync {
    /// Something happened.
    fn on(&self, event: &Event<'_>);
}

impl<F> Listen for F
where
    F: Fn(&Event<'_>) + Send + Sync,
{
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}

/// One listener for several layers.
impl<T: Listen + ?Sized> Listen for Arc<T> {
    fn on(&self, event: &Event<'_>) {
        (**self).on(event);
    }
}

/// A layer's listener: none by default, which costs a branch.
#[derive(Clone, Default)]
pub(crate) struct Listener(Option<Arc<dyn Listen>>);

impl Listener {
    pub(crate) fn new(listen: impl Listen + 'static) -> Self {
        Self(Some(Arc::new(listen)))
    }

    /// Whether anybody may hear of events of this level.
    #[inline]
    pub(crate) fn hears(&self, level: Level) -> bool {
        self.0.is_some() || level <= LevelFilter::current()
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        event.trace();
        if let Some(listen) = &self.0 {
            listen.on(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}
