use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use crate::call::ReplaySafety;
#[cfg(feature = "mcp")]
use crate::edge::mcp::{Catalog, McpTools};

/// The names of a server's tools: fixed ones, from any iterator, or with the feature `mcp` an MCP
/// server's `McpTools`, which follow the server, or a `Catalog`, which does not.
///
/// ```
/// use tower_toolcall::router::ToolList;
///
/// let tools = ToolList::from(["search", "fetch"]);
/// ```
#[derive(Clone)]
pub struct ToolList(pub(super) Arc<dyn Tools>);

type EachName<'a> = &'a mut dyn FnMut(&Arc<str>) -> ControlFlow<()>;

/// The tools of one server. The defaults are those of names alone, which never change.
pub(super) trait Tools: Send + Sync {
    /// The tool's name, if the list has it.
    fn find(&self, tool: &str) -> Option<Arc<str>>;

    /// Calls `f` for each name, until it breaks.
    fn try_each(&self, f: EachName<'_>) -> ControlFlow<()>;

    fn count(&self) -> usize;

    fn is_fixed(&self) -> bool {
        true
    }

    /// Returns whether it says which tools there are: a list that follows a server may not have
    /// been read yet.
    fn is_read(&self) -> bool {
        true
    }

    fn replay_safety(&self, _tool: &str) -> ReplaySafety {
        ReplaySafety::Unknown
    }

    #[cfg(feature = "mcp")]
    fn catalog(&self) -> Option<Arc<Catalog>> {
        None
    }
}

impl Tools for HashSet<Arc<str>> {
    fn find(&self, tool: &str) -> Option<Arc<str>> {
        self.get(tool).cloned()
    }

    fn try_each(&self, f: EachName<'_>) -> ControlFlow<()> {
        self.iter().try_for_each(f)
    }

    fn count(&self) -> usize {
        self.len()
    }
}

#[cfg(feature = "mcp")]
impl Tools for McpTools {
    fn find(&self, tool: &str) -> Option<Arc<str>> {
        self.name(tool)
    }

    fn try_each(&self, f: EachName<'_>) -> ControlFlow<()> {
        self.catalog().names().try_for_each(f)
    }

    fn count(&self) -> usize {
        self.catalog().len()
    }

    fn is_fixed(&self) -> bool {
        false
    }

    fn is_read(&self) -> bool {
        self.catalog().is_read()
    }

    fn replay_safety(&self, tool: &str) -> ReplaySafety {
        self.catalog().replay_safety(tool)
    }

    fn catalog(&self) -> Option<Arc<Catalog>> {
        Some(self.catalog())
    }
}

impl<I> From<I> for ToolList
where
    I: IntoIterator,
    I::Item: Into<Arc<str>>,
{
    fn from(names: I) -> Self {
        let names: HashSet<Arc<str>> = names.into_iter().map(Into::into).collect();
        Self(Arc::new(names))
    }
}

#[cfg(feature = "mcp")]
impl From<McpTools> for ToolList {
    fn from(tools: McpTools) -> Self {
        Self(Arc::new(tools))
    }
}

#[cfg(feature = "mcp")]
impl From<Catalog> for ToolList {
    fn from(catalog: Catalog) -> Self {
        McpTools::new(catalog).into()
    }
}

crate::text::debug_fields! { {} |this| ToolList { tools: this.0.count() } }
