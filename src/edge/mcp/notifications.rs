use rmcp::{
    ClientHandler, RoleClient, model::ProgressNotificationParam, service::NotificationContext,
};

use super::{McpProgress, McpTools};

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
