use std::{cmp::Ordering, sync::Arc, time::Duration};

use super::{ReplaySafety, ToolCall, hash::Hashes};
use crate::text::Short;

/// The separator of server and tool in a flat name, unless a table sets another.
const SEPARATOR: &str = "__";

/// One tool, however callers spell it: its server, its own name, and what a table of tools knows of
/// it.
///
/// A table makes it of a call's names; [`resolved`](crate::flow::CallExt::resolved) puts it on the
/// call. See [`identity`](crate::identity).
///
/// ```
/// use tower_toolcall::{Identity, ToolCall, flow::CallExt};
///
/// let charge = Identity::new("charge").with_server("pay");
/// let call = ToolCall::new("pay__charge").resolved(&charge);
/// assert_eq!((call.server(), call.tool()), (Some("pay"), "charge"));
/// assert!(call.is_resolved());
/// ```
///
/// # Clone
///
/// Clones share the names. A table that keeps an identity keeps the hash of its key too: keyed
/// layers then compute none.
#[derive(Clone)]
#[must_use]
pub struct Identity {
    pub(super) names: Names,
    pub(super) replay: ReplaySafety,
    pub(super) timeout: Option<Duration>,
}

/// The names of a tool.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) tool: Arc<str>,
    pub(super) server: Option<Arc<str>>,
    /// The separator of a flat name, if it is not the usual one.
    pub(super) separator: Option<Arc<str>>,
    /// The name may be a key. False if the server's list of tools was not read.
    pub(super) is_listed: bool,
    pub(super) hashes: Hashes,
}

impl Identity {
    /// Makes a tool without a server, under its own name.
    pub fn new(tool: impl Into<Arc<str>>) -> Self {
        Self {
            names: Names::new(tool.into()),
            replay: ReplaySafety::Unknown,
            timeout: None,
        }
    }

    /// Sets the server that has the tool. Default: none, which is a tool of this program.
    pub fn with_server(mut self, server: impl Into<Arc<str>>) -> Self {
        self.names.server = Some(server.into());
        self.names.hashes = Hashes::default();
        self
    }

    /// Sets what stands between server and tool in the flat name, by which settings may name the
    /// tool. Default: `__`.
    pub fn with_separator(mut self, separator: impl Into<Arc<str>>) -> Self {
        self.names.separator = Some(separator.into()).filter(|s: &Arc<str>| &**s != SEPARATOR);
        self
    }

    /// Says that the server is known and its list of tools was never read: whether it has a tool of
    /// this name is not known.
    ///
    /// All such calls of a server have one key in layers that keep state for each tool, and one
    /// label in metrics: invented names make none of their own.
    pub fn unlisted(mut self) -> Self {
        self.names.is_listed = false;
        self.names.hashes = Hashes::default();
        self
    }

    /// Says whether calls of the tool may run twice. Default: [`ReplaySafety::Unknown`].
    pub fn with_replay_safety(mut self, replay: ReplaySafety) -> Self {
        self.replay = replay;
        self
    }

    /// Sets the timeout of the tool's calls. Default: none.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the flat name: server, separator and tool; of a tool without a server its own name.
    pub fn flat(&self) -> String {
        match &self.names.server {
            Some(server) => [server, self.names.separator(), &self.names.tool].concat(),
            None => self.names.tool.to_string(),
        }
    }

    /// Returns the tool's own name.
    #[doc(alias = "name")]
    pub fn tool(&self) -> &str {
        &self.names.tool
    }

    /// Returns the server that has the tool; `None` for a tool of this program.
    pub fn server(&self) -> Option<&str> {
        self.names.server.as_deref()
    }

    /// Returns whether the tool is in a list; `false` if its server's list was [not
    /// read](Self::unlisted) yet.
    pub fn is_listed(&self) -> bool {
        self.names.is_listed
    }

    /// Returns how far calls of the tool may run twice.
    pub fn replay_safety(&self) -> ReplaySafety {
        self.replay
    }

    /// Returns the timeout of the tool's calls.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

impl Names {
    pub(super) fn new(tool: Arc<str>) -> Self {
        Self {
            tool,
            server: None,
            separator: None,
            is_listed: true,
            hashes: Hashes::default(),
        }
    }

    fn are(&self, other: &Self) -> bool {
        self.tool == other.tool
            && self.server == other.server
            && self.separator == other.separator
            && self.is_listed == other.is_listed
    }

    /// The hash of (server, name), made once.
    #[inline]
    pub(super) fn tool_hash(&self) -> u64 {
        self.hashes.tool(self.server.as_deref(), self.key_tool())
    }

    /// The tool's name in its key; none where it is not known to exist.
    pub(super) fn key_tool(&self) -> Option<&str> {
        self.is_listed.then_some(&*self.tool)
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        name == &*self.tool || self.cmp_flat(name).is_eq()
    }

    /// Returns the text between server and tool in the flat name.
    fn separator(&self) -> &str {
        self.separator.as_deref().unwrap_or(SEPARATOR)
    }

    /// How `name` compares with the flat name of the tool.
    fn cmp_flat(&self, name: &str) -> Ordering {
        let Some(server) = &self.server else {
            return name.cmp(&self.tool);
        };
        let flat = [server, self.separator(), &self.tool];
        name.bytes().cmp(flat.into_iter().flat_map(str::bytes))
    }
}

impl ToolCall {
    /// Returns whether it has these names already.
    pub(crate) fn has_names_of(&self, identity: &Identity) -> bool {
        self.data.ident.names.are(&identity.names)
    }

    /// Returns whether `name` is the tool's name: its own one, or the flat one (`server__tool`) of
    /// a call with a server. For settings by name, which so hold however a
    /// [resolved](super::CallExt::is_resolved) call was spelled.
    ///
    /// ```
    /// use tower_toolcall::ToolCall;
    ///
    /// let call = ToolCall::new("charge").with_server("pay");
    /// assert!(call.is_named("charge") && call.is_named("pay__charge"));
    /// assert!(!call.is_named("shop__charge"));
    /// ```
    pub fn is_named(&self, name: &str) -> bool {
        self.data.ident.names.is_named(name)
    }

    /// Returns the text between server and tool in the flat name.
    pub(crate) fn separator(&self) -> &str {
        self.data.ident.names.separator()
    }

    /// How `name` compares with the flat name of the tool.
    pub(crate) fn cmp_flat(&self, name: &str) -> Ordering {
        self.data.ident.names.cmp_flat(name)
    }
}

crate::text::debug_fields! {
    /// Shows names, never a value.
    {} |this| Identity {
        tool: Short::name(this.tool()),
        server: this.server().map(Short::name),
        is_listed: this.is_listed(),
        replay_safety: this.replay,
        timeout,
    }
}
