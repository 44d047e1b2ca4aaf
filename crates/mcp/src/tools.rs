use std::{
    fmt,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use rmcp::{
    model::Tool,
    service::{Peer, RoleClient, ServiceRole},
};
use tokio::{
    sync::{Mutex, Semaphore},
    time::{Instant, sleep_until, timeout},
};
use tower_toolcall::{
    call::{Identity, ToolCall},
    error::ToolError,
    identity::Resolve,
    policy::{Annotate, Annotations},
};

use super::{Catalog, catalog, events::stale_list};
use crate::future::lock;

/// The shortest time between two asks: a server that reports a change whenever it is asked is not
/// asked without a pause.
const MIN_GAP: Duration = Duration::from_secs(1);

/// How many callers may wait to ask. Later ones leave it to them.
const MAX_WAITING: usize = 64;

//= https://modelcontextprotocol.io/specification/2026-07-28/schema#listpromptsresult
//# Caches MUST NOT be shared across authorization contexts (e.g., a different access token requires
//# a different cache).
//= https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching#cache-scope-field
//# The response contains private data that is not meant to be shared between callers. Cached
//# responses MAY be reused for the same authorization context. Caches MUST NOT be shared across
//# authorization contexts (e.g. a different access token requires a different cache).
/// The tools of one server as they are now: a [`Catalog`] that follows the server.
///
/// [`McpNotifications`](super::McpNotifications) reports to it when the server's tools have
/// changed. A program with its own client handler calls [`changed`](Self::changed) from its
/// `on_tool_list_changed`. No task is spawned: the list is read again in the task that rmcp gives
/// each notification.
///
/// - Reading it is one atomic load, whatever goes on.
/// - One answer is awaited at a time, so an older one never replaces a newer one. However many
///   notifications come meanwhile, one more answer follows.
/// - Notifications cause at most one request per second. So a server that announces changes without
///   end causes one request, and one warning, per second.
/// - If the server does not answer, the old list stands. The event `tool.stale_list`, at WARN, has
///   the server, the code and the error. Calls go on by the old list: a new tool is not found, and
///   the next notification or [`refresh`](Self::refresh) asks again.
/// - The limits are those of [`McpService::catalog`](super::McpService::catalog).
///
/// On a connection that speaks the revision of 2026-07-28 notifications come on a stream that the
/// client asks for (rmcp's `Peer::listen`): call [`changed`](Self::changed) for each.
///
/// Clones are the same list.
#[derive(Clone)]
pub struct McpTools(Arc<Inner>);

struct Inner {
    catalog: ArcSwap<Catalog>,
    /// How many changes were reported.
    reported: AtomicU64,
    /// Held while an answer is awaited.
    asked: Mutex<Asked>,
    /// Room for callers that wait because of a change.
    waiting: Semaphore,
    on_change: std::sync::Mutex<Vec<OnChange>>,
    #[cfg(feature = "pins")]
    pins: super::pins::Pinned,
}

type OnChange = Arc<dyn Fn() + Send + Sync>;

/// Known by its address: every connection has a value of its own.
type Connection = Arc<<RoleClient as ServiceRole>::PeerInfo>;

/// The results of asking. Changes are known by their number: an ask covers all that were reported
/// before it.
#[derive(Default)]
struct Asked {
    /// When the last ask began, or its answer was read.
    last: Option<Instant>,
    /// The changes up to this one are in the list.
    listed: u64,
    /// The changes up to this one were asked for on this connection, in vain.
    failed: Option<(Connection, u64)>,
}

impl Asked {
    /// Returns `true` if the changes up to `reported` need no ask on this connection.
    fn knows(&self, reported: u64, peer: &Peer<RoleClient>) -> bool {
        let in_vain = || {
            let (failed, own) = (self.failed.as_ref()?, peer.peer_info()?);
            Some(Arc::ptr_eq(&failed.0, &own) && failed.1 >= reported)
        };
        self.listed >= reported || in_vain() == Some(true)
    }
}

impl McpTools {
    /// Makes a list that has the tools of `catalog` until it is refreshed, and its settings for
    /// ever.
    ///
    /// ```
    /// use tower_toolcall_mcp::{Catalog, McpTools};
    ///
    /// // No tools yet; what the server says of them will be believed.
    /// let tools = McpTools::new(Catalog::default().trust_annotations(true));
    /// assert!(tools.catalog().is_empty());
    /// ```
    pub fn new(catalog: Catalog) -> Self {
        crate::register();
        Self(Arc::new(Inner {
            catalog: ArcSwap::from_pointee(catalog),
            reported: AtomicU64::new(0),
            asked: Mutex::default(),
            waiting: Semaphore::new(MAX_WAITING),
            on_change: std::sync::Mutex::default(),
            #[cfg(feature = "pins")]
            pins: Default::default(),
        }))
    }

    /// Holds the list, and each that is read from now on, against these pins. The event
    /// `tool.stale_list` says how tools differ, and `on_drift` whether they are hidden. `None`: all
    /// tools are listed. Of a server without a [name](Catalog::with_server) no tool is pinned.
    #[cfg(feature = "pins")]
    #[cfg_attr(docsrs, doc(cfg(feature = "pins")))]
    pub fn set_pins(&self, pins: Option<(super::Pins, super::OnDrift)>) {
        let now = self.catalog();
        let change = |held: &mut super::pins::Held| {
            held.pins = pins;
            let tools = || now.tools().cloned().collect();
            held.listed.get_or_insert_with(tools);
        };
        let put = |tools| now.is_read().then(|| self.put(tools));
        if self.0.pins.hold(now.server(), change, put) == Some(true) {
            self.tell();
        }
    }

    /// Returns the tools as they are now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.load_full()
    }

    /// Changes the settings of the catalog.
    pub(super) fn configure(&self, change: impl Fn(Catalog) -> Catalog) {
        let catalog = &self.0.catalog;
        catalog.rcu(|catalog| change(Catalog::clone(catalog)));
    }

    /// Calls `f` from now on whenever an answer of the server has brought another list, when the
    /// new one stands. In the task that has asked, so it should be quick: it is there to pass the
    /// news on.
    ///
    /// For the life of the list: for what a program sets up once.
    pub fn on_change(&self, f: impl Fn() + Send + Sync + 'static) {
        self.listeners().push(Arc::new(f));
    }

    #[cfg(all(test, feature = "validate"))]
    pub(super) fn set(&self, catalog: Catalog) {
        self.0.catalog.store(Arc::new(catalog));
    }

    /// Puts these tools in the place of the list. Returns whether they are others.
    fn put(&self, tools: Vec<Tool>) -> bool {
        let before = self.catalog();
        let now = before.with_tools(tools);
        let changed = !now.has_the_tools_of(&before);
        self.0.catalog.store(Arc::new(now));
        changed
    }

    fn tell(&self) {
        let listeners = self.listeners().clone();
        listeners.iter().for_each(|f| f());
    }

    /// For a listener of its own, which would keep the list alive.
    #[cfg(feature = "validate")]
    pub(super) fn downgrade(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static {
        let inner = Arc::downgrade(&self.0);
        move || inner.upgrade().map(Self)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<OnChange>> {
        lock(&self.0.on_change)
    }

    /// Asks the server for its tools: at the start of a program, and whenever you like, without the
    /// pause of a second. It takes 30 s at the most. The time in which it waits for another ask is
    /// in them, so it may fail because an old connection hangs: try again.
    ///
    /// # Errors
    ///
    /// Those of [`McpService::catalog`](super::McpService::catalog). The old list stands.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has changed nothing.
    pub async fn refresh(&self, peer: &Peer<RoleClient>) -> Result<(), ToolError> {
        let asks = async { self.ask(peer, &mut *self.0.asked.lock().await).await };
        let asked = timeout(catalog::LIST_TIMEOUT, asks).await;
        asked.unwrap_or_else(|_| Err(catalog::took_too_long()))
    }

    /// Reads the server's tools again after it announced a change, at the earliest a second after
    /// the last request. Returns after the answer to a later request, its own or another caller's.
    ///
    /// If the request fails, it logs a warning. A change that was reported on another connection is
    /// then requested there, because an old and a new connection may share a list. If 64 callers
    /// wait, further calls return immediately: the waiting callers send the requests, each on its
    /// own connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing. The next caller requests the list for this change too;
    /// until then the old list stays.
    pub async fn changed(&self, peer: &Peer<RoleClient>) {
        self.0.reported.fetch_add(1, SeqCst);
        let Ok(_waiting) = self.0.waiting.try_acquire() else {
            return;
        };
        let mut asked = self.0.asked.lock().await;
        // All changes, not the own alone: the caller that reported another one may have left.
        if asked.knows(self.0.reported.load(SeqCst), peer) {
            return;
        }
        if let Some(last) = asked.last {
            sleep_until(last + MIN_GAP).await;
        }
        if let Err(error) = self.ask(peer, &mut asked).await {
            self.is_stale(&error);
        }
    }

    /// Warns that changes of the list are not known.
    pub(super) fn is_stale(&self, error: &ToolError) {
        stale_list(self.catalog().server(), error);
    }

    /// Asks under the lock.
    async fn ask(&self, peer: &Peer<RoleClient>, asked: &mut Asked) -> Result<(), ToolError> {
        // What changes from here on may not be in the answer.
        let reported = self.0.reported.load(SeqCst);
        asked.last = Some(Instant::now());
        let before = self.catalog();
        match catalog::list(peer, before.server()).await {
            Ok(tools) => {
                #[cfg(feature = "pins")]
                let changed = {
                    let listed = |held: &mut super::pins::Held| held.listed = Some(tools);
                    let pins = &self.0.pins;
                    pins.hold(before.server(), listed, |tools| self.put(tools))
                };
                #[cfg(not(feature = "pins"))]
                let changed = self.put(tools);
                asked.listed = reported;
                if changed {
                    self.tell();
                    // A server with a slow list is not asked again immediately.
                    asked.last = Some(Instant::now());
                }
                Ok(())
            }
            Err(error) => {
                asked.failed = peer.peer_info().map(|peer| (peer, reported));
                Err(error)
            }
        }
    }
}

impl Default for McpTools {
    fn default() -> Self {
        Self::new(Catalog::default())
    }
}

/// By the tools as they are now, as a [`Catalog`] does.
impl Resolve for McpTools {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        self.0.catalog.load().resolve(call)
    }

    fn identities(&self) -> Option<Vec<Identity>> {
        self.0.catalog.load().identities()
    }
}

impl Annotate for McpTools {
    fn annotations(&self, call: &ToolCall) -> Option<Annotations> {
        self.0.catalog.load().annotations(call)
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools")
            .field("catalog", &self.catalog())
            .finish()
    }
}
