use rmcp::model::Tool;

use crate::edge::mcp::McpTools;
#[cfg(feature = "router")]
use crate::router::Router;

/// Where the list of tools comes from that a [`GatewayHandler`](super::GatewayHandler) tells its clients: a
/// `Router` of MCP servers, the [`McpTools`] of one server, or a function that returns it.
///
/// ```
/// use rmcp::model::{JsonObject, Tool};
/// use tower_toolcall::mcp::ListTools;
///
/// let list = || vec![Tool::new("search", "finds things", JsonObject::new())];
/// assert!(list.find("search").is_some());
/// ```
pub trait ListTools: Send + Sync + 'static {
    /// The tools as they are now, in any order.
    fn list(&self) -> Vec<Tool>;

    /// The one of this name. Asked for with each call over HTTP of a client of 2026-07-28, so a long list should not
    /// be walked for it, as it is where this is left out.
    fn find(&self, name: &str) -> Option<Tool> {
        self.list().into_iter().find(|tool| tool.name == name)
    }
}

impl<F: Fn() -> Vec<Tool> + Send + Sync + 'static> ListTools for F {
    fn list(&self) -> Vec<Tool> {
        self()
    }
}

impl ListTools for McpTools {
    fn list(&self) -> Vec<Tool> {
        self.catalog().tools().cloned().collect()
    }

    fn find(&self, name: &str) -> Option<Tool> {
        self.catalog().get(name).cloned()
    }
}

#[cfg(feature = "router")]
impl<Res: 'static> ListTools for Router<Res> {
    fn list(&self) -> Vec<Tool> {
        self.mcp_tools()
    }

    fn find(&self, name: &str) -> Option<Tool> {
        self.definition(name)
    }
}
