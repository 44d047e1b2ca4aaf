use std::{collections::HashSet, fmt, ops::ControlFlow, sync::Arc};

use crate::call::ReplaySafety;
#[cfg(feature = "mcp")]
use crate::edge::mcp::{Catalog, McpTools};

/// The names of a server's tools: fixed ones, from any iterator, or with the feature `mcp` an MCP server's
/// `McpTools`, which follow the server, or a `Catalog`, which does not.
///
/// ```
/// use tower_toolcall::router::ToolList;
///
/// let tools = ToolList::from(["search", "fetch"]);
/// ```
#[derive(Clone)]
pub struct ToolList(Kind);

#[derive(Clone)]
enum Kind {
    Fixed(Arc<HashSet<Arc<str>>>),
    #[cfg(feature = "mcp")]
    Mcp(McpTools),
}

impl ToolList {
    /// The tool's name, if the list has it.
    pub(super) fn find(&self, tool: &str) -> Option<Arc<str>> {
        match &self.0 {
            Kind::Fixed(names) => names.get(tool).cloned(),
            #[cfg(feature = "mcp")]
            Kind::Mcp(tools) => tools.name(tool),
        }
    }

    #[cfg_attr(
        not(feature = "mcp"),
        allow(unused_variables, reason = "names alone tell nothing")
    )]
    pub(super) fn replay_safety(&self, tool: &str) -> ReplaySafety {
        match &self.0 {
            Kind::Fixed(_) => ReplaySafety::Unknown,
            #[cfg(feature = "mcp")]
            Kind::Mcp(tools) => tools.catalog().replay_safety(tool),
        }
    }

    pub(super) fn try_for_each(
        &self,
        mut f: impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match &self.0 {
            Kind::Fixed(names) => names.iter().try_for_each(|name| f(name)),
            #[cfg(feature = "mcp")]
            Kind::Mcp(tools) => tools.catalog().tools().try_for_each(|tool| f(&tool.name)),
        }
    }

    /// Whether it tells which tools there are: a list that follows a server may not have been read yet.
    pub(super) fn is_read(&self) -> bool {
        match &self.0 {
            Kind::Fixed(_) => true,
            #[cfg(feature = "mcp")]
            Kind::Mcp(tools) => tools.catalog().is_read(),
        }
    }

    /// The names of a list that stays.
    pub(super) fn fixed(&self) -> impl Iterator<Item = &Arc<str>> {
        let names = match &self.0 {
            Kind::Fixed(names) => Some(names),
            #[cfg(feature = "mcp")]
            Kind::Mcp(_) => None,
        };
        names.into_iter().flat_map(|names| names.iter())
    }

    pub(super) fn len(&self) -> usize {
        match &self.0 {
            Kind::Fixed(names) => names.len(),
            #[cfg(feature = "mcp")]
            Kind::Mcp(tools) => tools.catalog().len(),
        }
    }

    #[cfg(feature = "mcp")]
    pub(super) fn catalog(&self) -> Option<Arc<Catalog>> {
        match &self.0 {
            Kind::Fixed(_) => None,
            Kind::Mcp(tools) => Some(tools.catalog()),
        }
    }
}

impl<I> From<I> for ToolList
where
    I: IntoIterator,
    I::Item: Into<Arc<str>>,
{
    fn from(names: I) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self(Kind::Fixed(Arc::new(names)))
    }
}

#[cfg(feature = "mcp")]
impl From<McpTools> for ToolList {
    fn from(tools: McpTools) -> Self {
        Self(Kind::Mcp(tools))
    }
}

#[cfg(feature = "mcp")]
impl From<Catalog> for ToolList {
    fn from(catalog: Catalog) -> Self {
        McpTools::new(catalog).into()
    }
}

impl fmt::Debug for ToolList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolList")
            .field("tools", &self.len())
            .finish()
    }
}
