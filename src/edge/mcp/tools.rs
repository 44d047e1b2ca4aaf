use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use arc_swap::ArcSwap;
use rmcp::service::{Peer, RoleClient};
use tokio::sync::Mutex;

use super::{Catalog, catalog};
use crate::{
    error::ToolError,
    event::{TARGET, names},
    text::Short,
};

/// The tools of one server as they are now: a [`Catalog`] that follows the server.
///
/// [`McpNotifications`](super::McpNotifications) tells it when the server's tools have changed; a program
/// with a client handler of its own calls [`changed`](Self::changed) from its `on_tool_list_changed`. Nothing is
/// spawned: the list is read again in the task of the handler, which rmcp gives each notification.
///
/// - Reading it is one atomic load, whatever goes on.
/// - One answer is awaited at a time, so an older one never replaces a newer one. However many notifications
///   come meanwhile, one more answer follows.
/// - If the server does not answer, the old list stands, and a warning tells of it.
/// - The limits are those of [`McpService::catalog`](super::McpService::catalog).
///
/// On a connection that speaks the revision of 2026-07-28 notifications come on a stream that the client asks for
/// (rmcp's `Peer::listen`): call [`changed`](Self::changed) for each.
///
/// Clones are the same list.
#[derive(Clone, Default)]
pub struct McpTools(Arc<Inner>);

#[derive(Default)]
struct Inner {
    catalog: ArcSwap<Catalog>,
    /// Held while an answer is awaited.
    asking: Mutex<()>,
    /// Whether somebody waits to ask who has not asked yet: it will learn of all changes until then.
    waiting: AtomicBool,
}

impl McpTools {
    /// A list that has the tools of `catalog` until it is refreshed, and its settings for ever.
    ///
    /// ```
    /// use tower_toolcall::mcp::{Catalog, McpTools};
    ///
    /// // No tools yet; what the server says of them will be believed.
    /// let tools = McpTools::new(Catalog::default().trust_annotations(true));
    /// assert!(tools.catalog().is_empty());
    /// ```
    pub fn new(catalog: Catalog) -> Self {
        Self(Arc::new(Inner {
            catalog: ArcSwap::from_pointee(catalog),
            ..Inner::default()
        }))
    }

    /// The tools as they are now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.load_full()
    }

    /// The tool's name, if there is such a tool.
    #[cfg(feature = "router")]
    pub(crate) fn name(&self, tool: &str) -> Option<Arc<str>> {
        self.0.catalog.load().name(tool).cloned()
    }

    /// Asks the server for its tools: at the start of a program, and whenever you like.
    ///
    /// # Errors
    ///
    /// Those of [`McpService::catalog`](super::McpService::catalog). The old list stands.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has changed nothing.
    pub async fn refresh(&self, peer: &Peer<RoleClient>) -> Result<(), ToolError> {
        let _alone = self.0.asking.lock().await;
        self.ask(peer).await
    }

    /// Asks the server for its tools, because it says that they have changed. Returns at once if somebody is
    /// about to ask anyway.
    pub async fn changed(&self, peer: &Peer<RoleClient>) {
        let Some(waiting) = Waiting::begin(&self.0.waiting) else {
            return;
        };
        let _alone = self.0.asking.lock().await;
        // What changes from here on may not be in the answer.
        drop(waiting);
        if let Err(error) = self.ask(peer).await {
            self.warn(&error);
        }
    }

    /// For whoever holds the lock.
    async fn ask(&self, peer: &Peer<RoleClient>) -> Result<(), ToolError> {
        let tools = catalog::list(peer).await?;
        let settings = self.catalog().settings();
        self.0.catalog.store(Arc::new(settings.with_tools(tools)));
        Ok(())
    }

    fn warn(&self, error: &ToolError) {
        let catalog = self.catalog();
        tracing::event!(
            name: names::event::STALE_LIST,
            target: TARGET,
            tracing::Level::WARN,
            { names::field::SERVER } = catalog.server().map(|s| display(Short::name(s))),
            { names::field::CODE } = error.code(),
            { names::field::ERROR } = error.message(),
            "{}", names::event::STALE_LIST
        );
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("McpTools").field(&self.catalog()).finish()
    }
}

/// The place of the one who waits to ask. Dropped, by its owner or with its task, it is free again.
struct Waiting<'a>(&'a AtomicBool);

impl<'a> Waiting<'a> {
    fn begin(flag: &'a AtomicBool) -> Option<Self> {
        // Made only if it is ours: dropping one frees the place.
        (!flag.swap(true, SeqCst)).then(|| Self(flag))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}
