//! Settings of single tools, by name, and whether calls have matched the names.

use std::{
    cmp::Ordering,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use super::glob::Glob;
use crate::{call::ToolCall, event::event, text::Short};

/// After so many calls a layer reports the names that none of them has matched.
const CALLS: u32 = 1_000;

/// A name or pattern of tools that a layer was given.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) tool: Glob,
    pub(crate) server: Option<Glob>,
    is_matched: AtomicBool,
}

impl Name {
    pub(crate) const fn new(tool: Glob, server: Option<Glob>) -> Self {
        Self {
            tool,
            server,
            is_matched: AtomicBool::new(false),
        }
    }

    /// Remembers that a call has matched it. Later calls write nothing.
    pub(crate) fn matched(&self) {
        if !self.is_matched() {
            self.is_matched.store(true, Relaxed);
        }
    }

    fn is_matched(&self) -> bool {
        self.is_matched.load(Relaxed)
    }

    pub(crate) fn text(&self) -> String {
        let tool = Short::name(self.tool.as_str());
        match &self.server {
            Some(server) => format!("{tool} of server {}", Short::name(server.as_str())),
            None => tool.to_string(),
        }
    }
}

/// The names and patterns of tools that a layer was given, and whether calls have matched them.
///
/// A misspelt name does nothing, and a misspelt pattern of a policy denies nothing. With a table of
/// all tools [`check`](Self::check) finds it before the first call. Without one, a layer emits the
/// event `tool.unmatched` at WARN after 1,000 calls, once, with the names that none of them has
/// matched.
///
/// ```
/// use tower::service_fn;
/// use tower_toolcall::{AnyError, ToolCall, policy::PolicyLayer, router::Router};
///
/// # fn main() -> Result<(), tower_toolcall::BoxError> {
/// let delete = service_fn(|_: ToolCall| async { Ok::<_, AnyError>("deleted") });
/// let router = Router::builder().tool("delete_file", delete).build()?;
///
/// let policy = PolicyLayer::new().deny("delete_fiel");
/// assert_eq!(policy.tool_names().unmatched(), ["delete_fiel"]);
/// let error = policy.tool_names().check(&router).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid `policy`: `delete_fiel` matches no tool; did you mean `delete_file`?"
/// );
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolNames(pub(crate) Vec<(&'static str, Arc<Name>)>);

impl ToolNames {
    /// Returns the names that no call has matched so far, without duplicates.
    pub fn unmatched(&self) -> Vec<String> {
        let names = self.0.iter().filter(|(_, name)| !name.is_matched());
        let mut names: Vec<_> = names.map(|(_, name)| name.text()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Adds those of another layer.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// The calls of one layer until it reports the names that none of them has matched.
#[derive(Debug)]
pub(crate) struct Watch {
    layer: &'static str,
    calls: AtomicU32,
}

impl Watch {
    pub(crate) const fn new(layer: &'static str) -> Self {
        Self {
            layer,
            calls: AtomicU32::new(0),
        }
    }

    /// Counts a call. The last counted call emits the names that are not matched.
    pub(crate) fn count<'a>(&self, names: impl Iterator<Item = &'a Arc<Name>>) {
        if self.calls.load(Relaxed) < CALLS && self.calls.fetch_add(1, Relaxed) + 1 == CALLS {
            self.report(&self.names(names));
        }
    }

    pub(crate) fn names<'a>(&self, names: impl Iterator<Item = &'a Arc<Name>>) -> ToolNames {
        ToolNames(names.map(|name| (self.layer, Arc::clone(name))).collect())
    }

    #[cold]
    fn report(&self, names: &ToolNames) {
        let names = names.unmatched();
        if !names.is_empty() {
            event!(WARN UNMATCHED, LAYER = self.layer, NAMES = names.join(", "), CALLS = CALLS);
        }
    }
}

/// Values by the names of tools, sorted: few tools have settings of their own.
#[derive(Clone, Debug)]
pub(crate) struct PerTool<T> {
    tools: Vec<(Arc<Name>, T)>,
    watch: Arc<Watch>,
}

impl<T> PerTool<T> {
    /// Has no values yet. `layer` is the name of the layer in events.
    pub(crate) fn new(layer: &'static str) -> Self {
        Self {
            tools: Vec::new(),
            watch: Arc::new(Watch::new(layer)),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.tools.iter().map(|(_, value)| value)
    }

    pub(crate) fn names(&self) -> ToolNames {
        self.watch.names(self.tools.iter().map(|(name, _)| name))
    }

    fn count(&self) {
        if !self.is_empty() {
            self.watch.count(self.tools.iter().map(|(name, _)| name));
        }
    }

    /// Sets the value of a tool, by its own name or the flat one.
    pub(crate) fn set(&mut self, name: Box<str>, value: T) {
        match self.find(|other| other.cmp(&name)) {
            Ok(i) => self.tools[i].1 = value,
            Err(i) => {
                let name = Name::new(Glob::exact(&name), None);
                self.tools.insert(i, (Arc::new(name), value));
            }
        }
    }

    fn find(&self, order: impl Fn(&str) -> Ordering) -> Result<usize, usize> {
        let order = |(name, _): &(Arc<Name>, T)| order(name.tool.as_str());
        self.tools.binary_search_by(order)
    }

    /// Returns the value of the entry, if there is one: a call has matched its name.
    fn matched(found: Option<&(Arc<Name>, T)>) -> Option<&T> {
        let (name, value) = found?;
        name.matched();
        Some(value)
    }

    /// Returns the value by the flat name, if the call has a server, else by the tool's own: no
    /// server's tool has the value of another one by its name.
    pub(crate) fn get_of_server(&self, call: &ToolCall) -> Option<&T> {
        let is_it = |name: &str| match call.server() {
            Some(_) => call.cmp_flat(name).is_eq(),
            None => name == call.tool(),
        };
        self.count();
        let mut tools = self.tools.iter();
        Self::matched(tools.find(|(name, _)| is_it(name.tool.as_str())))
    }

    /// Returns the value of the one tool that [`Key::Tool`](crate::Key::Tool) stands for. If the
    /// list of a server was not read, its tools share a key. The key may be new.
    pub(crate) fn get_of_key(&self, call: &ToolCall) -> Option<&T> {
        call.info().listed_tool()?;
        Some(&self.find_for(call)?.1)
    }

    /// Looks at a call after its value was taken for its key.
    #[inline]
    pub(crate) fn look(&self, call: &ToolCall) {
        if !self.is_empty() {
            let _ = self.get(call);
        }
    }

    /// Returns the value by the flat name, which is of one server's tool; else that by the tool's
    /// own name.
    #[inline(never)]
    pub(crate) fn get(&self, call: &ToolCall) -> Option<&T> {
        self.count();
        Self::matched(self.find_for(call))
    }

    fn find_for(&self, call: &ToolCall) -> Option<&(Arc<Name>, T)> {
        let flat = || self.find(|name| call.cmp_flat(name));
        let own = || self.find(|name| name.cmp(call.tool()));
        let found = match call.server() {
            Some(_) => flat().or_else(|_| own()),
            None => own(),
        };
        self.tools.get(found.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{CallExt, Identity};

    fn table() -> PerTool<u8> {
        let mut table = PerTool::new("timeout");
        for (name, value) in [
            ("charge", 1),
            ("pay__charge", 2),
            ("shop.charge", 3),
            ("b", 9),
        ] {
            table.set(name.into(), value);
        }
        table.set("b".into(), 4);
        table
    }

    /// V2: the more special name goes first.
    #[test]
    fn a_tool_is_found_by_both_names_however_it_was_spelled() {
        let of = |server: &str, tool: &str| {
            let identity = Identity::new(tool).with_server(server);
            table()
                .get(&ToolCall::new("any").resolved(&identity))
                .copied()
        };
        assert_eq!(of("pay", "charge"), Some(2));
        assert_eq!(of("shop", "charge"), Some(1));
        assert_eq!(of("pay", "b"), Some(4));
        assert_eq!(of("pay", "refund"), None);
        assert_eq!(table().get(&ToolCall::new("pay__charge")), Some(&2));
    }

    #[test]
    fn a_flat_name_has_the_separator_of_the_table() {
        let identity = Identity::new("charge")
            .with_server("shop")
            .with_separator(".");
        let call = ToolCall::new("any").resolved(&identity);
        assert_eq!(table().get(&call), Some(&3));
        assert!(call.is_named("shop.charge") && !call.is_named("shop__charge"));
    }
}
