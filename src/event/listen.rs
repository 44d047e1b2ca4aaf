use std::{
    fmt, ptr,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tracing::{Level, level_filters::LevelFilter};

use super::Event;
use crate::call::{CallInfo, Listeners};
use crate::lock::lock;

/// Receives [`Event`]s. Called in the middle of a poll or a drop: must be quick, must not block and
/// must not panic.
pub trait Listen: Send + Sync {
    /// Handles an event.
    fn on(&self, event: &Event<'_>);

    /// Returns whether this listener passes its events on to a listener that is [on a
    /// call](crate::Observation::listen). If so, `other` does not get the same event a second time.
    /// Default: `false`; an `Arc` is the same listener as its clones.
    fn includes(&self, other: &Weak<dyn Listen>) -> bool {
        let _ = other;
        false
    }
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

    fn includes(&self, other: &Weak<dyn Listen>) -> bool {
        ptr::addr_eq(Self::as_ptr(self), other.as_ptr()) || (**self).includes(other)
    }
}

/// The most listeners that a circuit breaker remembers.
const REMEMBERED: usize = 4;

/// The listeners of the last calls that a breaker, or another state of many calls, has met.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    /// Distinguishes the listeners of the last call from others; 0 before the first one.
    last: AtomicUsize,
    met: Mutex<Vec<Weak<dyn Listen>>>,
}

impl Audience {
    /// Returns whether the call has other listeners than the one before.
    #[inline]
    pub(crate) fn is_new_to(&self, call: &CallInfo) -> bool {
        let all = call.listeners().map_or(0, Listeners::together);
        all != 0 && all != self.last.load(Relaxed)
    }

    /// Adds the listeners that inner layers have just put on the call, if there are none yet.
    #[inline]
    pub(crate) fn learn(&self, call: &CallInfo) {
        if self.last.load(Relaxed) == 0 && call.present_listeners().together() != 0 {
            self.meet(call);
        }
    }

    /// Puts the listeners that are present on the call before the others. Returns those that are
    /// new.
    pub(crate) fn meet(&self, call: &CallInfo) -> Vec<Arc<dyn Listen>> {
        let listeners = call.present_listeners();
        let mut met = lock(&self.met);
        let mut new = Vec::new();
        self.last.store(listeners.together(), Relaxed);
        met.retain(|known| known.strong_count() > 0);
        for listen in listeners.copies().into_iter().flatten() {
            match met.iter().position(|known| known.ptr_eq(&listen)) {
                Some(n) => met[..=n].rotate_right(1),
                None => {
                    new.extend(listen.upgrade());
                    met.insert(0, listen);
                }
            }
        }
        // Listeners of the present call stay: `last` is a hash of their addresses, and an address
        // that is free could be used again.
        met.truncate(REMEMBERED);
        new
    }
}

/// The listener of a layer: none by default. The listeners that observers above have put on the
/// call, and tracing's subscribers, receive the same events.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<dyn Listen>>);

impl Listener {
    /// No listener.
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the listener that a layer's user has set.
    pub fn new(listen: impl Listen + 'static) -> Self {
        Self(Some(Arc::new(listen)))
    }

    /// Returns whether a listener of the layer, or a subscriber, may want events of this level.
    /// Listeners on a call's record are not asked.
    #[inline]
    pub fn hears(&self, level: Level) -> bool {
        self.0.is_some() || level <= LevelFilter::current()
    }

    /// Emits the event to subscribers, and gives it to this listener and to those of the call, to
    /// each once.
    pub fn tell(&self, event: &Event<'_>) {
        self.tell_with(None, true, event);
    }

    /// Emits an event as [`tell`](Self::tell) does, and to the listeners of `audience`. Without
    /// `above` it leaves out the listeners of the call, because outer layers report this end
    /// themselves.
    pub(crate) fn tell_with(&self, audience: Option<&Audience>, above: bool, event: &Event<'_>) {
        event.trace();
        let own = self.0.as_deref();
        let is_own = |listen| own.is_some_and(|own| own.includes(listen));
        let of_call = event.call().and_then(CallInfo::listeners);
        let of_call = of_call.map(Listeners::copies).unwrap_or_default();
        let of_call = || of_call.iter().flatten();
        if let Some(own) = own
            && (above || !of_call().any(is_own))
        {
            own.on(event);
        }
        // Copied, so that no listener runs under the lock.
        let met = audience.map(|audience| lock(&audience.met).clone());
        let met = met.iter().flatten();
        let met = met.filter(|met| !of_call().any(|listen| listen.ptr_eq(met)));
        for listen in of_call().filter(|_| above).chain(met) {
            if !is_own(listen)
                && let Some(listen) = listen.upgrade()
            {
                listen.on(event);
            }
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}
