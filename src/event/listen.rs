use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tracing::{Level, level_filters::LevelFilter};

use super::Event;
use crate::call::{CallInfo, ListenerId, ListenerIds, MAX_LISTENERS};

/// Receives [`Event`]s. Called in the middle of a poll or a drop: must be quick, must not block and
/// must not panic.
pub trait Listen: Send + Sync {
    /// Something happened.
    fn on(&self, event: &Event<'_>);

    /// Returns whether this listener is, or passes its events on to, the [registered](Listening)
    /// one with this id. Then that one is not called a second time where both are to receive an
    /// event. Default: no.
    fn includes(&self, id: ListenerId) -> bool {
        let _ = id;
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

    fn includes(&self, id: ListenerId) -> bool {
        (**self).includes(id)
    }
}

/// The registration of a listener that calls can carry:
/// [`Observation::listen`](crate::Observation::listen) puts its number on the record of a call, and
/// every layer below gives it the events of that call, beside its own listener. Not those of a
/// refused name ([`Event::NotStarted`]), which is the call's result.
///
/// A layer makes one when it is built, not one for each call. The listener is not kept alive; it is
/// called as long as both it and its registration exist. A circuit breaker that changes without a
/// call, by its handle for example, tells the last two listeners whose calls it saw; keys that are
/// forgotten ([`Event::Evicted`]) are reported to a layer's own listener only.
///
/// ```
/// use std::sync::{
///     Arc,
///     atomic::{AtomicU32, Ordering::Relaxed},
/// };
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_toolcall::{AnyError, Event, ToolCall, event::Listening, retry::RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let retries = Arc::new(AtomicU32::new(0));
/// let count = Arc::clone(&retries);
/// let listen = Arc::new(move |event: &Event<'_>| {
///     if let Event::Retry { .. } = event {
///         count.fetch_add(1, Relaxed);
///     }
/// });
/// let listening = Listening::new(Arc::downgrade(&listen) as _);
///
/// let tool = service_fn(|call: ToolCall| async move {
///     if call.attempt() < 3 {
///         Err(AnyError::from("503 Service Unavailable"))
///     } else {
///         Ok("done")
///     }
/// });
/// let mut stack = ServiceBuilder::new().layer(RetryLayer::default()).service(tool);
///
/// let mut call = ToolCall::new("search").with_replay_safety(tower_toolcall::ReplaySafety::Safe);
/// let mut observation = call.observe();
/// observation.listen(listening.id());
/// stack.ready().await.unwrap().call(call).await.unwrap();
/// drop(observation);
/// assert_eq!(retries.load(Relaxed), 2);
/// # }
/// ```
#[derive(Debug)]
pub struct Listening(ListenerId);

type Registered = BTreeMap<u64, Weak<dyn Listen>>;

/// By number, so that a listener is put on a call by writing its number. Read when there is an
/// event for it.
static LISTENERS: RwLock<Registered> = RwLock::new(BTreeMap::new());

impl Listening {
    /// Registers a listener.
    pub fn new(listen: Weak<dyn Listen>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Relaxed);
        let mut listeners = LISTENERS.write().unwrap_or_else(PoisonError::into_inner);
        listeners.insert(id, listen);
        Self(ListenerId(id))
    }

    /// The listener's number.
    pub fn id(&self) -> ListenerId {
        self.0
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = LISTENERS.write().unwrap_or_else(PoisonError::into_inner);
        listeners.remove(&self.0.0);
    }
}

fn registered(id: ListenerId) -> Option<Arc<dyn Listen>> {
    let listeners = LISTENERS.read().unwrap_or_else(PoisonError::into_inner);
    listeners.get(&id.0)?.upgrade()
}

const AUDIENCE: usize = 2;

/// The listeners that have met something that outlives calls, a circuit breaker: the last two.
pub(crate) type Audience = ListenerIds<AUDIENCE>;

impl Audience {
    /// Returns whether the call has a listener that is not among them.
    #[inline]
    pub(crate) fn is_new_to(&self, call: &CallInfo) -> bool {
        let mut is_new = false;
        call.record(|record| is_new = record.listeners().iter().any(|id| !self.contains(id)));
        is_new
    }

    /// Adds the listeners that layers below have just put on the call, if there are none yet.
    #[inline]
    pub(crate) fn learn(&self, call: &CallInfo) {
        if self.is_empty() {
            for id in call.present_listeners().iter() {
                if !self.contains(id) {
                    self.put_first(id);
                }
            }
        }
    }

    /// Adds the call's listeners, and tells the new ones.
    #[cold]
    pub(crate) fn introduce(&self, call: &CallInfo, event: &Event<'_>) {
        call.record(|record| {
            for id in record.listeners().iter().filter(|id| !self.contains(*id)) {
                self.put_first(id);
                if let Some(listen) = registered(id) {
                    listen.on(event);
                }
            }
        });
    }
}

/// The listener of a layer: none by default. The listeners that observers above have put on the
/// call, and tracing's subscribers, receive the same events.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<dyn Listen>>);

impl Listener {
    /// No listener.
    pub(crate) const NONE: Self = Self(None);

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The listener that a layer's user has set.
    pub fn new(listen: impl Listen + 'static) -> Self {
        Self(Some(Arc::new(listen)))
    }

    /// Returns whether a listener of the layer, or a subscriber, may want events of this level.
    /// Listeners on a call's record are not asked.
    #[inline]
    pub fn hears(&self, level: Level) -> bool {
        self.0.is_some() || level <= LevelFilter::current()
    }

    /// Emits the event to subscribers, and tells this listener and those of the call's record, each
    /// once.
    pub fn tell(&self, event: &Event<'_>) {
        self.tell_also(&Audience::default(), event);
    }

    /// The same, and those of `audience`. Each receives the event once.
    pub(crate) fn tell_also(&self, audience: &Audience, event: &Event<'_>) {
        event.trace();
        if let Some(listen) = &self.0 {
            listen.on(event);
        }
        let of_call = Self::of_call(event);
        self.tell_registered(event, &of_call, &[]);
        self.tell_registered(event, &audience.ids(), &of_call);
    }

    /// The same without those of the call's record: layers above see the end of the call
    /// themselves.
    pub(crate) fn tell_below(&self, audience: &Audience, event: &Event<'_>) {
        event.trace();
        let above = Self::of_call(event);
        let is_above = above.iter().flatten().any(|id| self.includes(*id));
        if let Some(listen) = self.0.as_ref().filter(|_| !is_above) {
            listen.on(event);
        }
        self.tell_registered(event, &audience.ids(), &above);
    }

    /// Copied, so that no listener runs while the record is read.
    fn of_call(event: &Event<'_>) -> [Option<ListenerId>; MAX_LISTENERS] {
        let mut ids = [None; MAX_LISTENERS];
        if let Some(call) = event.call() {
            call.record(|record| ids = record.listeners().ids());
        }
        ids
    }

    fn tell_registered(
        &self,
        event: &Event<'_>,
        ids: &[Option<ListenerId>],
        but: &[Option<ListenerId>],
    ) {
        for (n, id) in ids.iter().enumerate() {
            if let Some(known) = *id
                && !ids[..n].contains(id)
                && !but.contains(id)
                && !self.includes(known)
                && let Some(listen) = registered(known)
            {
                listen.on(event);
            }
        }
    }

    fn includes(&self, id: ListenerId) -> bool {
        self.0.as_ref().is_some_and(|listen| listen.includes(id))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}
