//! The router of MCP servers: its answers, lists and definitions are MCP's.

use std::{ops::ControlFlow, sync::Arc};

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, Tool};
use serde::Serialize;
use serde_json::Value;
use tower_toolcall::{
    answer::ModelText as _,
    call::ReplaySafety,
    error::ToolError,
    router::{Definition, IntoAnswer, Json, RouterBuilder, ToolList, Tools},
};

#[cfg(feature = "server")]
use super::ListTools;
use super::{Catalog, McpAnswer, McpTools, catalog::claimed};
#[cfg(feature = "server")]
use tower_toolcall::{
    call::{Identity, ToolCall},
    identity::Resolve,
    router::Router,
};

/// Builds a router with tools that answer like those of MCP servers.
///
/// Such a router takes rmcp's results and responses, strings (as text), `()` (nothing), and
/// [`Value`]s and [`Json`] (as structured content, and as text; `null` is nothing). An [`McpTools`]
/// is a list that follows its server; a [`Catalog`] does not.
///
/// ```
/// use rmcp::model::{JsonObject, Tool, ToolAnnotations};
/// use tower_toolcall::{AnyError, ReplaySafety, ToolCall, router::tool_fn};
/// use tower_toolcall_mcp as mcp;
///
/// # fn main() -> Result<(), tower_toolcall::ConfigError> {
/// let now = Tool::new("now", "Tells the time", JsonObject::new())
///     .with_annotations(ToolAnnotations::new().read_only(true));
/// let noon = tool_fn(|(): ()| async { Ok::<_, AnyError>("noon") });
/// let router = mcp::router().described_tool(mcp::definition(now), noon).build()?;
///
/// assert_eq!(router.replay_safety(&ToolCall::new("now")), ReplaySafety::Safe);
/// let listed = mcp::tool(&router.definitions()[0]);
/// assert_eq!(listed.description.as_deref(), Some("Tells the time"));
/// # Ok(()) }
/// ```
pub fn router() -> RouterBuilder<McpAnswer> {
    crate::register();
    RouterBuilder::new()
}

/// Returns the definition of a tool of this program by that of MCP, for
/// [`described_tool`](RouterBuilder::described_tool).
///
/// Not for the tools of a server: the annotations are trusted, which say whether calls may run
/// twice. A router over [`McpTools`] believes those that are trusted.
pub fn definition(tool: Tool) -> Definition {
    let replay = claimed(&tool);
    plain_definition(tool).with_replay_safety(replay)
}

fn plain_definition(tool: Tool) -> Definition {
    let description = tool.description.as_deref().unwrap_or("");
    let schema = Arc::clone(&tool.input_schema);
    Definition::new(&*tool.name, description, schema).with_original(tool)
}

/// Returns MCP's definition of a tool: the [original](Definition::original), if the definition was
/// made of one, under the definition's name.
pub fn tool(definition: &Definition) -> Tool {
    let name = definition.name().to_owned();
    match definition.original::<Tool>() {
        Some(tool) => {
            let mut tool = tool.clone();
            tool.name = name.into();
            tool
        }
        None => {
            let description = definition.description().to_owned();
            Tool::new(name, description, Arc::clone(definition.schema()))
        }
    }
}

impl Tools for McpTools {
    fn find(&self, tool: &str) -> Option<Arc<str>> {
        self.catalog().name(tool).cloned()
    }

    fn try_each(&self, f: &mut dyn FnMut(&Arc<str>) -> ControlFlow<()>) -> ControlFlow<()> {
        self.catalog().names().try_for_each(f)
    }

    fn definition(&self, tool: &str) -> Option<Definition> {
        let catalog = self.catalog();
        let definition = plain_definition(catalog.get(tool)?.clone());
        Some(definition.with_replay_safety(catalog.replay_safety(tool)))
    }

    fn replay_safety(&self, tool: &str) -> ReplaySafety {
        self.catalog().replay_safety(tool)
    }

    fn is_read(&self) -> bool {
        self.catalog().is_read()
    }
}

impl From<McpTools> for ToolList {
    fn from(tools: McpTools) -> Self {
        Self::new(tools)
    }
}

impl From<Catalog> for ToolList {
    fn from(catalog: Catalog) -> Self {
        McpTools::new(catalog).into()
    }
}

#[cfg(feature = "server")]
impl<Res: 'static> ListTools for Router<Res> {
    fn list(&self) -> Vec<Tool> {
        self.definitions().iter().map(tool).collect()
    }

    fn find(&self, name: &str) -> Option<Tool> {
        self.definition(name).as_ref().map(tool)
    }

    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        Resolve::resolve(self, call)
    }
}

impl IntoAnswer<McpAnswer> for CallToolResponse {
    fn into_answer(self) -> Result<McpAnswer, ToolError> {
        Ok(self.into())
    }
}

impl IntoAnswer<McpAnswer> for CallToolResult {
    fn into_answer(self) -> Result<McpAnswer, ToolError> {
        Ok(self.into())
    }
}

impl IntoAnswer<McpAnswer> for String {
    fn into_answer(self) -> Result<McpAnswer, ToolError> {
        Ok(CallToolResult::success(vec![ContentBlock::text(self)]).into())
    }
}

impl IntoAnswer<McpAnswer> for &'static str {
    fn into_answer(self) -> Result<McpAnswer, ToolError> {
        self.to_owned().into_answer()
    }
}

impl IntoAnswer<McpAnswer> for () {
    fn into_answer(self) -> Result<McpAnswer, ToolError> {
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

//= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#structured-content
//# For backwards compatibility, a tool that returns structured content SHOULD also return the
//# serialized JSON in a TextContent block.
/// Adds the text that a model reads, in which a string has no quotes.
impl IntoAnswer<McpAnswer> for Value {
    fn into_answer(self) -> Result<McpAnswer, ToolError> {
        if self.is_null() {
            return ().into_answer();
        }
        let text = ContentBlock::text(self.model_text());
        let mut result = CallToolResult::structured(self);
        result.content = vec![text];
        result.into_answer()
    }
}

impl<T: Serialize> IntoAnswer<McpAnswer> for Json<T> {
    fn into_answer(self) -> Result<McpAnswer, ToolError> {
        let value: Value = self.into_answer()?;
        value.into_answer()
    }
}
