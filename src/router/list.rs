use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use super::Definition;
use crate::call::ReplaySafety;

/// The names of a server's tools: fixed ones, from any iterator, or those of a list that may
/// change.
///
/// ```
/// use tower_toolcall::router::ToolList;
///
/// let tools = ToolList::from(["search", "fetch"]);
/// ```
#[derive(Clone)]
pub struct ToolList(pub(super) Arc<dyn Tools>);

impl ToolList {
    /// Makes a list that may change. A crate with lists of its own converts them by `From`, so that
    /// [`RouterBuilder::server`](super::RouterBuilder::server) takes them as they are.
    pub fn new(tools: impl Tools) -> Self {
        Self(Arc::new(tools))
    }
}

/// The tools of one server, as they are now.
///
/// A router asks the list with each call and each time that it lists its tools. The answers may
/// change at any time, and should be quick: no method waits for the server. A [`ToolList`] of names
/// answers as the defaults do, except [`is_fixed`](Tools::is_fixed): it never changes.
///
/// ```
/// use std::{ops::ControlFlow, sync::{Arc, RwLock}};
/// use tower_toolcall::router::{ToolList, Tools};
///
/// #[derive(Clone, Default)]
/// struct Plugins(Arc<RwLock<Vec<Arc<str>>>>);
///
/// impl Tools for Plugins {
///     fn find(&self, tool: &str) -> Option<Arc<str>> {
///         self.0.read().unwrap().iter().find(|name| &***name == tool).cloned()
///     }
///
///     fn try_each(&self, f: &mut dyn FnMut(&Arc<str>) -> ControlFlow<()>) -> ControlFlow<()> {
///         self.0.read().unwrap().iter().try_for_each(f)
///     }
/// }
///
/// let plugins = Plugins::default();
/// let tools = ToolList::new(plugins.clone()); // for `RouterBuilder::server`
/// plugins.0.write().unwrap().push("search".into());
/// # assert_eq!(format!("{tools:?}"), "ToolList { tools: 1 }");
/// ```
pub trait Tools: Send + Sync + 'static {
    /// Returns the tool's name, if the list has it.
    fn find(&self, tool: &str) -> Option<Arc<str>>;

    /// Calls `f` with each name, until it breaks.
    fn try_each(&self, f: &mut dyn FnMut(&Arc<str>) -> ControlFlow<()>) -> ControlFlow<()>;

    /// Returns the definition of the tool, under its own name. Default: `None`.
    fn definition(&self, _tool: &str) -> Option<Definition> {
        None
    }

    /// Returns whether calls of the tool may run twice, if the server is trusted. Default:
    /// [`ReplaySafety::Unknown`].
    fn replay_safety(&self, _tool: &str) -> ReplaySafety {
        ReplaySafety::Unknown
    }

    /// Returns whether the list was read. Before that, calls of any tool go to the server. Default:
    /// `true`.
    fn is_read(&self) -> bool {
        true
    }

    /// Returns whether the list never changes: the router then refuses
    /// [timeouts](super::RouterBuilder::with_timeout) of other tools. Default: `false`.
    fn is_fixed(&self) -> bool {
        false
    }
}

/// Counts the tools of a list, up to `most`.
pub(super) fn count(tools: &dyn Tools, most: usize) -> usize {
    let mut count = 0;
    let _ = tools.try_each(&mut |_| {
        count += 1;
        match count < most {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    count
}

impl Tools for HashSet<Arc<str>> {
    fn find(&self, tool: &str) -> Option<Arc<str>> {
        self.get(tool).cloned()
    }

    fn try_each(&self, f: &mut dyn FnMut(&Arc<str>) -> ControlFlow<()>) -> ControlFlow<()> {
        self.iter().try_for_each(f)
    }

    fn is_fixed(&self) -> bool {
        true
    }
}

impl<I> From<I> for ToolList
where
    I: IntoIterator,
    I::Item: Into<Arc<str>>,
{
    fn from(names: I) -> Self {
        let names: HashSet<Arc<str>> = names.into_iter().map(Into::into).collect();
        Self::new(names)
    }
}

crate::text::debug_fields! { {} |this| ToolList { tools: count(&*this.0, usize::MAX) } }
