use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use indexmap::IndexMap;
use rmcp::{
    model::{
        ClientRequest, ListToolsRequest, ListToolsResult, PaginatedRequestParams, ServerResult,
        Tool,
    },
    service::{Peer, PeerRequestOptions, RoleClient, ServiceError},
};
use tower_toolcall::{
    answer::json_bytes,
    call::{Identity, ReplaySafety, ToolCall},
    error::{ErrorKind, ToolError},
    flow::CallExt,
    identity::Resolve,
    nearest,
    policy::{Annotate, Annotations},
};

use super::{McpService, errors, events::stale_list, service::answer};

/// More tools than that are refused: a server that invents pages must not fill the memory.
const MAX_TOOLS: usize = 10_000;

/// The most bytes of JSON, and the most pages: neither large definitions nor empty pages go on for
/// ever.
const MAX_LIST_BYTES: u64 = 16 << 20;
const MAX_PAGES: usize = 1_000;

/// How long listing the tools may take in all.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// The tools of one server, with their schemas and annotations.
///
/// A server's annotations are claims. They say whether a call may be repeated only if the server is
/// [trusted](Self::trust_annotations); what you [set](Self::with_replay_safety) yourself always
/// holds.
///
/// ```
/// use tower_toolcall::ReplaySafety;
/// use tower_toolcall_mcp::Catalog;
///
/// # let tools = Vec::new();
/// let catalog = Catalog::new(tools)
///     .trust_annotations(true)
///     .with_replay_safety("pay", ReplaySafety::Unsafe);
/// assert_eq!(catalog.replay_safety("pay"), ReplaySafety::Unsafe);
/// ```
#[derive(Clone, Default)]
pub struct Catalog {
    /// In the server's order, which prompt caches rely on.
    tools: IndexMap<Arc<str>, Tool>,
    server: Option<Arc<str>>,
    is_read: bool,
    pub(super) trusted: bool,
    own: HashMap<String, ReplaySafety>,
}

impl Catalog {
    /// Makes a catalog of these tools. Of several with one name the last stays.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        Self::default().with_tools(tools)
    }

    /// Makes a catalog of these tools with the same settings.
    pub(super) fn with_tools(&self, tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools = tools.into_iter().map(|tool| (Arc::from(&*tool.name), tool));
        Self {
            tools: tools.collect(),
            server: self.server.clone(),
            is_read: true,
            trusted: self.trusted,
            own: self.own.clone(),
        }
    }

    /// Returns whether both have the same tools, in any order.
    pub(super) fn has_the_tools_of(&self, other: &Self) -> bool {
        self.tools == other.tools
    }

    //= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-names
    //# Tool names SHOULD be considered case-sensitive.
    /// The tool's name, if there is such a tool.
    pub(super) fn name(&self, tool: &str) -> Option<&Arc<str>> {
        self.tools.get_key_value(tool).map(|(name, _)| name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.tools.keys()
    }

    pub(super) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Names the server of these tools. An [identity
    /// layer](tower_toolcall::identity::IdentityLayer) finds no tool for a call that names another
    /// server. Default: the name of the [`McpService`] that read the list.
    #[must_use]
    pub fn with_server(mut self, name: impl Into<Arc<str>>) -> Self {
        self.server = Some(name.into());
        self
    }

    /// Sets whether the server's annotations are trusted, and its schemas compiled by
    /// `Schema::compile_trusted`. All schemas of a list together still have 1 s. Default: no.
    #[must_use]
    pub fn trust_annotations(mut self, trusted: bool) -> Self {
        self.trusted = trusted;
        self
    }

    /// Says whether calls of a tool may be repeated, whatever the server claims.
    #[must_use]
    pub fn with_replay_safety(mut self, tool: impl Into<String>, replay: ReplaySafety) -> Self {
        self.own.insert(tool.into(), replay);
        self
    }

    /// Returns the tool of this name.
    pub fn get(&self, tool: &str) -> Option<&Tool> {
        self.tools.get(tool)
    }

    /// Returns all tools, in the order in which the server lists them.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.values()
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns `true` if it has a list of tools, even an empty one. A [`Catalog::default`] has
    /// none, because no server has listed its tools yet.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// Returns `true` if the server has no tools.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns the replay safety of this tool.
    ///
    /// The value that was set here; else, from a trusted server: [`Safe`](ReplaySafety::Safe) if
    /// the tool only reads or is idempotent, [`Unsafe`](ReplaySafety::Unsafe) if it says that it is
    /// destructive or not idempotent; else [`Unknown`](ReplaySafety::Unknown).
    pub fn replay_safety(&self, tool: &str) -> ReplaySafety {
        if let Some(own) = self.own.get(tool) {
            return *own;
        }
        let tool = self.get(tool).filter(|_| self.trusted);
        tool.map_or(ReplaySafety::Unknown, claimed)
    }
}

/// Returns the replay safety of a tool by its annotations.
pub(super) fn claimed(tool: &Tool) -> ReplaySafety {
    let Some(hints) = &tool.annotations else {
        return ReplaySafety::Unknown;
    };
    if hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true) {
        ReplaySafety::Safe
    } else if hints.destructive_hint == Some(true) || hints.idempotent_hint == Some(false) {
        ReplaySafety::Unsafe
    } else {
        ReplaySafety::Unknown
    }
}

