use std::sync::Arc;

use rmcp::model::Tool;

#[cfg(feature = "router")]
use crate::router::Router;
use crate::{
    call::{Identity, ToolCall},
    edge::mcp::McpTools,
    error::ToolError,
    identity::Resolve,
};

/// The source of the list of tools that a [`GatewayHandler`](super::GatewayHandler) gives its
/// clients: a `Router` of MCP servers, the [`McpTools`] of one server, or a function that returns
/// it.
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

    /// The one of this name. Asked for with each call over HTTP of a client of 2026-07-28, so a
    /// long list should not be walked for it, as it is where this is left out.
    fn find(&self, name: &str) -> Option<Tool> {
        self.list().into_iter().find(|tool| tool.name == name)
    }

    /// The identity of the tool that a call names, as [`Resolve::resolve`] has it. Where it is left
    /// out the list cannot tell: calls go on under the client's names, without a server.
    ///
    /// # Errors
    ///
    /// The refusal of a tool that does not exist.
    fn resolve(&self, _call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Ok(None)
    }
}

/// A list as the table of an identity layer.
pub(super) struct Listed(pub(super) Arc<dyn ListTools>);

impl Resolve for Listed {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        self.0.resolve(call)
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

    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Resolve::resolve(self, call)
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

    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Resolve::resolve(self, call)
    }
}
