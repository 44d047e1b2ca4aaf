use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use rmcp::{
    ClientHandler, RoleClient,
    model::{ProgressNotificationParam, ProgressToken},
    service::NotificationContext,
};

use super::McpTools;
use crate::{
    call::{Progress, ToolCall},
    edge::future::lock,
};

/// Brings a server's progress notifications to the calls that they belong to.
///
/// An [`McpServer`](super::McpServer) has one for each connection. For a client handler of your
/// own:
///
/// ```
/// use rmcp::{
///     ClientHandler, RoleClient, model::ProgressNotificationParam, service::NotificationContext,
/// };
/// use tower_toolcall::mcp::McpProgress;
///
/// struct Handler {
///     progress: McpProgress, // a clone of it is for `McpService::with_progress`
/// }
///
/// impl ClientHandler for Handler {
///     async fn on_progress(
///         &self,
///         params: ProgressNotificationParam,
///         _: NotificationContext<RoleClient>,
///     ) {
///         self.progress.report(&params);
///     }
/// }
/// ```
///
/// `McpProgress` is a client handler as well.
///
/// Holds one entry per call in flight whose progress is observed. Clones share them.
#[derive(Clone, Default)]
pub struct McpProgress {
    routes: Arc<Mutex<HashMap<ProgressToken, Reports>>>,
}

impl McpProgress {
    /// A handler without calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports to the call that the notification belongs to, if it is still in flight.
    pub fn report(&self, notification: &ProgressNotificationParam) {
        let to = lock(&self.routes)
            .get(&notification.progress_token)
            .cloned();
        if let Some(to) = to {
            to.report(notification);
        }
    }

    /// Routes notifications with this token to a call, until the route is dropped.
    pub(super) fn route(&self, token: ProgressToken, to: Reports) -> Route {
        lock(&self.routes).insert(token.clone(), to);
        Route {
            all: self.clone(),
            token,
        }
    }
}

impl ClientHandler for McpProgress {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.report(&params);
    }
}

crate::text::debug_fields! { {} |this| McpProgress { calls: lock(&this.routes).len() } }

/// The observers of a call's progress.
#[derive(Clone)]
pub(super) struct Reports {
    idle: Option<Progress>,
    relay: Option<Relay>,
}

/// Passes a call's progress on to the client of a gateway. In the call's extensions.
#[derive(Clone)]
pub(super) struct Relay(pub(super) Arc<dyn Fn(&ProgressNotificationParam) + Send + Sync>);

impl Reports {
    /// `None` if there are no observers.
    pub(super) fn of(call: &ToolCall) -> Option<Self> {
        let (idle, relay) = (call.progress(), call.extensions().get().cloned());
        (idle.is_some() || relay.is_some()).then_some(Self { idle, relay })
    }

    fn report(&self, notification: &ProgressNotificationParam) {
        if let Some(idle) = &self.idle {
            idle.report();
        }
        if let Some(Relay(relay)) = &self.relay {
            relay(notification);
        }
    }
}

/// One call's entry; see [`McpProgress::route`].
pub(super) struct Route {
    all: McpProgress,
    token: ProgressToken,
}

impl Drop for Route {
    fn drop(&mut self) {
        lock(&self.all.routes).remove(&self.token);
    }
}

/// Listens to a server: brings its progress notifications to the calls that they belong to, and
/// keeps the list of its tools current.
///
/// This is rmcp's client handler for a connection of your own, as
/// [`McpReconnect`](super::McpReconnect) makes it. An [`McpServer`](super::McpServer) has one for
/// each of its connections:
///
#[cfg_attr(feature = "router", doc = "```no_run")]
#[cfg_attr(not(feature = "router"), doc = "```ignore")]
/// use tower_toolcall::{BoxError, mcp::McpServer, router::Router};
///
/// # async fn run() -> Result<(), BoxError> {
/// let docs = McpServer::command("docs", "npx", ["-y", "docs-server"]);
/// docs.connect().await?; // from now on the list follows the server
///
/// let router = Router::mcp().server("docs", docs.clone(), docs.tools().clone()).build()?;
/// # Ok(()) }
/// ```
///
/// A program with a handler of its own calls [`McpProgress::report`] from its `on_progress`, and
/// [`McpTools::changed`] from its `on_tool_list_changed`.
///
/// One per connection. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct McpNotifications {
    progress: McpProgress,
    tools: McpTools,
}

impl McpNotifications {
    /// A listener with a list of no tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the list to keep current.
    #[must_use]
    pub fn with_tools(mut self, tools: McpTools) -> Self {
        self.tools = tools;
        self
    }

    /// For [`McpService::with_progress`](super::McpService::with_progress).
    pub fn progress(&self) -> &McpProgress {
        &self.progress
    }

    /// The server's tools.
    pub fn tools(&self) -> &McpTools {
        &self.tools
    }
}

impl ClientHandler for McpNotifications {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.report(&params);
    }

    // rmcp runs each notification in a task of its own, so this may ask the server that it is from.
    async fn on_tool_list_changed(&self, context: NotificationContext<RoleClient>) {
        self.tools.changed(&context.peer).await;
    }
}