impl Catalog {
    fn identity(&self, name: impl Into<Arc<str>>) -> Identity {
        let name = name.into();
        let replay = self.replay_safety(&name);
        let identity = Identity::new(name).with_replay_safety(replay);
        match &self.server {
            Some(server) => identity.with_server(Arc::clone(server)),
            None => identity,
        }
    }

    /// Returns the refusal of a call if its tool or server is not in the list.
    fn not_found(&self, call: &ToolCall) -> ToolError {
        let asked = call.tool();
        let mut near = nearest(asked, self.names().map(|name| &**name));
        if self.name(asked).is_some() {
            near.insert(0, asked.to_owned());
        }
        let error = ToolError::refusal(ErrorKind::NotFound, "").for_call(&call.info());
        error.with_near(near)
    }
}

/// The tools of one server: calls name them by their own names, and no server or
/// [this](Catalog::with_server) one. Any tool is taken as long as the list is [not
/// read](Catalog::is_read).
impl Resolve for Catalog {
    fn resolve(&self, call: &ToolCall) -> Result<Option<Identity>, ToolError> {
        let is_ours = |server| self.server() == Some(server);
        let name = match self.name(call.tool()) {
            Some(name) => Some(Arc::clone(name)),
            None => (!self.is_read).then(|| call.tool().into()),
        };
        let name = name.filter(|_| call.named_server().is_none_or(is_ours));
        let Some(name) = name else {
            return Err(self.not_found(call));
        };
        let identity = self.identity(name);
        Ok(Some(match self.is_read {
            true => identity,
            false => identity.unlisted(),
        }))
    }

    fn identities(&self) -> Option<Vec<Identity>> {
        let all = self.tools().map(|tool| self.identity(&*tool.name));
        self.is_read.then(|| all.collect())
    }
}

/// Returns annotations only if they are [trusted](Catalog::trust_annotations) and the call has the
/// server that the catalog [names](Catalog::with_server), or neither has one.
impl Annotate for Catalog {
    fn annotations(&self, call: &ToolCall) -> Option<Annotations> {
        let is_ours = self.trusted && self.server() == call.server();
        let hints = self.get(call.tool()).filter(|_| is_ours)?;
        let hints = hints.annotations.as_ref()?;
        let mut annotations = Annotations::default();
        annotations.read_only = hints.read_only_hint;
        annotations.destructive = hints.destructive_hint;
        Some(annotations)
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("tools", &self.len())
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}

impl McpService {
    /// Asks the server for its tools, page by page.
    ///
    /// # Errors
    ///
    /// Those of the connection; `Timeout` if it takes longer than 30 s in all; `Reported` if the
    /// server lists more than 10,000 tools, 16 MiB of JSON or 1,000 pages. The size of a single
    /// page is limited by the transport alone: the page is read before it can be counted.
    ///
    /// If the server names a page twice, the list ends there, with the event `tool.stale_list`.
    pub async fn catalog(&self) -> Result<Catalog, ToolError> {
        let server = self.server().map(|name| &**name);
        let mut catalog = Catalog::new(list(self.peer(), server).await?);
        catalog.server = self.server().cloned();
        Ok(catalog)
    }
}

/// Lists all tools of a server, within the limits. The name of the server is for events.
pub(super) async fn list(
    peer: &Peer<RoleClient>,
    server: Option<&str>,
) -> Result<Vec<Tool>, ToolError> {
    let listed = tokio::time::timeout(LIST_TIMEOUT, list_pages(peer, server)).await;
    listed.unwrap_or_else(|_| Err(took_too_long()))
}

pub(super) fn took_too_long() -> ToolError {
    ToolError::new(
        ErrorKind::Timeout,
        "the MCP server has not listed its tools within 30 s",
    )
}

//= https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/pagination#implementation-guidelines
//# Don't persist cursors across sessions
async fn list_pages(peer: &Peer<RoleClient>, server: Option<&str>) -> Result<Vec<Tool>, ToolError> {
    let wrong = |why| ToolError::new(ErrorKind::Reported, why);
    let refused = |why| Err(wrong(why));
    let mut tools = Vec::new();
    let mut room = MAX_LIST_BYTES;
    let mut cursors = HashSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let listed = page(peer, cursor).await.map_err(errors::from_service)?;
        if tools.len() + listed.tools.len() > MAX_TOOLS {
            return refused("the MCP server lists more than 10,000 tools");
        }
        match json_bytes(&(&listed.tools, &listed.next_cursor), room) {
            Ok(bytes) => room -= bytes,
            Err(_) => return refused("the MCP server's list of tools is larger than 16 MiB"),
        }
        tools.extend(listed.tools);
        cursor = listed.next_cursor;
        match &cursor {
            None => return Ok(tools),
            Some(next) if !cursors.insert(next.clone()) => {
                let why = "the MCP server names a page of its list of tools twice; \
                           what follows it is not known";
                stale_list(server, &wrong(why));
                return Ok(tools);
            }
            Some(_) => {}
        }
    }
    refused("the MCP server's list of tools has more than 1,000 pages")
}

/// Requests a page of the list. rmcp's `list_tools` would answer from its cache of responses:
/// within their `ttlMs`, and after that if the server fails.
pub(super) async fn page(
    peer: &Peer<RoleClient>,
    cursor: Option<String>,
) -> Result<ListToolsResult, ServiceError> {
    let page = PaginatedRequestParams::default().with_cursor(cursor);
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_cancellable_request(request, options).await?;
    match answer(handle).await? {
        ServerResult::ListToolsResult(page) => Ok(page),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ToolAnnotations;
    use std::sync::Arc;

    fn tool(name: &'static str, annotations: ToolAnnotations) -> Tool {
        let mut tool = Tool::new(name, "", Arc::default());
        tool.annotations = Some(annotations);
        tool
    }

    fn catalog() -> Catalog {
        Catalog::new([
            tool("read", ToolAnnotations::new().read_only(true)),
            tool("put", ToolAnnotations::new().idempotent(true)),
            tool("pay", ToolAnnotations::new().destructive(true)),
            tool("mute", ToolAnnotations::new()),
        ])
    }

    //= https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool
    //# For trust & safety and security, clients MUST consider tool annotations to be untrusted
    //# unless they come from trusted servers.
    /// R6: annotations are believed only from a trusted server.
    #[test]
    fn annotations_of_an_untrusted_server_say_nothing() {
        let catalog = catalog();
        assert!(
            catalog
                .tools()
                .all(|t| catalog.replay_safety(&t.name) == ReplaySafety::Unknown)
        );
    }

    #[test]
    fn a_trusted_server_says_what_may_be_repeated() {
        let catalog = catalog().trust_annotations(true);
        for (name, replay) in [
            ("read", ReplaySafety::Safe),
            ("put", ReplaySafety::Safe),
            ("pay", ReplaySafety::Unsafe),
            ("mute", ReplaySafety::Unknown),
            ("unheard-of", ReplaySafety::Unknown),
        ] {
            assert_eq!(catalog.replay_safety(name), replay, "{name}");
        }
    }

    #[test]
    fn an_own_word_beats_the_annotations() {
        let catalog = catalog()
            .trust_annotations(true)
            .with_replay_safety("read", ReplaySafety::Unsafe);
        assert_eq!(catalog.replay_safety("read"), ReplaySafety::Unsafe);
    }

    /// Annotations of one server are not evidence about another server's tool of the same name.
    #[test]
    fn a_policy_learns_annotations_of_trusted_servers_about_their_own_tools() {
        let known = |catalog: &Catalog, call: ToolCall| catalog.annotations(&call);
        let reads = Some(Annotations::default().with_read_only(true));
        let read = || ToolCall::new("read");
        assert_eq!(known(&catalog(), read()), None);

        let trusted = catalog().trust_annotations(true);
        assert_eq!(known(&trusted, read()), reads);
        assert_eq!(known(&trusted, read().with_server("b")), None);

        let named = trusted.with_server("a");
        assert_eq!(known(&named, read().with_server("a")), reads);
        assert_eq!(known(&named, read().with_server("b")), None);
        assert_eq!(known(&named, read()), None);
        assert_eq!(known(&named, ToolCall::new("x").with_server("a")), None);
    }
}
